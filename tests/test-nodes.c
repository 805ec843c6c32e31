/* SPDX-License-Identifier: MIT */

/*
 * Each CPU is on the node that the kernel says, or that the file says which stands in for it; and a
 * mistake in that file is told at its line.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/cpus.h"
#include "conf/nodes.h"
#include "core/util.h"

#define MANY_CPUS 40

static uint32_t n_cpus = MANY_CPUS; /* of the machine that the tests imagine */
static char dir[64];

/* Stands before the library's, so that a test knows how many CPUs there are. */
uint32_t cpus_possible(void)
{
	return n_cpus;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int set_up(void **state)
{
	(void)state;
	n_cpus = MANY_CPUS;
	unsetenv("TALLY_TOPOLOGY");
	strcpy(dir, "/tmp/test-nodes-XXXXXX");
	return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	return chdir("/") == 0 ? nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS) : -1;
}

static void put_bytes(const char *path, const char *text, size_t n)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

/* What the kernel would say of a node; NULL: it has a directory without a list. */
static void put_node(const char *name, const char *list)
{
	static const char *const parents[] = {
		"sys", "sys/devices", "sys/devices/system", "sys/devices/system/node"};
	char path[128];

	for (size_t i = 0; i < ELEMENTS(parents); i++)
		if (mkdir(parents[i], 0755) < 0)
			assert_int_equal(errno, EEXIST);
	snprintf(path, sizeof(path), "%s/%s", parents[ELEMENTS(parents) - 1], name);
	assert_int_equal(mkdir(path, 0755), 0);
	strcat(path, "/cpulist");
	if (list)
		put_bytes(path, list, strlen(list));
}

/* The node of each CPU as a digit, of that many CPUs and of the entry behind the last one. */
static void expect(uint32_t n_nodes, const char *digits)
{
	_cleanup_(freep) uint16_t *node_of_cpu = NULL;
	_cleanup_(freep) char *error = NULL;
	char found[MANY_CPUS + 2] = "";
	uint32_t n = 0;
	int r = nodes_load(".", &n, &node_of_cpu, &error);

	if (r != 0)
		fail_msg("%d: %s", r, error);
	assert_null(error);
	assert_int_equal(n, n_nodes);
	for (uint32_t cpu = 0; cpu < strlen(digits); cpu++)
		found[cpu] = (char)('0' + node_of_cpu[cpu]);
	assert_string_equal(found, digits);
	for (uint32_t cpu = (uint32_t)strlen(digits); cpu <= n_cpus; cpu++)
		assert_int_equal(node_of_cpu[cpu], 0);
}

static void expect_text(const char *text, uint32_t n_nodes, const char *digits)
{
	put_bytes("t", text, strlen(text));
	setenv("TALLY_TOPOLOGY", "t", 1);
	expect(n_nodes, digits);
}

static void refuse_with(int expected, const char *begin, const char *what)
{
	_cleanup_(freep) char *error = NULL;
	uint16_t untouched, *node_of_cpu = &untouched;
	uint32_t n = 77;

	assert_int_equal(nodes_load(".", &n, &node_of_cpu, &error), expected);
	assert_int_equal(n, 77);
	assert_ptr_equal(node_of_cpu, &untouched);
	assert_non_null(error);
	if (strncmp(error, begin, strlen(begin)) != 0 || !strstr(error, what) ||
		!strchr(error, ';') || strchr(error, '\n'))
		fail_msg("\"%s\" is not \"%s ... %s\"", error, begin, what);
}

static void refuse_text(const char *text, const char *begin, const char *what)
{
	put_bytes("t", text, strlen(text));
	setenv("TALLY_TOPOLOGY", "t", 1);
	refuse_with(-EINVAL, begin, what);
}

static void test_one_node(void **state _unused_)
{
	/* a kernel that knows no nodes, and one that has one */
	expect(1, "0");
	put_node("node0", "0-39\n");
	expect(1, "0");
}

static void test_kernel(void **state _unused_)
{
	put_node("node0", "0-3,8\n");
	put_node("node1", "4-7,9-10\n");
	put_node("possible", NULL);
	put_node("node", "0-39\n");
	put_node("nodes", "0-39\n");
	put_node("node2a", "0-39\n");
	put_node("node1024", "0-39\n");
	expect(2, "00001111011");
	n_cpus = 6;
	expect(2, "000011");
	n_cpus = 1;
	expect(2, "0");
}

/* Memory without CPUs, numbers that are left out, lists that cannot be read. */
static void test_kernel_with_gaps(void **state _unused_)
{
	put_node("node0", "\n");
	put_node("node2", "0-1\n");
	put_node("node5", NULL);
	put_node("node7", "3,1000\n");
	expect(8, "2207");
}

static void test_file(void **state _unused_)
{
	put_node("node0", "0-39\n");
	expect_text("0: 0-3,8\n1: 4-7\n", 2, "000011110");
	expect_text("1:0\n0:1", 2, "10");
	expect_text("2: 1 \t\n", 3, "02");
	expect_text("4:\n0: 0\n", 5, "0");
	expect_text("0: 0\n3: 2-39\n", 4, "0033333333333333333333333333333333333333");
	expect_text("0: 0\n1: 1-65534\n", 2, "0111111111111111111111111111111111111111");
	expect_text("1023: 65534\n1: 0,2\n", 1024, "101");
}

static void test_no_file_is_named(void **state _unused_)
{
	put_node("node3", "1\n");
	setenv("TALLY_TOPOLOGY", "", 1);
	expect(4, "03");
}

static void test_bad_file(void **state _unused_)
{
	static const char *const bad[] = {"", " 1: 1", "1", "1 : 1", ": 1", "-1: 1", "x: 1",
		"1024: 1", "4294967297: 1", "1: 1-", "1: 5-4", "1: -1", "1: 1,", "1: ,1", "1: 1,,2",
		"1: 1 2", "1: 1, 2", "1: 1;2", "1: 0x1", "1: 65535", "1: 4294967297", "1: 1-99999",
		"1: 1-2-3", "0: 1", "1: 0", "1: 5,3-6", "# 1: 1", "1: 1 # one"};

	for (size_t i = 0; i < ELEMENTS(bad); i++) {
		char text[64], what[64];

		snprintf(text, sizeof(text), "0: 0\n%s\n3: 30\n", bad[i]);
		snprintf(what, sizeof(what), "\"%s\" is not accepted; a line is", bad[i]);
		refuse_text(text, "t:2: ", what);
	}
	refuse_text("", "t: ", "names no node");
	refuse_text("\n", "t:1: ", "\"\" is not accepted");
	refuse_text("0: 0-3\n1: 4-7\n2: 7-8\n", "t:3: ", "each once");
	put_bytes("t", "0: 0\0, 1\n", 9);
	refuse_with(-EINVAL, "t:1: ", "is not accepted");
}

static void test_no_such_file(void **state _unused_)
{
	put_node("node0", "0-39\n");
	setenv("TALLY_TOPOLOGY", "none", 1);
	refuse_with(-ENOENT, "none: it cannot be read", "TALLY_TOPOLOGY");
	setenv("TALLY_TOPOLOGY", "sys", 1);
	refuse_with(-EISDIR, "sys: it cannot be read", "TALLY_TOPOLOGY");
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_DIR(test_one_node),
		IN_DIR(test_kernel),
		IN_DIR(test_kernel_with_gaps),
		IN_DIR(test_file),
		IN_DIR(test_no_file_is_named),
		IN_DIR(test_bad_file),
		IN_DIR(test_no_such_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
