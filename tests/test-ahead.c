/* SPDX-License-Identifier: MIT */

/*
 * What a refusal says about others: that it is for those ahead in line, and who holds the bytes that
 * count there. By the daemon, and embedded.
 */

#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/fairness.h"
#include "core/util.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define CONFIG                                                                                     \
	"[pool s]\npath = /s\nmemory.max = 1M\n[pool alone]\npath = /s/alone\nstandalone = yes\n"

static struct harness harness;
static struct tally *tally; /* of the daemon, or embedded: the test is the same */

static int charge_until(struct tally_pool *p, uint64_t bytes, uint64_t deadline_usec)
{
	struct tally_charge_args a = {.bytes = bytes, .deadline_usec = deadline_usec};

	return tally_charge_with(p, &a, sizeof(a));
}

static void *wait_for_all(void *pool)
{
	if (charge_until(pool, MIB, harness_now() + HARNESS_PATIENCE_MS * UINT64_C(1000)) == 0)
		tally_uncharge(pool, MIB);
	return NULL;
}

static int has_met_limit(void *path)
{
	return harness_value(tally, path, "memory.events", "max") > 0;
}

static void expect_last(const char *path, const char *part)
{
	_cleanup_(freep) char *text = harness_get(tally, path, "pool.refusals");
	char *end = strrchr(text, '\n'), *last;

	assert_non_null(end);
	*end = '\0';
	last = strrchr(text, '\n');
	assert_non_null(strstr(last ? last : text, part));
}

/* 1 M is the limit, 600 K are held, and all is waited for. */
static void test_line(void **state _unused_)
{
	struct tally_pool *holder = harness_attach(tally, "/l"),
			  *waits = harness_attach(tally, "/l"), *late = harness_attach(tally, "/l");
	pthread_t thread;

	assert_int_equal(tally_set(tally, "/l", "memory.max", "1M"), 0);
	assert_int_equal(tally_charge(holder, 600 * KIB), 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_all, waits), 0);
	assert_true(harness_wait(has_met_limit, "/l", HARNESS_PATIENCE_MS));
	usleep(2 * FAIRNESS_USEC);

	assert_int_equal(tally_charge(late, 2 * MIB), -ENOMEM);
	expect_last("/l", " ahead=0 ");
	assert_int_equal(tally_charge(late, 100 * KIB), -ENOMEM);
	expect_last("/l", " ahead=1048576 ");
	assert_int_equal(charge_until(late, 100 * KIB, harness_now() + 50000), -ETIMEDOUT);
	expect_last("/l", " ahead=1048576 ");

	tally_uncharge(holder, 600 * KIB);
	pthread_join(thread, NULL);
	tally_detach(late);
	tally_detach(waits);
	tally_detach(holder);
}

/* The line in the log is the pool's first, so it is a pool of its own. */
static void test_log(void **state _unused_)
{
	struct tally_pool *holder = harness_attach(tally, "/g"),
			  *waits = harness_attach(tally, "/g"), *late = harness_attach(tally, "/g");
	pthread_t thread;

	assert_int_equal(tally_set(tally, "/g", "memory.max", "1M"), 0);
	assert_int_equal(tally_charge(holder, 600 * KIB), 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_all, waits), 0);
	assert_true(harness_wait(has_met_limit, "/g", HARNESS_PATIENCE_MS));
	usleep(2 * FAIRNESS_USEC);
	assert_int_equal(tally_charge(late, 100 * KIB), -ENOMEM);
	assert_int_equal(harness_log_lines(
				 &harness, ", and 1048576 bytes are waited for by others; drained"),
		1);
	tally_uncharge(holder, 600 * KIB);
	pthread_join(thread, NULL);
	tally_detach(late);
	tally_detach(waits);
	tally_detach(holder);
}

static void test_standalone_holds_nothing_here(void **state _unused_)
{
	struct tally_pool *alone = harness_attach(tally, "/s/alone"),
			  *in = harness_attach(tally, "/s/in");

	assert_int_equal(tally_charge(alone, 5 * MIB), 0);
	assert_int_equal(tally_charge(in, 900 * KIB), 0);
	assert_int_equal(tally_charge(in, 500 * KIB), -ENOMEM);
	expect_last("/s", " holders=921600:/s/in");
	assert_int_equal(harness_log_lines(&harness, "/s/alone (5M)"), 0);
	tally_detach(in);
	tally_detach(alone);
}

static int setup_daemon(void **state _unused_)
{
	harness_start(&harness, CONFIG);
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

#define DAEMON(test) cmocka_unit_test_setup_teardown(test, setup_daemon, teardown_daemon)

int main(void)
{
	const struct CMUnitTest tests[] = {
		DAEMON(test_line),
		cmocka_unit_test_setup_teardown(test_line, setup_embedded, teardown_embedded),
		DAEMON(test_log),
		DAEMON(test_standalone_holds_nothing_here),
	};

	return cmocka_run_group_tests_name("ahead", tests, NULL, NULL);
}
