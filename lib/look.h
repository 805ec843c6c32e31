/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Looking at pools of the embedded engine: the figures of a subtree, children before parents, so
 * that a parent is the sum of its children in one look; and the files that show them.
 */

#include "engine.h"

/* -ENOMEM: figures of some items are missing. */
int look_at(struct embedded *e, struct pool *root);

/* The text of a file, after a look as the GET's flags want it. Errors as of statfmt_read(). */
int look_read(
	struct embedded *e, struct pool *p, const char *file, uint64_t flags, char **ret_text);

/* Writes a value. Errors as of statfmt_write(). */
int look_write(struct embedded *e, struct pool *p, const char *file, const char *value);
