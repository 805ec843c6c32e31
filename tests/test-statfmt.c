/* SPDX-License-Identifier: MIT */

/*
 * The text of a pool's files, byte for byte, because other programs parse it; and what writing to
 * them changes or leaves alone.
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

#include "core/itemlimit.h"
#include "core/limit.h"
#include "core/statfmt.h"
#include "core/util.h"

static bool memory_is_short;

/* Stands before the C library's, so that memory can run short. */
void *reallocarray(void *p, size_t n, size_t size)
{
	return memory_is_short ? NULL : realloc(p, n * size);
}

struct fixture {
	struct item_table items;
	struct pool_tree *tree;
	struct pool *a, *b; /* /a and /a/b */
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	*state = f;
	if (!f || pool_tree_new(&f->items, &f->tree) < 0)
		return -1;
	if (pool_create_all(f->tree, "/a/b", &f->b) < 0)
		return -1;
	f->a = f->b->parent;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	f->tree = pool_tree_free(f->tree);
	item_table_clear(&f->items);
	free(f);
	return 0;
}

static void assert_text(const struct pool *p, const char *file, const char *expected)
{
	_cleanup_(freep) char *text = NULL;

	assert_int_equal(statfmt_read(p, file, &text), 0);
	assert_string_equal(text, expected);
}

static void test_access(void **state)
{
	static const struct {
		const char *file;
		unsigned access;
	} files[] = {
		{"memory.current", STATFMT_READ},
		{"memory.peak", STATFMT_READ | STATFMT_WRITE},
		{"memory.max", STATFMT_READ | STATFMT_WRITE},
		{"memory.events", STATFMT_READ},
		{"memory.events.local", STATFMT_READ},
		{"memory.stat", STATFMT_READ},
		{"memory.numa_stat", STATFMT_READ},
		{"cgroup.events", STATFMT_READ},
		{"cgroup.stat", STATFMT_READ},
		{"pool.children", STATFMT_READ},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ELEMENTS(files); i++) {
		_cleanup_(freep) char *text = NULL;

		assert_int_equal(statfmt_access(f->a, files[i].file), files[i].access);
		assert_int_equal(statfmt_read(f->a, files[i].file, &text), 0);
		if (!(files[i].access & STATFMT_WRITE))
			assert_int_equal(statfmt_write(f->a, files[i].file, "0"), -EACCES);
	}
}

static void test_no_such_file(void **state)
{
	static const char *const files[] = {"", "memory", "memory.ma", "memory.max ",
		"memory.maximum", "MEMORY.MAX", "/memory.max", "held"};
	struct fixture *f = *state;
	char untouched, *text = &untouched;

	for (size_t i = 0; i < ELEMENTS(files); i++) {
		assert_int_equal(statfmt_access(f->a, files[i]), 0);
		assert_int_equal(statfmt_read(f->a, files[i], &text), -ENOENT);
		assert_int_equal(statfmt_write(f->a, files[i], "1"), -ENOENT);
	}
	assert_ptr_equal(text, &untouched);
	assert_text(f->a, "memory.max", "max\n");
}

static void test_short_of_memory(void **state)
{
	struct fixture *f = *state;
	char untouched, *text = &untouched;
	int r;

	memory_is_short = true;
	r = statfmt_read(f->a, "memory.stat", &text);
	memory_is_short = false;
	assert_int_equal(r, -ENOMEM);
	assert_ptr_equal(text, &untouched);
}

/* Whether a file of the pool was said to have changed since the last call. */
static bool take_changed(struct pool *p)
{
	bool changed = p->changed;

	while (pool_take_change(p->tree))
		;
	return changed;
}

static void test_current(void **state)
{
	struct fixture *f = *state;

	assert_text(f->a, "memory.current", "0\n");
	f->a->sum.stock = 2;
	f->a->sum.held = INT64_C(20000000000);
	assert_text(f->a, "memory.current", "20000000000\n");
	f->a->sum.held = INT64_MAX;
	assert_text(f->a, "memory.current", "9223372036854775807\n");
	f->a->sum.held = -1;
	assert_text(f->a, "memory.current", "0\n");
}

