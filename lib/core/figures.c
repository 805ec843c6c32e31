/* SPDX-License-Identifier: MIT */

#include "figures.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Event items are what clients say, so a sum may not be trusted to fit. */
static void add(uint64_t *a, uint64_t b)
{
	if (__builtin_add_overflow(*a, b, a))
		*a = UINT64_MAX;
}

static int need_items(struct figures *f)
{
	if (!f->items)
		f->items = calloc(ITEM_MAX + 1, sizeof(*f->items));
	return f->items ? 0 : -ENOMEM;
}

int figures_add(struct figures *a, const struct figures *b)
{
	uint32_t i;
	int r;

	if (b->items) {
		r = need_items(a);
		if (r < 0)
			return r;
		for (i = 0; i <= ITEM_MAX; i++)
			add(&a->items[i], b->items[i]);
	}
	add(&a->held, b->held);
	add(&a->stock, b->stock);
	add(&a->persistent, b->persistent);
	add(&a->overdraft, b->overdraft);
	return 0;
}

int figures_add_item(struct figures *f, uint32_t item, uint64_t bytes)
{
	int r;

	if (item > ITEM_MAX)
		return -EINVAL;
	r = need_items(f);
	if (r < 0)
		return r;
	add(&f->items[item], bytes);
	return 0;
}

void figures_reset(struct figures *f)
{
	uint64_t *items = f->items;

	if (items)
		memset(items, 0, (ITEM_MAX + 1) * sizeof(*items));
	*f = (struct figures){.items = items};
}

void figures_clear(struct figures *f)
{
	free(f->items);
	*f = (struct figures){0};
}

bool figures_equal(const struct figures *a, const struct figures *b)
{
	static const uint64_t none[ITEM_MAX + 1];

	return a->held == b->held && a->stock == b->stock && a->persistent == b->persistent &&
		a->overdraft == b->overdraft &&
		memcmp(a->items ? a->items : none, b->items ? b->items : none, sizeof(none)) == 0;
}
