/* SPDX-License-Identifier: MIT */

/*
 * Figures are kept as they come and clamped when they are shown, so that a pool's are always the sum
 * of its parts', whatever programs count.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/figures.h"
#include "core/util.h"

static bool memory_is_short;
static size_t last_size;

/* Stands before the C library's, so that memory can run short, and its size be seen. Not memset():
 * compilers make a calloc() of the two. */
void *calloc(size_t n, size_t size)
{
	void *p = memory_is_short ? NULL : malloc(n * size);

	last_size = n * size;
	if (p)
		explicit_bzero(p, n * size);
	return p;
}

static int64_t *moved(struct figures *f, uint32_t node, uint32_t item)
{
	return &f->moved[node * (ITEM_MAX + 1) + item];
}

static void test_clamp(void **state _unused_)
{
	assert_int_equal(figures_clamp(0), 0);
	assert_int_equal(figures_clamp(1), 1);
	assert_int_equal(figures_clamp(-1), 0);
	assert_true(figures_clamp(INT64_MAX) == INT64_MAX);
	assert_int_equal(figures_clamp(INT64_MIN), 0);
}

/* Beyond either end it goes on at the other, so that taking back what was added gives what was. */
static void test_add(void **state _unused_)
{
	int64_t sum = 5;

	figures_add(&sum, -8);
	assert_int_equal(sum, -3);
	sum = INT64_MAX;
	figures_add(&sum, INT64_MAX);
	figures_add(&sum, 3);
	assert_int_equal(sum, 1);
	figures_add(&sum, -3);
	figures_add(&sum, -INT64_MAX);
	assert_true(sum == INT64_MAX);
	sum = INT64_MIN;
	figures_add(&sum, -1);
	assert_true(sum == INT64_MAX);
	figures_add(&sum, INT64_MIN);
	assert_int_equal(sum, -1);
}

static void test_nothing_there(void **state _unused_)
{
	struct figures f = {0};

	for (uint32_t item = 0; item <= ITEM_MAX; item++) {
		assert_int_equal(figures_item(&f, 4, item), 0);
		assert_int_equal(figures_moved(&f, 3, item), 0);
	}
	figures_clear(&f);
}

static void test_room(void **state _unused_)
{
	struct figures f = {0};
	int64_t *items, *of_nodes;

	memory_is_short = true;
	assert_int_equal(figures_need_items(&f), -ENOMEM);
	assert_int_equal(figures_need_moved(&f, 2), -ENOMEM);
	memory_is_short = false;
	assert_null(f.items);
	assert_null(f.moved);

	assert_int_equal(figures_need_items(&f), 0);
	assert_int_equal(last_size, (ITEM_MAX + 1) * sizeof(*f.items));
	assert_int_equal(figures_need_moved(&f, 2), 0);
	assert_int_equal(last_size, 2 * (ITEM_MAX + 1) * sizeof(*f.moved));
	assert_int_equal(f.items[ITEM_MAX] | *moved(&f, 1, ITEM_MAX), 0);

	/* once is enough */
	items = f.items;
	of_nodes = f.moved;
	f.items[1] = 1;
	memory_is_short = true;
	assert_int_equal(figures_need_items(&f), 0);
	assert_int_equal(figures_need_moved(&f, 2), 0);
	memory_is_short = false;
	assert_ptr_equal(f.items, items);
	assert_ptr_equal(f.moved, of_nodes);
	assert_int_equal(f.items[1], 1);

	f.held = 3;
	figures_clear(&f);
	assert_null(f.items);
	assert_null(f.moved);
	assert_int_equal(f.held, 0);
}

/* An item is what was charged with it and what was moved, on all nodes. */
static void test_item(void **state _unused_)
{
	struct figures f = {0};

	assert_int_equal(figures_need_moved(&f, 3), 0);
	*moved(&f, 0, 1) = 100;
	*moved(&f, 1, 1) = -30;
	*moved(&f, 2, 1) = 5;
	*moved(&f, 2, ITEM_MAX) = 9;
	assert_int_equal(figures_item(&f, 3, 1), 75);
	assert_int_equal(figures_item(&f, 1, 1), 100);
	assert_int_equal(figures_need_items(&f), 0);
	f.items[1] = 4000;
	f.items[2] = 77;
	assert_int_equal(figures_item(&f, 3, 1), 4075);
	assert_int_equal(figures_item(&f, 3, 2), 77);
	assert_int_equal(figures_item(&f, 3, ITEM_MAX), 9);
	assert_int_equal(figures_item(&f, 2, ITEM_MAX), 0);

	assert_int_equal(figures_moved(&f, 0, 1), 100);
	assert_int_equal(figures_moved(&f, 1, 1), 0);
	assert_int_equal(figures_moved(&f, 2, 1), 5);
	assert_int_equal(figures_moved(&f, 2, 2), 0);
	figures_clear(&f);
}

/* The sum is clamped, not its parts, and none of it is shown as 2^64 - 1. */
static void test_item_is_clamped(void **state _unused_)
{
	struct figures f = {0};

	assert_int_equal(figures_need_items(&f), 0);
	assert_int_equal(figures_need_moved(&f, 2), 0);
	f.items[1] = 10;
	*moved(&f, 0, 1) = -20;
	assert_int_equal(figures_item(&f, 2, 1), 0);
	*moved(&f, 1, 1) = 11;
	assert_int_equal(figures_item(&f, 2, 1), 1);

	f.items[2] = INT64_MAX;
	assert_true(figures_item(&f, 2, 2) == INT64_MAX);
	*moved(&f, 0, 2) = 1;
	assert_int_equal(figures_item(&f, 2, 2), 0);
	*moved(&f, 1, 2) = -1;
	assert_true(figures_item(&f, 2, 2) == INT64_MAX);

	*moved(&f, 0, 3) = INT64_MIN;
	assert_int_equal(figures_item(&f, 2, 3), 0);
	assert_int_equal(figures_moved(&f, 0, 3), 0);
	*moved(&f, 1, 3) = INT64_MAX;
	assert_int_equal(figures_item(&f, 2, 3), 0);
	assert_true(figures_moved(&f, 1, 3) == INT64_MAX);
	figures_clear(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clamp),
		cmocka_unit_test(test_add),
		cmocka_unit_test(test_nothing_there),
		cmocka_unit_test(test_room),
		cmocka_unit_test(test_item),
		cmocka_unit_test(test_item_is_clamped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
