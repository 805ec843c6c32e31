/* SPDX-License-Identifier: MIT */

/*
 * Effective protection, number by number: each expectation is written out from the kernel's rule,
 * so that a share which is off by a byte is seen.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "core/protection.h"
#include "core/util.h"

#define MIB (UINT64_C(1) << 20)
#define MEMBERS 32

struct fixture {
	struct item_table items;
	struct pool_tree *tree;
	struct pool_member members[MEMBERS];
	struct pool *of[MEMBERS];
	unsigned n;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	*state = f;
	return f ? pool_tree_new(&f->items, &f->tree) : -1;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < f->n; i++)
		pool_remove_member(f->of[i], &f->members[i]);
	pool_tree_free(f->tree);
	item_table_clear(&f->items);
	free(f);
	return 0;
}

/* A pool with an attachment that gives back, so much of it used. */
static struct pool *pool(
	struct fixture *f, const char *path, uint64_t min, uint64_t low, uint64_t usage)
{
	struct pool *p = NULL;

	assert_int_equal(pool_create_all(f->tree, path, &p), 0);
	p->min = min;
	p->low = low;
	counter_charge(&p->counter, usage);
	assert_true(f->n < MEMBERS);
	f->of[f->n] = p;
	pool_add_member(p, &f->members[f->n]);
	pool_set_reclaims(p, &f->members[f->n++], true);
	return p;
}

static void use(struct pool *p, int64_t bytes)
{
	if (bytes > 0)
		counter_charge(&p->counter, (uint64_t)bytes);
	else
		counter_uncharge(&p->counter, (uint64_t)-bytes);
}

static void expect(const struct pool *p, uint64_t emin, uint64_t elow)
{
	assert_int_equal(p->emin, emin);
	assert_int_equal(p->elow, elow);
}

/* Children of the pool where the reclaim is have what is set at them, used or not. */
static void test_top(void **state)
{
	struct fixture *f = *state;
	struct pool *a = pool(f, "/a", 10, 20, 5), *b = pool(f, "/a/b", 7, 9, 100);

	protection_set(f->tree->root);
	expect(a, 10, 20);
	protection_set(a);
	expect(b, 7, 9);
	/* what is set above the top does not count there */
	a->min = a->low = 0;
	protection_set(a);
	expect(b, 7, 9);
	protection_set(f->tree->root);
	expect(b, 0, 0);
}

/* The tree of the kernel's own test: 75, 25, 0 and 500 below 50, of which 50, 50, 50 and 0 are
 * used. */
static void test_overcommitted(void **state)
{
	struct fixture *f = *state;
	struct pool *a = pool(f, "/a", 0, 0, 0), *b = pool(f, "/a/b", 50 * MIB, 0, 0),
		    *c = pool(f, "/a/b/c", 75 * MIB, 0, 50 * MIB),
		    *d = pool(f, "/a/b/d", 25 * MIB, 0, 50 * MIB),
		    *e = pool(f, "/a/b/e", 0, 0, 50 * MIB), *g = pool(f, "/a/b/f", 500 * MIB, 0, 0);

	protection_set(a);
	expect(b, 50 * MIB, 0);
	/* 50 + 25 are claimed and used of 50 */
	expect(c, 50 * MIB * 50 / 75, 0);
	expect(d, 25 * MIB * 50 / 75, 0);
	expect(e, 0, 0);
	expect(g, 0, 0);

	/* where the pressure ends: all that is claimed and used fits */
	use(c, -21 * (int64_t)MIB);
	use(d, -29 * (int64_t)MIB);
	use(e, -50 * (int64_t)MIB);
	protection_set(a);
	expect(c, 29 * MIB, 0);
	expect(d, 21 * MIB, 0);
	expect(e, 0, 0);
}

static void test_low_and_min(void **state)
{
	struct fixture *f = *state;
	struct pool *a = pool(f, "/a", 0, 0, 0), *b = pool(f, "/a/b", 300, 600, 0),
		    *c = pool(f, "/a/b/c", 400, 500, 450), *d = pool(f, "/a/b/d", 100, 700, 450);

	protection_set(a);
	expect(b, 300, 600);
	/* min: 400 + 100 of 300; low: 450 + 450 of 600 */
	expect(c, 400 * 300 / 500, 450 * 600 / 900);
	expect(d, 100 * 300 / 500, 450 * 600 / 900);
}

/* What siblings do not claim is shared by what each uses beyond its claim. */
static void test_recursive(void **state)
{
	struct fixture *f = *state;
	struct pool *a = pool(f, "/a", 0, 0, 0), *b = pool(f, "/a/b", 0, 1000, 0),
		    *c = pool(f, "/a/b/c", 0, 100, 400), *d = pool(f, "/a/b/d", 0, 0, 600),
		    *e = pool(f, "/a/b/e", 0, 50, 20);

	protection_set(a);
	/* claimed 100 + 20 of 1000; usage of /a/b 1020, so 900 beyond claims share 880 */
	expect(c, 0, 100 + 880 * 300 / 900);
	expect(d, 0, 880 * 600 / 900);
	expect(e, 0, 20);

	/* nobody claims: all of it by usage */
	c->low = e->low = 0;
	protection_set(a);
	expect(c, 0, 1000 * 400 / 1020);
	expect(d, 0, 1000 * 600 / 1020);
	expect(e, 0, 1000 * 20 / 1020);

	/* min goes down the same way, by itself */
	b->min = 510;
	protection_set(a);
	expect(c, 510 * 400 / 1020, 1000 * 400 / 1020);
	expect(e, 510 * 20 / 1020, 1000 * 20 / 1020);
}

