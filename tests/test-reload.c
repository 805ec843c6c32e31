/* SPDX-License-Identifier: MIT */

/*
 * What a configuration makes of the thresholds of pools, one after another: no client can see them,
 * and what a reload says is looked at elsewhere.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/util.h"
#include "manager.h"
#include "reload.h"

enum {
	CPUS = 3,
	AUTO = 64 * CPUS,
};

/* As much of a daemon as applying a configuration needs. */
static int set_up(void **state)
{
	struct manager *m = calloc(1, sizeof(*m));

	*state = m;
	if (!m)
		return -1;
	m->n_cpus = CPUS;
	return pool_tree_new(&m->items, &m->tree);
}

static int tear_down(void **state)
{
	struct manager *m = *state;

	pool_tree_free(m->tree);
	item_table_clear(&m->items);
	conf_free(m->conf);
	free(m);
	return 0;
}

static void configure(struct manager *m, const char *text)
{
	char file[] = "/tmp/test-reload-XXXXXX";
	_cleanup_(freep) char *error = NULL;
	int fd = mkstemp(file), r;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	m->conf = conf_free(m->conf);
	r = conf_load(file, "", &m->conf, &error);
	unlink(file);
	if (r < 0)
		fail_msg("%s", error);
	assert_int_equal(reload_apply_first(m), 0);
}

static void expect(struct manager *m, const char *path, uint64_t threshold)
{
	struct pool *p = NULL;

	assert_int_equal(pool_find(m->tree, path, &p), 0);
	assert_int_equal(p->threshold, threshold);
}

static void test_default(void **state)
{
	struct manager *m = *state;

	configure(m, "[pool a]\npath = /a/b\n");
	expect(m, "/", AUTO);
	expect(m, "/a/b", AUTO);
	configure(m, "[daemon]\nflush_threshold = 1000\n");
	expect(m, "/", 1000);
	expect(m, "/a", 1000);
	expect(m, "/a/b", 1000);
	configure(m, "[daemon]\nflush_threshold = auto\n");
	expect(m, "/", AUTO);
	expect(m, "/a/b", AUTO);
}

#define A "[pool a]\npath = /a\nflush_threshold = "
#define B "[pool b]\npath = /a/b/c\nflush_threshold = "
#define ROOT "[pool root]\npath = /\nflush_threshold = "

static void test_pools(void **state)
{
	struct manager *m = *state;

	configure(m, A "10\n" B "20\n[pool d]\npath = /a/d\n");
	expect(m, "/", AUTO);
	expect(m, "/a", 10);
	expect(m, "/a/d", 10);
	expect(m, "/a/b", 10);
	expect(m, "/a/b/c", 20);

	configure(m, A "30\n" B "20\n");
	expect(m, "/a/d", 30);
	expect(m, "/a/b", 30);
	expect(m, "/a/b/c", 20);

	/* a section without the key, then no section at all */
	configure(m, A "30\n[pool b]\npath = /a/b/c\n");
	expect(m, "/a/b/c", 30);
	configure(m, B "5\n[daemon]\nflush_threshold = 7\n");
	expect(m, "/", 7);
	expect(m, "/a", 7);
	expect(m, "/a/b", 7);
	expect(m, "/a/b/c", 5);
	configure(m, "");
	expect(m, "/a/b/c", AUTO);
}

static void test_root(void **state)
{
	struct manager *m = *state;

	configure(m, "[daemon]\nflush_threshold = 7\n" ROOT "50\n" A "10\n");
	expect(m, "/", 50);
	expect(m, "/a", 10);
	configure(m, "[daemon]\nflush_threshold = 8\n" ROOT "50\n");
	expect(m, "/", 50);
	expect(m, "/a", 50);
	configure(m, "[daemon]\nflush_threshold = 9\n");
	expect(m, "/", 9);
	expect(m, "/a", 9);
	configure(m, "");
	expect(m, "/a", AUTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_default, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_pools, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_root, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
