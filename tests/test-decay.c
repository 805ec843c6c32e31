/* SPDX-License-Identifier: MIT */

/*
 * Programs that have come to rest give back what they do not use, without being asked, and go on as
 * before when they are busy again.
 */

#include "harness.h"

#include <errno.h>
#include <stdlib.h>

#define K UINT64_C(1024)
#define PROGRAMS 3
/* What a program may keep of it, by all its CPUs together. */
#define KEPT (64 * K)

static struct harness harness;
static struct tally *tally;

static int set_up(void **state)
{
	(void)state;
	harness_start(&harness, "");
	tally = harness_open(&harness);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	tally_close(tally);
	harness_stop(&harness);
	return 0;
}

static uint64_t stock(const char *path)
{
	return harness_value(tally, path, "memory.stat", "stock");
}

static int rests(void *userdata)
{
	return stock(userdata) <= PROGRAMS * KEPT;
}

static void test_rest(void **state)
{
	struct actor a[PROGRAMS];

	(void)state;
	for (unsigned i = 0; i < PROGRAMS; i++)
		actor_start(&a[i], &harness, "/rest");
	/* On every CPU that there is, and some in the reserve. */
	for (unsigned i = 0; i < PROGRAMS; i++)
		for (unsigned cpu = 0; cpu < 64; cpu++) {
			if (actor_do(&a[i], ACTOR_PIN, cpu, 0) < 0)
				continue;
			for (unsigned n = 0; n < 10; n++)
				assert_int_equal(actor_do(&a[i], ACTOR_CHARGE, 100 * K, 0), 0);
			for (unsigned n = 0; n < 9; n++)
				assert_int_equal(actor_do(&a[i], ACTOR_UNCHARGE, 100 * K, 0), 0);
		}
	assert_true(stock("/rest") > PROGRAMS * KEPT);

	assert_true(harness_wait(rests, "/rest", HARNESS_PATIENCE_MS));
	assert_true(harness_current(tally, "/rest") >= PROGRAMS * 100 * K);
	assert_int_equal(harness_current(tally, "/rest") % (100 * K), 0);
	for (unsigned i = 0; i < PROGRAMS; i++)
		assert_int_equal(actor_do(&a[i], ACTOR_CHARGE, 100 * K, 0), 0);
	for (unsigned i = 0; i < PROGRAMS; i++)
		actor_kill(&a[i]);
}

/* What nobody came to fetch lies where it can be taken back: in the reserve. */
static void test_unread_answers(void **state)
{
	struct actor a;

	(void)state;
	actor_start(&a, &harness, "/tries");
	assert_int_equal(actor_do(&a, ACTOR_TRY, 10 * K, 0), -EAGAIN);
	assert_true(harness_wait(rests, "/tries", HARNESS_PATIENCE_MS));
	assert_int_equal(stock("/tries"), 0);
	assert_int_equal(harness_current(tally, "/tries"), 0);
	actor_kill(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rest),
		cmocka_unit_test(test_unread_answers),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
