/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What a look at the rows and the words of a pool, or of a subtree, found.
 */

#include <stdbool.h>
#include <stdint.h>

#include "item.h"

/* Bytes, never negative: a gauge below 0 is shown as 0. */
struct figures {
	uint64_t held, stock, persistent, overdraft;
	uint64_t *items; /* NULL until an item was seen, then ITEM_MAX + 1 entries */
};

/* Sums stop at UINT64_MAX. -ENOMEM when items cannot be allocated; a is then as it was. */
int figures_add(struct figures *a, const struct figures *b);
/* -EINVAL: no such number. */
int figures_add_item(struct figures *f, uint32_t item, uint64_t bytes);

bool figures_equal(const struct figures *a, const struct figures *b);

/* Sets everything to 0; keeps what is allocated. */
void figures_reset(struct figures *f);
/* Frees what is allocated too. */
void figures_clear(struct figures *f);
