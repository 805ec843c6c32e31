/* SPDX-License-Identifier: MIT */

/*
 * Limits of items: that the counters of an item are linked as the pools are, however limits come and
 * go; that pool and item are charged both or neither; and, at random, that all of it comes out as in
 * a model that knows nothing but what each pool was charged.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/itemlimit.h"
#include "core/util.h"

#define KIB UINT64_C(1024)
#define N_ITEMS 3
#define IDS_MAX 4096

/* What is granted, by pool and item, as whoever serves a tree knows it. */
static uint64_t granted[IDS_MAX][N_ITEMS + 1];

static uint64_t sum_granted(struct pool *root, uint32_t item)
{
	uint64_t sum = 0;

	for (struct pool *p = root; p; p = pool_next_preorder(p, root))
		sum += granted[p->id][item];
	return sum;
}

static void charge(struct pool *p, uint32_t item, uint64_t n)
{
	itemlimit_charge(p, item, n);
	granted[p->id][item] += n;
}

static int try_charge(struct pool *p, uint32_t item, uint64_t n, struct itemlimit_place *ret_failed)
{
	int r = itemlimit_try_charge(p, item, n, ret_failed);

	if (r == 0)
		granted[p->id][item] += n;
	return r;
}

static void uncharge(struct pool *p, uint32_t item, uint64_t n)
{
	assert_true(granted[p->id][item] >= n);
	granted[p->id][item] -= n;
	assert_int_equal(itemlimit_uncharge(p, item, n), 0);
}

struct fixture {
	struct item_table items;
	struct pool_tree *tree;
	struct pool *a, *b, *c; /* /a, /a/b, /a/b/c */
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	uint32_t number;

