/* SPDX-License-Identifier: MIT */

/*
 * The part of the stock that is not the hit: taking a slot, evicting, and what the daemon does to
 * slots. Kept out of line so that the hit path stays small in its callers.
 */

#include "stock.h"

/* What of `total` stays in a slot; the rest is excess. */
static uint64_t keep(uint64_t total, uint64_t high, uint64_t low)
{
	return total > high ? low : total;
}

/* Adds to the key's own slot if it has one. True: done, with the excess in *ret_excess. */
static bool add_to_own(struct stock *s, unsigned cpu, uint32_t key, uint64_t bytes, uint64_t high,
	uint64_t low, uint64_t *ret_excess)
{
	for (unsigned i = 0; i < STOCK_SLOTS; i++)
		for (unsigned try = 0; try < STOCK_TRIES; try++) {
			word w = percpu_load(&s->slot[i]);
			uint64_t total, kept;

			if (word_key(w) != key)
				break;
			total = word_bytes(w) + bytes;
			kept = keep(total, high, low);
			if (percpu_store(&s->slot[i], cpu, w,
				    word_make(key, kept, word_parity(w))) == 0) {
				*ret_excess = total - kept;
				return true;
			}
		}
	return false;
}

/* Takes a slot for the key: an empty one, else the next in turn. True: done, with what lay in it.
 */
static bool take_slot(
	struct stock *s, unsigned cpu, uint32_t key, uint64_t kept, struct stock_carry *ret_evicted)
{
	for (unsigned try = 0; try < STOCK_TRIES; try++) {
		unsigned i = 0;
		word w;

		while (i < STOCK_SLOTS && word_key(percpu_load(&s->slot[i])) != 0)
			i++;
		if (i == STOCK_SLOTS)
			i = atomic_fetch_add_explicit(&s->cursor, 1, memory_order_relaxed) %
				STOCK_SLOTS;

		w = percpu_load(&s->slot[i]);
		if (word_key(w) == key)
			continue;
		if (percpu_store(&s->slot[i], cpu, w, word_make(key, kept, word_parity(w))) == 0) {
			*ret_evicted =
				(struct stock_carry){.key = word_key(w), .bytes = word_bytes(w)};
			return true;
		}
	}
	return false;
}

unsigned stock_put(struct stock_area a, uint32_t key, uint64_t bytes, uint64_t high, uint64_t low,
	struct stock_carry carry[static 2], uint32_t *ret_cpu)
{
	struct stock_carry evicted = {0};
	unsigned cpu = percpu_cpu(), n = 0;
	uint64_t excess = bytes;

	*ret_cpu = UINT32_MAX;
	if (cpu < a.n_cpus && bytes < WORD_HIT_MAX) {
		struct stock *s = &a.pages[cpu].stock;
		uint64_t kept = keep(bytes, high, low);

		if (add_to_own(s, cpu, key, bytes, high, low, &excess))
			*ret_cpu = cpu;
		else if (take_slot(s, cpu, key, kept, &evicted)) {
			*ret_cpu = cpu;
			excess = bytes - kept;
		}
	}

	if (excess > 0)
		carry[n++] = (struct stock_carry){.key = key, .bytes = excess};
	if (evicted.bytes > 0)
		carry[n++] = evicted;
	return n;
}

int stock_take(percpu_word *slot, unsigned cpu, uint32_t key, uint64_t bytes, unsigned parity)
{
	for (unsigned try = 0; try < STOCK_TRIES; try++) {
		word w = percpu_load(slot);

		if (word_key(w) != key || word_bytes(w) < bytes || word_parity(w) != parity)
			return -EAGAIN;
		if (percpu_store(slot, cpu, w, (w - (bytes << 1)) ^ 1) == 0)
			return 0;
	}
	return -EAGAIN;
}

bool stock_clear(percpu_word *slot, unsigned cpu, uint32_t key)
{
	for (unsigned try = 0; try < STOCK_TRIES; try++) {
		word w = percpu_load(slot);

		if (word_key(w) != key)
			return true;
		if (percpu_store(slot, cpu, w, word_make(0, 0, !word_parity(w))) == 0)
			return true;
	}
	return false;
}
