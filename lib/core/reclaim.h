/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Whom to ask to give bytes back, and for how much: each in proportion to what it has beyond what its
 * pool is protected by. The asking is the engines' business.
 */

#include "itemlimit.h"

/* No client is asked for less, if others can be asked for it. */
#define RECLAIM_LEAST UINT64_C(4096)

/* What a member that gives back has of what counts there (item 0: all), in bytes; 0 also if it cannot be
 * asked now. */
typedef uint64_t (*reclaim_own_fn)(struct pool_member *m, uint32_t item);

/*
 * Plans to get `bytes` back from the members below the limit that give back: the `want` of each is set,
 * 0 for those that are not to be asked. Pools that are at their effective memory.low are spared as long
 * as there is anything else to ask for; then that is broken, with a `low` event there. Below their
 * effective memory.min nothing is asked for. Returns the sum of what is to be asked for.
 */
uint64_t reclaim_plan(struct itemlimit_place at, uint64_t bytes, reclaim_own_fn own);

/* A walk through the members below `top` that give back; all other fields NULL before the first. */
struct reclaim_cursor {
	struct pool *top, *pool;
	struct pool_member *member; /* in `pool` */
};

/* False: behind the last one. */
bool reclaim_next(struct reclaim_cursor *c);
