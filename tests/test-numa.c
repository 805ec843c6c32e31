/* SPDX-License-Identifier: MIT */

/*
 * What threads move on the CPUs of a node is shown for that node, by a daemon and by the embedded
 * engine. A file stands in for a machine with several nodes.
 */

#include "harness.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/util.h"

static cpu_set_t allowed;
static char file[32];
static int first, second; /* CPUs of nodes 1 and 3; second -1: there is one CPU */

static int set_up(void **state _unused_)
{
	int fd;

	strcpy(file, "/tmp/test-numa-XXXXXX");
	fd = mkstemp(file);
	if (fd < 0 || sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
		return -1;
	first = second = -1;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &allowed) && second < 0)
			*(first < 0 ? &first : &second) = cpu;
	dprintf(fd, "1: %d\n", first);
	if (second >= 0)
		dprintf(fd, "3: %d\n", second);
	else
		dprintf(fd, "3:\n");
	close(fd);
	return setenv("TALLY_TOPOLOGY", file, 1);
}

static int tear_down(void **state _unused_)
{
	sched_setaffinity(0, sizeof(allowed), &allowed);
	unsetenv("TALLY_TOPOLOGY");
	return unlink(file);
}

static void add_on(int cpu, struct tally_pool *p, tally_item item, int64_t delta)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	tally_stat_add(p, item, delta);
}

static void expect_line(struct tally *t, const char *path, const char *line)
{
	_cleanup_(freep) char *text = NULL;

	assert_int_equal(tally_get(t, path, "memory.numa_stat", TALLY_EXACT, &text), 0);
	if (!strstr(text, line))
		fail_msg("\"%s\" has no \"%s\"", text, line);
}

static void check(struct tally *t)
{
	struct tally_pool *p = harness_attach(t, "/a/b");
	tally_item sock, alloc;

	assert_int_equal(tally_item_lookup(t, "sock", &sock), 0);
	assert_int_equal(tally_item_lookup(t, "alloc", &alloc), 0);
	expect_line(t, "/a", "sock N0=0 N1=0 N2=0 N3=0\n");

	assert_int_equal(tally_charge_item(p, sock, 7), 0);
	add_on(first, p, sock, 5000);
	add_on(first, p, alloc, 2);
	expect_line(t, "/a/b", "sock N0=0 N1=5000 N2=0 N3=0\n");
	if (second >= 0) {
		add_on(second, p, sock, -1000);
		add_on(second, p, alloc, 3);
		expect_line(t, "/a", "sock N0=0 N1=5000 N2=0 N3=0\n");
		expect_line(t, "/a", "alloc N0=0 N1=2 N2=0 N3=3\n");
		assert_int_equal(harness_value(t, "/", "memory.stat", "sock"), 4007);
		add_on(second, p, sock, 1001);
		expect_line(t, "/", "sock N0=0 N1=5000 N2=0 N3=1\n");
		add_on(second, p, sock, -1);
	}
	assert_int_equal(harness_value(t, "/", "memory.stat", "sock"), 5007);
	tally_uncharge_item(p, sock, 7);
	tally_detach(p);
	expect_line(t, "/", "sock N0=0 N1=0 N2=0 N3=0\n");
	expect_line(t, "/", "alloc N0=0 N1=2 N2=0 N3=");
}

static void test_daemon(void **state _unused_)
{
	struct harness h;
	struct tally *t;

	harness_start(&h, "");
	t = harness_open(&h);
	check(t);
	tally_close(t);
	harness_stop(&h);
}

static void test_embedded(void **state _unused_)
{
	struct tally *t;

	assert_int_equal(tally_open("embedded:", 0, &t), 0);
	check(t);
	tally_close(t);
}

/* A file that is wrong is no topology at all. */
static void test_bad_file(void **state _unused_)
{
	struct tally *t = NULL;
	int status;
	pid_t child;

	assert_int_equal(truncate(file, 0), 0);
	assert_int_equal(tally_open("embedded:", 0, &t), -EINVAL);
	assert_null(t);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		execl(harness_program(), "tallyd", "--runtime-dir", "/tmp/test-numa-none", NULL);
		_exit(99);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 2);
	assert_int_equal(access("/tmp/test-numa-none", F_OK), -1);
}

#define WITH_FILE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_FILE(test_daemon),
		WITH_FILE(test_embedded),
		WITH_FILE(test_bad_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
