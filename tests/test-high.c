/* SPDX-License-Identifier: MIT */

/*
 * The delays of memory.high, number by number, and which pools it concerns.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "core/high.h"
#include "core/util.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * KIB)
#define UNIT (256 * KIB)

static void test_numbers(void **state _unused_)
{
	/* 2 %: (0.02 · 2^20)² = 20971² ; · 10^6 / 2^34 = 25598 µs for 64 pages */
	assert_int_equal(high_delay(102 * MIB, 100 * MIB, UNIT), 25598);
	assert_int_equal(high_delay(102 * MIB, 100 * MIB, 2 * UNIT), 51196);
	assert_int_equal(high_delay(102 * MIB, 100 * MIB, UNIT + 4096), 25598 * 65 / 64);
	/* below 10 ms there is none */
	assert_int_equal(high_delay(102 * MIB, 100 * MIB, UNIT / 4), 0);
	/* 10 %: 104857² · 10^6 / 2^34 = 639992 */
	assert_int_equal(high_delay(110 * MIB, 100 * MIB, UNIT), 639992);
	/* and never more than 2 s: 20 % would be 2560 ms */
	assert_int_equal(high_delay(120 * MIB, 100 * MIB, UNIT), 2000000);
	assert_int_equal(high_delay(110 * MIB, 100 * MIB, 100 * MIB), 2000000);
}

static void test_edges(void **state _unused_)
{
	assert_int_equal(high_delay(0, 0, UNIT), 0);
	assert_int_equal(high_delay(100, 100, UNIT), 0);
	assert_int_equal(high_delay(100, UINT64_MAX, UNIT), 0);
	assert_int_equal(high_delay(UINT64_MAX, UINT64_MAX, UINT64_MAX), 0);
	/* without any high it is as if that were a page */
	assert_int_equal(high_delay(4096, 0, UNIT), 2000000);
	assert_int_equal(high_delay(41, 0, UNIT), high_delay(4096 + 41, 4096, UNIT));
	assert_int_equal(high_delay(UINT64_MAX, 0, UINT64_MAX), 2000000);
	assert_int_equal(high_delay(UINT64_MAX, 1, 1), 2000000);
}

/* The delay grows with usage and with the charge, never the other way. */
static void test_monotonous(void **state _unused_)
{
	uint64_t last = 0;

	for (uint64_t usage = 90 * MIB; usage < 130 * MIB; usage += 64 * KIB) {
		uint64_t delay = high_delay(usage, 100 * MIB, UNIT);

		assert_true(delay >= last && delay <= HIGH_DELAY_MAX_USEC);
		assert_true(delay == 0 || delay > HIGH_DELAY_MIN_USEC);
		last = delay;
	}
	assert_int_equal(last, HIGH_DELAY_MAX_USEC);
}

/* ------------------------------------------------------------------ pools */

static uint64_t clock_usec = 1000000;

static uint64_t read_clock(void)
{
	return clock_usec;
}

struct asked {
	unsigned n;
	struct pool *pool[8];
	uint64_t bytes[8];
};

static void ask(void *userdata, struct pool *p, uint64_t bytes)
{
	struct asked *a = userdata;

	assert_true(a->n < ELEMENTS(a->pool));
	a->pool[a->n] = p;
	a->bytes[a->n++] = bytes;
}

static void test_pools(void **state _unused_)
{
	struct item_table items = {0};
	struct pool_tree *t = NULL;
	struct pool *a, *b, *c = NULL;
	struct asked asked = {0};

	assert_int_equal(pool_tree_new(&items, &t), 0);
	t->now = read_clock;
	assert_int_equal(pool_create_all(t, "/a/b/c", &c), 0);
	b = c->parent;
	a = b->parent;
	counter_charge(&c->counter, 110 * MIB);
	assert_int_equal(high_charged(c, UNIT, ask, &asked), 0);
	assert_int_equal(asked.n, 0);

	/* the one that is furthest above decides, each is asked, and each counts */
	a->high = 100 * MIB;
	c->high = 108 * MIB;
	assert_int_equal(high_charged(c, UNIT, ask, &asked), 639992);
	assert_int_equal(asked.n, 2);
	assert_ptr_equal(asked.pool[0], c);
	assert_int_equal(asked.bytes[0], 2 * MIB);
	assert_ptr_equal(asked.pool[1], a);
	assert_int_equal(asked.bytes[1], 10 * MIB);
	assert_int_equal(c->events_local[POOL_HIGH], 1);
	assert_int_equal(b->events_local[POOL_HIGH], 0);
	assert_int_equal(a->events_local[POOL_HIGH], 1);
	assert_int_equal(t->root->events[POOL_HIGH], 2);

	/* nobody is asked again at once; what counts and delays goes on */
	clock_usec += HIGH_ASK_USEC - 1;
	assert_int_equal(high_charged(c, UNIT, ask, &asked), 639992);
	assert_int_equal(asked.n, 2);
	assert_int_equal(a->events_local[POOL_HIGH], 2);
	clock_usec++;
	assert_int_equal(high_charged(c, UNIT, ask, &asked), 639992);
	assert_int_equal(asked.n, 4);

	/* one that observes counts, and that is all */
	clock_usec += HIGH_ASK_USEC;
	a->observe = true;
	assert_int_equal(
		high_charged(c, UNIT, ask, &asked), high_delay(110 * MIB, 108 * MIB, UNIT));
	assert_int_equal(asked.n, 5);
	assert_ptr_equal(asked.pool[4], c);
	assert_int_equal(a->events_local[POOL_HIGH], 4);
	pool_tree_free(t);
	item_table_clear(&items);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_monotonous),
		cmocka_unit_test(test_pools),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
