/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The stock: the credit that a CPU keeps at hand, one cache line of seven slots, so that most
 * charges and uncharges are one change of one word. A slot belongs to one key; a key that finds
 * none takes an empty one, else another's in turn. Between LOW and HIGH nothing leaves the slot:
 * above HIGH an uncharge leaves LOW there. What must leave (the excess, an evicted key's credit) is
 * handed to the caller *after* the word is stored: nothing is ever done about it while the stock is
 * held, because it is never held.
 *
 * Slots hold less than WORD_HIT_MAX bytes. All of it may be called from a signal handler.
 */

#include <assert.h>
#include <stdalign.h>
#include <stddef.h>

#include "percpu.h"
#include "util.h"

#define STOCK_SLOTS PERCPU_WORDS
#define STOCK_PAGE (1 << PERCPU_PAGE_SHIFT)
#define STOCK_MARKS 2
#define STOCK_EXTENTS 16

struct stock {
	percpu_word slot[STOCK_SLOTS];
	_Atomic uint32_t cursor;      /* the slot that is evicted next */
	_Atomic uint32_t turned_away; /* since one found room, see stock_room() */
};

/* A CPU's page of a segment, its own so that it lies on its own node. */
struct stock_page {
	alignas(STOCK_PAGE) struct stock stock;
	/* Threads that carry credit of a key that is not their caller's from one word to another,
	 * counted here from before their look at the words until it is put down; a key is used
	 * again only after this was seen 0. */
	alignas(64) _Atomic uint32_t moving;
	/* By what has changed (enum segment_mark) and extent: see segment.h. */
	alignas(64) _Atomic uint8_t changed[STOCK_MARKS][STOCK_EXTENTS];
};

static_assert(sizeof(struct stock) == 64, "a stock is one cache line");
static_assert(sizeof(struct stock_page) == STOCK_PAGE, "a page a CPU");

/* Of so many that find neither a slot of their own nor an empty one, one evicts; and while that goes
 * on, one of so many looks. */
#define STOCK_EVICT_ONE_IN 16
#define STOCK_LOOK_ONE_IN 4

/* Credit in a register: taken out of one word, not yet put into another. */
struct stock_carry {
	uint32_t key;
	uint64_t bytes;
};

/*
 * The hit: takes `bytes` of the key out of this CPU's stock. False: not there, or not enough in one
 * slot. The forms with try_ make the first attempt only, inline, and none by atomics: 0, or what
 * percpu_try_change() says.
 */
static inline int stock_try_consume(const struct percpu_area *a, uint32_t key, uint64_t bytes)
{
	if (unlikely(bytes >= WORD_HIT_MAX))
		return -ENOENT;
	return percpu_try_change(
		a, word_take(bytes), WORD_TAKE_MOST, (uint64_t)key << WORD_KEY_SHIFT);
}

bool stock_consume(const struct percpu_area *a, uint32_t key, uint64_t bytes);

/*
 * The other hit: adds `bytes` to the key's slot, if it has one here and stays at or below `high`
 * (below WORD_HIT_MAX).
 */
static inline int stock_try_add(
	const struct percpu_area *a, uint32_t key, uint64_t bytes, uint64_t high)
{
	/* A smaller key's word cannot reach this one's by an addition of `high` at most. */
	if (unlikely(bytes > high))
		return -ENOENT;
	return percpu_try_change(a, bytes << 1, high << 1 | 1, (uint64_t)key << WORD_KEY_SHIFT);
}

bool stock_add(const struct percpu_area *a, uint32_t key, uint64_t bytes, uint64_t high);

/*
 * Where credit of the key should go on this CPU: into its slot or an empty one; over another's, whose
 * turn it is to be evicted; or past the stock. With more hot keys than slots each would otherwise
 * throw out the next one that is wanted, and none would ever be found there.
 */
enum stock_room {
	STOCK_FREE,
	STOCK_EVICT,
	STOCK_FULL,
};

/* Whether it is the first. */
bool stock_has_room(const struct stock *s, uint32_t key);

/* On this CPU, whose number comes back. */
static inline enum stock_room stock_room(
	const struct percpu_area *a, uint32_t key, uint32_t *ret_cpu)
{
	uint32_t cpu = *ret_cpu = percpu_cpu(a), turned_away;
	struct stock *s;

	if (cpu >= atomic_load_explicit(&a->n_cpus, memory_order_relaxed))
		return STOCK_FULL;
	s = &a->pages[cpu].stock;
	/* Two at once may count as one: it is a turn, not a sum. */
	turned_away = atomic_load_explicit(&s->turned_away, memory_order_relaxed);
	if (turned_away % STOCK_LOOK_ONE_IN == 0 && stock_has_room(s, key)) {
		TALLY_STEP();
		atomic_store_explicit(&s->turned_away, 0, memory_order_relaxed);
		TALLY_STEP();
		return STOCK_FREE;
	}
	TALLY_STEP();
	atomic_store_explicit(&s->turned_away, turned_away + 1, memory_order_relaxed);
	TALLY_STEP();
	return turned_away % STOCK_EVICT_ONE_IN == STOCK_EVICT_ONE_IN - 1 ? STOCK_EVICT
									  : STOCK_FULL;
}

/*
 * Puts `bytes` of the key into its slot, or an empty one; above `high` that keeps `low`. Returns what
 * has to go elsewhere, all of it when there is no such slot. The CPU on which a slot became the
 * key's comes back in *ret_cpu, UINT32_MAX when none did.
 */
uint64_t stock_place(const struct percpu_area *a, uint32_t key, uint64_t bytes, uint64_t high,
	uint64_t low, uint32_t *ret_cpu);

/*
 * The same, making room. What has to leave comes back in `carry` (the excess, an evicted key's
 * credit); returns how many entries, 0 to 2. Because that may be another key's, the caller counts
 * itself in `moving` around this call and until the carried credit is put down.
 */
unsigned stock_put(const struct percpu_area *a, uint32_t key, uint64_t bytes, uint64_t high,
	uint64_t low, struct stock_carry carry[static 2], uint32_t *ret_cpu);

/*
 * For the daemon, on CPU `cpu`: takes exactly `bytes` of the key out of a slot whose parity is
 * `parity`, and flips that. 0; -EAGAIN: the slot is not like that (any more); -EXDEV: the thread is
 * not on that CPU. Nothing was changed then.
 */
int stock_take(const struct percpu_area *a, percpu_word *slot, uint32_t cpu, uint32_t key,
	uint64_t bytes, unsigned parity);

/* The same, and a slot in which nothing is left by that is nobody's. */
int stock_expel(const struct percpu_area *a, percpu_word *slot, uint32_t cpu, uint32_t key,
	uint64_t bytes, unsigned parity);

/* For the daemon: empties the slot if it belongs to the key, whatever lies in it, and flips the
 * parity. 0: the slot is free of the key; -EAGAIN, -EXDEV. */
int stock_clear(const struct percpu_area *a, percpu_word *slot, uint32_t cpu, uint32_t key);

/* Behind a closed gate: takes all that the slot holds of the key, flips the parity, and returns it. The
 * slot stays the key's. */
uint64_t stock_seize(percpu_word *slot, uint32_t key);

/* Begins a movement of credit, counted on `cpu` (below n_cpus), and ends it: the thread may be on
 * another CPU by then. */
static inline _Atomic uint32_t *stock_move_begin(const struct percpu_area *a, uint32_t cpu)
{
	_Atomic uint32_t *moving = &a->pages[cpu].moving;

	TALLY_STEP();
	atomic_fetch_add(moving, 1);
	TALLY_STEP();
	return moving;
}

static inline void stock_move_end(_Atomic uint32_t *moving)
{
	TALLY_STEP();
	atomic_fetch_sub(moving, 1);
	TALLY_STEP();
}
