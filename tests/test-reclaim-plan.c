/* SPDX-License-Identifier: MIT */

/*
 * Whom a reclaim asks, and for how much: in trees without clients, with the numbers of the kernel's
 * selftests of memory.min and memory.low.
 */

#include "harness.h"

#include <stdlib.h>

#include "core/reclaim.h"
#include "core/util.h"

#define M (UINT64_C(1) << 20)

struct world {
	struct item_table items;
	struct pool_tree *tree;
};

/* A client: it has so much, which is all charged to its pool, and gives back what it is asked for. */
struct client {
	struct pool_member member;
	struct pool *pool;
	uint64_t bytes;
	bool busy;
};

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	assert_int_equal(pool_tree_new(&w->items, &w->tree), 0);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	pool_tree_free(w->tree);
	item_table_clear(&w->items);
	free(w);
	return 0;
}

static struct pool *make(struct world *w, const char *path, uint64_t min, uint64_t low)
{
	struct pool *p;

	assert_int_equal(pool_create_all(w->tree, path, &p), 0);
	p->min = min;
	p->low = low;
	return p;
}

static void attach(struct client *c, struct pool *p, uint64_t bytes)
{
	*c = (struct client){.pool = p, .bytes = bytes};
	counter_charge(&p->counter, bytes);
	pool_add_member(p, &c->member);
	pool_set_reclaims(p, &c->member, true);
}

static void detach(struct client *c)
{
	pool_set_reclaims(c->pool, &c->member, false);
	pool_remove_member(c->pool, &c->member);
	counter_uncharge(&c->pool->counter, c->bytes);
}

static uint64_t own(struct pool_member *m, uint32_t item)
{
	struct client *c = container_of(m, struct client, member);

	assert_int_equal(item, 0);
	return c->busy ? 0 : c->bytes;
}

/* Plans, and all who are asked give what they are asked for. Returns the sum. */
static uint64_t reclaim(struct pool *top, uint64_t bytes)
{
	struct reclaim_cursor c = {.top = top};
	uint64_t planned = reclaim_plan((struct itemlimit_place){top, 0}, bytes, own), sum = 0;

	while (reclaim_next(&c)) {
		struct client *client = container_of(c.member, struct client, member);

		assert_true(c.member->want <= client->bytes);
		assert_int_equal(c.pool->planned, 0);
		client->bytes -= c.member->want;
		sum += c.member->want;
		counter_uncharge(&client->pool->counter, c.member->want);
	}
	assert_int_equal(top->planned, 0);
	assert_int_equal(sum, planned);
	assert_true(sum <= bytes);
	return sum;
}

static void assert_near(uint64_t value, uint64_t expected)
{
	assert_in_range(value, expected - expected / 10, expected + expected / 10);
}

/* ------------------------------------------------------------------ without protection */

static void test_nobody(void **state)
{
	struct world *w = *state;
	struct pool *p = make(w, "/a", 0, 0);

	counter_charge(&p->counter, 10 * M);
	assert_int_equal(reclaim(w->tree->root, M), 0);
	counter_uncharge(&p->counter, 10 * M);
}

static void test_proportional(void **state)
{
	struct world *w = *state;
	struct client a, b, c;

	attach(&a, make(w, "/a", 0, 0), 60 * M);
	attach(&b, make(w, "/b/b", 0, 0), 30 * M);
	attach(&c, make(w, "/c", 0, 0), 10 * M);
	c.busy = true;
	assert_int_equal(reclaim(w->tree->root, 30 * M), 30 * M);
	assert_near(a.bytes, 40 * M);
	assert_near(b.bytes, 20 * M);
	assert_int_equal(c.bytes, 10 * M);
	/* More than there is. */
	assert_int_equal(reclaim(w->tree->root, 300 * M), 60 * M);
	assert_int_equal(a.bytes + b.bytes, 0);
	assert_int_equal(reclaim(w->tree->root, M), 0);
	detach(&a);
	detach(&b);
	detach(&c);
}

