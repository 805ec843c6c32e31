/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What a subtree holds, as of the last look at it. Numbers are signed, and wrap: what programs move
 * by tally_stat_add() may be below 0 for a while, or for good where they count wrongly. They are
 * clamped when they are shown, never before, or a sum would not be the sum of its parts.
 */

#include <stdbool.h>
#include <stdint.h>

#include "item.h"

struct figures {
	int64_t held, stock; /* bytes */
	uint64_t persistent, overdraft;
	int64_t *
		items; /* bytes charged with an item; NULL until one was, then ITEM_MAX + 1 entries */
	int64_t *
		moved; /* by tally_stat_add(); NULL until it was called, then so many for each node */
};

/* What n is shown as: what is below 0 as 0. */
static inline uint64_t figures_clamp(int64_t n)
{
	return n < 0 ? 0 : (uint64_t)n;
}

/* Room for items, and for what is moved on n_nodes nodes. -ENOMEM. */
int figures_need_items(struct figures *f);
int figures_need_moved(struct figures *f, uint32_t n_nodes);

/* What is shown of an item, a gauge or an event: what was charged with it and what was moved, on all
 * nodes, clamped. */
uint64_t figures_item(const struct figures *f, uint32_t n_nodes, uint32_t item);
/* Of that, what was moved on one node. */
uint64_t figures_moved(const struct figures *f, uint32_t node, uint32_t item);

/* Adds, wrapping. */
static inline void figures_add(int64_t *sum, int64_t n)
{
	*sum = (int64_t)((uint64_t)*sum + (uint64_t)n);
}

/* Adds all that `more` has, or takes it away. f has room for whatever more has room for. */
void figures_merge(struct figures *f, const struct figures *more, uint32_t n_nodes, bool minus);

/* Frees what is allocated. */
void figures_clear(struct figures *f);