static void test_peak(void **state)
{
	struct fixture *f = *state;

	assert_text(f->a, "memory.peak", "0\n");
	counter_charge(&f->b->counter, 3000);
	assert_int_equal(counter_uncharge(&f->b->counter, 2000), 0);
	assert_text(f->a, "memory.peak", "3000\n");

	take_changed(f->a);
	assert_int_equal(statfmt_write(f->a, "memory.peak", ""), -EINVAL);
	assert_text(f->a, "memory.peak", "3000\n");
	assert_false(take_changed(f->a));

	assert_int_equal(statfmt_write(f->a, "memory.peak", "reset"), 0);
	assert_text(f->a, "memory.peak", "1000\n");
	assert_true(take_changed(f->a));
	assert_int_equal(f->a->set_at_run, 0);
	assert_text(f->b, "memory.peak", "3000\n");
	assert_int_equal(statfmt_write(f->b, "memory.peak", "\n"), 0);
	assert_text(f->b, "memory.peak", "1000\n");
	counter_uncharge(&f->b->counter, 1000);
}

static void test_max(void **state)
{
	struct fixture *f = *state;

	take_changed(f->a);
	assert_text(f->a, "memory.max", "max\n");
	assert_int_equal(statfmt_write(f->a, "memory.max", " 64K\n"), 0);
	assert_text(f->a, "memory.max", "65536\n");
	assert_int_equal(f->a->set_at_run, limit_bit(LIMIT_MAX));
	assert_true(take_changed(f->a));
	assert_text(f->b, "memory.max", "max\n");
	assert_int_equal(f->b->set_at_run, 0);

	assert_int_equal(counter_try_charge(&f->b->counter, 65537, NULL), -ENOMEM);
	assert_int_equal(counter_try_charge(&f->b->counter, 65536, NULL), 0);
	assert_int_equal(statfmt_write(f->a, "memory.max", "0"), 0);
	assert_text(f->a, "memory.max", "0\n");

	take_changed(f->a);
	assert_int_equal(statfmt_write(f->a, "memory.max", "max\n"), 0);
	assert_text(f->a, "memory.max", "max\n");
	assert_int_equal(f->a->set_at_run, limit_bit(LIMIT_MAX));
	assert_true(take_changed(f->a));
	assert_int_equal(counter_try_charge(&f->b->counter, 65537, NULL), 0);
	counter_uncharge(&f->b->counter, 65536 + 65537);
}

static void test_bad_max_keeps_old(void **state)
{
	static const struct {
		const char *value;
		int error;
	} bad[] = {
		{"", -EINVAL},
		{"\n", -EINVAL},
		{"-1", -EINVAL},
		{"1.5G", -EINVAL},
		{"1 G", -EINVAL},
		{"64KB", -EINVAL},
		{"maximum", -EINVAL},
		{"infinity", -EINVAL},
		{"16E", -ERANGE},
		{"18446744073709551616", -ERANGE},
	};
	struct fixture *f = *state;

	counter_set_max(&f->a->counter, 4096);
	take_changed(f->a);
	for (size_t i = 0; i < ELEMENTS(bad); i++) {
		assert_int_equal(statfmt_write(f->a, "memory.max", bad[i].value), bad[i].error);
		assert_text(f->a, "memory.max", "4096\n");
	}
	assert_int_equal(f->a->set_at_run, 0);
	assert_false(take_changed(f->a));
}

static uint64_t sum_granted(struct pool *p, uint32_t item)
{
	return item == 1 && p->parent ? 3000 : 0;
}