	*state = f;
	memset(granted, 0, sizeof(granted));
	if (!f || pool_tree_new(&f->items, &f->tree) < 0 ||
		item_define(&f->items, "one", ITEM_GAUGE, NULL, NULL, &number) < 0 ||
		item_define(&f->items, "two", ITEM_GAUGE, NULL, NULL, &number) < 0 ||
		item_define(&f->items, "three", ITEM_GAUGE, NULL, NULL, &number) < 0 ||
		pool_create_all(f->tree, "/a/b/c", &f->c) < 0)
		return -1;
	f->tree->sum_granted = sum_granted;
	f->b = f->c->parent;
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

static struct counter *counter_at(struct pool *p, uint32_t item)
{
	return itemlimit_counter((struct itemlimit_place){p, item});
}

static void assert_granted(struct pool *p, uint32_t item, uint64_t bytes)
{
	const struct counter *c = counter_at(p, item);

	assert_non_null(c);
	assert_int_equal(counter_read(c), bytes);
	assert_int_equal(atomic_load(&c->usage), bytes);
}

static void assert_refused(struct pool *p, uint32_t item, uint64_t n, struct pool *at, uint32_t by)
{
	struct itemlimit_place failed = {NULL, 99};

	assert_int_equal(try_charge(p, item, n, &failed), -ENOMEM);
	assert_ptr_equal(failed.pool, at);
	assert_int_equal(failed.item, by);
}

/* ------------------------------------------------------------------ setting and removing */

static void test_none(void **state)
{
	struct fixture *f = *state;

	assert_null(counter_at(f->a, 1));
	assert_ptr_equal(counter_at(f->a, 0), &f->a->counter);
	assert_true(itemlimit_read(f->a, 1) == COUNTER_MAX);
	assert_int_equal(itemlimit_set(f->a, 1, COUNTER_MAX), 0);
	assert_int_equal(try_charge(f->c, 1, 10, NULL), 0);
	assert_int_equal(counter_read(&f->a->counter), 10);
	assert_null(f->a->itemlimits);
	uncharge(f->c, 1, 10);
	assert_int_equal(counter_read(&f->a->counter), 0);
}

static void test_set_and_remove(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(itemlimit_set(f->a, 1, 100), 0);
	assert_int_equal(itemlimit_set(f->a, 2, 0), 0);
	assert_int_equal(itemlimit_read(f->a, 1), 100);
	assert_int_equal(itemlimit_read(f->a, 2), 0);
	assert_true(itemlimit_read(f->a, 3) == COUNTER_MAX);
	assert_true(itemlimit_read(f->a, 0) == COUNTER_MAX);
	assert_true(itemlimit_read(f->b, 1) == COUNTER_MAX);

	assert_int_equal(try_charge(f->c, 1, 60, NULL), 0);
	assert_refused(f->c, 1, 41, f->a, 1);
	assert_refused(f->c, 2, 1, f->a, 2);
	assert_int_equal(try_charge(f->c, 3, 1000, NULL), 0);
	assert_int_equal(try_charge(f->c, 0, 1000, NULL), 0);
	assert_granted(f->a, 1, 60);
	assert_granted(f->a, 2, 0);
	assert_granted(f->a, 0, 2060);

	assert_int_equal(itemlimit_set(f->a, 1, 50), 0);
	assert_granted(f->a, 1, 60);
	assert_refused(f->c, 1, 1, f->a, 1);
	uncharge(f->c, 1, 20);
	assert_int_equal(try_charge(f->c, 1, 10, NULL), 0);

	assert_int_equal(itemlimit_set(f->a, 1, COUNTER_MAX), 0);
	assert_null(counter_at(f->a, 1));
	assert_int_equal(itemlimit_read(f->a, 2), 0);
	assert_int_equal(try_charge(f->c, 1, 1000, NULL), 0);
	assert_int_equal(counter_read(&f->a->counter), 3050);
}

/* What was charged before the limit was there counts. */
static void test_set_while_charged(void **state)
{
	struct fixture *f = *state;

	charge(f->c, 1, 70);
	charge(f->a, 1, 20);
	charge(f->c, 2, 500);
	assert_int_equal(itemlimit_set(f->a, 1, 100), 0);
	assert_granted(f->a, 1, 90);
	assert_int_equal(atomic_load(&counter_at(f->a, 1)->peak), 90);
	assert_refused(f->b, 1, 11, f->a, 1);
	assert_int_equal(try_charge(f->b, 1, 10, NULL), 0);
	uncharge(f->c, 1, 70);
	uncharge(f->a, 1, 20);
	uncharge(f->b, 1, 10);
	assert_granted(f->a, 1, 0);

	/* Below what is there: all of it goes back all the same. */
	charge(f->c, 1, 70);
	assert_int_equal(itemlimit_set(f->c, 1, 0), 0);
	assert_granted(f->c, 1, 70);
	assert_refused(f->c, 1, 1, f->c, 1);
	uncharge(f->c, 1, 70);
	assert_refused(f->c, 1, 1, f->c, 1);
}

static void test_links(void **state)
{
	struct fixture *f = *state;
	struct counter *a, *b, *c, *beside;
	struct pool *d;

	assert_int_equal(pool_create(f->tree, "/a/d", &d), 0);
	assert_int_equal(itemlimit_set(f->c, 1, 10), 0);
	assert_int_equal(itemlimit_set(d, 1, 10), 0);
	assert_int_equal(itemlimit_set(f->b, 2, 10), 0);
	c = counter_at(f->c, 1);
	beside = counter_at(d, 1);
	assert_null(c->parent);
	assert_null(beside->parent);

	/* Above both. */
	assert_int_equal(itemlimit_set(f->a, 1, 100), 0);
	a = counter_at(f->a, 1);
	assert_null(a->parent);
	assert_ptr_equal(c->parent, a);
	assert_ptr_equal(beside->parent, a);
	assert_null(counter_at(f->b, 2)->parent);

	/* Between. */
	assert_int_equal(itemlimit_set(f->b, 1, 50), 0);
	b = counter_at(f->b, 1);
	assert_ptr_equal(b->parent, a);
	assert_ptr_equal(c->parent, b);
	assert_ptr_equal(beside->parent, a);

	/* A new value is the same counter. */
	assert_int_equal(itemlimit_set(f->b, 1, 60), 0);
	assert_ptr_equal(counter_at(f->b, 1), b);
	assert_ptr_equal(c->parent, b);

	charge(f->c, 1, 5);
	assert_granted(f->a, 1, 5);
	assert_int_equal(itemlimit_set(f->b, 1, COUNTER_MAX), 0);
	assert_ptr_equal(c->parent, a);
	charge(f->c, 1, 5);
	assert_granted(f->c, 1, 10);
	assert_granted(f->a, 1, 10);
	assert_int_equal(itemlimit_set(f->a, 1, COUNTER_MAX), 0);
	assert_null(c->parent);
	assert_null(beside->parent);
	uncharge(f->c, 1, 10);
	assert_granted(f->c, 1, 0);
}

static void test_prepare(void **state)
{
	struct fixture *f = *state;

	charge(f->b, 1, 30);
	assert_int_equal(itemlimit_prepare(f->a, 1), 0);
	assert_granted(f->a, 1, 30);
	assert_true(itemlimit_read(f->a, 1) == COUNTER_MAX);
	assert_int_equal(try_charge(f->b, 1, 30, NULL), 0);
	assert_int_equal(itemlimit_prepare(f->a, 1), 0);
	assert_int_equal(itemlimit_set(f->a, 1, 60), 0);
	assert_refused(f->b, 1, 1, f->a, 1);
	assert_int_equal(itemlimit_prepare(f->a, 1), 0);
	assert_int_equal(itemlimit_read(f->a, 1), 60);
}

static void test_removed_pool(void **state)
{
	struct fixture *f = *state;
	struct pool *old = pool_ref(f->c);

	assert_int_equal(itemlimit_set(f->c, 1, 10), 0);
	assert_int_equal(itemlimit_set(f->c, 2, 10), 0);
	assert_int_equal(pool_remove(f->c), 0);
	assert_null(old->itemlimits);
	assert_int_equal(itemlimit_set(old, 1, 10), -ENOENT);
	assert_int_equal(itemlimit_set(old, 1, COUNTER_MAX), 0);
	assert_null(old->itemlimits);
	/* Nothing of it is linked to any more. */
	assert_int_equal(itemlimit_set(f->a, 1, 10), 0);
	assert_int_equal(itemlimit_set(f->a, 1, COUNTER_MAX), 0);
	pool_unref(old);
}

/* A counter that knows of nothing would let the limit be passed by all there is already. */
static void test_unknown_usage(void **state)
{
	struct fixture *f = *state;

	f->tree->sum_granted = NULL;
	assert_int_equal(itemlimit_set(f->a, 1, 10), -EOPNOTSUPP);
	assert_int_equal(itemlimit_prepare(f->a, 1), -EOPNOTSUPP);
	assert_null(f->a->itemlimits);
	assert_int_equal(itemlimit_set(f->a, 1, COUNTER_MAX), 0);
}

/* ------------------------------------------------------------------ both or neither */

static void test_pool_refuses(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(itemlimit_set(f->b, 1, 100), 0);
	counter_set_max(&f->a->counter, 50);
	assert_int_equal(try_charge(f->c, 1, 50, NULL), 0);
	assert_refused(f->c, 1, 1, f->a, 0);
	assert_granted(f->b, 1, 50);
	assert_granted(f->a, 0, 50);
	assert_granted(f->c, 0, 50);
	/* What was refused was never there. */
	assert_int_equal(atomic_load(&counter_at(f->b, 1)->peak), 50);
	assert_int_equal(atomic_load(&counter_at(f->b, 1)->failcnt), 0);
	assert_int_equal(atomic_load(&f->a->counter.failcnt), 1);
}

static void test_item_refuses(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(itemlimit_set(f->a, 1, 50), 0);
	assert_int_equal(itemlimit_set(f->c, 1, 100), 0);
	assert_int_equal(try_charge(f->c, 1, 50, NULL), 0);
	assert_refused(f->c, 1, 1, f->a, 1);
	assert_granted(f->c, 1, 50);
	assert_granted(f->a, 1, 50);
	assert_granted(f->c, 0, 50);
	assert_granted(f->tree->root, 0, 50);
	assert_int_equal(atomic_load(&f->c->counter.peak), 50);
	assert_int_equal(atomic_load(&counter_at(f->a, 1)->failcnt), 1);
	assert_int_equal(try_charge(f->c, 2, 1000, NULL), 0);
}

static void test_force_passes_both(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(itemlimit_set(f->a, 1, 10), 0);
	counter_set_max(&f->b->counter, 20);
	charge(f->c, 1, 100);
	assert_granted(f->a, 1, 100);
	assert_granted(f->b, 0, 100);
	uncharge(f->c, 1, 100);
	assert_int_equal(try_charge(f->c, 1, 10, NULL), 0);
	/* More than was charged leaves 0 in both, and says so. */
	granted[f->c->id][1] = 0;
	assert_int_equal(itemlimit_uncharge(f->c, 1, 13), 3);
	assert_granted(f->a, 1, 0);
	assert_granted(f->b, 0, 0);
}

static void test_places(void **state)
{
	struct fixture *f = *state;
	const struct itemlimit_place expected[] = {{f->b, 2}, {f->b, 0}, {f->a, 2}, {f->a, 0},
		{f->tree->root, 2}, {f->tree->root, 0}, {NULL, 2}};
	struct itemlimit_place at = itemlimit_first(f->b, 2);

	for (size_t i = 0; i < ELEMENTS(expected); i++) {
		assert_true(itemlimit_is_same(at, expected[i]));
		if (at.pool)
			at = itemlimit_next(at, 2);
	}
	at = itemlimit_next(itemlimit_first(f->a, 0), 0);
	assert_true(itemlimit_is_same(at, (struct itemlimit_place){f->tree->root, 0}));
	assert_null(itemlimit_next(at, 0).pool);
}

/* ------------------------------------------------------------------ many threads */

#define THREADS 8
#define ROUNDS 20000

struct load {
	pthread_t thread;
	struct pool *pool;
	uint32_t item;
	uint64_t bytes;
	_Atomic uint64_t *held; /* of the item, as the threads know it; NULL: it does not count */
	uint64_t charged, refused, most_held;
};

static void *run_load(void *arg)
{
	struct load *l = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		if (itemlimit_try_charge(l->pool, l->item, l->bytes, NULL) < 0) {
			l->refused++;
			continue;
		}
		l->charged++;
		if (l->held) {
			uint64_t held = atomic_fetch_add(l->held, l->bytes) + l->bytes;

			l->most_held = held > l->most_held ? held : l->most_held;
			atomic_fetch_sub(l->held, l->bytes);
		}
		itemlimit_uncharge(l->pool, l->item, l->bytes);
	}
	return NULL;
}

