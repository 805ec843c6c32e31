/* SPDX-License-Identifier: MIT */

/*
 * The part of the stock that is not the hit: taking a slot, evicting, and what the daemon does to
 * slots. Kept out of line so that the hit path stays small in its callers.
 */

#include "stock.h"

bool stock_consume(const struct percpu_area *a, uint32_t key, uint64_t bytes)
{
	return bytes < WORD_HIT_MAX &&
		percpu_change(
			a, word_take(bytes), WORD_TAKE_MOST, (uint64_t)key << WORD_KEY_SHIFT) == 0;
}

bool stock_add(const struct percpu_area *a, uint32_t key, uint64_t bytes, uint64_t high)
{
	return bytes <= high &&
		percpu_change(a, bytes << 1, high << 1 | 1, (uint64_t)key << WORD_KEY_SHIFT) == 0;
}

/* What of `total` stays in a slot; the rest is excess. */
static uint64_t keep(uint64_t total, uint64_t high, uint64_t low)
{
	return total > high ? low : total;
}

/* The slot to put the key's credit into: its own, an empty one, one with nothing in it, else (if it may
 * evict) the next in turn, else STOCK_SLOTS. Which word it held comes back in *ret_seen. */
static unsigned choose_slot(struct stock *s, uint32_t key, bool evict, word *ret_seen)
{
	unsigned choice = STOCK_SLOTS;
	word w;

	for (unsigned i = 0; i < STOCK_SLOTS; i++) {
		w = percpu_load(&s->slot[i]);
		if (word_key(w) == key) {
			*ret_seen = w;
			return i;
		}
		if (word_bytes(w) > 0 || (choice < STOCK_SLOTS && word_key(*ret_seen) == 0))
			continue;
		if (choice == STOCK_SLOTS || word_key(w) == 0) {
			*ret_seen = w;
			choice = i;
		}
	}
	if (choice == STOCK_SLOTS && evict) {
		uint32_t cursor = atomic_load_explicit(&s->cursor, memory_order_relaxed);

		/* Two at once may choose the same: that only matters little. */
		TALLY_STEP();
		atomic_store_explicit(&s->cursor, cursor + 1, memory_order_relaxed);
		TALLY_STEP();
		choice = cursor % STOCK_SLOTS;
		*ret_seen = percpu_load(&s->slot[choice]);
	}
	return choice;
}

bool stock_has_room(const struct stock *s, uint32_t key)
{
	for (unsigned i = 0; i < STOCK_SLOTS; i++) {
		word w = percpu_load(&s->slot[i]);

		if (word_key(w) == key || word_bytes(w) == 0)
			return true;
	}
	return false;
}

/* Returns what of `bytes` and the slot's own was not kept; what was evicted in *ret_evicted (NULL:
 * nothing may be). */
static uint64_t put_in(const struct percpu_area *a, uint32_t key, uint64_t bytes, uint64_t high,
	uint64_t low, struct stock_carry *ret_evicted, uint32_t *ret_cpu)
{
	for (unsigned try = 0; bytes < WORD_HIT_MAX && try < PERCPU_TRIES; try++) {
		uint32_t cpu = percpu_cpu(a);
		struct stock *s;
		word seen;
		unsigned i;
		bool own;
		uint64_t total, kept;

		if (cpu >= atomic_load_explicit(&a->n_cpus, memory_order_relaxed))
			break;
		s = &a->pages[cpu].stock;
		i = choose_slot(s, key, ret_evicted, &seen);
		if (i == STOCK_SLOTS)
			break;
		own = word_key(seen) == key;
		total = bytes + (own ? word_bytes(seen) : 0);
		kept = keep(total, high, low);
		if (!own && kept == 0)
			break;
		TALLY_STEP();
		if (percpu_store(
			    a, &s->slot[i], cpu, seen, word_make(key, kept, word_parity(seen))) < 0)
			continue;
		TALLY_STEP();
		if (!own || ret_evicted)
			*ret_cpu = cpu;
		if (!own && ret_evicted)
			*ret_evicted = (struct stock_carry){
				.key = word_key(seen), .bytes = word_bytes(seen)};
		return total - kept;
	}
	return bytes;
}

uint64_t stock_place(const struct percpu_area *a, uint32_t key, uint64_t bytes, uint64_t high,
	uint64_t low, uint32_t *ret_cpu)
{
	*ret_cpu = UINT32_MAX;
	return put_in(a, key, bytes, high, low, NULL, ret_cpu);
}

unsigned stock_put(const struct percpu_area *a, uint32_t key, uint64_t bytes, uint64_t high,
	uint64_t low, struct stock_carry carry[static 2], uint32_t *ret_cpu)
{
	struct stock_carry evicted = {0};
	uint64_t excess;
	unsigned n = 0;

	*ret_cpu = UINT32_MAX;
	excess = put_in(a, key, bytes, high, low, &evicted, ret_cpu);
	if (excess > 0)
		carry[n++] = (struct stock_carry){.key = key, .bytes = excess};
	if (evicted.bytes > 0)
		carry[n++] = evicted;
	return n;
}

static int take(const struct percpu_area *a, percpu_word *slot, uint32_t cpu, uint32_t key,
	uint64_t bytes, unsigned parity, bool leave)
{
	int r = -EAGAIN;

	for (unsigned try = 0; r == -EAGAIN && try < PERCPU_TRIES; try++) {
		word w = percpu_load(slot);

		if (word_key(w) != key || word_bytes(w) < bytes || word_parity(w) != parity)
			return -EAGAIN;
		r = percpu_store(a, slot, cpu, w,
			leave && word_bytes(w) == bytes ? word_make(0, 0, !parity)
							: (w - (bytes << 1)) ^ 1);
	}
	return r;
}

int stock_take(const struct percpu_area *a, percpu_word *slot, uint32_t cpu, uint32_t key,
	uint64_t bytes, unsigned parity)
{
	return take(a, slot, cpu, key, bytes, parity, false);
}

int stock_expel(const struct percpu_area *a, percpu_word *slot, uint32_t cpu, uint32_t key,
	uint64_t bytes, unsigned parity)
{
	return take(a, slot, cpu, key, bytes, parity, true);
}

int stock_clear(const struct percpu_area *a, percpu_word *slot, uint32_t cpu, uint32_t key)
{
	int r = -EAGAIN;

	for (unsigned try = 0; r == -EAGAIN && try < PERCPU_TRIES; try++) {
		word w = percpu_load(slot);

		if (word_key(w) != key)
			return 0;
		r = percpu_store(a, slot, cpu, w, word_make(0, 0, !word_parity(w)));
	}
	return r;
}

uint64_t stock_seize(percpu_word *slot, uint32_t key)
{
	word w = percpu_load(slot);

	if (word_key(w) != key)
		return 0;
	atomic_store_explicit(slot, word_make(key, 0, !word_parity(w)), memory_order_relaxed);
	return word_bytes(w);
}
