/* SPDX-License-Identifier: MIT */

/*
 * Credit may be where it likes, but not vanish and not come from nothing: whatever the stock does,
 * and whoever comes in between, the slots, what was carried out and what was charged add up. The
 * races are played twice, and by both kinds of operation: one by one, with another operation put exactly between the look at a word
 * and its store, and with threads, signal handlers and a drainer all at once.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "core/percpu.h"

/* What happens between a look and its store: races lost, or something done to the word. */
static unsigned lose, let_pass;
static void (*meanwhile)(void);

static int interrupted_store(
	const struct percpu_area *a, percpu_word *w, uint32_t cpu, word old, word new)
{
	void (*fn)(void) = meanwhile;

	if (lose > 0) {
		lose--;
		return -EAGAIN;
	}
	if (fn && let_pass-- == 0) {
		meanwhile = NULL;
		fn();
	}
	return percpu_store(a, w, cpu, old, new);
}

/* The modules are compiled here, so that all of their stores can be interrupted, but for those of the
 * hit by a sequence. */
#define percpu_store interrupted_store
#include "core/percpu.c"
#include "core/stock.c"

#define HIGH 1000
#define LOW 250

/* ------------------------------------------------------------------ on one CPU */

static enum percpu_kind kind;
static cpu_set_t allowed;
static struct stock_page *pages;
static struct percpu_area area;
static unsigned here; /* the CPU that the test runs on */
static percpu_word *slots;

static int set_up(void **state _unused_)
{
	cpu_set_t one;
	int cpu = sched_getcpu();
	uint32_t n_cpus;

	if (cpu < 0 || sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
		return -1;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one) < 0)
		return -1;

	here = (unsigned)cpu;
	n_cpus = CPU_SETSIZE;
	while (!CPU_ISSET(n_cpus - 1, &allowed))
		n_cpus--;
	pages = aligned_alloc(STOCK_PAGE, n_cpus * sizeof(*pages));
	if (!pages)
		return -1;
	memset(pages, 0, n_cpus * sizeof(*pages));
	area = percpu_area_make(pages, n_cpus, kind);
	slots = pages[here].stock.slot;
	lose = 0;
	meanwhile = NULL;
	return 0;
}

static int set_up_atomics(void **state)
{
	kind = PERCPU_ATOMIC;
	return set_up(state);
}

static int set_up_sequences(void **state)
{
	kind = PERCPU_RSEQ;
	return set_up(state);
}

static int tear_down(void **state _unused_)
{
	free(pages);
	return sched_setaffinity(0, sizeof(allowed), &allowed);
}

static void set_slot(unsigned i, uint32_t key, uint64_t bytes, unsigned parity)
{
	atomic_store(&slots[i], word_make(key, bytes, parity));
}

static void assert_slot(unsigned i, uint32_t key, uint64_t bytes, unsigned parity)
{
	word w = percpu_load(&slots[i]);

	assert_int_equal(word_key(w), key);
	assert_int_equal(word_bytes(w), bytes);
	assert_int_equal(word_parity(w), parity);
}

static void assert_untouched(const struct stock_page *before)
{
	assert_memory_equal(pages, before, area.n_cpus * sizeof(*pages));
}

static struct stock_page *copy_pages(void)
{
	struct stock_page *p = aligned_alloc(STOCK_PAGE, area.n_cpus * sizeof(*p));

	assert_non_null(p);
	memcpy(p, pages, area.n_cpus * sizeof(*p));
	return p;
}

/* Seven keys from `first` on, 100 bytes each, the parity that of the slot's number. */
static void fill(uint32_t first)
{
	for (unsigned i = 0; i < STOCK_SLOTS; i++)
		set_slot(i, first + i, 100, i & 1);
}

static unsigned put(uint32_t key, uint64_t bytes, struct stock_carry carry[static 2])
{
	uint32_t cpu = 12345;
	unsigned n;

	memset(carry, 0, 2 * sizeof(*carry));
	n = stock_put(&area, key, bytes, HIGH, LOW, carry, &cpu);
	assert_int_equal(cpu, here);
	return n;
}

static void assert_carried(struct stock_carry c, uint32_t key, uint64_t bytes)
{
	assert_int_equal(c.key, key);
	assert_int_equal(c.bytes, bytes);
}

