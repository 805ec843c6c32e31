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

/* The slot to put the key's credit into: its own, an empty one, one with nothing in it, else the next
 * in turn. Which word it held comes back in *ret_seen. */
static unsigned choose_slot(struct stock *s, uint32_t key, word *ret_seen)
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
	if (choice == STOCK_SLOTS) {
		choice = atomic_fetch_add_explicit(&s->cursor, 1, memory_order_relaxed) %
			STOCK_SLOTS;
		*ret_seen = percpu_load(&s->slot[choice]);
	}
	return choice;
}

unsigned stock_put(struct stock_area a, uint32_t key, uint64_t bytes, uint64_t high, uint64_t low,
	struct stock_carry carry[static 2], uint32_t *ret_cpu)
{
	struct stock_carry evicted = {0};
	unsigned cpu = percpu_cpu(), n = 0;
	uint64_t excess = bytes;

	*ret_cpu = UINT32_MAX;
	for (unsigned try = 0; cpu < a.n_cpus && bytes < WORD_HIT_MAX && try < STOCK_TRIES; try++) {
		struct stock *s = &a.pages[cpu].stock;
		word seen;
		unsigned i = choose_slot(s, key, &seen);
		bool own = word_key(seen) == key;
		uint64_t total = bytes + (own ? word_bytes(seen) : 0);
		uint64_t kept = keep(total, high, low);

		if (kept == 0 && !own)
			break;
		if (percpu_store(&s->slot[i], cpu, seen, word_make(key, kept, word_parity(seen))) <
			0)
			continue;
		*ret_cpu = cpu;
		excess = total - kept;
		if (!own)
			evicted = (struct stock_carry){
				.key = word_key(seen), .bytes = word_bytes(seen)};
		break;
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
