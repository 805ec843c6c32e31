/* SPDX-License-Identifier: MIT */

/*
 * tally_try_charge() above memory.high: what was granted to one who was told to try again is still
 * there when he does, although the pool is above and idle credit goes back for that. A charge at
 * memory.max gets it all the same.
 */

#include "harness.h"

#include <errno.h>
#include <unistd.h>

#include "core/util.h"

#define KIB UINT64_C(1024)
#define TRIES 50
#define PAUSE_USEC 20000 /* more than between two drains because of memory.high */

static struct harness harness;
static struct tally *tally;

static struct tally_pool *attach(const char *path, const char *high)
{
	struct tally_pool *p = harness_attach(tally, path);

	assert_int_equal(tally_set(tally, path, "memory.max", "10M"), 0);
	assert_int_equal(tally_set(tally, path, "memory.high", high), 0);
	return p;
}

/* Tries until it has it; -EAGAIN: it never does. */
static int try_charge(struct tally_pool *p, uint64_t bytes)
{
	int r = -EAGAIN;

	for (unsigned i = 0; i < TRIES && r == -EAGAIN; i++) {
		if (i > 0)
			usleep(PAUSE_USEC);
		r = tally_try_charge(p, bytes);
	}
	return r;
}

static void test_above_high(void **state _unused_)
{
	struct tally_pool *p = attach("/h", "600K");

	assert_int_equal(tally_charge(p, 500 * KIB), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(try_charge(p, 300 * KIB), 0);
	assert_int_equal(harness_value(tally, "/h", "memory.stat", "held"), 1400 * KIB);
	tally_detach(p);
}

static int is_granted(void *userdata)
{
	return harness_value(tally, userdata, "memory.stat", "stock") == 8192 * KIB;
}

/* Somebody else drives the pool further above its limit meanwhile, by so little that it takes no time. */
static void test_others_are_above(void **state _unused_)
{
	struct tally_pool *p = attach("/o", "600K"), *other = harness_attach(tally, "/o");
	unsigned granted = 0;

	assert_int_equal(tally_charge(other, 600 * KIB), 0);
	for (unsigned i = 0; i < 5; i++) {
		int r = tally_try_charge(p, 300 * KIB);

		assert_true(r == 0 || r == -EAGAIN);
		for (unsigned n = 0; n < 3; n++) {
			usleep(PAUSE_USEC);
			assert_int_equal(tally_charge(other, 1), 0);
		}
		granted += r == 0 || tally_try_charge(p, 300 * KIB) == 0;
	}
	assert_int_equal(granted, 5);
	tally_detach(other);
	tally_detach(p);
}

static void test_max_takes_it(void **state _unused_)
{
	struct tally_pool *p = attach("/m", "4M"), *other = harness_attach(tally, "/m");

	assert_int_equal(tally_try_charge(p, 8192 * KIB), -EAGAIN);
	assert_true(harness_wait(is_granted, "/m", HARNESS_PATIENCE_MS));
	assert_int_equal(tally_charge(other, 4096 * KIB), 0);
	tally_detach(other);
	tally_detach(p);
}

static int setup(void **state _unused_)
{
	harness_start(&harness, "");
	tally = harness_open(&harness);
	return 0;
}

static int teardown(void **state _unused_)
{
	tally = tally_close(tally);
	harness_stop(&harness);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_above_high),
		cmocka_unit_test(test_others_are_above),
		cmocka_unit_test(test_max_takes_it),
	};

	return cmocka_run_group_tests_name("retry", tests, setup, teardown);
}