static void run_loads(struct load *loads, size_t n)
{
	for (size_t i = 0; i < n; i++)
		assert_int_equal(pthread_create(&loads[i].thread, NULL, run_load, &loads[i]), 0);
	for (size_t i = 0; i < n; i++)
		pthread_join(loads[i].thread, NULL);
}

struct undecided {
	pthread_t thread;
	struct pool *pool;
	int result;
};

static void *run_undecided(void *arg)
{
	struct undecided *u = arg;

	u->result = itemlimit_try_charge(u->pool, 1, 20, NULL);
	return NULL;
}

/* The item has taken it, and then the pool, after the decision of another charge, does not. */
static void test_taken_back(void **state)
{
	struct fixture *f = *state;
	struct undecided u = {.pool = f->c};
	struct counter *item;

	assert_int_equal(itemlimit_set(f->a, 1, 100), 0);
	item = counter_at(f->a, 1);
	counter_set_max(&f->b->counter, 100);
	charge(f->b, 0, 60);
	atomic_fetch_add(&f->b->counter.usage, 30);
	assert_int_equal(pthread_create(&u.thread, NULL, run_undecided, &u), 0);
	while (atomic_load(&item->usage) != 20)
		sched_yield();
	assert_int_equal(counter_read(item), 0);
	atomic_fetch_add(&f->b->counter.decided, 30);
	pthread_join(u.thread, NULL);
	assert_int_equal(u.result, -ENOMEM);
	assert_granted(f->a, 1, 0);
	assert_int_equal(atomic_load(&item->peak), 0);
	assert_granted(f->c, 0, 0);
	assert_granted(f->b, 0, 90);
}

