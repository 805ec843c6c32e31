/* SPDX-License-Identifier: MIT */

/*
 * Deadlines at the ends of their range, by the daemon and embedded: one that never comes waits until
 * there is room, whatever is reckoned with it on the way, and one that is over leaves nobody in line.
 */

#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "core/util.h"

#define MIB (UINT64_C(1) << 20)

static struct harness harness;
static struct tally *tally; /* of the daemon, or embedded: the test is the same */

struct waiter {
	struct tally_pool *pool;
	uint64_t deadline_usec;
	bool reserves;
	int result;
	pthread_t thread;
};

static struct tally_charge_args args_of(const struct waiter *w)
{
	return (struct tally_charge_args){.bytes = MIB, .deadline_usec = w->deadline_usec};
}

static void *wait_for_it(void *userdata)
{
	struct waiter *w = userdata;
	struct tally_charge_args a = args_of(w);
	struct tally_reservation *reservation;

	if (!w->reserves) {
		w->result = tally_charge_with(w->pool, &a, sizeof(a));
		if (w->result == 0)
			tally_uncharge(w->pool, MIB);
		return NULL;
	}
	w->result = tally_reserve(w->pool, &a, sizeof(a), &reservation);
	if (w->result == 0)
		tally_reservation_free(reservation);
	return NULL;
}

struct line {
	const char *path;
	uint64_t met; /* how often its limit had been met before */
};

/* Who meets it has its place in line from then on. */
static int has_joined(void *userdata)
{
	const struct line *l = userdata;

	return harness_value(tally, l->path, "memory.events", "max") > l->met;
}

static void check_waits(const char *path, uint64_t deadline_usec, bool reserves)
{
	struct tally_pool *holder = harness_attach(tally, path);
	struct waiter w = {.pool = harness_attach(tally, path),
		.deadline_usec = deadline_usec,
		.reserves = reserves,
		.result = 1};
	struct line line = {path, 0};

	assert_int_equal(tally_set(tally, path, "memory.max", "1M"), 0);
	assert_int_equal(tally_charge(holder, MIB), 0);
	line.met = harness_value(tally, path, "memory.events", "max");
	assert_int_equal(pthread_create(&w.thread, NULL, wait_for_it, &w), 0);
	assert_true(harness_wait(has_joined, &line, HARNESS_PATIENCE_MS));
	tally_uncharge(holder, MIB);
	pthread_join(w.thread, NULL);
	assert_int_equal(w.result, 0);
	tally_detach(w.pool);
	tally_detach(holder);
}

static void test_never(void **state _unused_)
{
	check_waits("/never", UINT64_MAX, false);
	check_waits("/never", UINT64_MAX, true);
}

/* What is added to it on the way passes the end of the range. */
static void test_almost_never(void **state _unused_)
{
	check_waits("/almost", UINT64_MAX - 1, false);
	check_waits("/almost", UINT64_MAX - 1000, true);
	check_waits("/almost", INT64_MAX, false);
}

static void test_over(void **state _unused_)
{
	struct tally_pool *holder = harness_attach(tally, "/over");
	struct waiter w = {.pool = harness_attach(tally, "/over")};
	struct tally_charge_args a;

	assert_int_equal(tally_set(tally, "/over", "memory.max", "1M"), 0);
	assert_int_equal(tally_charge(holder, MIB), 0);
	w.deadline_usec = harness_now() + 50000;
	a = args_of(&w);
	assert_int_equal(tally_charge_with(w.pool, &a, sizeof(a)), -ETIMEDOUT);
	w.deadline_usec = 1;
	a = args_of(&w);
	assert_int_equal(tally_charge_with(w.pool, &a, sizeof(a)), -ETIMEDOUT);
	tally_uncharge(holder, MIB);
	/* Behind somebody in line it would be refused. */
	assert_int_equal(tally_charge(w.pool, MIB), 0);
	tally_uncharge(w.pool, MIB);
	tally_detach(w.pool);
	tally_detach(holder);
}

static int setup_daemon(void **state _unused_)
{
	harness_start(&harness, "");
	tally = harness_open(&harness);
	return 0;
}

static int teardown_daemon(void **state _unused_)
{
	tally = tally_close(tally);
	harness_stop(&harness);
	return 0;
}

static int setup_embedded(void **state _unused_)
{
	return tally_open("embedded:", 0, &tally);
}

static int teardown_embedded(void **state _unused_)
{
	tally = tally_close(tally);
	return 0;
}

#define BOTH(test)                                                                                 \
	cmocka_unit_test_setup_teardown(test, setup_daemon, teardown_daemon),                      \
		cmocka_unit_test_setup_teardown(test, setup_embedded, teardown_embedded)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_never),
		BOTH(test_almost_never),
		BOTH(test_over),
	};

	return cmocka_run_group_tests_name("deadline", tests, NULL, NULL);
}