static void test_consume(void **state _unused_)
{
	for (unsigned i = 0; i < STOCK_SLOTS; i++)
		for (unsigned parity = 0; parity < 2; parity++) {
			set_slot(i, 7, 100, parity);
			assert_true(stock_consume(&area, 7, 60));
			assert_slot(i, 7, 40, parity);
			assert_false(stock_consume(&area, 7, 41));
			assert_false(stock_consume(&area, 6, 1));
			assert_false(stock_consume(&area, 8, 1));
			assert_slot(i, 7, 40, parity);
			assert_true(stock_consume(&area, 7, 40));
			assert_slot(i, 7, 0, parity);
			assert_false(stock_consume(&area, 7, 1));
			set_slot(i, 0, 0, parity);
		}
}

/* Two threads that race for room may leave a key with two slots: both are looked at. */
static void test_second_slot_of_a_key(void **state _unused_)
{
	set_slot(1, 7, 10, 0);
	set_slot(4, 7, 500, 1);
	assert_true(stock_consume(&area, 7, 11));
	assert_slot(1, 7, 10, 0);
	assert_slot(4, 7, 489, 1);
	assert_false(stock_consume(&area, 7, 490));
	assert_true(stock_consume(&area, 7, 1));
	assert_slot(1, 7, 9, 0);

	set_slot(1, 7, HIGH, 0);
	assert_true(stock_add(&area, 7, 1, HIGH));
	assert_slot(1, 7, HIGH, 0);
	assert_slot(4, 7, 490, 1);
}

static void test_large_charge_misses(void **state _unused_)
{
	set_slot(0, 7, WORD_HIT_MAX - 1, 0);
	/* A neighbour, whose word such a subtraction would bring into reach. */
	set_slot(1, 6, 0, 1);
	assert_false(stock_consume(&area, 7, WORD_HIT_MAX));
	assert_false(stock_consume(&area, 7, WORD_HIT_MAX + WORD_HIT_MAX / 2));
	assert_false(stock_consume(&area, 7, WORD_BYTES_MAX));
	assert_false(stock_consume(&area, 7, UINT64_MAX));
	assert_slot(0, 7, WORD_HIT_MAX - 1, 0);
	assert_slot(1, 6, 0, 1);
	assert_true(stock_consume(&area, 7, WORD_HIT_MAX - 1));
	assert_slot(0, 7, 0, 0);
}

static void test_add(void **state _unused_)
{
	for (unsigned i = 0; i < STOCK_SLOTS; i++)
		for (unsigned parity = 0; parity < 2; parity++) {
			set_slot(i, 7, 0, parity);
			assert_true(stock_add(&area, 7, 600, HIGH));
			assert_slot(i, 7, 600, parity);
			assert_false(stock_add(&area, 7, 401, HIGH));
			assert_false(stock_add(&area, 8, 1, HIGH));
			assert_slot(i, 7, 600, parity);
			assert_true(stock_add(&area, 7, 400, HIGH));
			assert_slot(i, 7, HIGH, parity);
			assert_false(stock_add(&area, 7, 1, HIGH));
			assert_false(stock_add(&area, 7, UINT64_MAX, HIGH));
			assert_slot(i, 7, HIGH, parity);
			set_slot(i, 0, 0, parity);
		}
	assert_false(stock_add(&area, 7, 1, HIGH));
	for (unsigned i = 0; i < STOCK_SLOTS; i++)
		assert_slot(i, 0, 0, 1);
}

/* A mark that was lowered while more lay there. */
static void test_above_a_lowered_mark(void **state _unused_)
{
	struct stock_carry carry[2];

	set_slot(3, 7, 5000, 1);
	assert_false(stock_add(&area, 7, 1, HIGH));
	assert_int_equal(put(7, 1, carry), 1);
	assert_slot(3, 7, LOW, 1);
	assert_carried(carry[0], 7, 5001 - LOW);
}

static void test_put_takes_an_empty_slot(void **state _unused_)
{
	struct stock_carry carry[2];

	fill(1);
	set_slot(4, 0, 0, 1);
	assert_int_equal(put(20, 300, carry), 0);
	assert_slot(4, 20, 300, 1);
	for (unsigned i = 0; i < STOCK_SLOTS; i++)
		if (i != 4)
			assert_slot(i, 1 + i, 100, i & 1);

	/* The second time it has a slot of its own. */
	assert_int_equal(put(20, 300, carry), 0);
	assert_slot(4, 20, 600, 1);
}