static void test_item_max(void **state)
{
	static const char *const none[] = {"stat.sock", "stat.sock.min", "stat..max", "stat.max",
		"stat.sock.max ", "stat.soc.max", "stat.alloc.max", "stat.held.max", "sock.max",
		"stat.abcdefghijklmnopqrstuvwxyz0123456789.max"};
	struct fixture *f = *state;
	uint32_t sock, number;

	assert_int_equal(statfmt_access(f->a, "stat.sock.max"), 0);
	assert_int_equal(item_define(&f->items, "sock", ITEM_GAUGE, NULL, NULL, &sock), 0);
	assert_int_equal(item_define(&f->items, "alloc", ITEM_EVENT, NULL, NULL, &number), 0);
	for (size_t i = 0; i < ELEMENTS(none); i++) {
		_cleanup_(freep) char *text = NULL;

		assert_int_equal(statfmt_access(f->a, none[i]), 0);
		assert_int_equal(statfmt_read(f->a, none[i], &text), -ENOENT);
		assert_int_equal(statfmt_write(f->a, none[i], "1"), -ENOENT);
	}
	assert_int_equal(statfmt_access(f->a, "stat.sock.max"), STATFMT_READ | STATFMT_WRITE);
	assert_text(f->a, "stat.sock.max", "max\n");

	/* Not before it is known what is granted. */
	assert_int_equal(statfmt_write(f->a, "stat.sock.max", "1M"), -EOPNOTSUPP);
	assert_int_equal(f->a->items_set_at_run, 0);
	f->tree->sum_granted = sum_granted;
	take_changed(f->a);
	assert_int_equal(statfmt_write(f->a, "stat.sock.max", " 4K\n"), 0);
	assert_text(f->a, "stat.sock.max", "4096\n");
	assert_text(f->b, "stat.sock.max", "max\n");
	assert_text(f->a, "memory.max", "max\n");
	assert_true(take_changed(f->a));
	assert_int_equal(f->a->items_set_at_run, itemlimit_bit(sock));
	assert_int_equal(f->a->set_at_run, 0);
	assert_int_equal(itemlimit_try_charge(f->b, sock, 1097, NULL), -ENOMEM);
	assert_int_equal(itemlimit_try_charge(f->b, sock, 1096, NULL), 0);
	assert_int_equal(itemlimit_try_charge(f->b, 0, 1097, NULL), 0);

	take_changed(f->a);
	assert_int_equal(statfmt_write(f->a, "stat.sock.max", "4KB"), -EINVAL);
	assert_int_equal(statfmt_write(f->a, "stat.sock.max", "16E"), -ERANGE);
	assert_text(f->a, "stat.sock.max", "4096\n");
	assert_false(take_changed(f->a));
	assert_int_equal(statfmt_write(f->a, "stat.sock.max", "0"), 0);
	assert_text(f->a, "stat.sock.max", "0\n");
	assert_int_equal(statfmt_write(f->a, "stat.sock.max", "max"), 0);
	assert_text(f->a, "stat.sock.max", "max\n");
	assert_int_equal(f->a->items_set_at_run, itemlimit_bit(sock));
	assert_int_equal(itemlimit_try_charge(f->b, sock, 10000, NULL), 0);
	itemlimit_uncharge(f->b, sock, 10000 + 1096);
	itemlimit_uncharge(f->b, 0, 1097);
}

static void test_events(void **state)
{
	struct fixture *f = *state;

	for (unsigned e = 0; e < POOL_EVENTS; e++)
		for (unsigned n = 0; n <= e; n++)
			pool_count_event(f->b, e);
	pool_count_event(f->a, POOL_OOM);

	assert_text(f->a, "memory.events",
		"low 1\nhigh 2\nmax 3\noom 5\noom_kill 5\nreclaim 6\nforce 7\nwould_refuse 8\n");
	assert_text(f->a, "memory.events.local",
		"low 0\nhigh 0\nmax 0\noom 1\noom_kill 0\nreclaim 0\nforce 0\nwould_refuse 0\n");
	assert_text(f->b, "memory.events.local",
		"low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\nreclaim 6\nforce 7\nwould_refuse 8\n");
}

static void test_shows_figures(void **state _unused_)
{
	static const char *const as_of_look[] = {
		"memory.current", "memory.stat", "memory.numa_stat"};
	static const char *const always_true[] = {"memory.peak", "memory.max", "memory.events",
		"cgroup.stat", "cgroup.events", "pool.children", "stat.sock.max", "none"};

	for (size_t i = 0; i < ELEMENTS(as_of_look); i++)
		assert_true(statfmt_shows_figures(as_of_look[i]));
	for (size_t i = 0; i < ELEMENTS(always_true); i++)
		assert_false(statfmt_shows_figures(always_true[i]));
}

