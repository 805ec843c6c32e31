/* SPDX-License-Identifier: MIT */

/*
 * Numbers of items stand in keys in shared memory: a definition must never move one, and a failed
 * one must leave the table as it was.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/item.h"
#include "core/util.h"

#define UNTOUCHED UINT32_C(0x5555)

static int copies_left = -1; /* so many calls of strdup() succeed; -1: all */

/* Stands before the C library's, so that memory can be short at a chosen place. */
char *strdup(const char *s)
{
	size_t n = strlen(s) + 1;
	char *copy;

	if (copies_left == 0)
		return NULL;
	if (copies_left > 0)
		copies_left--;
	copy = malloc(n);
	return copy ? memcpy(copy, s, n) : NULL;
}

static int setup(void **state)
{
	*state = calloc(1, sizeof(struct item_table));
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	item_table_clear(*state);
	free(*state);
	return 0;
}

static uint32_t define(struct item_table *t, const char *name, enum item_type type)
{
	uint32_t number = 0;

	assert_int_equal(item_define(t, name, type, "bytes", "help", &number), 0);
	return number;
}

static void test_names(void **state _unused_)
{
	static const char *const good[] = {
		"a",
		"z9",
		"anon",
		"slab_reclaimable",
		"a_",
		"heldx",
		"hel",
		"stock_",
		"abcdefghijklmnopqrstuvwxyz012345",
	};
	static const char *const bad[] = {
		NULL,
		"",
		"A",
		"aB",
		"9a",
		"_a",
		"a-b",
		"a.b",
		"a b",
		"a ",
		" a",
		"a\n",
		"{",
		"`",
		"\xc3\xa4",
		"abcdefghijklmnopqrstuvwxyz0123456",
		"held",
		"stock",
		"persistent",
		"overdraft",
		"kernel_current",
	};

	assert_int_equal(strlen(good[ELEMENTS(good) - 1]), ITEM_NAME_MAX);
	for (size_t i = 0; i < ELEMENTS(good); i++)
		if (item_check_name(good[i]) != 0)
			fail_msg("\"%s\" is refused", good[i]);
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		if (item_check_name(bad[i]) != -EINVAL)
			fail_msg("\"%s\" is accepted", bad[i] ? bad[i] : "(NULL)");
}

static void test_define_and_lookup(void **state)
{
	struct item_table *t = *state;
	uint32_t number = UNTOUCHED;

	assert_int_equal(item_lookup(t, "sock", &number), -ENOENT);
	assert_int_equal(number, UNTOUCHED);

	assert_int_equal(define(t, "sock", ITEM_GAUGE), 1);
	assert_int_equal(define(t, "alloc", ITEM_EVENT), 2);
	assert_int_equal(t->n, 2);
	assert_string_equal(t->items[1].name, "sock");
	assert_string_equal(t->items[1].unit, "bytes");
	assert_string_equal(t->items[1].help, "help");
	assert_int_equal(t->items[1].type, ITEM_GAUGE);
	assert_int_equal(t->items[2].type, ITEM_EVENT);

	assert_int_equal(item_lookup(t, "alloc", &number), 0);
	assert_int_equal(number, 2);
	assert_int_equal(item_lookup(t, "sock", &number), 0);
	assert_int_equal(number, 1);
	assert_int_equal(item_lookup(t, "soc", &number), -ENOENT);
	assert_int_equal(item_lookup(t, "", &number), -ENOENT);
	assert_int_equal(number, 1);
}

static void test_strings_are_copies(void **state)
{
	struct item_table *t = *state;
	char name[] = "sock", unit[] = "bytes", help[] = "Socket buffers";
	uint32_t number;

	assert_int_equal(item_define(t, name, ITEM_GAUGE, unit, help, &number), 0);
	memset(name, 'x', strlen(name));
	memset(unit, 'x', strlen(unit));
	memset(help, 'x', strlen(help));
	assert_string_equal(t->items[number].name, "sock");
	assert_string_equal(t->items[number].unit, "bytes");
	assert_string_equal(t->items[number].help, "Socket buffers");
}

