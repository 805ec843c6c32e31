/* SPDX-License-Identifier: MIT */

/*
 * The batch grows while misses follow each other, and is small again after a rest. A slot's mark
 * follows the size of the charges.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/batch.h"
#include "core/util.h"
#include "core/word.h"

#define LEAST UINT64_C(1000)
#define MOST UINT64_C(15000)

static void test_first(void **state _unused_)
{
	struct batch b = {0};

	assert_int_equal(batch_now(&b, 5, LEAST, MOST), LEAST);
	/* Soon after the machine was started, too. */
	assert_int_equal(batch_next(&b, 5, LEAST, MOST), LEAST);
	assert_int_equal(b.bytes, LEAST);
	assert_int_equal(b.last_usec, 5);
}

static void test_growth(void **state _unused_)
{
	static const uint64_t wanted[] = {LEAST, 2 * LEAST, 4 * LEAST, 8 * LEAST, MOST, MOST};
	struct batch b = {0};
	uint64_t now = 1000000;

	for (unsigned i = 0; i < ELEMENTS(wanted); i++) {
		assert_int_equal(batch_next(&b, now, LEAST, MOST), wanted[i]);
		now += BATCH_FAST_USEC - 1;
	}
	/* Not so fast: it stays. */
	now += 1;
	assert_int_equal(batch_next(&b, now, LEAST, MOST), MOST);
	b.bytes = 4 * LEAST;
	now += BATCH_FAST_USEC;
	assert_int_equal(batch_next(&b, now, LEAST, MOST), 4 * LEAST);
}

static void test_rest(void **state _unused_)
{
	struct batch b = {.bytes = 8 * LEAST, .last_usec = 1000000};
	uint64_t now = 1000000 + 2 * BATCH_REST_USEC;

	assert_int_equal(batch_now(&b, now - 1, LEAST, MOST), 4 * LEAST);
	assert_int_equal(batch_now(&b, now, LEAST, MOST), 2 * LEAST);
	assert_int_equal(batch_now(&b, now + 1000 * BATCH_REST_USEC, LEAST, MOST), LEAST);
	assert_int_equal(b.bytes, 8 * LEAST);
	assert_int_equal(batch_next(&b, now, LEAST, MOST), 2 * LEAST);
	assert_int_equal(b.bytes, 2 * LEAST);
}

/* The bounds are the configuration's, which may change. */
static void test_bounds(void **state _unused_)
{
	struct batch b = {.bytes = 8 * LEAST, .last_usec = 1000000};

	assert_int_equal(batch_now(&b, 1000000, LEAST, 2 * LEAST), 2 * LEAST);
	assert_int_equal(batch_now(&b, 1000000, 9 * LEAST, MOST), 9 * LEAST);
	/* One that lies above the other holds. */
	assert_int_equal(batch_next(&b, 1000000, MOST, LEAST), MOST);
	b.bytes = UINT64_MAX / 2 + 1;
	assert_true(batch_next(&b, 1000000, LEAST, UINT64_MAX) == UINT64_MAX);
}

static uint64_t high_after(uint64_t high, uint64_t bytes, unsigned times)
{
	while (times-- > 0)
		high = batch_high(high, bytes, LEAST);
	return high;
}

static void test_high(void **state _unused_)
{
	uint64_t big = LEAST / 4, aim = big * BATCH_HIGH_CHARGES;

	/* Small charges leave it where it is. */
	assert_int_equal(high_after(LEAST, LEAST / BATCH_HIGH_CHARGES, 100), LEAST);
	/* A big one moves it a part of the way, many move it there, and small ones back. */
	assert_int_equal(high_after(LEAST, big, 1), LEAST + (aim - LEAST) / 4);
	assert_int_equal(high_after(LEAST, big, 100), aim);
	assert_int_equal(high_after(aim, 1, 1), aim - (aim - LEAST) / 4);
	assert_int_equal(high_after(aim, 1, 100), LEAST);
}

static void test_high_bounds(void **state _unused_)
{
	assert_int_equal(high_after(LEAST, UINT64_MAX, 100), LEAST * BATCH_HIGH_TIMES);
	/* Whatever it was: a batch that was configured anew, or nothing yet. */
	assert_int_equal(batch_high(0, 1, LEAST), LEAST);
	assert_int_equal(
		batch_high(UINT64_MAX, LEAST * BATCH_HIGH_TIMES, LEAST), LEAST * BATCH_HIGH_TIMES);
	/* What a slot may hold at all. */
	for (uint64_t least = WORD_HIT_MAX / BATCH_HIGH_TIMES; least <= WORD_HIT_MAX / 2;
		least *= 2) {
		uint64_t high = least;

		for (unsigned i = 0; i < 100; i++)
			high = batch_high(high, WORD_HIT_MAX, least);
		assert_int_equal(high, WORD_HIT_MAX - 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_rest),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_high),
		cmocka_unit_test(test_high_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
