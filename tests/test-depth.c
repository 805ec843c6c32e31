/* SPDX-License-Identifier: MIT */

/*
 * cgroup.max.depth and cgroup.max.descendants: what may be made where, that what may not leaves
 * nothing behind, and that a configuration is put into force whatever they are.
 */

#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/util.h"

static struct harness harness;
static struct tally *tally; /* of the daemon, or embedded: the test is the same */

static void set(const char *path, const char *file, const char *value)
{
	assert_int_equal(tally_set(tally, path, file, value), 0);
}

static void expect(const char *path, const char *file, const char *text)
{
	_cleanup_(freep) char *got = harness_get(tally, path, file);

	assert_string_equal(got, text);
}

static uint64_t descendants(const char *path)
{
	return harness_value(tally, path, "cgroup.stat", "nr_descendants");
}

static void assert_no_attachment(const char *path, int error)
{
	struct tally_pool *p = NULL;

	assert_int_equal(tally_attach(tally, path, TALLY_CREATE, &p), error);
	assert_null(p);
}

static void test_values(void **state _unused_)
{
	static const char *const files[] = {"cgroup.max.depth", "cgroup.max.descendants"};

	assert_int_equal(tally_create(tally, "/v"), 0);
	for (size_t i = 0; i < ELEMENTS(files); i++) {
		expect("/v", files[i], "max\n");
		set("/v", files[i], " 17\n");
		expect("/v", files[i], "17\n");
		assert_int_equal(tally_set(tally, "/v", files[i], "-1"), -EINVAL);
		assert_int_equal(tally_set(tally, "/v", files[i], "1K"), -EINVAL);
		assert_int_equal(tally_set(tally, "/v", files[i], ""), -EINVAL);
		assert_int_equal(tally_set(tally, "/v", files[i], "18446744073709551616"), -ERANGE);
		expect("/v", files[i], "17\n");
		set("/v", files[i], "max");
		expect("/v", files[i], "max\n");
	}
	assert_int_equal(tally_remove(tally, "/v", 0), 0);
}

static void test_depth(void **state _unused_)
{
	assert_int_equal(tally_create(tally, "/d"), 0);
	set("/d", "cgroup.max.depth", "2");
	assert_int_equal(tally_create(tally, "/d/1"), 0);
	assert_int_equal(tally_create(tally, "/d/1/2"), 0);
	assert_int_equal(tally_create(tally, "/d/1/2/3"), -EAGAIN);
	assert_int_equal(tally_create(tally, "/d/x"), 0);
	/* of a chain none stays */
	assert_no_attachment("/d/y/2/3", -EAGAIN);
	assert_int_equal(tally_get(tally, "/d/y", "cgroup.stat", 0, &(char *){NULL}), -ENOENT);
	assert_int_equal(descendants("/d"), 3);
	/* the nearest one counts, and 0 is none at all */
	set("/d/x", "cgroup.max.depth", "0");
	assert_int_equal(tally_create(tally, "/d/x/1"), -EAGAIN);
	set("/d/x", "cgroup.max.depth", "5");
	set("/d", "cgroup.max.depth", "1");
	assert_int_equal(tally_create(tally, "/d/x/1"), -EAGAIN);
	/* what is there stays, and is found by who makes it */
	assert_int_equal(descendants("/d"), 3);
	tally_detach(harness_attach(tally, "/d/1/2"));
	set("/d", "cgroup.max.depth", "max");
	tally_detach(harness_attach(tally, "/d/x/1/2/3/4/5"));
	assert_int_equal(tally_create(tally, "/d/x/1/2/3/4/5/6"), -EAGAIN);
}

static void test_descendants(void **state _unused_)
{
	assert_int_equal(tally_create(tally, "/n"), 0);
	assert_int_equal(tally_create(tally, "/n/a"), 0);
	set("/n", "cgroup.max.descendants", "3");
	set("/n/a", "cgroup.max.descendants", "1");
	assert_int_equal(tally_create(tally, "/n/a/1"), 0);
	assert_int_equal(tally_create(tally, "/n/a/2"), -EAGAIN);
	assert_no_attachment("/n/b/c", -EAGAIN);
	assert_int_equal(descendants("/n"), 2);
	assert_int_equal(tally_create(tally, "/n/b"), 0);
	assert_int_equal(tally_create(tally, "/n/c"), -EAGAIN);
	/* below the number that there is: nothing more, and one that goes makes no room yet */
	set("/n", "cgroup.max.descendants", "2");
	assert_int_equal(tally_remove(tally, "/n/b", 0), 0);
	assert_int_equal(tally_create(tally, "/n/b"), -EAGAIN);
	assert_int_equal(tally_remove(tally, "/n/a/1", 0), 0);
	assert_int_equal(tally_create(tally, "/n/b"), 0);
	set("/n", "cgroup.max.descendants", "0");
	assert_int_equal(tally_remove(tally, "/n/b", 0), 0);
	assert_int_equal(tally_remove(tally, "/n/a", 0), 0);
	assert_int_equal(tally_create(tally, "/n/a"), -EAGAIN);
	assert_no_attachment("/n/a", -EAGAIN);
	set("/n", "cgroup.max.descendants", "max");
	assert_int_equal(tally_create(tally, "/n/a"), 0);
}