/* With the item and without, against a limit of the item and one of the pool: no counter is ever
 * above its limit, and all of them come back to nothing. */
static void test_threads(void **state)
{
	static const uint64_t sizes[THREADS] = {10, 25, 33, 40, 47, 60, 75, 90};
	struct fixture *f = *state;
	struct load loads[THREADS];
	_Atomic uint64_t held = 0;
	uint64_t charged = 0, refused = 0;

	assert_int_equal(itemlimit_set(f->a, 1, 100), 0);
	assert_int_equal(itemlimit_set(f->c, 1, 95), 0);
	counter_set_max(&f->b->counter, 130);
	for (size_t i = 0; i < THREADS; i++)
		loads[i] = (struct load){
			.pool = i % 2 ? f->b : f->c,
			.item = i % 4 == 3 ? 0 : 1,
			.bytes = sizes[i],
			.held = i % 4 == 3 ? NULL : &held,
		};
	run_loads(loads, THREADS);

	for (size_t i = 0; i < THREADS; i++) {
		assert_in_range(loads[i].most_held, 0, 100);
		charged += loads[i].charged;
		refused += loads[i].refused;
	}
	assert_true(charged > 0);
	assert_int_equal(charged + refused, THREADS * ROUNDS);
	assert_in_range(atomic_load(&counter_at(f->a, 1)->peak), 1, 100);
	assert_in_range(atomic_load(&counter_at(f->c, 1)->peak), 1, 95);
	assert_in_range(atomic_load(&f->b->counter.peak), 1, 130);
	assert_int_equal(refused,
		atomic_load(&counter_at(f->a, 1)->failcnt) +
			atomic_load(&counter_at(f->c, 1)->failcnt) +
			atomic_load(&f->b->counter.failcnt));
	assert_granted(f->a, 1, 0);
	assert_granted(f->c, 1, 0);
	for (struct pool *p = f->c; p; p = p->parent)
		assert_granted(p, 0, 0);
}

