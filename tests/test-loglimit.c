/* SPDX-License-Identifier: MIT */

/* What one user can make the daemon log: so many lines, over however many pools and sessions. */

#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "core/util.h"
#include "loglimit.h"

#define POOLS (2 * LOGLIMIT_LINES)

static struct harness harness;

static void refuse(struct tally *t, unsigned number)
{
	struct tally_pool *p;
	char path[32];

	snprintf(path, sizeof(path), "/p%u", number);
	p = harness_attach(t, path);
	assert_int_equal(tally_set(t, path, "memory.max", "0"), 0);
	assert_int_equal(tally_charge(p, 1), -ENOMEM);
	tally_detach(p);
}

/* One session each, for those and for pools alike. */
static void test_new_pools_and_sessions(void **state _unused_)
{
	char line[64];

	harness_start(&harness, "");
	for (unsigned i = 0; i < POOLS; i++) {
		struct tally *t = harness_open(&harness);

		refuse(t, i);
		tally_close(t);
	}
	assert_int_equal(harness_log_lines(&harness, ": refused 1 bytes to pid "), LOGLIMIT_LINES);
	snprintf(line, sizeof(line), "/p%d: refused", LOGLIMIT_LINES - 1);
	assert_int_equal(harness_log_lines(&harness, line), 1);
	harness_stop(&harness);
}

/* What is left out is told, at the latest when the budgets end. */
static void test_is_told(void **state _unused_)
{
	for (unsigned i = 0; i < LOGLIMIT_LINES; i++)
		assert_true(loglimit_allows(1000));
	assert_false(loglimit_allows(1000));
	assert_true(loglimit_allows(1001));
	loglimit_close();
	assert_true(loglimit_allows(1000));
	loglimit_close();
}

/* More users than are told apart have what they have, together. */
static void test_many_users(void **state _unused_)
{
	unsigned allowed = 0;

	for (uid_t uid = 1; uid <= 1000; uid++)
		for (unsigned i = 0; i < LOGLIMIT_LINES; i++)
			allowed += loglimit_allows(uid);
	assert_true(allowed < 100 * LOGLIMIT_LINES);
	assert_false(loglimit_allows(1000));
	loglimit_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_new_pools_and_sessions),
		cmocka_unit_test(test_is_told),
		cmocka_unit_test(test_many_users),
	};

	return cmocka_run_group_tests_name("loglimit", tests, NULL, NULL);
}
