/* SPDX-License-Identifier: MIT */

/*
 * Names of pools come from people and from clients: what is refused here never reaches the tree,
 * the configuration or an exported directory.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/path.h"
#include "core/util.h"

/* "/" and then parts of `part` bytes, `total` bytes in all. */
static char *make_path(size_t total, size_t part)
{
	char *path = malloc(total + 1);

	assert_non_null(path);
	for (size_t i = 0; i < total; i++)
		path[i] = i % (part + 1) == 0 ? '/' : 'a';
	path[total] = '\0';
	return path;
}

static void test_accepts(void **state _unused_)
{
	static const char *const good[] = {
		"/",
		"/a",
		"/tenants/a",
		"/a/b/c/d/e",
		"/...",
		"/..a",
		"/.a",
		"/a.",
		"/a..",
		"/ ",
		"/a b",
		"/~",
		"/\xc3\xa4\xe2\x82\xac",
		"/\x80\xff",
		"/-",
		"/*?[",
	};

	for (size_t i = 0; i < ELEMENTS(good); i++)
		if (path_check(good[i]) != 0)
			fail_msg("\"%s\" is refused", good[i]);
}

static void test_refuses(void **state _unused_)
{
	static const char *const bad[] = {
		"",
		"a",
		"a/b",
		"./a",
		" /a",
		"//",
		"//a",
		"/a//b",
		"/a/",
		"/a/b/",
		"/.",
		"/..",
		"/./a",
		"/../a",
		"/a/.",
		"/a/..",
		"/a/./b",
		"/a/../b",
		"/a\n",
		"/\t",
		"/a\x01/b",
		"/\x1f",
		"/a\x7f",
	};

	assert_int_equal(path_check(NULL), -EINVAL);
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		if (path_check(bad[i]) != -EINVAL)
			fail_msg("\"%s\" gives %d", bad[i], path_check(bad[i]));
}

static void test_every_byte(void **state _unused_)
{
	for (int b = 1; b < 256; b++) {
		const char path[] = {'/', 'x', (char)b, 'x', '\0'};
		int expected = b < 0x20 || b == 0x7f ? -EINVAL : 0;

		assert_int_equal(path_check(path), expected);
	}
}

static void test_lengths(void **state _unused_)
{
	_cleanup_(freep) char *part_fits = make_path(1 + 255, 255);
	_cleanup_(freep) char *part_long = make_path(1 + 256, 256);
	_cleanup_(freep) char *last_long = NULL;
	_cleanup_(freep) char *fits = make_path(4095, 100);
	_cleanup_(freep) char *too_long = make_path(4096, 100);
	_cleanup_(freep) char *huge = make_path(100000, 100);

	assert_int_equal(strlen(part_fits), 256);
	assert_int_equal(path_check(part_fits), 0);
	assert_int_equal(path_check(part_long), -ENAMETOOLONG);

	last_long = malloc(strlen(part_long) + 3);
	assert_non_null(last_long);
	strcpy(last_long, "/a");
	strcat(last_long, part_long);
	assert_int_equal(path_check(last_long), -ENAMETOOLONG);

	assert_int_equal(path_check(fits), 0);
	assert_int_equal(path_check(too_long), -ENAMETOOLONG);
	assert_int_equal(path_check(huge), -ENAMETOOLONG);
}

static void test_part(void **state _unused_)
{
	_cleanup_(freep) char *path = make_path(300, 300);
	const char *part = path + 1;

	assert_int_equal(path_check_part(NULL, 1), -EINVAL);
	assert_int_equal(path_check_part("", 0), -EINVAL);
	assert_int_equal(path_check_part("a", 0), -EINVAL);
	assert_int_equal(path_check_part("abc", 3), 0);
	assert_int_equal(path_check_part(part, 255), 0);
	assert_int_equal(path_check_part(part, 256), -ENAMETOOLONG);
	assert_int_equal(path_check_part("a/b", 3), -EINVAL);
	assert_int_equal(path_check_part("a/b", 1), 0);
	assert_int_equal(path_check_part("a\0b", 3), -EINVAL);
	assert_int_equal(path_check_part("..x", 1), -EINVAL);
	assert_int_equal(path_check_part("..x", 2), -EINVAL);
	assert_int_equal(path_check_part("..x", 3), 0);
}

static void test_next(void **state _unused_)
{
	static const char path[] = "/tenants/a/b.c";
	const char *cursor = path;
	size_t n = 77;

	assert_ptr_equal(path_next(&cursor, &n), path + 1);
	assert_int_equal(n, 7);
	assert_ptr_equal(path_next(&cursor, &n), path + 9);
	assert_int_equal(n, 1);
	assert_ptr_equal(path_next(&cursor, &n), path + 11);
	assert_int_equal(n, 3);
	assert_null(path_next(&cursor, &n));
	assert_null(path_next(&cursor, &n));
	assert_int_equal(n, 3);
}

static void test_next_of_root(void **state _unused_)
{
	const char *cursor = "/";
	size_t n = 77;

	assert_null(path_next(&cursor, &n));
	assert_null(path_next(&cursor, &n));
	assert_int_equal(n, 77);
}

static void test_is_below(void **state _unused_)
{
	assert_true(path_is_below("/", "/"));
	assert_true(path_is_below("/a", "/"));
	assert_true(path_is_below("/a/b", "/"));
	assert_true(path_is_below("/a", "/a"));
	assert_true(path_is_below("/a/b", "/a"));
	assert_true(path_is_below("/a/b/c", "/a/b"));

	assert_false(path_is_below("/", "/a"));
	assert_false(path_is_below("/a", "/a/b"));
	assert_false(path_is_below("/ab", "/a"));
	assert_false(path_is_below("/ab/c", "/a"));
	assert_false(path_is_below("/b/a", "/a"));
	assert_false(path_is_below("/a.b", "/a"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accepts),
		cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_every_byte),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_part),
		cmocka_unit_test(test_next),
		cmocka_unit_test(test_next_of_root),
		cmocka_unit_test(test_is_below),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
