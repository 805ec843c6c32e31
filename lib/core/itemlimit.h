/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Limits of items: stat.<item>.max, what a pool's subtree may have of one item. A pool where such a
 * limit is set has a counter for the item, whose parent is the counter of that item at the nearest
 * pool above that has one; so a limit costs nothing where there is none. Every change of what is
 * granted with an item goes through the functions below: they keep the counters of the item equal
 * to what is granted in their subtrees.
 *
 * Limits are set and removed while nobody charges; several threads may charge at once.
 */

#include <stdint.h>

#include "pool.h"

struct itemlimit {
	struct itemlimit *next; /* at the same pool, in no order */
	struct pool *pool;
	uint32_t item;
	struct counter counter;
};

/* An item's bit in pool.items_set_at_run. */
static inline uint64_t itemlimit_bit(uint32_t item)
{
	return UINT64_C(1) << (item - 1);
}

/* Which limit of a pool: stat.<item>.max, or (item 0) memory.max. */
struct itemlimit_place {
	struct pool *pool; /* NULL: none */
	uint32_t item;
};

/*
 * Sets the limit, also below what is granted already. COUNTER_MAX removes it, with its counter.
 * Fails only where the pool has none of that item yet: -ENOMEM; -ENOENT: the pool is no longer in
 * its tree; -EOPNOTSUPP: nobody knows what is granted (pool_tree.sum_granted).
 */
int itemlimit_set(struct pool *p, uint32_t item, uint64_t max);

/* The counter alone, without limit, so that setting one cannot fail any more. Errors as above. */
int itemlimit_prepare(struct pool *p, uint32_t item);

/* The pool is standalone from now on, or no longer; nothing is granted in it. */
void itemlimit_relink(struct pool *p);

/* Removes all limits of items at the pool. */
void itemlimit_clear(struct pool *p);

/* The counter of that limit; NULL: there is no such limit at the pool. */
struct counter *itemlimit_counter(struct itemlimit_place at);

/* Bytes that must come free before so many fit below the limit; 0: they fit. */
uint64_t itemlimit_deficit(struct itemlimit_place at, uint64_t need);

/* The limit that the pool has of the item (0: memory.max), enforced or not; COUNTER_MAX: none. */
uint64_t itemlimit_read(const struct pool *p, uint32_t item);

/*
 * Charges pool and item (0: none) up the tree, both or neither. -ENOMEM: with the limit that
 * refused in *ret_failed (may be NULL).
 */
int itemlimit_try_charge(
	struct pool *p, uint32_t item, uint64_t n, struct itemlimit_place *ret_failed);

/* The same, whatever the limits say. */
void itemlimit_charge(struct pool *p, uint32_t item, uint64_t n);

/* As counter_uncharge(), of both. */
uint64_t itemlimit_uncharge(struct pool *p, uint32_t item, uint64_t n);

/* The same, but for `end` and the pools above it: p counts in it, and what is charged here has been
 * charged there, or is to be uncharged here alone. NULL: up to the top. */
int itemlimit_try_charge_below(struct pool *p, struct pool *end, uint32_t item, uint64_t n,
	struct itemlimit_place *ret_failed);
void itemlimit_uncharge_below(struct pool *p, struct pool *end, uint32_t item, uint64_t n);

/* The places that a charge to p with the item meets, limited or not, from the pool's own up to that
 * of the root, or of a standalone pool: at each pool that of the item, then memory.max. Behind the last one comes pool NULL. */
static inline struct itemlimit_place itemlimit_first(struct pool *p, uint32_t item)
{
	return (struct itemlimit_place){p, item};
}

static inline struct itemlimit_place itemlimit_next(struct itemlimit_place at, uint32_t item)
{
	return at.item != 0 ? (struct itemlimit_place){at.pool, 0}
			    : (struct itemlimit_place){pool_above(at.pool), item};
}

static inline bool itemlimit_is_same(struct itemlimit_place a, struct itemlimit_place b)
{
	return a.pool == b.pool && a.item == b.item;
}
