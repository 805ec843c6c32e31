/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Going through a subtree pool by pool, while others change it: a pool that vanishes between two
 * questions is left out, with all below it, and is no error. So is one that this user may not read; how
 * many those are is told.
 */

#include <stdint.h>

#include "command.h"

/* Called for each pool, parents first. 0; -ENOENT: it is gone; any other negative errno ends the
 * walk. */
typedef int (*walk_fn)(
	const struct invocation *inv, const char *path, size_t level, void *userdata);

#define WALK_ALL UINT64_MAX

/* Visits `path`, which is level 0, and what is up to `depth` levels below it. 0, -ENOENT when
 * `path` itself is not there, or what ended the walk. */
int walk_pools(
	const struct invocation *inv, const char *path, uint64_t depth, walk_fn fn, void *userdata);
