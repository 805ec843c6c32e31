/* SPDX-License-Identifier: MIT */

#include "stat.h"

#include <errno.h>

#include "core/util.h"
#include "key.h"
#include "tally.h"

/* Pools from one up to the root: no path has more parts. */
#define DEPTH_MAX 4096

/* Handles that are sent for in one walk. */
#define AT_ONCE 64

/* ------------------------------------------------------------------ pending updates */

/*
 * The places above are the daemon's to write, and there is an end to them. A pool that is above its
 * threshold flushes as it is; but its updates go on to the pools above it, whose thresholds may be
 * larger: stopping there would hide more from their readers than they tolerate.
 */
static void count_pending(struct tally_pool *p, uint64_t updates)
{
	const struct segment *s = &p->tally->segment;
	uint32_t place = atomic_load_explicit(&p->place, memory_order_relaxed);

	/* The marks come first: who is found above its threshold, and so gets nothing added, may be
	 * in the middle of being flushed. */
	atomic_thread_fence(memory_order_seq_cst);
	for (unsigned i = 0; i < DEPTH_MAX; i++) {
		struct segment_pending *pending = segment_pending(s, place);
		const struct segment_pool *pool = segment_pool(s, place);

		if (!pending)
			break;
		TALLY_STEP();
		if (atomic_load_explicit(&pending->updates, memory_order_relaxed) <=
			atomic_load_explicit(&pool->threshold, memory_order_relaxed))
			atomic_fetch_add(&pending->updates, updates);
		TALLY_STEP();
		place = atomic_load_explicit(&pool->parent, memory_order_relaxed);
	}
}

/* The first updates of a cell, and those that fill it. Threads that meet here on one cell may count
 * some twice, or not: they are only to tell that there is something. */
static __attribute__((noinline)) void count_updates(struct tally_pool *p,
	const struct client_key *k, struct segment_cell *cell, uint32_t cpu, uint64_t n)
{
	uint64_t most = k->unit * SEGMENT_UPDATES;
	uint64_t left = atomic_load_explicit(&cell->left, memory_order_relaxed);

	if (left == 0) {
		key_touch(p->tally, cpu);
		left = most;
	}
	if (n >= left) {
		count_pending(p, (n + most - left + k->unit - 1) >> k->shift);
		left = most;
	} else
		left -= n;
	TALLY_STEP();
	atomic_store_explicit(&cell->left, left, memory_order_release);
	TALLY_STEP();
}

/* The cell on that CPU has been changed. */
static inline __attribute__((always_inline)) void follow_up(
	struct tally_pool *p, const struct client_key *k, char *word, uint32_t cpu, int64_t delta)
{
	struct segment_cell *cell = (struct segment_cell *)(void *)word;
	uint64_t n = delta < 0 ? 0 - (uint64_t)delta : (uint64_t)delta, left;

	n = n > k->unit ? n : k->unit;
	segment_mark(&k->spot, word, p->live->stocks.pages + cpu, SEGMENT_MOVED);
	/* Who finds it in use may rely on the CPU being touched. */
	left = atomic_load_explicit(&cell->left, memory_order_acquire);
	if (unlikely(n >= left)) {
		count_updates(p, k, cell, cpu, n);
		return;
	}
	TALLY_STEP();
	atomic_store_explicit(&cell->left, left - n, memory_order_release);
	TALLY_STEP();
}

/* The first attempt failed, or there was none. */
static __attribute__((noinline)) void move_slow(
	struct tally_pool *p, const struct client_key *k, int64_t delta)
{
	char *word;
	uint32_t cpu = percpu_add(&p->live->stocks, k->spot.cell, k->spot.stride, delta, &word);

	if (cpu != UINT32_MAX)
		follow_up(p, k, word, cpu, delta);
}

/* ------------------------------------------------------------------ before the key is known */

