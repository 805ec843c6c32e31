/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The table of items: the lines of memory.stat. An item is a gauge (up and down) or an event (only
 * up); its number is its place in the table and never changes while the table lives, because keys
 * in shared memory carry it.
 */

#include <stdbool.h>
#include <stdint.h>

#define ITEM_MAX 64      /* items in a table; numbers 1..ITEM_MAX, 0 is "none" */
#define ITEM_NAME_MAX 32 /* bytes of a name, without NUL */

enum item_type {
	ITEM_GAUGE,
	ITEM_EVENT,
};

struct item {
	char *name, *unit, *help;
	enum item_type type;
};

struct item_table {
	uint32_t n; /* items 1..n are defined */
	struct item items[ITEM_MAX + 1];
};

/* 0 for [a-z][a-z0-9_]{0,31} that is not a fixed key of memory.stat (held, stock, persistent,
 * overdraft, kernel_current); else -EINVAL. */
int item_check_name(const char *name);

/* Defines an item; unit and help may be NULL (""). The same definition again is fine and gives the
 * same number; -EEXIST: another definition has the name; -EINVAL: bad name or type; -ENOSPC: the
 * table is full; -ENOMEM. */
int item_define(struct item_table *t, const char *name, enum item_type type, const char *unit,
	const char *help, uint32_t *ret);

/* -ENOENT when there is none. */
int item_lookup(const struct item_table *t, const char *name, uint32_t *ret);

static inline bool item_is_event(const struct item_table *t, uint32_t item)
{
	return item != 0 && t->items[item].type == ITEM_EVENT;
}

/* Whether an attachment may have a key of it: to charge it must be a gauge, to move it (`stat`) it may
 * be an event. */
static inline bool item_may_have_key(const struct item_table *t, uint32_t item, bool stat)
{
	return item > 0 && item <= t->n && (stat || !item_is_event(t, item));
}

/* An update of the item counts as one for each 2^shift of its unit, rounded up: bytes as pages. */
uint32_t item_shift(const struct item *item);

/* Frees what the table holds and empties it. */
void item_table_clear(struct item_table *t);
