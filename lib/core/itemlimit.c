/* SPDX-License-Identifier: MIT */

/*
 * Few pools limit an item, so each has a list of its own, and the counter that a charge meets first
 * is looked for along the way to the root. What is set or removed changes the parent of those
 * counters in the subtree that have no other one between.
 */

#include "itemlimit.h"

#include <errno.h>
#include <stdlib.h>

#include "util.h"

static struct itemlimit *find(const struct pool *p, uint32_t item)
{
	struct itemlimit *l = p->itemlimits;

	while (l && l->item != item)
		l = l->next;
	return l;
}

/* The counter of the item at p or at the nearest pool above that has one; NULL: none. */
static struct counter *nearest(const struct pool *p, uint32_t item)
{
	if (item == 0)
		return NULL;
	for (; p; p = pool_above(p)) {
		struct itemlimit *l = find(p, item);

		if (l)
			return &l->counter;
	}
	return NULL;
}

/* Gives counters of the item below p that have this parent another one. */
static void relink(struct pool *p, uint32_t item, const struct counter *from, struct counter *to)
{
	for (struct pool *below = p; (below = pool_next_counted(below, p));) {
		struct itemlimit *l = find(below, item);

		if (l && l->counter.parent == from)
			l->counter.parent = to;
	}
}

static void remove_from(struct itemlimit **at)
{
	struct itemlimit *l = *at;

	relink(l->pool, l->item, &l->counter, l->counter.parent);
	*at = l->next;
	free(l);
}

static void remove_item(struct pool *p, uint32_t item)
{
	struct itemlimit **at = &p->itemlimits;

	while (*at && (*at)->item != item)
		at = &(*at)->next;
	if (*at)
		remove_from(at);
}

int itemlimit_prepare(struct pool *p, uint32_t item)
{
	struct counter *above = nearest(p, item);
	struct itemlimit *l;

	if (find(p, item))
		return 0;
	if (!p->in_tree)
		return -ENOENT;
	if (!p->tree->sum_granted)
		return -EOPNOTSUPP;
	l = malloc(sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->pool = p;
	l->item = item;
	counter_init(&l->counter, NULL);
	counter_observe(&l->counter, p->observe);
	/* Before it has a parent, which knows of these bytes already. */
	counter_charge(&l->counter, p->tree->sum_granted(p, item));
	l->counter.parent = above;
	relink(p, item, above, &l->counter);
	l->next = p->itemlimits;
	p->itemlimits = l;
	return 0;
}

void itemlimit_relink(struct pool *p)
{
	for (struct pool *below = p; below; below = pool_next_counted(below, p))
		for (struct itemlimit *l = below->itemlimits; l; l = l->next)
			l->counter.parent = nearest(pool_above(below), l->item);
}

int itemlimit_set(struct pool *p, uint32_t item, uint64_t max)
{
	int r;

	if (max == COUNTER_MAX) {
		remove_item(p, item);
		return 0;
	}
	r = itemlimit_prepare(p, item);
	if (r < 0)
		return r;
	counter_set_max(&find(p, item)->counter, max);
	return 0;
}

void itemlimit_clear(struct pool *p)
{
	while (p->itemlimits)
		remove_from(&p->itemlimits);
}

struct counter *itemlimit_counter(struct itemlimit_place at)
{
	struct itemlimit *l;

	if (at.item == 0)
		return &at.pool->counter;
	l = find(at.pool, at.item);
	return l ? &l->counter : NULL;
}

uint64_t itemlimit_deficit(struct itemlimit_place at, uint64_t need)
{
	const struct counter *c = itemlimit_counter(at);
	uint64_t usage = c ? counter_read(c) : 0, max = c ? atomic_load(&c->max) : COUNTER_MAX;

	if (usage > max)
		return usage - max < UINT64_MAX - need ? usage - max + need : UINT64_MAX;
	return need > max - usage ? need - (max - usage) : 0;
}

uint64_t itemlimit_read(const struct pool *p, uint32_t item)
{
	const struct itemlimit *l = find(p, item);

	if (item == 0)
		return counter_limit(&p->counter);
	return l ? counter_limit(&l->counter) : COUNTER_MAX;
}

/* Whose counter it is: one of the item's, from `own` up, or a pool's. */
static struct itemlimit_place place_of(struct counter *c, const struct counter *own)
{
	struct itemlimit *l;

	while (own && own != c)
		own = own->parent;
	if (!own)
		return (struct itemlimit_place){pool_of_counter(c), 0};
	l = container_of(c, struct itemlimit, counter);
	return (struct itemlimit_place){l->pool, l->item};
}

int itemlimit_try_charge(
	struct pool *p, uint32_t item, uint64_t n, struct itemlimit_place *ret_failed)
{
	struct counter *own = nearest(p, item), *failed;
	int r = counter_try_charge_both(own, &p->counter, n, &failed);

	if (r < 0 && ret_failed)
		*ret_failed = place_of(failed, own);
	return r;
}

/* Of the item's counters, and of the pool's, those below `end`. */
static struct counter_path own_path(struct pool *p, uint32_t item, struct pool *end)
{
	return (struct counter_path){nearest(p, item), nearest(end, item)};
}

static struct counter_path pool_path_to(struct pool *p, struct pool *end)
{
	return (struct counter_path){&p->counter, end ? &end->counter : NULL};
}

int itemlimit_try_charge_below(struct pool *p, struct pool *end, uint32_t item, uint64_t n,
	struct itemlimit_place *ret_failed)
{
	struct counter_path own = own_path(p, item, end);
	struct counter *failed;
	int r = counter_try_charge_paths(own, pool_path_to(p, end), n, &failed);

	if (r < 0)
		*ret_failed = place_of(failed, own.from);
	return r;
}

void itemlimit_uncharge_below(struct pool *p, struct pool *end, uint32_t item, uint64_t n)
{
	counter_uncharge_paths(own_path(p, item, end), pool_path_to(p, end), n);
}

void itemlimit_charge(struct pool *p, uint32_t item, uint64_t n)
{
	counter_charge(nearest(p, item), n);
	counter_charge(&p->counter, n);
}

uint64_t itemlimit_uncharge(struct pool *p, uint32_t item, uint64_t n)
{
	return counter_uncharge_both(nearest(p, item), &p->counter, n);
}