/* At HIGH it stays, above it LOW does, in a slot that was there and in a new one. */
static void test_marks(void **state _unused_)
{
	struct stock_carry carry[2];

	set_slot(2, 7, 600, 1);
	assert_int_equal(put(7, 400, carry), 0);
	assert_slot(2, 7, HIGH, 1);
	assert_int_equal(put(7, 1, carry), 1);
	assert_slot(2, 7, LOW, 1);
	assert_carried(carry[0], 7, HIGH + 1 - LOW);

	assert_int_equal(put(8, HIGH, carry), 0);
	assert_slot(0, 8, HIGH, 0);
	assert_int_equal(put(9, HIGH + 1, carry), 1);
	assert_slot(1, 9, LOW, 0);
	assert_carried(carry[0], 9, HIGH + 1 - LOW);
}

/* Three times round: each slot once before any slot again. */
static void test_evicts_in_turn(void **state _unused_)
{
	struct stock_carry carry[2];
	uint32_t next = 100;

	fill(1);
	for (unsigned round = 0; round < 3; round++) {
		bool seen[STOCK_SLOTS] = {0};
		word before[STOCK_SLOTS];

		for (unsigned i = 0; i < STOCK_SLOTS; i++)
			before[i] = percpu_load(&slots[i]);
		for (unsigned i = 0; i < STOCK_SLOTS; i++) {
			unsigned at = 0;

			assert_int_equal(put(next, next, carry), 1);
			while (at < STOCK_SLOTS && word_key(percpu_load(&slots[at])) != next)
				at++;
			assert_in_range(at, 0, STOCK_SLOTS - 1);
			assert_false(seen[at]);
			seen[at] = true;
			assert_slot(at, next, next, at & 1);
			assert_carried(carry[0], word_key(before[at]), word_bytes(before[at]));
			next++;
		}
	}
}

static void test_excess_and_evicted_at_once(void **state _unused_)
{
	struct stock_carry carry[2];

	fill(1);
	assert_int_equal(put(20, 5000, carry), 2);
	assert_slot(0, 20, LOW, 0);
	assert_carried(carry[0], 20, 5000 - LOW);
	assert_carried(carry[1], 1, 100);
}

static void test_nothing_evicted_is_not_carried(void **state _unused_)
{
	struct stock_carry carry[2];

	fill(1);
	set_slot(0, 1, 0, 1);
	assert_int_equal(put(20, 5, carry), 0);
	assert_slot(0, 20, 5, 1);
}

/* Slots hold less than WORD_HIT_MAX, so this cannot be put down anywhere. */
static void test_large_put_is_carried(void **state _unused_)
{
	static const uint64_t large[] = {WORD_HIT_MAX, WORD_BYTES_MAX};
	struct stock_page *before;
	struct stock_carry carry[2];

	fill(7);
	before = copy_pages();
	for (size_t i = 0; i < ELEMENTS(large); i++) {
		uint32_t cpu = 12345;

		assert_int_equal(stock_put(&area, 7, large[i], HIGH, LOW, carry, &cpu), 1);
		assert_carried(carry[0], 7, large[i]);
		assert_true(cpu == UINT32_MAX);
		assert_untouched(before);
	}
	assert_int_equal(put(7, WORD_HIT_MAX - 1, carry), 1);
	assert_slot(0, 7, LOW, 0);
	assert_carried(carry[0], 7, WORD_HIT_MAX - 1 + 100 - LOW);
	free(before);
}

/* A CPU beyond the segment's, as in a forked child (no CPUs at all): all is a miss. */
static void test_no_such_cpu(void **state _unused_)
{
	struct percpu_area beyond[] = {{0}, percpu_area_make(pages, here, kind)};
	struct stock_page *before;

	fill(7);
	before = copy_pages();
	for (size_t i = 0; i < ELEMENTS(beyond); i++) {
		struct stock_carry carry[2];
		uint32_t cpu = 12345;

		assert_false(stock_consume(&beyond[i], 7, 1));
		assert_false(stock_consume(&beyond[i], 7, 0));
		assert_false(stock_add(&beyond[i], 7, 1, HIGH));
		assert_int_equal(stock_put(&beyond[i], 7, 10, HIGH, LOW, carry, &cpu), 1);
		assert_carried(carry[0], 7, 10);
		assert_true(cpu == UINT32_MAX);
		assert_int_equal(stock_put(&beyond[i], 7, HIGH + 1, HIGH, LOW, carry, &cpu), 1);
		assert_carried(carry[0], 7, HIGH + 1);
	}
	assert_untouched(before);
	free(before);
}

