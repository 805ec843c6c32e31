/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What does not fit, and where: an errno says that some limit on the way up to the root refused, and
 * these find out which one it was, so that the message can name it.
 */

#include "command.h"

/* A pool that cannot be made below so many others; returns STATUS_ERROR. */
int full_tree(const struct invocation *inv, const char *path);

/* The last charge of this thread, to that pool, of bytes as they were typed. */
void full_limit(const struct invocation *inv, const char *path, const char *bytes);
