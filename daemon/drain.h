/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Taking idle credit back from the sessions of a subtree: reserves by the loop itself, stocks by
 * the drainer. A drain takes several rounds, because a row has at most one intent open: in each
 * round one word of every key. It never holds up the loop.
 */

#include "core/itemlimit.h"
#include "drainer.h"
#include "manager.h"

struct drain;
struct drain_wait;

/* Bytes that went back to the counters. Called in the loop, never from within drain_start(). */
typedef void (*drain_done_fn)(void *userdata, uint64_t bytes);

/* Which keys of a subtree. */
enum drain_scope {
	DRAIN_COUNTED, /* those whose credit counts at the pool: not of standalone pools below it */
	DRAIN_SURPLUS, /* the same, but of what was deposited just now for one who will try again */
	DRAIN_ALL,
	DRAIN_STALE,   /* that decay.c has found at rest */
	DRAIN_REMOVED, /* of the pool's own members, those whose pool was removed by force */
};

int drain_new(struct manager *m, struct drain **ret);
/* After all sessions have ended. Returns NULL. */
struct drain *drain_free(struct drain *d);

/*
 * Drains the subtree of what counts there, all (item 0) or what was granted with the item, and calls
 * fn when that is done: a drain that began before this call does not count. -ENOMEM.
 */
int drain_start(struct drain *d, struct itemlimit_place at, drain_done_fn fn, void *userdata,
	struct drain_wait **ret);
int drain_start_scope(struct drain *d, struct itemlimit_place at, enum drain_scope scope,
	drain_done_fn fn, void *userdata, struct drain_wait **ret);
/* The same for the keys, wherever they are, that decay.c has found at rest. */
int drain_stale(struct drain *d, drain_done_fn fn, void *userdata, struct drain_wait **ret);
/* fn will not be called. NULL is fine. Returns NULL. */
struct drain_wait *drain_cancel(struct drain_wait *w);

/* Limits of the pool were set: drains it of what one of them is exceeded by. Idle credit is not to
 * be charged past it. */
void drain_above_limits(struct drain *d, struct pool *p);

/* For collect.c: a batch of its own for the drainer. */
void drain_submit(struct drain *d, struct drainer_batch *b);