/* The items sock (a gauge), alloc (an event) and anon (a gauge), as 1, 2 and 3. */
static void define_items(struct fixture *f)
{
	uint32_t number;

	assert_int_equal(item_define(&f->items, "sock", ITEM_GAUGE, NULL, NULL, &number), 0);
	assert_int_equal(item_define(&f->items, "alloc", ITEM_EVENT, NULL, NULL, &number), 0);
	assert_int_equal(item_define(&f->items, "anon", ITEM_GAUGE, NULL, NULL, &number), 0);
}

static int64_t *moved(struct pool *p, uint32_t node, uint32_t item)
{
	return &p->sum.moved[node * (ITEM_MAX + 1) + item];
}

static void test_stat(void **state)
{
	struct fixture *f = *state;
	struct figures *sum = &f->a->sum;

	assert_text(f->a, "memory.stat", "held 0\nstock 0\npersistent 0\noverdraft 0\n");

	define_items(f);
	sum->held = 1;
	sum->stock = 2;
	sum->persistent = 3;
	sum->overdraft = 4;
	assert_text(f->a, "memory.stat",
		"held 1\nstock 2\npersistent 3\noverdraft 4\nsock 0\nalloc 0\nanon 0\n");

	assert_int_equal(figures_need_items(sum), 0);
	sum->items[1] = 8192;
	assert_int_equal(figures_need_moved(sum, 1), 0);
	*moved(f->a, 0, 1) = -192;
	*moved(f->a, 0, 2) = INT64_MAX;
	assert_text(f->a, "memory.stat",
		"held 1\nstock 2\npersistent 3\noverdraft 4\n"
		"sock 8000\nalloc 9223372036854775807\nanon 0\n");
	assert_text(f->b, "memory.stat",
		"held 0\nstock 0\npersistent 0\noverdraft 0\nsock 0\nalloc 0\nanon 0\n");
}

/* What programs count wrongly is shown as nothing, not as less than that, and not as 2^64 - 1. */
static void test_stat_below_zero(void **state)
{
	struct fixture *f = *state;
	struct figures *sum = &f->a->sum;

	define_items(f);
	assert_int_equal(figures_need_items(sum), 0);
	assert_int_equal(figures_need_moved(sum, 1), 0);
	sum->held = -1;
	sum->stock = INT64_MIN;
	sum->items[1] = 4096;
	*moved(f->a, 0, 1) = -4097;
	*moved(f->a, 0, 2) = -1;
	*moved(f->a, 0, 3) = INT64_MIN;
	assert_text(f->a, "memory.stat",
		"held 0\nstock 0\npersistent 0\noverdraft 0\nsock 0\nalloc 0\nanon 0\n");
	assert_text(f->a, "memory.numa_stat", "sock N0=0\nalloc N0=0\nanon N0=0\n");
	/* shown so, and kept as it is */
	*moved(f->a, 0, 1) += 2;
	assert_text(f->a, "memory.stat",
		"held 0\nstock 0\npersistent 0\noverdraft 0\nsock 1\nalloc 0\nanon 0\n");

	/* a sum beyond 2^63 - 1 */
	sum->items[1] = INT64_MAX;
	*moved(f->a, 0, 1) = INT64_MAX;
	sum->items[3] = INT64_MAX;
	*moved(f->a, 0, 3) = -1;
	assert_text(f->a, "memory.stat",
		"held 0\nstock 0\npersistent 0\noverdraft 0\n"
		"sock 0\nalloc 0\nanon 9223372036854775806\n");
}