/* Own bytes of the parent are no child's: they keep the shares of the children below the whole. */
static void test_own_bytes(void **state)
{
	struct fixture *f = *state;
	struct pool *a = pool(f, "/a", 0, 0, 0), *b = pool(f, "/a/b", 0, 900, 500),
		    *c = pool(f, "/a/b/c", 0, 0, 500);

	protection_set(a);
	expect(b, 0, 900);
	expect(c, 0, 900 * 500 / 1000);
}

static void test_nested(void **state)
{
	struct fixture *f = *state;
	struct pool *top = pool(f, "/t", 0, 0, 0), *a = pool(f, "/t/a", 0, 800, 0),
		    *b = pool(f, "/t/a/b", 0, 600, 0), *c = pool(f, "/t/a/c", 0, 600, 500),
		    *d = pool(f, "/t/a/b/d", 0, 300, 400), *e = pool(f, "/t/a/b/e", 0, 300, 100);

	protection_set(top);
	expect(a, 0, 800);
	/* /t/a: 500 + 500 of 800 */
	expect(b, 0, 400);
	expect(c, 0, 400);
	/* /t/a/b: 300 + 100 of 400: just so much */
	expect(d, 0, 300);
	expect(e, 0, 100);
	/* and 200 of 400 */
	d->low = 100;
	protection_set(top);
	expect(d, 0, 100 + 200 * 300 / 300);
	expect(e, 0, 100);
}

static void test_huge(void **state)
{
	struct fixture *f = *state;
	const uint64_t huge = UINT64_C(1) << 62;
	struct pool *a = pool(f, "/a", 0, 0, 0), *b = pool(f, "/a/b", UINT64_MAX, UINT64_MAX, 0),
		    *c = pool(f, "/a/b/c", UINT64_MAX, 0, huge),
		    *d = pool(f, "/a/b/d", UINT64_MAX, 0, huge);

	protection_set(a);
	expect(c, huge + 0, (uint64_t)((unsigned __int128)UINT64_MAX * huge / (2 * huge)));
	b->min = huge;
	protection_set(a);
	expect(c, huge / 2, c->elow);
	expect(d, huge / 2, d->elow);
}

/* A subtree in which nobody gives back is not walked. */
static void test_only_where_needed(void **state)
{
	struct fixture *f = *state;
	struct pool *a = pool(f, "/a", 0, 0, 0), *b = pool(f, "/a/b", 100, 0, 10),
		    *c = pool(f, "/a/b/c", 100, 0, 10), *d = pool(f, "/a/d", 100, 0, 10);

	assert_int_equal(f->tree->root->n_reclaimers_below, 4);
	assert_int_equal(b->n_reclaimers_below, 2);
	pool_set_reclaims(b, &f->members[1], false);
	pool_set_reclaims(b, &f->members[1], false);
	/* it goes with the member, wherever that goes */
	pool_remove_member(c, &f->members[2]);
	assert_int_equal(b->n_reclaimers_below, 0);
	pool_add_member(c, &f->members[2]);
	assert_int_equal(b->n_reclaimers_below, 1);
	pool_set_reclaims(c, &f->members[2], false);
	assert_int_equal(f->tree->root->n_reclaimers_below, 2);
	assert_int_equal(a->n_reclaimers_below, 2);
	assert_int_equal(b->n_reclaimers_below, 0);
	protection_set(f->tree->root);
	expect(b, 0, 0);
	expect(c, 0, 0);
	expect(d, 0, 0);
	protection_set(a);
	/* as a child of one that is walked, but not below it */
	expect(b, 100, 0);
	expect(c, 0, 0);
	expect(d, 100, 0);
	pool_set_reclaims(c, &f->members[2], true);
	protection_set(a);
	expect(c, 10, 0);
}

/* What a standalone pool has is not its parent's: it claims nothing there. */
static void test_standalone(void **state)
{
	struct fixture *f = *state;
	struct pool *a = pool(f, "/a", 0, 0, 0), *b = pool(f, "/a/b", 0, 100, 0),
		    *c = pool(f, "/a/b/c", 0, 100, 80), *d = pool(f, "/a/b/d", 0, 100, 0);

	assert_int_equal(pool_set_standalone(d, true), 0);
	use(d, 80);
	protection_set(a);
	expect(b, 0, 100);
	/* not 100 · 80 / 160 */
	expect(c, 0, 80);
	assert_int_equal(d->elow, 100);
	use(d, -80);
	assert_int_equal(pool_set_standalone(d, false), 0);
	use(d, 80);
	protection_set(a);
	expect(c, 0, 50);
	expect(d, 0, 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_top, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_overcommitted, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_low_and_min, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_recursive, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_own_bytes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nested, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_huge, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_only_where_needed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_standalone, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
