/* SPDX-License-Identifier: MIT */

#include "figures.h"

#include <errno.h>
#include <stdlib.h>

static int need(int64_t **array, uint32_t n)
{
	if (!*array)
		*array = calloc(n, (ITEM_MAX + 1) * sizeof(**array));
	return *array ? 0 : -ENOMEM;
}

int figures_need_items(struct figures *f)
{
	return need(&f->items, 1);
}

int figures_need_moved(struct figures *f, uint32_t n_nodes)
{
	return need(&f->moved, n_nodes);
}

uint64_t figures_item(const struct figures *f, uint32_t n_nodes, uint32_t item)
{
	int64_t sum = f->items ? f->items[item] : 0;

	for (uint32_t node = 0; f->moved && node < n_nodes; node++)
		figures_add(&sum, f->moved[node * (ITEM_MAX + 1) + item]);
	return figures_clamp(sum);
}

uint64_t figures_moved(const struct figures *f, uint32_t node, uint32_t item)
{
	return f->moved ? figures_clamp(f->moved[node * (ITEM_MAX + 1) + item]) : 0;
}

static void add_signed(int64_t *sum, int64_t n, bool minus)
{
	figures_add(sum, minus ? (int64_t)(0 - (uint64_t)n) : n);
}

static void add_array(int64_t *sums, const int64_t *more, size_t n, bool minus)
{
	for (size_t i = 0; more && i < n; i++)
		add_signed(&sums[i], more[i], minus);
}

void figures_merge(struct figures *f, const struct figures *more, uint32_t n_nodes, bool minus)
{
	add_signed(&f->held, more->held, minus);
	add_signed(&f->stock, more->stock, minus);
	f->persistent += minus ? 0 - more->persistent : more->persistent;
	f->overdraft += minus ? 0 - more->overdraft : more->overdraft;
	add_array(f->items, more->items, ITEM_MAX + 1, minus);
	add_array(f->moved, more->moved, (size_t)n_nodes * (ITEM_MAX + 1), minus);
}

void figures_clear(struct figures *f)
{
	free(f->items);
	free(f->moved);
	*f = (struct figures){0};
}
