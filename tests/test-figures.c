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

#define NODES 2

static void make_full(struct figures *f, int64_t by)
{
	*f = (struct figures){
		.held = by, .stock = 2 * by, .persistent = 3, .overdraft = (uint64_t)(4 * by)};
	assert_int_equal(figures_need_items(f), 0);
	assert_int_equal(figures_need_moved(f, NODES), 0);
	f->items[1] = 5 * by;
	f->items[ITEM_MAX] = 6 * by;
	*moved(f, 0, 1) = 7 * by;
	*moved(f, NODES - 1, ITEM_MAX) = 8 * by;
}

static void assert_is_full(struct figures *f, int64_t by, uint64_t persistent)
{
	assert_int_equal(f->held, by);
	assert_int_equal(f->stock, 2 * by);
	assert_int_equal(f->persistent, persistent);
	assert_int_equal(f->overdraft, 4 * by);
	assert_int_equal(f->items[1], 5 * by);
	assert_int_equal(f->items[2], 0);
	assert_int_equal(f->items[ITEM_MAX], 6 * by);
	assert_int_equal(*moved(f, 0, 1), 7 * by);
	assert_int_equal(*moved(f, 0, ITEM_MAX), 0);
	assert_int_equal(*moved(f, NODES - 1, ITEM_MAX), 8 * by);
}

/* All of it, and taken away again it leaves what was. */
static void test_merge(void **state _unused_)
{
	struct figures f, more, nothing = {0};

	make_full(&f, 1000);
	make_full(&more, 10);
	figures_merge(&f, &more, NODES, false);
	assert_is_full(&f, 1010, 6);
	assert_is_full(&more, 10, 3);
	figures_merge(&f, &nothing, NODES, false);
	figures_merge(&f, &nothing, NODES, true);
	assert_is_full(&f, 1010, 6);
	figures_merge(&f, &more, NODES, true);
	assert_is_full(&f, 1000, 3);
	/* what has neither items nor moves needs room for neither */
	figures_merge(&nothing, &(struct figures){.held = 5, .stock = -7}, NODES, false);
	assert_int_equal(nothing.held, 5);
	assert_int_equal(nothing.stock, -7);
	assert_null(nothing.items);
	assert_null(nothing.moved);
	figures_clear(&f);
	figures_clear(&more);
}

/* As figures_add(): it wraps, and comes back. */
static void test_merge_wraps(void **state _unused_)
{
	struct figures f = {.held = INT64_MAX, .overdraft = UINT64_MAX};
	const struct figures more = {.held = INT64_MAX, .overdraft = 2};

	figures_merge(&f, &more, NODES, false);
	assert_int_equal(f.held, -2);
	assert_int_equal(f.overdraft, 1);
	figures_merge(&f, &more, NODES, true);
	assert_true(f.held == INT64_MAX);
	assert_true(f.overdraft == UINT64_MAX);
	f = (struct figures){0};
	figures_merge(&f, &(struct figures){.held = INT64_MIN}, NODES, true);
	assert_true(f.held == INT64_MIN);
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
		cmocka_unit_test(test_merge),
		cmocka_unit_test(test_merge_wraps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