/* Another CPU's stock is not looked at. */
static void test_other_cpus_are_left_alone(void **state _unused_)
{
	struct stock_carry carry[2];
	struct stock_page *before;

	if (area.n_cpus < 2) {
		print_message("skipped: the machine has one CPU\n");
		skip();
	}
	for (unsigned cpu = 0; cpu < area.n_cpus; cpu++)
		if (cpu != here)
			atomic_store(&pages[cpu].stock.slot[0], word_make(7, 100, 0));
	before = copy_pages();
	assert_false(stock_consume(&area, 7, 1));
	assert_false(stock_add(&area, 7, 1, HIGH));
	assert_int_equal(put(7, 10, carry), 0);
	assert_slot(0, 7, 10, 0);
	set_slot(0, 0, 0, 0);
	assert_untouched(before);
	free(before);
}

static enum stock_room room_of(const struct percpu_area *a, uint32_t key)
{
	uint32_t cpu;

	return stock_room(a, key, &cpu);
}

/* Its own slot, or an empty one; else one in so many, so that others keep theirs. */
static void test_room(void **state _unused_)
{
	struct percpu_area nowhere = {0};
	unsigned n = 0;

	assert_int_equal(room_of(&nowhere, 7), STOCK_FULL);
	assert_int_equal(room_of(&area, 7), STOCK_FREE);
	fill(7);
	assert_int_equal(room_of(&area, 7), STOCK_FREE);
	assert_int_equal(room_of(&area, 13), STOCK_FREE);
	for (unsigned i = 0; i < 10 * STOCK_EVICT_ONE_IN; i++) {
		enum stock_room room = room_of(&area, 20);

		assert_int_not_equal(room, STOCK_FREE);
		n += room == STOCK_EVICT;
	}
	assert_int_equal(n, 10);
	/* Room is found again, by who looks. */
	set_slot(3, 10, 0, 0);
	for (n = 0; room_of(&area, 20) != STOCK_FREE; n++)
		assert_true(n < STOCK_LOOK_ONE_IN);
	assert_int_equal(room_of(&area, 20), STOCK_FREE);
}

/* As a put, but that it leaves another's credit alone. */
static void test_place(void **state _unused_)
{
	struct stock_page *before;
	uint32_t cpu;

	fill(7);
	before = copy_pages();
	assert_int_equal(stock_place(&area, 20, 50, HIGH, LOW, &cpu), 50);
	assert_true(cpu == UINT32_MAX);
	assert_untouched(before);
	free(before);
	assert_int_equal(stock_place(&area, 9, 50, HIGH, LOW, &cpu), 0);
	assert_true(cpu == UINT32_MAX);
	assert_slot(2, 9, 150, 0);
	assert_int_equal(stock_place(&area, 9, HIGH, HIGH, LOW, &cpu), HIGH + 150 - LOW);
	assert_slot(2, 9, LOW, 0);
	set_slot(5, 12, 0, 1);
	assert_int_equal(stock_place(&area, 20, 50, HIGH, LOW, &cpu), 0);
	assert_int_equal(cpu, here);
	assert_slot(5, 20, 50, 1);
}

static void test_take(void **state _unused_)
{
	percpu_word *slot = &slots[5];

	set_slot(5, 7, 100, 0);
	assert_int_equal(stock_take(&area, slot, here, 7, 101, 0), -EAGAIN);
	assert_int_equal(stock_take(&area, slot, here, 7, 100, 1), -EAGAIN);
	assert_int_equal(stock_take(&area, slot, here, 6, 100, 0), -EAGAIN);
	assert_int_equal(stock_take(&area, slot, here, 8, 0, 0), -EAGAIN);
	assert_slot(5, 7, 100, 0);
	assert_int_equal(stock_take(&area, slot, here, 7, 30, 0), 0);
	assert_slot(5, 7, 70, 1);
	assert_int_equal(stock_take(&area, slot, here, 7, 30, 0), -EAGAIN);
	assert_int_equal(stock_take(&area, slot, here, 7, 70, 1), 0);
	assert_slot(5, 7, 0, 0);
	assert_int_equal(stock_take(&area, slot, here, 7, 1, 0), -EAGAIN);
	assert_int_equal(stock_take(&area, slot, here, 7, 0, 0), 0);
	assert_slot(5, 7, 0, 1);

	set_slot(5, WORD_KEY_VOID - 1, WORD_BYTES_MAX, 1);
	assert_int_equal(stock_take(&area, slot, here, WORD_KEY_VOID - 1, WORD_BYTES_MAX, 1), 0);
	assert_slot(5, WORD_KEY_VOID - 1, 0, 0);
}

