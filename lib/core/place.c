/* SPDX-License-Identifier: MIT */

/*
 * Figures are written where they differ from what stands there, so that a flush of a tree at rest
 * writes nothing but its time; `seq` is odd meanwhile, so that a reader never takes half of one set
 * and half of another. There is one writer.
 */

#include "place.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "counter.h"
#include "util.h"

/* ------------------------------------------------------------------ which places there are */

static int by_pool(const void *a, const void *b)
{
	const struct pool *x = ((const struct rstat_place *)a)->pool;
	const struct pool *y = ((const struct rstat_place *)b)->pool;

	return x->id < y->id ? -1 : x->id > y->id;
}

static struct rstat_place *find_place(struct rstat *r, struct pool *p)
{
	struct rstat_place wanted = {.pool = p};
	void *found = tfind(&wanted, &r->place_index, by_pool);

	return found ? *(struct rstat_place **)found : NULL;
}

/* Numbers of extents that came since the last time; the smallest is taken first. */
static int learn_numbers(struct rstat *r)
{
	uint32_t n_keys = r->segment->n_keys;
	struct rstat_place **places;
	uint32_t *free_places;

	if (r->n_places == n_keys)
		return 0;
	places = realloc(r->places, n_keys * sizeof(struct rstat_place *));
	if (!places)
		return -ENOMEM;
	r->places = places;
	free_places = realloc(r->free_places, n_keys * sizeof(*free_places));
	if (!free_places)
		return -ENOMEM;
	r->free_places = free_places;
	memset(places + r->n_places, 0, (n_keys - r->n_places) * sizeof(struct rstat_place *));
	for (uint32_t number = n_keys; number > r->n_places; number--)
		free_places[r->n_free_places++] = number;
	r->n_places = n_keys;
	return 0;
}

bool place_has_room(struct rstat *r, struct pool *p)
{
	uint32_t lacking = 0;

	for (; p && !find_place(r, p); p = p->parent)
		lacking++;
	return learn_numbers(r) == 0 && lacking <= r->n_free_places;
}

static int new_place(struct rstat *r, struct pool *p, struct rstat_place **ret)
{
	_cleanup_(freep) struct rstat_place *place = calloc(1, sizeof(*place));
	int e = learn_numbers(r);

	if (!place || e < 0)
		return -ENOMEM;
	if (r->n_free_places == 0)
		return -ENOSPC;
	*place = (struct rstat_place){.rstat = r, .pool = p, .refs = 1};
	if (!tsearch(place, &r->place_index, by_pool))
		return -ENOMEM;
	place->number = r->free_places[--r->n_free_places];
	r->places[place->number - 1] = place;
	atomic_store(&segment_pending(r->segment, place->number)->updates, 0);
	atomic_store(&segment_pool(r->segment, place->number)->looked_usec, 0);
	TAILQ_INSERT_TAIL(&p->places, place, entry);
	*ret = take_ptr(place);
	return 0;
}

static void free_place(struct rstat_place *place)
{
	struct rstat *r = place->rstat;

	tdelete(place, &r->place_index, by_pool);
	r->places[place->number - 1] = NULL;
	r->free_places[r->n_free_places++] = place->number;
	TAILQ_REMOVE(&place->pool->places, place, entry);
	free(place);
}

/* ------------------------------------------------------------------ pending updates */

static _Atomic uint64_t *updates_of(const struct rstat_place *place)
{
	return &segment_pending(place->rstat->segment, place->number)->updates;
}

uint64_t place_pending(const struct pool *p)
{
	const struct rstat_place *place;
	uint64_t sum = 0;

	TAILQ_FOREACH (place, &p->places, entry) {
		uint64_t n = atomic_load_explicit(updates_of(place), memory_order_acquire);

		if (__builtin_add_overflow(sum, n, &sum))
			return UINT64_MAX;
	}
	return sum;
}

bool place_is_due(const struct pool *p)
{
	return place_pending(p) > p->threshold;
}

static bool has_pending(const struct rstat *r, uint32_t number)
{
	return atomic_load_explicit(
		       &segment_pending(r->segment, number)->updates, memory_order_relaxed) != 0;
}

void place_each_pending(
	struct rstat_host *h, void (*fn)(struct pool *p, void *userdata), void *userdata)
{
	const struct rstat_place *of_root;

	TAILQ_FOREACH (of_root, &h->tree->root->places, entry) {
		const struct rstat *r = of_root->rstat;

		if (!has_pending(r, of_root->number))
			continue;
		for (uint32_t number = 1; number <= r->n_places; number++)
			if (r->places[number - 1] && has_pending(r, number))
				fn(r->places[number - 1]->pool, userdata);
	}
}

/* The fences pair with the client's, between marking and counting: what it does not count, or what
 * is cleared here, has been marked for the look that follows. */
void place_clear_pending(struct pool *p)
{
	struct rstat_place *place;

	TAILQ_FOREACH (place, &p->places, entry)
		atomic_store(updates_of(place), 0);
	atomic_thread_fence(memory_order_seq_cst);
}

