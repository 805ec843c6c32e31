/* SPDX-License-Identifier: MIT */

#include "exportdue.h"

#include "core/place.h"
#include "exportset.h"
#include "flush.h"

/* Flushes of subtrees, above which one of the whole tree is cheaper. */
#define MANY 16

static bool need_room(struct exportdue *d)
{
	size_t room = d->room ? d->room * 2 : 64;
	struct pool **pools;

	if (d->n < d->room)
		return true;
	pools = realloc(d->pools, room * sizeof(*pools));
	if (!pools)
		return false;
	d->pools = pools;
	d->room = room;
	return true;
}

/* Once for each session that has something pending there. */
static void ask(struct pool *p, void *userdata)
{
	struct exportdue *d = userdata;

	if (p->export.state != EXPORTSET_IN || p->export.asked == d->looks)
		return;
	p->export.asked = d->looks;
	if (!place_is_due(p) || !need_room(d))
		return;
	p->export.over = true;
	d->pools[d->n++] = p;
}

/* No pool above it is due too. */
static bool is_outermost(const struct pool *p)
{
	while ((p = p->parent))
		if (p->export.over)
			return false;
	return true;
}

/* The flush of an outer pool brings those below it up to date, and is told of its own alone. */
static void flush_all(struct exportdue *d, struct manager *m)
{
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++) {
		if (is_outermost(d->pools[i]))
			n++;
		else
			place_clear_pending(d->pools[i]);
	}
	if (n > MANY) {
		flush_pool(m->flush, m->tree->root, true);
		return;
	}
	for (size_t i = 0; i < d->n; i++)
		if (is_outermost(d->pools[i]))
			flush_pool(m->flush, d->pools[i], true);
}

size_t exportdue_run(struct exportdue *d, struct manager *m)
{
	size_t n = 0;

	d->n = 0;
	d->looks++;
	place_each_pending(&m->rstats, ask, d);
	flush_all(d, m);
	for (size_t i = 0; i < d->n; i++) {
		n += d->pools[i]->changed;
		pool_hurry_change(d->pools[i]);
		d->pools[i]->export.over = false;
	}
	return n;
}

void exportdue_clear(struct exportdue *d)
{
	free(d->pools);
	*d = (struct exportdue){0};
}