/* As a take, but of a slot that is empty then nothing is left: an add would find it there. */
static void test_expel(void **state _unused_)
{
	percpu_word *slot = &slots[5];

	for (unsigned parity = 0; parity < 2; parity++) {
		set_slot(5, 7, 100, parity);
		assert_int_equal(stock_expel(&area, slot, here, 7, 101, parity), -EAGAIN);
		assert_int_equal(stock_expel(&area, slot, here, 7, 100, !parity), -EAGAIN);
		assert_int_equal(stock_expel(&area, slot, here, 8, 100, parity), -EAGAIN);
		assert_slot(5, 7, 100, parity);
		/* with what has come meanwhile it is the key's still */
		assert_int_equal(stock_expel(&area, slot, here, 7, 30, parity), 0);
		assert_slot(5, 7, 70, !parity);
		assert_int_equal(stock_expel(&area, slot, here, 7, 70, !parity), 0);
		assert_slot(5, 0, 0, parity);
		assert_false(stock_add(&area, 7, 1, HIGH));
		assert_int_equal(stock_expel(&area, slot, here, 7, 0, parity), -EAGAIN);
		/* one with nothing in it */
		set_slot(5, 7, 0, parity);
		assert_int_equal(stock_expel(&area, slot, here, 7, 0, parity), 0);
		assert_slot(5, 0, 0, !parity);
	}
}

static void test_clear(void **state _unused_)
{
	for (unsigned parity = 0; parity < 2; parity++) {
		set_slot(5, 7, 100, parity);
		assert_int_equal(stock_clear(&area, &slots[5], here, 8), 0);
		assert_slot(5, 7, 100, parity);
		assert_int_equal(stock_clear(&area, &slots[5], here, 7), 0);
		assert_slot(5, 0, 0, !parity);
		assert_int_equal(stock_clear(&area, &slots[5], here, 7), 0);
		assert_slot(5, 0, 0, !parity);
	}
}

/* The one who moves credit may be elsewhere by the end. */
static void test_moving(void **state _unused_)
{
	unsigned last = area.n_cpus - 1;
	_Atomic uint32_t *first, *second;

	first = stock_move_begin(&area, last);
	second = stock_move_begin(&area, last);
	assert_int_equal(atomic_load(&pages[last].moving), 2);
	stock_move_end(first);
	assert_int_equal(atomic_load(&pages[last].moving), 1);
	stock_move_end(second);
	for (unsigned cpu = 0; cpu < area.n_cpus; cpu++)
		assert_int_equal(atomic_load(&pages[cpu].moving), 0);
	for (unsigned i = 0; i < STOCK_SLOTS; i++)
		assert_slot(i, 0, 0, 0);
}

/* ------------------------------------------------------------------ lost races */

/* Each operation gives up after a bounded number of them, with nothing changed. */
static void test_gives_up(void **state _unused_)
{
	const unsigned ever = 1000;
	struct stock_carry carry[2] = {0};
	struct stock_page *before;
	uint32_t cpu = 12345;

	fill(7);
	before = copy_pages();
	lose = ever;
	if (kind == PERCPU_ATOMIC) {
		assert_false(stock_consume(&area, 7, 1));
		assert_false(stock_add(&area, 7, 1, HIGH));
	}
	assert_int_equal(stock_take(&area, &slots[0], here, 7, 1, 0), -EAGAIN);
	assert_int_equal(stock_expel(&area, &slots[0], here, 7, 100, 0), -EAGAIN);
	assert_int_equal(stock_clear(&area, &slots[0], here, 7), -EAGAIN);
	assert_untouched(before);

	assert_int_equal(stock_put(&area, 7, 33, HIGH, LOW, carry, &cpu), 1);
	assert_carried(carry[0], 7, 33);
	assert_true(cpu == UINT32_MAX);
	for (unsigned i = 0; i < STOCK_SLOTS; i++)
		assert_slot(i, 7 + i, 100, i & 1);
	assert_int_equal(stock_put(&area, 20, HIGH + 7, HIGH, LOW, carry, &cpu), 1);
	assert_carried(carry[0], 20, HIGH + 7);
	/* Seven words were tried, none of them for ever. */
	assert_in_range(lose, ever - 7 * PERCPU_TRIES, ever - 5);
	free(before);
}