void stat_drop(struct tally_pool *p, tally_item item)
{
	atomic_store(&p->unsent[item].up, 0);
	atomic_store(&p->unsent[item].down, 0);
}

void stat_settle(struct tally_pool *p, tally_item item, struct client_key *k)
{
	uint64_t up = atomic_exchange(&p->unsent[item].up, 0);
	uint64_t down = atomic_exchange(&p->unsent[item].down, 0);
	int64_t delta = (int64_t)(k->least < 0 ? up - down : up);

	if (delta != 0)
		move_slow(p, k, delta);
}

/* Whoever has the key come between the two steps finds what was added, or this finds the key. */
static __attribute__((noinline)) void move_unknown(
	struct tally_pool *p, tally_item item, int64_t delta)
{
	struct client_key *k;

	if (delta == 0 || client_check(p->tally) < 0 || atomic_load(&p->detached) ||
		client_is_lost(p))
		return;
	if (delta > 0)
		atomic_fetch_add(&p->unsent[item].up, (uint64_t)delta);
	else
		atomic_fetch_add(&p->unsent[item].down, 0 - (uint64_t)delta);
	k = client_stat_key_nowait(p, item);
	if (k)
		stat_settle(p, item, k);
	else
		atomic_store(&p->tally->unsent, true);
}

static bool is_unsent(const struct tally_pool *p, tally_item item)
{
	return atomic_load(&p->unsent[item].up) != 0 || atomic_load(&p->unsent[item].down) != 0;
}

int stat_send(struct tally_pool *p)
{
	for (tally_item item = 1; item <= ITEM_MAX; item++) {
		int r;

		if (!is_unsent(p, item))
			continue;
		r = client_stat_key(p, item);
		if (r == -EINVAL || r == -ENODEV)
			stat_drop(p, item);
		else if (r < 0)
			return r;
	}
	return 0;
}

struct found {
	struct tally_pool *pools[AT_ONCE];
	unsigned n;
};

/* One whose last reference has just gone sends what it has by itself. */
static bool ref_living(struct tally_pool *p)
{
	uint32_t refs = atomic_load(&p->refs);

	while (refs > 0)
		if (atomic_compare_exchange_weak(&p->refs, &refs, refs + 1))
			return true;
	return false;
}

static void find_unsent(struct tally_pool *p, void *userdata)
{
	struct found *f = userdata;

	for (tally_item item = 1; f->n < AT_ONCE && item <= ITEM_MAX; item++)
		if (is_unsent(p, item)) {
			if (ref_living(p))
				f->pools[f->n++] = p;
			return;
		}
}

void stat_send_all(struct tally *t)
{
	struct found f = {.n = AT_ONCE};
	int r = 0;

	if (!atomic_load(&t->unsent) || !atomic_exchange(&t->unsent, false))
		return;
	while (r == 0 && f.n == AT_ONCE) {
		f.n = 0;
		client_each_pool(t, find_unsent, &f);
		for (unsigned i = 0; i < f.n; i++) {
			r = r < 0 ? r : stat_send(f.pools[i]);
			tally_pool_unref(f.pools[i]);
		}
	}
	if (r < 0)
		atomic_store(&t->unsent, true);
}

/* ------------------------------------------------------------------ the hit */

_public_ void tally_stat_add(struct tally_pool *p, tally_item item, int64_t delta)
{
	struct client_key *k;
	uint32_t cpu;
	char *word;

	if (unlikely(item - 1 >= ITEM_MAX))
		return;
	k = atomic_load_explicit(&p->stat[item], memory_order_acquire);
	if (unlikely(!k)) {
		move_unknown(p, item, delta);
		return;
	}
	if (unlikely(delta < k->least))
		return;
	cpu = percpu_try_add(&p->live->stocks, k->spot.cell, k->spot.stride, delta, &word);
	if (likely(cpu != UINT32_MAX))
		follow_up(p, k, word, cpu, delta);
	else
		move_slow(p, k, delta);
}
