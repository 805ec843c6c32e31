/* SPDX-License-Identifier: MIT */

/*
 * Which pools are exported, against the plainest way to say it: whatever came and went, no pool that
 * waits lies above one that is in, and none waits while there is room.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/util.h"
#include "exportset.h"

#define POOLS 200
#define ROUNDS 2000

static char *patterns[] = {"/*"};
static char *files[] = {"memory.stat"};

struct fixture {
	struct item_table items;
	struct pool_tree *tree;
	struct conf conf;
	struct exportset set;
};

static struct fixture *set_up(uint32_t max)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	assert_int_equal(pool_tree_new(&f->items, &f->tree), 0);
	f->conf.export = patterns;
	f->conf.n_export = 1;
	f->conf.export_files = files;
	f->conf.n_export_files = 1;
	f->conf.export_max = max;
	exportset_begin(&f->set, "/run/tallyd/pools", &f->conf, f->tree->root);
	assert_null(exportset_add(&f->set, f->tree->root));
	return f;
}

static void tear_down(struct fixture *f)
{
	pool_tree_free(f->tree);
	free(f);
}

static unsigned depth_of(const struct pool *p)
{
	unsigned depth = 0;

	while ((p = p->parent))
		depth++;
	return depth;
}

static void check(const struct fixture *f)
{
	struct pool *root = f->tree->root;
	unsigned deepest_in = 0, shallowest_waiting = UINT32_MAX;
	uint64_t n = 0, n_waiting = 0;

	for (struct pool *p = root; p; p = pool_next_preorder(p, root)) {
		unsigned depth = depth_of(p);

		if (p->export.state == EXPORTSET_IN) {
			n++;
			deepest_in = depth > deepest_in ? depth : deepest_in;
		} else if (p->export.state == EXPORTSET_WAITING) {
			n_waiting++;
			shallowest_waiting =
				depth < shallowest_waiting ? depth : shallowest_waiting;
		}
	}
	assert_int_equal(f->set.n, n);
	assert_int_equal(f->set.n_waiting, n_waiting);
	assert_true(n <= f->conf.export_max);
	assert_true(n_waiting == 0 || n == f->conf.export_max);
	assert_true(n == 0 || deepest_in <= shallowest_waiting);
}

/* Any pool of the tree, found by walking so far. */
static struct pool *any(const struct fixture *f)
{
	uint64_t n = (uint64_t)rand() % f->tree->n_pools;
	struct pool *p = f->tree->root;

	while (n-- > 0)
		p = pool_next_preorder(p, f->tree->root);
	return p;
}

static void come(struct fixture *f, unsigned number)
{
	_cleanup_(freep) char *above = pool_path(any(f)), *path = NULL;
	struct pool *p, *out;

	assert_true(asprintf(&path, "%s/%u", strcmp(above, "/") == 0 ? "" : above, number) > 0);
	assert_int_equal(pool_create(f->tree, path, &p), 0);
	out = exportset_add(&f->set, p);
	if (out) {
		assert_int_equal(out->export.state, EXPORTSET_WAITING);
		assert_int_equal(p->export.state, EXPORTSET_IN);
		assert_true(depth_of(out) > depth_of(p));
	}
}

static void go(struct fixture *f)
{
	struct pool *p = any(f), *held = pool_ref(p), *in;

	if (pool_remove(p) == 0) {
		bool was_in = p->export.state == EXPORTSET_IN;

		in = exportset_remove(&f->set, held);
		assert_int_equal(held->export.state, EXPORTSET_UNSEEN);
		assert_true(!in || (was_in && in->export.state == EXPORTSET_IN));
	}
	pool_unref(held);
}

static void test_any_order(void **state _unused_)
{
	static const uint32_t maxima[] = {0, 1, 10, 100, POOLS * 2};

	for (unsigned i = 0; i < ELEMENTS(maxima); i++) {
		struct fixture *f = set_up(maxima[i]);

		for (unsigned n = 0; n < ROUNDS; n++) {
			if (f->tree->n_pools < POOLS && rand() % 3 > 0)
				come(f, n);
			else
				go(f);
			check(f);
		}
		/* The same from nothing. */
		exportset_begin(&f->set, "/run/tallyd/pools", &f->conf, f->tree->root);
		assert_int_equal(f->set.n + f->set.n_waiting, 0);
		for (struct pool *p = f->tree->root; p; p = pool_next_preorder(p, f->tree->root))
			exportset_add(&f->set, p);
		check(f);
		tear_down(f);
	}
}

static void test_wanted_and_fit(void **state _unused_)
{
	static const struct {
		const char *path;
		enum exportset_state state;
	} cases[] = {
		{"/a", EXPORTSET_IN},
		{"/memory.stat", EXPORTSET_UNWANTED},
		{"/memory.stat/below", EXPORTSET_UNWANTED},
		{"/.memory.stat.new", EXPORTSET_UNWANTED},
		{"/.memory.stat", EXPORTSET_IN},
		{"/memory.stat.new", EXPORTSET_IN},
		{"/.memory.stat.newer", EXPORTSET_IN},
		{"/memory.current", EXPORTSET_IN},
	};
	struct fixture *f = set_up(100);
	struct pool *p;

	for (unsigned i = 0; i < ELEMENTS(cases); i++) {
		assert_int_equal(pool_create(f->tree, cases[i].path, &p), 0);
		exportset_add(&f->set, p);
		assert_int_equal(p->export.state, cases[i].state);
	}
	assert_true(f->set.unfit_logged);
	f->conf.n_export = 0;
	assert_int_equal(pool_create(f->tree, "/b", &p), 0);
	exportset_add(&f->set, p);
	assert_int_equal(p->export.state, EXPORTSET_UNWANTED);
	tear_down(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_order),
		cmocka_unit_test(test_wanted_and_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