/* And wins when it loses fewer. */
static void test_tries_again(void **state _unused_)
{
	struct stock_carry carry[2];

	set_slot(0, 7, 100, 0);
	if (kind == PERCPU_ATOMIC)
		lose = PERCPU_TRIES - 1;
	assert_true(stock_consume(&area, 7, 1));
	if (kind == PERCPU_ATOMIC)
		lose = PERCPU_TRIES - 1;
	assert_true(stock_add(&area, 7, 2, HIGH));
	lose = PERCPU_TRIES - 1;
	assert_int_equal(put(7, 4, carry), 0);
	lose = PERCPU_TRIES - 1;
	assert_int_equal(put(8, 8, carry), 0);
	assert_slot(0, 7, 105, 0);
	assert_slot(1, 8, 8, 0);
	lose = PERCPU_TRIES - 1;
	assert_int_equal(stock_take(&area, &slots[0], here, 7, 5, 0), 0);
	assert_slot(0, 7, 100, 1);
	lose = PERCPU_TRIES - 1;
	assert_int_equal(stock_clear(&area, &slots[0], here, 7), 0);
	assert_slot(0, 0, 0, 0);
	assert_int_equal(lose, 0);
}

enum op {
	CONSUME,
	ADD,
	PUT,
	PUT_MUCH,
	PUT_OTHER,
	TAKE,
	CLEAR,
	OPS,
};

#define RACE_KEYS 12
#define MINE 1
#define OTHER 9

static int64_t outside[RACE_KEYS]; /* by key: what is in no slot, less what came from there */
static unsigned flips[STOCK_SLOTS];
static enum op inner;

static void account(const struct stock_carry *carry, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		outside[carry[i].key] += (int64_t)carry[i].bytes;
}

static void put_and_account(uint32_t key, uint64_t bytes)
{
	struct stock_carry carry[2];
	uint32_t cpu;

	account(carry, stock_put(&area, key, bytes, HIGH, LOW, carry, &cpu));
	outside[key] -= (int64_t)bytes;
}

static void take_and_account(void)
{
	for (unsigned i = 0; i < STOCK_SLOTS; i++) {
		word w = percpu_load(&slots[i]);

		if (word_key(w) != MINE ||
			stock_take(&area, &slots[i], here, MINE, word_bytes(w) / 2,
				word_parity(w)) < 0)
			continue;
		outside[MINE] += (int64_t)(word_bytes(w) / 2);
		flips[i]++;
	}
}

/* Only between others' steps: what it drops must not change while it is looked at. */
static void clear_and_account(void)
{
	for (unsigned i = 0; i < STOCK_SLOTS; i++) {
		word w = percpu_load(&slots[i]);

		assert_int_equal(stock_clear(&area, &slots[i], here, MINE), 0);
		if (word_key(w) != MINE)
			continue;
		outside[MINE] += (int64_t)word_bytes(w);
		flips[i]++;
	}
}

static void run_op(enum op op)
{
	switch (op) {
	case CONSUME:
		outside[MINE] += stock_consume(&area, MINE, 70) ? 70 : 0;
		break;
	case ADD:
		outside[MINE] -= stock_add(&area, MINE, 80, HIGH) ? 80 : 0;
		break;
	case PUT:
		put_and_account(MINE, 90);
		break;
	case PUT_MUCH:
		put_and_account(MINE, HIGH + 500);
		break;
	case PUT_OTHER:
		put_and_account(OTHER, 110);
		break;
	case TAKE:
		take_and_account();
		break;
	case CLEAR:
		clear_and_account();
		break;
	case OPS:
		break;
	}
}

static void run_inner(void)
{
	run_op(inner);
}

/* Empty; the key in one slot; full with it; full without it; full, another slot empty; twice. */
static void arrange(unsigned how)
{
	for (unsigned i = 0; i < STOCK_SLOTS; i++)
		set_slot(i, 0, 0, i & 1);
	if (how == 1)
		set_slot(2, MINE, 100, 0);
	if (how >= 2)
		fill(how == 2 ? MINE : MINE + 1);
	if (how == 4)
		set_slot(6, 0, 0, 0);
	if (how == 5) {
		set_slot(1, MINE, 100, 1);
		set_slot(5, MINE, 900, 1);
	}
}

static void sum_slots(int64_t sum[static RACE_KEYS])
{
	memset(sum, 0, RACE_KEYS * sizeof(*sum));
	for (unsigned i = 0; i < STOCK_SLOTS; i++) {
		word w = percpu_load(&slots[i]);

		assert_in_range(word_key(w), 0, RACE_KEYS - 1);
		if (word_key(w) == 0)
			assert_int_equal(word_bytes(w), 0);
		sum[word_key(w)] += (int64_t)word_bytes(w);
	}
}