/* Of several in one pool, each by what it has; at the top itself too. */
static void test_members(void **state)
{
	struct world *w = *state;
	struct pool *p = make(w, "/a", 0, 0);
	struct client a, b;

	attach(&a, p, 90 * M);
	attach(&b, p, 10 * M);
	assert_int_equal(reclaim(p, 50 * M), 50 * M);
	assert_near(a.bytes, 45 * M);
	assert_near(b.bytes, 5 * M);
	detach(&a);
	detach(&b);
}

/* Not what is elsewhere, nor what does not count here. */
static void test_subtree(void **state)
{
	struct world *w = *state;
	struct pool *device = make(w, "/a/device", 0, 0);
	struct client a, b, c;

	pool_set_standalone(device, true);
	attach(&a, make(w, "/a/a", 0, 0), 10 * M);
	attach(&b, make(w, "/b", 0, 0), 10 * M);
	attach(&c, device, 10 * M);
	assert_int_equal(reclaim(a.pool->parent, 100 * M), 10 * M);
	assert_int_equal(b.bytes, 10 * M);
	assert_int_equal(c.bytes, 10 * M);
	assert_int_equal(reclaim(device, 4 * M), 4 * M);
	assert_int_equal(c.bytes, 6 * M);
	detach(&a);
	detach(&b);
	detach(&c);
}

#define MANY 5000

/* Little from many: from some of them, not a byte from each. */
static void test_many(void **state)
{
	struct world *w = *state;
	struct client *clients = calloc(MANY, sizeof(*clients));
	struct pool *p = make(w, "/a", 0, 0);
	unsigned asked = 0;

	assert_non_null(clients);
	for (unsigned i = 0; i < MANY; i++)
		attach(&clients[i], p, M);
	assert_int_equal(reclaim(p, 64 * 1024), 64 * 1024);
	for (unsigned i = 0; i < MANY; i++)
		asked += clients[i].bytes < M;
	assert_in_range(asked, 1, 64);
	/* And much from all. */
	assert_int_equal(reclaim(p, MANY / 2 * M), MANY / 2 * M);
	asked = 0;
	for (unsigned i = 0; i < MANY; i++)
		asked += clients[i].bytes < M * 3 / 4;
	assert_int_equal(asked, MANY);
	for (unsigned i = 0; i < MANY; i++)
		detach(&clients[i]);
	free(clients);
}

/* ------------------------------------------------------------------ the kernel's tree */

/*
 * A/B is protected by 50M, and its children claim 75, 25, 0 and 500M; three of them use 50M each. What
 * A/G takes in A (200M) leaves 50M for them.
 */
struct kernel {
	struct pool *a, *b;
	struct client c, d, e, f;
};

static void build(struct kernel *k, struct world *w, bool low)
{
#define MAKE(path, bytes) make(w, path, low ? 0 : (bytes), low ? (bytes) : 0)
	k->a = make(w, "/A", 0, 0);
	k->b = MAKE("/A/B", 50 * M);
	attach(&k->c, MAKE("/A/B/C", 75 * M), 50 * M);
	attach(&k->d, MAKE("/A/B/D", 25 * M), 50 * M);
	attach(&k->e, MAKE("/A/B/E", 0), 50 * M);
	attach(&k->f, MAKE("/A/B/F", 500 * M), 0);
#undef MAKE
}

static void end(struct kernel *k)
{
	detach(&k->c);
	detach(&k->d);
	detach(&k->e);
	detach(&k->f);
}

static void assert_kernels_numbers(const struct kernel *k)
{
	assert_near(counter_read(&k->b->counter), 50 * M);
	assert_near(k->c.bytes, 29 * M);
	assert_near(k->d.bytes, 21 * M);
	assert_true(k->e.bytes < M);
	assert_int_equal(k->f.bytes, 0);
}