void place_clear_all_pending(struct rstat_host *h)
{
	struct rstat *r;

	TAILQ_FOREACH (r, &h->sessions, entry)
		for (uint32_t number = 1; number <= r->n_places; number++) {
			_Atomic uint64_t *updates = &segment_pending(r->segment, number)->updates;

			if (atomic_load_explicit(updates, memory_order_relaxed) != 0)
				atomic_store(updates, 0);
		}
	atomic_thread_fence(memory_order_seq_cst);
}

/* ------------------------------------------------------------------ figures */

struct shown {
	uint32_t parent;
	uint64_t threshold, current, peak, limit, headroom;
};

static struct shown show(const struct rstat_place *place)
{
	const struct pool *p = place->pool;
	bool is_part = place->above && pool_above(p);

	return (struct shown){.parent = is_part ? place->above->number : 0,
		.threshold = p->threshold,
		.current = figures_clamp(p->sum.held),
		.peak = atomic_load(&p->counter.peak),
		.limit = counter_limit(&p->counter),
		.headroom = is_part ? counter_room(&p->counter) : counter_headroom(&p->counter)};
}

static bool stands_there(const struct segment_pool *f, const struct shown *s)
{
	return atomic_load(&f->parent) == s->parent && atomic_load(&f->threshold) == s->threshold &&
		atomic_load(&f->current) == s->current && atomic_load(&f->peak) == s->peak &&
		atomic_load(&f->limit) == s->limit && atomic_load(&f->headroom) == s->headroom;
}

/* `looked_usec` 0: it stays. */
static void publish(const struct rstat_place *place, uint64_t looked_usec)
{
	struct segment_pool *f = segment_pool(place->rstat->segment, place->number);
	struct shown s = show(place);
	uint32_t seq;

	if (looked_usec == 0 && stands_there(f, &s))
		return;
	seq = atomic_load_explicit(&f->seq, memory_order_relaxed);
	atomic_store_explicit(&f->seq, seq + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&f->parent, s.parent, memory_order_relaxed);
	atomic_store_explicit(&f->threshold, s.threshold, memory_order_relaxed);
	atomic_store_explicit(&f->current, s.current, memory_order_relaxed);
	atomic_store_explicit(&f->peak, s.peak, memory_order_relaxed);
	atomic_store_explicit(&f->limit, s.limit, memory_order_relaxed);
	atomic_store_explicit(&f->headroom, s.headroom, memory_order_relaxed);
	if (looked_usec != 0)
		atomic_store_explicit(&f->looked_usec, looked_usec, memory_order_relaxed);
	atomic_store_explicit(&f->seq, seq + 2, memory_order_release);
}

void place_publish(const struct rstat_place *place)
{
	for (; place; place = place->above)
		publish(place, 0);
}

void place_publish_pool(struct pool *p, uint64_t now_usec)
{
	struct rstat_place *place;

	TAILQ_FOREACH (place, &p->places, entry)
		publish(place, now_usec);
}

void place_publish_all(struct rstat_host *h, uint64_t now_usec)
{
	struct pool *p;
	struct rstat *r;

	while ((p = pool_take_unpublished(h->tree)))
		place_publish_pool(p, 0);
	TAILQ_FOREACH (r, &h->sessions, entry)
		atomic_store_explicit(
			&segment_info(r->segment)->flushed_usec, now_usec, memory_order_release);
}

/* ------------------------------------------------------------------ flushes */

int place_flush(struct rstat_host *h, struct pool *p, bool moved, uint64_t now_usec)
{
	int r;

	if (moved)
		place_clear_pending(p);
	r = rstat_look(h, p, moved);
	/* Of what is moved nothing new is known otherwise, so it gets no younger. */
	place_publish_pool(p, moved ? now_usec : 0);
	return r;
}

int place_flush_all(struct rstat_host *h, uint64_t now_usec)
{
	int r;

	place_clear_all_pending(h);
	r = rstat_look(h, h->tree->root, true);
	place_publish_all(h, now_usec);
	return r;
}

/* ------------------------------------------------------------------ references */

/* Those above, as far as there is room, up to one that is there. */
static void make_above(struct rstat_place *place)
{
	struct rstat *r = place->rstat;

	for (struct pool *p = place->pool->parent; p; p = p->parent) {
		place->above = find_place(r, p);
		if (place->above) {
			place->above->refs++;
			return;
		}
		if (new_place(r, p, &place->above) < 0)
			return;
		place = place->above;
	}
}

int place_ref(struct rstat *r, struct pool *p, struct rstat_place **ret)
{
	struct rstat_place *place = find_place(r, p);
	int e;

	if (place) {
		place->refs++;
		*ret = place;
		return 0;
	}
	e = new_place(r, p, &place);
	if (e < 0)
		return e;
	make_above(place);
	for (const struct rstat_place *above = place; above; above = above->above)
		publish(above, 0);
	*ret = place;
	return 0;
}

struct rstat_place *place_unref(struct rstat_place *place)
{
	while (place && --place->refs == 0) {
		struct rstat_place *above = place->above;

		free_place(place);
		place = above;
	}
	return NULL;
}
