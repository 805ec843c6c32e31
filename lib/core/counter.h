/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The hierarchical counter: bytes granted at a node and at all its ancestors, against a limit at
 * each. Charged speculatively from the leaf to the root and rolled back when an ancestor refuses,
 * as the kernel's page_counter, with one difference: a counter also knows how much of its usage is
 * decided, so that a big charge which is about to be rolled back never makes a small one beside it
 * fail. A charge is refused only when it does not fit beside what is decided; while that is open it
 * waits for the other charge's decision, which depends on higher counters only, so that nobody
 * waits in a circle.
 *
 * All operations may be called by several threads at once.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define COUNTER_MAX UINT64_MAX /* no limit */

struct counter {
	struct counter *parent;   /* NULL at the root; changed only while nobody charges */
	_Atomic uint64_t usage;   /* bytes granted, those that may still be rolled back included */
	_Atomic uint64_t decided; /* the part of it that may not; never above usage */
	_Atomic uint64_t max;     /* that charges are held against; COUNTER_MAX: none */
	_Atomic uint64_t peak;    /* the highest that decided has been */
	_Atomic uint64_t failcnt; /* refusals at this node */
	uint64_t limit;           /* as it was set: max, unless nobody is held to it */
	bool observed;
};

void counter_init(struct counter *c, struct counter *parent);

/* Bytes granted and decided. */
uint64_t counter_read(const struct counter *c);

/*
 * Charges c and all its ancestors with n bytes (n < 2^43) or none of them. 0, or -ENOMEM with the
 * counter that refused in *ret_failed (may be NULL), whose failcnt has been raised.
 */
int counter_try_charge(struct counter *c, uint64_t n, struct counter **ret_failed);

/* The same, whatever the limits say. */
void counter_charge(struct counter *c, uint64_t n);

/* Gives n bytes back along the path. More than was charged leaves 0 at that node, never a wrapped
 * number; returns the largest such excess (0 in a correct program). */
uint64_t counter_uncharge(struct counter *c, uint64_t n);

/*
 * The same for two paths at once, as if they were one: both are charged or neither, and no peak
 * shows what was not charged to both. A path that is NULL is none. No counter is in both of them,
 * and all who charge two paths that are also another's two name them in the same order.
 */
int counter_try_charge_both(
	struct counter *first, struct counter *second, uint64_t n, struct counter **ret_failed);
uint64_t counter_uncharge_both(struct counter *first, struct counter *second, uint64_t n);

/* The same for two paths that end before the root: those from `from` on, but for `end` and those
 * above it. */
struct counter_path {
	struct counter *from, *end; /* the same: it is none; end NULL: up to the root */
};

int counter_try_charge_paths(struct counter_path first, struct counter_path second, uint64_t n,
	struct counter **ret_failed);
uint64_t counter_uncharge_paths(struct counter_path first, struct counter_path second, uint64_t n);

/* Least of max - usage over c and its ancestors, 0 where the usage exceeds a lowered limit;
 * COUNTER_MAX without any limit. */
uint64_t counter_headroom(const struct counter *c);

/* The same of c alone. */
uint64_t counter_room(const struct counter *c);

/* Any value, also below usage: then charges are refused until enough has been given back. */
void counter_set_max(struct counter *c, uint64_t max);

/* Whether charges may pass the limit all the same. By one thread at a time, as counter_set_max(). */
void counter_observe(struct counter *c, bool on);

/* The limit as it was set, enforced or not; by who sets it. */
static inline uint64_t counter_limit(const struct counter *c)
{
	return c->limit;
}

/* peak = what is granted now. */
void counter_reset_peak(struct counter *c);
