/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Where a session has a pool: a place of its segment for each pool that it is attached to, and for
 * each above one. There its client counts what it has changed in the subtree and not seen flushed
 * (pending updates, by which a read of the pool knows whether to flush), and reads the pool's figures
 * without asking anybody.
 *
 * All of it is called by one thread at a time.
 */

#include "rstat.h"

struct rstat_place {
	struct rstat *rstat;
	struct pool *pool;
	struct rstat_place *above; /* NULL: the root's; or there was no room for it */
	uint32_t number;
	unsigned refs;                  /* of attachments, and of places below */
	TAILQ_ENTRY(rstat_place) entry; /* in the pool */
};

/* Whether the session has room for those of p and of all above it that are yet to be made; else the
 * segment should be extended first. */
bool place_has_room(struct rstat *r, struct pool *p);

/*
 * The place of a pool in a session, made with those of all pools above it at the first reference.
 * Above it as many as there is room for. -ENOSPC: there is none for itself, until the segment is
 * extended; -ENOMEM.
 */
int place_ref(struct rstat *r, struct pool *p, struct rstat_place **ret);
/* NULL is fine. Returns NULL. */
struct rstat_place *place_unref(struct rstat_place *place);

/* Updates of the subtree that are pending in all sessions. */
uint64_t place_pending(const struct pool *p);

/*
 * Calls fn for pools of which a session has some pending; for one that several sessions have, several
 * times. What reaches no place of the root, for lack of room, is left to the flush of the whole tree:
 * so where nothing is pending this costs a look at one word a session. fn makes and drops no places.
 */
void place_each_pending(
	struct rstat_host *h, void (*fn)(struct pool *p, void *userdata), void *userdata);

/* Whether that is more than a read tolerates that does not ask for exact figures. */
bool place_is_due(const struct pool *p);

/*
 * A look at the subtree (rstat_look()) with what goes before and after it: with `moved` its pending
 * updates are cleared first, so that those that come meanwhile count anew; then the pool's figures are
 * published. The other is for the whole tree, and all places.
 */
int place_flush(struct rstat_host *h, struct pool *p, bool moved, uint64_t now_usec);
int place_flush_all(struct rstat_host *h, uint64_t now_usec);

/* The parts of that. They are about to be flushed: the pool's, or those of all pools. */
void place_clear_pending(struct pool *p);
void place_clear_all_pending(struct rstat_host *h);
/* All places of a pool alone, that was looked at, at that time; 0: it was not. */
void place_publish_pool(struct pool *p, uint64_t now_usec);
/* All places, after a look at the whole tree. */
void place_publish_all(struct rstat_host *h, uint64_t now_usec);

/* Writes the figures of a place and of those above it, as of the last look. NULL is fine. */
void place_publish(const struct rstat_place *place);