/* Big charges fit the item and not the pool; the small one with them fits always. Charging the one
 * and then the other, and taking the first back, would refuse it. */
static void test_big_refused_by_pool(void **state)
{
	struct fixture *f = *state;
	struct load loads[3];

	assert_int_equal(itemlimit_set(f->a, 1, 100), 0);
	counter_set_max(&f->tree->root->counter, 50);
	for (size_t i = 0; i < ELEMENTS(loads); i++)
		loads[i] = (struct load){.pool = f->c, .item = 1, .bytes = i == 0 ? 40 : 80};
	run_loads(loads, ELEMENTS(loads));

	assert_int_equal(loads[0].refused, 0);
	assert_int_equal(loads[1].charged + loads[2].charged, 0);
	assert_int_equal(atomic_load(&counter_at(f->a, 1)->failcnt) +
			atomic_load(&f->tree->root->counter.failcnt),
		loads[1].refused + loads[2].refused);
	assert_int_equal(atomic_load(&counter_at(f->a, 1)->peak), 40);
	assert_granted(f->a, 1, 0);
}

/* ------------------------------------------------------------------ against a model */

#define STEPS 60000
#define POOLS 24

/* The pools that there are, with what the model knows of their limits. */
struct world {
	struct fixture *f;
	struct pool *pools[POOLS];
	uint64_t max[IDS_MAX][N_ITEMS + 1]; /* 0: memory.max */
	size_t n;
	uint64_t seed;
};

static uint64_t draw(struct world *w, uint64_t below)
{
	w->seed = w->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (w->seed >> 33) % below;
}

static uint64_t model_usage(struct pool *p, uint32_t item)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i <= N_ITEMS; i++)
		if (item == 0 || item == i)
			sum += sum_granted(p, i);
	return sum;
}

static bool model_refuses(struct world *w, struct pool *p, uint32_t item, uint64_t n)
{
	uint64_t max = w->max[p->id][item], usage = model_usage(p, item);

	return max != COUNTER_MAX && (usage > max || n > max - usage);
}

/* Who should refuse: of the item's limits the lowest, else of the pools'. */
static struct itemlimit_place model_failed(
	struct world *w, struct pool *p, uint32_t item, uint64_t n)
{
	if (item != 0)
		for (struct pool *q = p; q; q = q->parent)
			if (model_refuses(w, q, item, n))
				return (struct itemlimit_place){q, item};
	for (struct pool *q = p; q; q = q->parent)
		if (model_refuses(w, q, 0, n))
			return (struct itemlimit_place){q, 0};
	return (struct itemlimit_place){NULL, 0};
}

