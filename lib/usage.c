/* SPDX-License-Identifier: MIT */

/*
 * What a pool has, without asking anybody. Of the attachment itself everything is at hand: what its
 * keys were granted, less what of it lies idle in the words; the pool's figures are as they were
 * published last.
 */

#include <errno.h>
#include <string.h>

#include "client.h"
#include "core/path.h"
#include "core/util.h"
#include "force.h"
#include "key.h"
#include "tally.h"

#define TRIES 64

/* ------------------------------------------------------------------ of the attachment */

/* Changes of slots, of which it is not known yet whether they have happened. */
#define CHANGES_MAX 8

struct account {
	int64_t held;
	unsigned n_keys;
	uint32_t keys[ITEM_MAX + 1]; /* of the attachment, by number */
	unsigned n;
	uint64_t changes[CHANGES_MAX];
};

/* A key of the attachment, from its number alone: what struct client_key knows would be one more cache
 * line, on the way to the others. */
struct own_key {
	uint32_t number; /* 0: none */
	const struct segment_key *words;
	const struct segment_figures *figures;
};

/* Charged by force, and not yet part of what was granted. */
static uint64_t not_folded(const struct own_key *k, uint64_t granted)
{
	uint64_t more = atomic_load(&k->words->force) + atomic_load(&k->words->debt) -
		atomic_load(&k->figures->folded);
	uint64_t room = granted < WORD_BYTES_MAX ? WORD_BYTES_MAX - granted : 0;

	return more < room ? more : room;
}

/* What of the granted bytes is in no word, because the other side is just taking or putting it. */
static uint64_t on_its_way(uint64_t change, word reserve, struct account *a)
{
	bool happened = segment_change_happened(change, reserve);

	switch (segment_change_slot(change)) {
	case SEGMENT_CHANGE_DEPOSIT:
		return happened ? 0 : segment_change_bytes(change);
	case SEGMENT_CHANGE_RESERVE:
		return happened ? segment_change_bytes(change) : 0;
	default:
		if (a->n < CHANGES_MAX)
			a->changes[a->n++] = change;
		return 0;
	}
}

/* What the key holds, its slots not looked at. */
static void add_key(const struct own_key *k, struct account *a)
{
	uint64_t granted = atomic_load(&k->figures->granted), idle;
	uint64_t change = atomic_load(&k->figures->change);
	word w = atomic_load(&k->words->reserve);

	if (a->n_keys < ELEMENTS(a->keys))
		a->keys[a->n_keys++] = k->number;
	idle = word_key(w) == k->number ? word_bytes(w) : 0;
	for (unsigned lane = 0; lane < SEGMENT_LANES; lane++)
		idle += segment_unaccepted(atomic_load(&k->figures->answer[lane]),
			atomic_load(&k->words->accepted[lane]));
	if (change != 0)
		idle += on_its_way(change, w, a);
	a->held += (int64_t)(granted + not_folded(k, granted) - idle);
}

static bool is_own(const struct account *a, uint32_t key)
{
	for (unsigned i = 0; i < a->n_keys; i++)
		if (a->keys[i] == key)
			return true;
	return false;
}

/* The attachment's bytes in a slot; and those that were taken from there. */
static uint64_t in_slot(const struct account *a, uint32_t cpu, unsigned slot, word w)
{
	uint64_t sum = is_own(a, word_key(w)) ? word_bytes(w) : 0;

	for (unsigned i = 0; i < a->n; i++)
		if (segment_change_cpu(a->changes[i]) == cpu &&
			segment_change_slot(a->changes[i]) == slot &&
			segment_change_happened(a->changes[i], w))
			sum += segment_change_bytes(a->changes[i]);
	return sum;
}

static void subtract_slots(const struct tally_pool *p, struct account *a)
{
	const struct segment *s = &p->tally->segment;
	const struct segment_header *h = segment_header(s);

	for (uint32_t cpu = 0; cpu < s->n_cpus; cpu++) {
		const struct stock *stock = &p->live->stocks.pages[cpu].stock;

		if (!atomic_load_explicit(&h->touched[cpu], memory_order_acquire))
			continue;
		for (unsigned i = 0; i < STOCK_SLOTS; i++) {
			word w = percpu_load(&stock->slot[i]);

			a->held -= (int64_t)in_slot(a, cpu, i, w);
		}
	}
}

static struct own_key find_key(const struct tally_pool *p, tally_item item)
{
	const struct segment *segment = &p->tally->segment;
	uint32_t number = atomic_load_explicit(&p->key[item], memory_order_acquire);
	const struct segment_key *words = segment_key(segment, number);

	if (!words)
		return (struct own_key){0};
	return (struct own_key){number, words, segment_figures(segment, number)};
}

/* The keys that are charged, of which `items` are still to come; false: there is none any more. */
static bool next_key(const struct tally_pool *p, uint64_t *items, struct own_key *ret)
{
	while (*items) {
		*ret = find_key(p, (tally_item)__builtin_ctzll(*items) + 1);
		*items &= *items - 1;
		if (ret->number != 0)
			return true;
	}
	return false;
}