static void race(unsigned how, enum op outer, unsigned pass)
{
	int64_t before[RACE_KEYS], after[RACE_KEYS];

	arrange(how);
	memset(outside, 0, sizeof(outside));
	memset(flips, 0, sizeof(flips));
	sum_slots(before);
	let_pass = pass;
	meanwhile = run_inner;
	run_op(outer);
	meanwhile = NULL;
	sum_slots(after);
	for (unsigned k = 0; k < RACE_KEYS; k++)
		if (after[k] + outside[k] != before[k])
			fail_msg("start %u, operation %d, after %u stores operation %d: key %u",
				how, outer, pass, inner, k);
	for (unsigned i = 0; i < STOCK_SLOTS; i++)
		if (word_parity(percpu_load(&slots[i])) != ((i ^ flips[i]) & 1))
			fail_msg("start %u, operation %d, after %u stores operation %d: parity of "
				 "slot %u",
				how, outer, pass, inner, i);
}

static void test_every_race(void **state _unused_)
{
	for (unsigned how = 0; how < 6; how++)
		for (enum op outer = CONSUME; outer < CLEAR; outer++)
			for (inner = CONSUME; inner < OPS; inner++)
				for (unsigned pass = 0; pass < 3; pass++)
					race(how, outer, pass);
}

/* ------------------------------------------------------------------ all at once */

#define WORKERS 4
#define KEYS 15            /* two for each slot, so that they evict each other */
#define TOTAL 20000        /* bytes of a key */
#define ROUNDS 200000      /* of each worker */
#define SIGNAL_NSEC 100000 /* from the end of a handler to the next signal */

struct worker {
	pthread_t thread;
	timer_t timer;
	uint64_t seed;
	uint64_t held[KEYS + 1]; /* charged by the thread */
	uint64_t seed_in_handler, signals;
	uint64_t held_in_handler[KEYS + 1];
};

static _Atomic uint64_t reserve[KEYS + 1];
static _Atomic bool stop_draining;
static uint64_t drained;
static __thread struct worker *self;

static uint64_t next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static void put_down(uint32_t key, uint64_t bytes)
{
	struct stock_carry carry[2];
	uint32_t cpu;
	unsigned n = stock_put(&area, key, bytes, HIGH, LOW, carry, &cpu);

	for (unsigned i = 0; i < n; i++)
		atomic_fetch_add(&reserve[carry[i].key], carry[i].bytes);
}

static bool charge(uint32_t key, uint64_t bytes)
{
	uint64_t have = atomic_load(&reserve[key]), n;

	if (stock_consume(&area, key, bytes))
		return true;
	do {
		if (have < bytes)
			return false;
		n = have < bytes + LOW ? have : bytes + LOW;
	} while (!atomic_compare_exchange_weak(&reserve[key], &have, have - n));
	if (n > bytes)
		put_down(key, n - bytes);
	return true;
}

static void step(uint64_t *seed, uint64_t held[static KEYS + 1])
{
	uint64_t random = next_random(seed);
	uint32_t key = 1 + random % KEYS;
	uint64_t bytes = 1 + (random >> 32) % 300;

	if (random >> 20 & 1) {
		held[key] += charge(key, bytes) ? bytes : 0;
		return;
	}
	/* At times all at once, above HIGH. */
	if (bytes > held[key] || (random >> 21) % 8 == 0)
		bytes = held[key];
	held[key] -= bytes;
	if (bytes > 0 && !stock_add(&area, key, bytes, HIGH))
		put_down(key, bytes);
}

static void arm(struct worker *w)
{
	struct itimerspec t = {.it_value.tv_nsec = SIGNAL_NSEC};

	timer_settime(w->timer, 0, &t, NULL);
}

static void on_signal(int signal _unused_)
{
	int saved = errno;

	self->signals++;
	for (int i = 0; i < 3; i++)
		step(&self->seed_in_handler, self->held_in_handler);
	arm(self);
	errno = saved;
}

static void *work(void *arg)
{
	struct worker *w = self = arg;
	struct sigevent to_me = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};

	to_me._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	if (timer_create(CLOCK_MONOTONIC, &to_me, &w->timer) < 0)
		return w;
	arm(w);
	for (unsigned i = 0; i < ROUNDS; i++)
		step(&w->seed, w->held);
	timer_delete(w->timer);
	return NULL;
}

