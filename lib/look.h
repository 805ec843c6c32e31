/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Looking at pools of the embedded engine: when a read brings the figures of a subtree together, and
 * the files that show them.
 */

#include "engine.h"

/* Brings the figures of a subtree together; `moved`: also what programs tell by tally_stat_add().
 * -ENOMEM: some are missing. */
int look_at(struct embedded *e, struct pool *root, bool moved);

/* The text of a file, after a look as the GET's flags want it. Errors as of statfmt_read(). */
int look_read(
	struct embedded *e, struct pool *p, const char *file, uint64_t flags, char **ret_text);

/* Writes a value. Errors as of statfmt_write(). */
int look_write(struct embedded *e, struct pool *p, const char *file, const char *value);