static bool first_key(const struct tally_pool *p, uint64_t *ret_items, struct own_key *ret)
{
	*ret_items = atomic_load(&p->charged);
	*ret = find_key(p, 0);
	return ret->number != 0 || next_key(p, ret_items, ret);
}

static int64_t add_up(const struct tally_pool *p)
{
	struct account a;
	struct own_key k;
	uint64_t items;

	a.held = 0;
	a.n_keys = a.n = 0;
	for (bool is = first_key(p, &items, &k); is; is = next_key(p, &items, &k))
		add_key(&k, &a);
	subtract_slots(p, &a);
	return a.held;
}

/* Another when figures have changed; odd in any: they are being written. */
static uint64_t read_seqs(const struct tally_pool *p, bool *ret_busy)
{
	struct own_key k;
	uint64_t items, sum = 0;

	*ret_busy = false;
	for (bool is = first_key(p, &items, &k); is; is = next_key(p, &items, &k)) {
		uint32_t seq = atomic_load(&k.figures->seq);

		*ret_busy = *ret_busy || (seq & 1);
		sum += seq;
	}
	return sum;
}

/* All three lines are waited for at once, and not one after the other. */
static void prefetch(const struct tally_pool *p, const struct segment_pool *f)
{
	struct own_key k = find_key(p, 0);

	__builtin_prefetch(f);
	__builtin_prefetch(k.figures);
	__builtin_prefetch(k.words);
}

/* Charged by force while there was no key. */
static uint64_t owed(const struct tally_pool *p)
{
	uint64_t sum = 0;

	if (!atomic_load(&p->owes))
		return 0;
	for (tally_item item = 1; item <= ITEM_MAX; item++) {
		uint64_t n = atomic_load(&p->items[item].owed);

		sum += n == FORCE_SETTLED ? 0 : n;
	}
	return sum;
}

/* Figures that changed meanwhile do not fit together. If they never come to rest, one number is as
 * right as another. */
static uint64_t read_held(const struct tally_pool *p)
{
	uint64_t before, after;
	unsigned try = 0;
	int64_t held;
	bool busy;

	do {
		before = read_seqs(p, &busy);
		held = add_up(p);
		atomic_thread_fence(memory_order_acquire);
		after = read_seqs(p, &busy);
	} while ((busy || after != before) && ++try < TRIES);
	return (held > 0 ? (uint64_t)held : 0) + owed(p);
}

/* ------------------------------------------------------------------ of the pool */

/* What is left below the limits of the pools above, the daemon's memory or not: as many as there can
 * be. */
static uint64_t headroom_above(const struct segment *s, const struct segment_pool *f)
{
	uint64_t least = UINT64_MAX;

	for (unsigned n = 0; f && n < PATH_MAX_BYTES; n++) {
		uint64_t room = atomic_load_explicit(&f->headroom, memory_order_relaxed);

		least = room < least ? room : least;
		f = segment_pool(s, atomic_load_explicit(&f->parent, memory_order_relaxed));
	}
	return least;
}

static int read_pool(
	const struct segment_pool *f, struct tally_usage *ret, uint64_t *ret_looked_usec)
{
	for (unsigned try = 0; try < TRIES; try++) {
		uint32_t seq = atomic_load_explicit(&f->seq, memory_order_acquire);

		if (seq & 1)
			continue;
		ret->current = atomic_load_explicit(&f->current, memory_order_relaxed);
		ret->peak = atomic_load_explicit(&f->peak, memory_order_relaxed);
		ret->limit = atomic_load_explicit(&f->limit, memory_order_relaxed);
		*ret_looked_usec = atomic_load_explicit(&f->looked_usec, memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&f->seq, memory_order_relaxed) == seq)
			return 0;
	}
	return -EAGAIN;
}

static uint64_t age(const struct tally *t, uint64_t looked_usec)
{
	uint64_t flushed = atomic_load(&segment_info(&t->segment)->flushed_usec), now = link_now();
	uint64_t then = looked_usec > flushed ? looked_usec : flushed;

	return now > then ? now - then : 0;
}

_public_ int tally_usage(struct tally_pool *p, size_t size, struct tally_usage *ret)
{
	struct tally_usage u = {0};
	const struct segment_pool *f;
	uint64_t looked;
	int r = client_check(p->tally);

	if (r < 0)
		return r;
	if (atomic_load(&p->detached) || client_is_lost(p))
		return -ENODEV;
	f = segment_pool(&p->tally->segment, atomic_load(&p->place));
	if (!ret || !f)
		return -EINVAL;
	prefetch(p, f);
	r = read_pool(f, &u, &looked);
	if (r < 0)
		return r;
	u.headroom = headroom_above(&p->tally->segment, f);
	u.age_usec = age(p->tally, looked);
	u.held = read_held(p);
	give_struct(ret, size, &u, sizeof(u));
	return 0;
}