/* A sequence reaches the words of its own CPU alone. */
static void go_to(unsigned cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

/*
 * Takes what it sees, all or half, and gives it to the reserves. Nobody else flips a parity, so it
 * has to find each as it left it.
 */
static void *drain(void *arg _unused_)
{
	unsigned *parity = calloc(area.n_cpus * STOCK_SLOTS, sizeof(*parity));
	void *bad = parity ? NULL : &reserve;

	while (!bad && !atomic_load(&stop_draining))
		for (unsigned n = 0; n < area.n_cpus * STOCK_SLOTS; n++) {
			percpu_word *slot = &pages[n / STOCK_SLOTS].stock.slot[n % STOCK_SLOTS];
			word w = percpu_load(slot);
			uint64_t bytes = n & 1 ? word_bytes(w) : word_bytes(w) / 2;

			if (n % STOCK_SLOTS == 0 && kind == PERCPU_RSEQ)
				go_to(n / STOCK_SLOTS);
			if (word_parity(w) != parity[n])
				bad = slot;
			if (bytes == 0 ||
				stock_take(&area, slot, n / STOCK_SLOTS, word_key(w), bytes,
					word_parity(w)) < 0)
				continue;
			parity[n] = !parity[n];
			atomic_fetch_add(&reserve[word_key(w)], bytes);
			drained += bytes;
		}
	free(parity);
	return bad;
}

static void assert_conserved(const struct worker *workers)
{
	uint64_t sum[KEYS + 1] = {0};

	for (unsigned n = 0; n < area.n_cpus * STOCK_SLOTS; n++) {
		word w = percpu_load(&pages[n / STOCK_SLOTS].stock.slot[n % STOCK_SLOTS]);

		assert_in_range(word_key(w), 0, KEYS);
		assert_in_range(word_bytes(w), 0, HIGH);
		sum[word_key(w)] += word_bytes(w);
	}
	assert_int_equal(sum[0], 0);
	for (unsigned k = 1; k <= KEYS; k++) {
		sum[k] += atomic_load(&reserve[k]);
		for (unsigned i = 0; i < WORKERS; i++)
			sum[k] += workers[i].held[k] + workers[i].held_in_handler[k];
		assert_int_equal(sum[k], TOTAL);
	}
}

static void test_conserved_by_threads(void **state _unused_)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
	struct worker workers[WORKERS] = {0};
	pthread_t drainer;
	void *result;

	assert_int_equal(sched_setaffinity(0, sizeof(allowed), &allowed), 0);
	assert_int_equal(sigaction(SIGUSR1, &sa, &before), 0);
	for (unsigned k = 1; k <= KEYS; k++)
		atomic_store(&reserve[k], TOTAL);
	drained = 0;
	atomic_store(&stop_draining, false);
	assert_int_equal(pthread_create(&drainer, NULL, drain, NULL), 0);
	for (unsigned i = 0; i < WORKERS; i++) {
		workers[i].seed = UINT64_C(0x9e3779b97f4a7c15) * (i + 1);
		workers[i].seed_in_handler = UINT64_C(0xd1b54a32d192ed03) * (i + 1);
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < WORKERS; i++) {
		assert_int_equal(pthread_join(workers[i].thread, &result), 0);
		assert_null(result);
		assert_true(workers[i].signals > 0);
	}
	atomic_store(&stop_draining, true);
	assert_int_equal(pthread_join(drainer, &result), 0);
	assert_null(result);
	assert_true(drained > 0);
	assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);

	assert_conserved(workers);
}

static void test_no_sequences(void **state _unused_)
{
	print_message("skipped: the threads of this process have no restartable sequences\n");
	skip();
}

#define BY(how, test)                                                                              \
	{                                                                                          \
#test " by " #how, test, set_up_##how, tear_down, NULL                             \
	}
#define BOTH(test) BY(atomics, test), BY(sequences, test)

int main(void)
{
	/* In pairs. */
	struct CMUnitTest tests[] = {
		BOTH(test_consume),
		BOTH(test_second_slot_of_a_key),
		BOTH(test_large_charge_misses),
		BOTH(test_add),
		BOTH(test_above_a_lowered_mark),
		BOTH(test_put_takes_an_empty_slot),
		BOTH(test_marks),
		BOTH(test_evicts_in_turn),
		BOTH(test_excess_and_evicted_at_once),
		BOTH(test_nothing_evicted_is_not_carried),
		BOTH(test_large_put_is_carried),
		BOTH(test_no_such_cpu),
		BOTH(test_other_cpus_are_left_alone),
		BOTH(test_room),
		BOTH(test_place),
		BOTH(test_take),
		BOTH(test_expel),
		BOTH(test_clear),
		BOTH(test_moving),
		BOTH(test_gives_up),
		BOTH(test_tries_again),
		BOTH(test_every_race),
		BOTH(test_conserved_by_threads),
	};

	if (!percpu_has_rseq())
		for (size_t i = 1; i < ELEMENTS(tests); i += 2) {
			tests[i].test_func = test_no_sequences;
			tests[i].setup_func = NULL;
			tests[i].teardown_func = NULL;
		}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