/* Everything that is in the root counts in the root. */
static void test_root(void **state _unused_)
{
	char number[32];

	snprintf(number, sizeof(number), "%llu", (unsigned long long)descendants("/") + 1);
	set("/", "cgroup.max.descendants", number);
	assert_no_attachment("/r/1", -EAGAIN);
	assert_int_equal(tally_create(tally, "/r"), 0);
	assert_int_equal(tally_create(tally, "/s"), -EAGAIN);
	set("/", "cgroup.max.descendants", "max");
	assert_int_equal(tally_create(tally, "/s"), 0);
}

/* ------------------------------------------------------------------ configured */

static const char tight[] = "[pool d]\npath = /d\ncgroup.max.depth = 1\n"
			    "cgroup.max.descendants = 2\n"
			    "[pool e]\npath = /d/e/f\nmemory.low = 1M\nmemory.high = 2M\n";

static void test_configured(void **state _unused_)
{
	_cleanup_(freep) char *said = NULL;

	harness_start(&harness, tight);
	tally = harness_open(&harness);
	expect("/d", "cgroup.max.depth", "1\n");
	expect("/d", "cgroup.max.descendants", "2\n");
	expect("/d/e/f", "memory.low", "1048576\n");
	expect("/d/e/f", "memory.high", "2097152\n");
	expect("/d/e/f", "memory.min", "0\n");
	assert_int_equal(tally_create(tally, "/d/g"), -EAGAIN);
	assert_int_equal(tally_create(tally, "/d/e/f/g"), -EAGAIN);

	/* a reload makes what a start would have made; what a person has set holds */
	set("/d/e/f", "memory.low", "3M");
	harness_configure(&harness,
		"[pool d]\npath = /d\ncgroup.max.depth = 1\ncgroup.max.descendants = 1\n"
		"[pool e]\npath = /d/e/f\nmemory.min = 5M\nmemory.low = 2M\n"
		"[pool g]\npath = /d/e/f/g\nmemory.high = 1M\n");
	set("/", "tallyd.reload", "1");
	said = harness_get(tally, "/", "tallyd.reload");
	assert_string_equal(said,
		"/d/e/f/g created\n"
		"/d cgroup.max.descendants 2 -> 1\n"
		"/d/e/f memory.high 2097152 -> max\n"
		"/d/e/f memory.min 0 -> 5242880\n"
		"/d/e/f/g memory.high max -> 1048576\n");
	expect("/d/e/f", "memory.low", "3145728\n");
	set("/", "tallyd.reload", "reset /d/e/f");
	expect("/d/e/f", "memory.low", "2097152\n");

	harness_configure(&harness, "");
	set("/", "tallyd.reload", "1");
	expect("/d", "cgroup.max.depth", "max\n");
	expect("/d/e/f", "memory.low", "0\n");
	expect("/d/e/f", "memory.min", "0\n");
	assert_int_equal(tally_create(tally, "/d/g"), 0);
	tally = tally_close(tally);
	harness_stop(&harness);
}

static void test_configured_embedded(void **state _unused_)
{
	char file[] = "/tmp/test-depth-XXXXXX";
	struct tally_options o = {.address = "embedded:", .config = file};
	int fd = mkstemp(file);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, tight, strlen(tight)), strlen(tight));
	close(fd);
	assert_int_equal(tally_open_with(&o, sizeof(o), &tally), 0);
	unlink(file);
	expect("/d", "cgroup.max.depth", "1\n");
	expect("/d/e/f", "memory.low", "1048576\n");
	expect("/d/e/f", "memory.high", "2097152\n");
	assert_int_equal(tally_create(tally, "/d/g"), -EAGAIN);
	tally = tally_close(tally);
}

/* ------------------------------------------------------------------ both engines */

static int start_daemon(void **state _unused_)
{
	harness_start(&harness, "");
	tally = harness_open(&harness);
	return 0;
}

static int stop_daemon(void **state _unused_)
{
	tally = tally_close(tally);
	harness_stop(&harness);
	return 0;
}

static int start_embedded(void **state _unused_)
{
	return tally_open("embedded:", 0, &tally);
}

static int stop_embedded(void **state _unused_)
{
	tally = tally_close(tally);
	return 0;
}

#define BOTH(test)                                                                                 \
	cmocka_unit_test_setup_teardown(test, start_daemon, stop_daemon),                          \
		cmocka_unit_test_setup_teardown(test, start_embedded, stop_embedded)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_values),
		BOTH(test_depth),
		BOTH(test_descendants),
		BOTH(test_root),
		cmocka_unit_test(test_configured),
		cmocka_unit_test(test_configured_embedded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