static void in_steps(struct world *w, bool low, uint64_t step)
{
	struct kernel k;
	uint64_t got = 0;

	build(&k, w, low);
	for (unsigned i = 0; got < 100 * M && i < 100000; i++)
		got += reclaim(k.a, step < 100 * M - got ? step : 100 * M - got);
	print_message("in steps of %lu KiB: %lu %lu %lu KiB\n", (unsigned long)(step >> 10),
		(unsigned long)(k.c.bytes >> 10), (unsigned long)(k.d.bytes >> 10),
		(unsigned long)(k.e.bytes >> 10));
	assert_int_equal(got, 100 * M);
	assert_kernels_numbers(&k);
	assert_int_equal(k.c.pool->events[POOL_LOW], 0);
	end(&k);
}

static void test_min_at_once(void **state)
{
	in_steps(*state, false, 100 * M);
}

static void test_min_in_steps(void **state)
{
	in_steps(*state, false, 256 * 1024);
}

static void test_min_in_small_steps(void **state)
{
	in_steps(*state, false, 4096);
}

static void test_low_at_once(void **state)
{
	in_steps(*state, true, 100 * M);
}

static void test_low_in_steps(void **state)
{
	in_steps(*state, true, M);
}

/* What min refuses … */
static void test_min_holds(void **state)
{
	struct kernel k;

	build(&k, *state, false);
	while (reclaim(k.a, 20 * M) > 0)
		;
	assert_kernels_numbers(&k);
	assert_int_equal(k.b->events[POOL_LOW], 0);
	end(&k);
}

/* … low allows, with events on the protected pair and none on the idle ones. */
static void test_low_is_broken(void **state)
{
	struct kernel k;

	build(&k, *state, true);
	while (counter_read(&k.b->counter) > 51 * M)
		reclaim(k.a, counter_read(&k.b->counter) - 50 * M);
	reclaim(k.a, 2 * M);
	assert_kernels_numbers(&k);
	assert_int_equal(reclaim(k.a, 18 * M), 18 * M);
	assert_in_range(counter_read(&k.b->counter), 30 * M, 33 * M);
	assert_true(k.c.pool->events[POOL_LOW] > 0);
	assert_true(k.d.pool->events[POOL_LOW] > 0);
	assert_int_equal(k.e.pool->events[POOL_LOW], 0);
	assert_int_equal(k.f.pool->events[POOL_LOW], 0);
	end(&k);
}

/* min holds where low is broken, and where low is not set at all. */
static void test_min_below_low(void **state)
{
	struct world *w = *state;
	struct client a, b;

	attach(&a, make(w, "/a", 8 * M, 20 * M), 20 * M);
	attach(&b, make(w, "/b", 5 * M, 0), 20 * M);
	assert_int_equal(reclaim(w->tree->root, 100 * M), 15 * M);
	assert_int_equal(a.bytes, 20 * M);
	assert_int_equal(b.bytes, 5 * M);
	assert_int_equal(a.pool->events[POOL_LOW], 0);
	assert_int_equal(reclaim(w->tree->root, 100 * M), 12 * M);
	assert_int_equal(a.bytes, 8 * M);
	assert_int_equal(a.pool->events[POOL_LOW], 1);
	assert_int_equal(reclaim(w->tree->root, 100 * M), 0);
	/* A pool is not protected from itself. */
	assert_int_equal(reclaim(a.pool, 100 * M), 8 * M);
	detach(&a);
	detach(&b);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_nobody),
		TEST(test_proportional),
		TEST(test_members),
		TEST(test_subtree),
		TEST(test_many),
		TEST(test_min_at_once),
		TEST(test_min_in_steps),
		TEST(test_min_in_small_steps),
		TEST(test_low_at_once),
		TEST(test_low_in_steps),
		TEST(test_min_holds),
		TEST(test_low_is_broken),
		TEST(test_min_below_low),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