static void test_same_again(void **state)
{
	struct item_table *t = *state;
	uint32_t number = UNTOUCHED;

	define(t, "sock", ITEM_GAUGE);
	define(t, "file", ITEM_GAUGE);
	assert_int_equal(define(t, "sock", ITEM_GAUGE), 1);
	assert_int_equal(t->n, 2);

	assert_int_equal(item_define(t, "sock", ITEM_EVENT, "bytes", "help", &number), -EEXIST);
	assert_int_equal(item_define(t, "sock", ITEM_GAUGE, "pages", "help", &number), -EEXIST);
	assert_int_equal(item_define(t, "sock", ITEM_GAUGE, "bytes", "other", &number), -EEXIST);
	assert_int_equal(item_define(t, "sock", ITEM_GAUGE, NULL, "help", &number), -EEXIST);
	assert_int_equal(number, UNTOUCHED);
	assert_int_equal(t->n, 2);
	assert_string_equal(t->items[1].unit, "bytes");
}

static void test_null_is_empty(void **state)
{
	struct item_table *t = *state;
	uint32_t number = UNTOUCHED;

	assert_int_equal(item_define(t, "sock", ITEM_GAUGE, NULL, NULL, &number), 0);
	assert_string_equal(t->items[1].unit, "");
	assert_string_equal(t->items[1].help, "");
	assert_int_equal(item_define(t, "sock", ITEM_GAUGE, "", "", &number), 0);
	assert_int_equal(number, 1);
}

static void test_bad_definitions(void **state)
{
	struct item_table *t = *state;
	uint32_t number = UNTOUCHED;

	assert_int_equal(item_define(t, "held", ITEM_GAUGE, "", "", &number), -EINVAL);
	assert_int_equal(item_define(t, NULL, ITEM_GAUGE, "", "", &number), -EINVAL);
	assert_int_equal(item_define(t, "sock", (enum item_type)2, "", "", &number), -EINVAL);
	assert_int_equal(number, UNTOUCHED);
	assert_int_equal(t->n, 0);
}

static void test_full(void **state)
{
	struct item_table *t = *state;
	uint32_t number = UNTOUCHED;
	char name[16];

	for (uint32_t i = 1; i <= ITEM_MAX; i++) {
		snprintf(name, sizeof(name), "item%u", i);
		assert_int_equal(define(t, name, ITEM_GAUGE), i);
	}
	assert_int_equal(item_define(t, "more", ITEM_GAUGE, "", "", &number), -ENOSPC);
	assert_int_equal(number, UNTOUCHED);
	assert_int_equal(item_lookup(t, "more", &number), -ENOENT);

	assert_int_equal(define(t, "item64", ITEM_GAUGE), ITEM_MAX);
	assert_int_equal(item_define(t, "item64", ITEM_EVENT, "", "", &number), -EEXIST);
}

static void test_memory_short(void **state)
{
	struct item_table *t = *state;
	uint32_t number = UNTOUCHED;

	for (int n = 0; n < 3; n++) {
		copies_left = n;
		assert_int_equal(item_define(t, "sock", ITEM_GAUGE, "u", "h", &number), -ENOMEM);
		copies_left = -1;
		assert_int_equal(t->n, 0);
		assert_int_equal(item_lookup(t, "sock", &number), -ENOENT);
	}
	assert_int_equal(number, UNTOUCHED);
	assert_int_equal(define(t, "sock", ITEM_GAUGE), 1);
}

static void test_clear(void **state)
{
	struct item_table *t = *state;
	uint32_t number;

	define(t, "sock", ITEM_GAUGE);
	define(t, "file", ITEM_GAUGE);
	item_table_clear(t);
	assert_int_equal(t->n, 0);
	assert_int_equal(item_lookup(t, "sock", &number), -ENOENT);
	assert_int_equal(define(t, "file", ITEM_EVENT), 1);

	item_table_clear(t);
	item_table_clear(t);
	item_table_clear(NULL);
}

#define item_test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		item_test(test_define_and_lookup),
		item_test(test_strings_are_copies),
		item_test(test_same_again),
		item_test(test_null_is_empty),
		item_test(test_bad_definitions),
		item_test(test_full),
		item_test(test_memory_short),
		item_test(test_clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