static void test_numa_stat(void **state)
{
	struct fixture *f = *state;
	struct figures *sum = &f->a->sum;

	f->tree->n_nodes = 3;
	assert_text(f->a, "memory.numa_stat", "");
	define_items(f);
	assert_text(f->a, "memory.numa_stat",
		"sock N0=0 N1=0 N2=0\nalloc N0=0 N1=0 N2=0\nanon N0=0 N1=0 N2=0\n");

	/* what was charged with an item is on no node */
	assert_int_equal(figures_need_items(sum), 0);
	sum->items[1] = 5;
	assert_int_equal(figures_need_moved(sum, 3), 0);
	*moved(f->a, 0, 1) = 10;
	*moved(f->a, 2, 1) = 300;
	*moved(f->a, 1, 2) = 7;
	/* moved on one node and back on another */
	*moved(f->a, 0, 3) = 4096;
	*moved(f->a, 1, 3) = -4000;
	assert_text(f->a, "memory.numa_stat",
		"sock N0=10 N1=0 N2=300\nalloc N0=0 N1=7 N2=0\nanon N0=4096 N1=0 N2=0\n");
	assert_text(f->a, "memory.stat",
		"held 0\nstock 0\npersistent 0\noverdraft 0\nsock 315\nalloc 7\nanon 96\n");
	assert_text(f->b, "memory.numa_stat",
		"sock N0=0 N1=0 N2=0\nalloc N0=0 N1=0 N2=0\nanon N0=0 N1=0 N2=0\n");
}

static void test_cgroup_events(void **state)
{
	struct fixture *f = *state;
	struct pool_member one = {0}, two = {0};

	assert_text(f->a, "cgroup.events", "populated 0\nfrozen 0\n");
	pool_add_member(f->b, &one);
	pool_add_member(f->b, &two);
	assert_text(f->a, "cgroup.events", "populated 1\nfrozen 0\n");
	pool_remove_member(f->b, &one);
	assert_text(f->b, "cgroup.events", "populated 1\nfrozen 0\n");
	pool_remove_member(f->b, &two);
	assert_text(f->a, "cgroup.events", "populated 0\nfrozen 0\n");
}

static void test_cgroup_stat(void **state)
{
	struct fixture *f = *state;

	assert_text(f->tree->root, "cgroup.stat", "nr_descendants 2\nnr_dying_descendants 0\n");
	assert_text(f->a, "cgroup.stat", "nr_descendants 1\nnr_dying_descendants 0\n");
	assert_text(f->b, "cgroup.stat", "nr_descendants 0\nnr_dying_descendants 0\n");
}

static void test_children(void **state)
{
	struct fixture *f = *state;
	struct pool *p;

	assert_text(f->b, "pool.children", "");
	assert_int_equal(pool_create(f->tree, "/a/z z", &p), 0);
	assert_int_equal(pool_create(f->tree, "/a/a", &p), 0);
	assert_text(f->a, "pool.children", "b\nz z\na\n");
	assert_text(f->tree->root, "pool.children", "a\n");
	assert_int_equal(pool_remove(f->b), 0);
	assert_text(f->a, "pool.children", "z z\na\n");
}

static void test_removed_pool(void **state)
{
	struct fixture *f = *state;
	struct pool *old = pool_ref(f->b);

	assert_int_equal(statfmt_write(old, "memory.max", "1M"), 0);
	pool_count_event(old, POOL_LOW);
	assert_int_equal(pool_remove(old), 0);
	assert_text(old, "memory.max", "1048576\n");
	assert_text(old, "memory.stat", "held 0\nstock 0\npersistent 0\noverdraft 0\n");
	assert_text(old, "cgroup.stat", "nr_descendants 0\nnr_dying_descendants 0\n");
	pool_unref(old);
}

#define WITH_TREE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_TREE(test_access),
		WITH_TREE(test_no_such_file),
		WITH_TREE(test_short_of_memory),
		WITH_TREE(test_current),
		WITH_TREE(test_peak),
		WITH_TREE(test_max),
		WITH_TREE(test_bad_max_keeps_old),
		WITH_TREE(test_item_max),
		WITH_TREE(test_events),
		cmocka_unit_test(test_shows_figures),
		WITH_TREE(test_stat),
		WITH_TREE(test_stat_below_zero),
		WITH_TREE(test_numa_stat),
		WITH_TREE(test_cgroup_events),
		WITH_TREE(test_cgroup_stat),
		WITH_TREE(test_children),
		WITH_TREE(test_removed_pool),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
