/* SPDX-License-Identifier: MIT */

/*
 * A suggestion must be what was meant, or not be made.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "conf/nearest.h"
#include "core/util.h"

static const char *suggest(const char *typed)
{
	static const char *const names[] = {"path", "memory.max", "memory.min", "batch", "it"};
	struct nearest n = {.typed = typed};

	for (size_t i = 0; i < ELEMENTS(names); i++)
		nearest_consider(&n, names[i]);
	return n.name ? n.name : "";
}

static void test_near(void **state)
{
	(void)state;
	assert_string_equal(suggest("pth"), "path");
	assert_string_equal(suggest("paths"), "path");
	assert_string_equal(suggest("pahtss"), "");
	assert_string_equal(suggest("apth"), "path");
	assert_string_equal(suggest("Batch"), "batch");
	assert_string_equal(suggest("memory_max"), "memory.max");
}

/* The nearer of two, wherever it stands among the names. */
static void test_nearer(void **state)
{
	(void)state;
	assert_string_equal(suggest("memory.mix"), "memory.max");
	assert_string_equal(suggest("memory.mxx"), "memory.max");
	assert_string_equal(suggest("memory.minx"), "memory.min");
	assert_string_equal(suggest("memory.maxn"), "memory.max");
}

static void test_far(void **state)
{
	char longer[400];

	(void)state;
	memset(longer, 'p', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	assert_string_equal(suggest("owner"), "");
	assert_string_equal(suggest("memory.low"), "");
	assert_string_equal(suggest(longer), "");
	assert_string_equal(suggest(""), "");
	/* every word of two letters is two slips from "it" */
	assert_string_equal(suggest("xy"), "");
}

static void test_long_name(void **state)
{
	struct nearest n = {.typed = "a"};
	char name[66];

	(void)state;
	memset(name, 'a', sizeof(name) - 1);
	name[65] = '\0';
	n.typed = name + 2; /* 63 bytes */
	nearest_consider(&n, name + 1);
	assert_null(n.name);
	nearest_consider(&n, name + 2);
	assert_ptr_equal(n.name, name + 2);
	assert_int_equal(n.distance, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_near),
		cmocka_unit_test(test_nearer),
		cmocka_unit_test(test_far),
		cmocka_unit_test(test_long_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