static void add_pool(struct world *w, struct pool *parent)
{
	_cleanup_(freep) char *above = parent ? pool_path(parent) : NULL;
	char path[256];
	struct pool *p = w->f->tree->root;

	if (parent) {
		snprintf(path, sizeof(path), "%s/p%zu", parent->parent ? above : "",
			(size_t)w->f->tree->last_id);
		assert_int_equal(pool_create(w->f->tree, path, &p), 0);
	}
	assert_true(p->id < IDS_MAX);
	for (uint32_t i = 0; i <= N_ITEMS; i++)
		w->max[p->id][i] = COUNTER_MAX;
	w->pools[w->n++] = p;
}

static void try_remove(struct world *w, size_t i)
{
	struct pool *p = w->pools[i];
	bool used = p->n_children > 0 || model_usage(p, 0) > 0 || !p->parent;

	assert_true((pool_remove(p) < 0) == used);
	if (!used)
		w->pools[i] = w->pools[--w->n];
}

static void set_limit(struct world *w, struct pool *p, uint32_t item)
{
	uint64_t max = draw(w, 3) == 0 ? COUNTER_MAX : draw(w, 2000);

	w->max[p->id][item] = max;
	if (item == 0)
		counter_set_max(&p->counter, max);
	else
		assert_int_equal(itemlimit_set(p, item, max), 0);
}

static void change_charge(struct world *w, struct pool *p, uint32_t item)
{
	struct itemlimit_place failed = {NULL, 0}, expected;
	uint64_t n = draw(w, 200) + 1;

	if (draw(w, 2) == 0) {
		if (n > granted[p->id][item])
			n = granted[p->id][item];
		uncharge(p, item, n);
		return;
	}
	if (draw(w, 20) == 0) {
		charge(p, item, n);
		return;
	}
	expected = model_failed(w, p, item, n);
	assert_int_equal(try_charge(p, item, n, &failed), expected.pool ? -ENOMEM : 0);
	assert_true(itemlimit_is_same(failed, expected));
}

static void assert_as_model(struct world *w)
{
	for (size_t i = 0; i < w->n; i++)
		for (uint32_t item = 0; item <= N_ITEMS; item++) {
			struct pool *p = w->pools[i];

			assert_true(itemlimit_read(p, item) == w->max[p->id][item]);
			if (counter_at(p, item))
				assert_granted(p, item, model_usage(p, item));
			else
				assert_true(w->max[p->id][item] == COUNTER_MAX);
		}
}

static void test_random(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	unsigned refusals = 0;

	assert_non_null(w);
	w->f = *state;
	w->seed = 1;
	assert_int_equal(pool_remove(w->f->c), 0);
	assert_int_equal(pool_remove(w->f->b), 0);
	assert_int_equal(pool_remove(w->f->a), 0);
	add_pool(w, NULL);
	for (unsigned step = 0; step < STEPS; step++) {
		size_t i = draw(w, w->n);
		uint32_t item = (uint32_t)draw(w, N_ITEMS + 1);
		uint64_t what = draw(w, 100);

		if (what < 4 && w->n < POOLS && w->f->tree->last_id < IDS_MAX - 1)
			add_pool(w, w->pools[i]);
		else if (what < 8)
			try_remove(w, i);
		else if (what < 14)
			set_limit(w, w->pools[i], item);
		else
			change_charge(w, w->pools[i], item);
		if (step % 16 == 0)
			assert_as_model(w);
	}
	for (size_t i = 0; i < w->n; i++)
		refusals += atomic_load(&w->pools[i]->counter.failcnt) > 0;
	assert_true(refusals > 0);
	free(w);
}

#define WITH_TREE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_TREE(test_none),
		WITH_TREE(test_set_and_remove),
		WITH_TREE(test_set_while_charged),
		WITH_TREE(test_links),
		WITH_TREE(test_prepare),
		WITH_TREE(test_removed_pool),
		WITH_TREE(test_unknown_usage),
		WITH_TREE(test_pool_refuses),
		WITH_TREE(test_item_refuses),
		WITH_TREE(test_force_passes_both),
		WITH_TREE(test_places),
		WITH_TREE(test_taken_back),
		WITH_TREE(test_threads),
		WITH_TREE(test_big_refused_by_pool),
		WITH_TREE(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
