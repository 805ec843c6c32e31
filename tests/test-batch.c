/* SPDX-License-Identifier: MIT */

/*
 * The batch grows while misses follow each other, and is small again after a rest.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/batch.h"
#include "core/util.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_rest),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
