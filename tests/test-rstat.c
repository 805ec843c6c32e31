/* SPDX-License-Identifier: MIT */

/*
 * Looks: what a client has changed in its segment comes into the figures of its pools, of all above
 * them, and of nobody else; when it is asked for, once, and not lost. The client is played here.
 */

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/rstat.h"
#include "core/util.h"

#define CPUS 3
#define KEYS 192 /* of two extents */
#define SAME_SMALL 0
#define SAME_LARGE 1 /* more pools than are looked at one by one */

enum item_number { GAUGE = 1, EVENT, OTHER };

struct member {
	struct pool_member m;
	struct rstat_key *key;
};

struct one {
	struct rstat_key key;
	struct member member;
	uint64_t granted, unaccepted;
};

static struct world {
	struct item_table items;
	struct pool_tree *tree;
	struct pool *a, *b, *below_a;
	struct segment segment;
	struct rstat_host host;
	struct rstat rstat;
	struct one ones[KEYS + 1];
	uint16_t nodes[CPUS + 1];
} world;

static void read_row(struct rstat_key *k, uint64_t *ret_granted, uint64_t *ret_unaccepted)
{
	const struct one *o = container_of(k, struct one, key);

	*ret_granted = o->granted;
	*ret_unaccepted = o->unaccepted;
}

static struct rstat_key *find(struct rstat *r, uint32_t number)
{
	(void)r;
	return number <= KEYS ? &world.ones[number].key : NULL;
}

static int each(struct pool_member *m, int (*fn)(struct rstat_key *k, bool moved), bool moved)
{
	return fn(container_of(m, struct member, m)->key, moved);
}

static struct pool *create(const char *path)
{
	struct pool *p;

	assert_int_equal(pool_create_all(world.tree, path, &p), 0);
	return p;
}

static void extend(void)
{
	int fds[2];

	assert_int_equal(segment_extend(&world.segment, CPUS, PERCPU_ATOMIC, fds), 0);
	close_fd(fds[0]);
	close_fd(fds[1]);
}

static int set_up(void **state)
{
	struct world *w = &world;
	uint32_t item;

	*w = (struct world){.nodes = {0, 1, 1, 0}};
	assert_int_equal(item_define(&w->items, "gauge", ITEM_GAUGE, "bytes", "", &item), 0);
	assert_int_equal(item_define(&w->items, "event", ITEM_EVENT, "", "", &item), 0);
	assert_int_equal(item_define(&w->items, "other", ITEM_GAUGE, "bytes", "", &item), 0);
	assert_int_equal(pool_tree_new(&w->items, &w->tree), 0);
	w->tree->n_nodes = 2;
	w->a = create("/a");
	w->below_a = create("/a/below");
	w->b = create("/b");
	if (*(int *)*state == SAME_LARGE)
		for (unsigned i = 0; i < 300; i++) {
			char path[32];

			snprintf(path, sizeof(path), "/a/%u", i);
			create(path);
			snprintf(path, sizeof(path), "/b/%u", i);
			create(path);
		}
	for (unsigned i = 0; i < 3; i++)
		extend();
	assert_true(w->segment.n_keys >= KEYS);
	rstat_host_init(&w->host, w->tree);
	w->host.read = read_row;
	w->host.find = find;
	w->host.each = each;
	w->host.node_of_cpu = w->nodes;
	assert_int_equal(rstat_begin(&w->rstat, &w->host, &w->segment), 0);
	return 0;
}

static void close_key(uint32_t number)
{
	struct one *o = &world.ones[number];
	struct pool *p = o->key.pool;

	if (!p)
		return;
	rstat_key_close(&o->key);
	pool_remove_member(p, &o->member.m);
}

static int tear_down(void **state _unused_)
{
	for (uint32_t i = 1; i <= KEYS; i++) {
		close_key(i);
		rstat_key_free(&world.ones[i].key);
	}
	rstat_end(&world.rstat);
	segment_unmap(&world.segment);
	pool_tree_free(world.tree);
	item_table_clear(&world.items);
	return 0;
}

/* ------------------------------------------------------------------ the client */

static void open_key(uint32_t number, struct pool *p, uint32_t item, uint64_t granted)
{
	struct one *o = &world.ones[number];

	rstat_key_open(&o->key, &world.rstat, p, number, item);
	o->member.key = &o->key;
	pool_add_member(p, &o->member.m);
	o->granted = granted;
	o->unaccepted = 0;
	rstat_touch(&o->key);
	segment_reserve_open(segment_key(&world.segment, number), number);
}

static void touch(uint32_t cpu)
{
	atomic_store(&segment_header(&world.segment)->touched[cpu], 1);
}

static void mark(uint32_t number, uint32_t cpu, enum segment_mark which)
{
	struct segment_spot spot = segment_spot(&world.segment, number);

	segment_mark(
		&spot, spot.cell + cpu * spot.stride, segment_page(&world.segment, cpu), which);
	touch(cpu);
}

static void move_unmarked(uint32_t number, uint32_t cpu, int64_t delta)
{
	struct segment_cells c = segment_cells(&world.segment, number);

	atomic_fetch_add_explicit(&segment_cell(&c, cpu)->value, delta, memory_order_relaxed);
}

static void move(uint32_t number, uint32_t cpu, int64_t delta)
{
	move_unmarked(number, cpu, delta);
	mark(number, cpu, SEGMENT_MOVED);
}

static void set_slot(uint32_t cpu, unsigned slot, uint32_t number, uint64_t bytes)
{
	atomic_store(
		&segment_page(&world.segment, cpu)->stock.slot[slot], word_make(number, bytes, 0));
	touch(cpu);
}

static void add_reserve(uint32_t number, uint64_t bytes)
{
	uint64_t total;

	assert_true(
		segment_reserve_add(segment_key(&world.segment, number), number, bytes, &total));
}

static void look(struct pool *p, bool moved)
{
	assert_int_equal(rstat_look(&world.host, p, moved), 0);
}

static void assert_credit(const struct pool *p, int64_t held, int64_t stock)
{
	assert_int_equal(p->sum.held, held);
	assert_int_equal(p->sum.stock, stock);
}

static void assert_item(const struct pool *p, enum item_number item, uint64_t wanted)
{
	assert_int_equal(figures_item(&p->sum, 2, item), wanted);
}

/* ------------------------------------------------------------------ what is charged */

static void test_credit(void **state _unused_)
{
	struct world *w = &world;

	open_key(1, w->below_a, 0, 1000);
	open_key(2, w->a, GAUGE, 500);
	open_key(70, w->b, GAUGE, 300);
	set_slot(0, 0, 1, 100);
	set_slot(1, 3, 1, 20);
	add_reserve(1, 5);
	w->ones[2].unaccepted = 50;
	look(w->tree->root, false);
	assert_credit(w->below_a, 875, 125);
	assert_credit(w->a, 875 + 450, 125 + 50);
	assert_credit(w->b, 300, 0);
	assert_credit(w->tree->root, 875 + 450 + 300, 175);
	assert_item(w->a, GAUGE, 450);
	assert_item(w->below_a, GAUGE, 0);
	assert_item(w->tree->root, GAUGE, 750);

	/* From slot to slot, and out of it: seen without a mark. */
	set_slot(0, 0, 1, 0);
	set_slot(2, 6, 1, 60);
	look(w->tree->root, false);
	assert_credit(w->below_a, 1000 - 85, 85);
	assert_credit(w->tree->root, 1000 - 85 + 450 + 300, 85 + 50);
}

static void test_reserve_by_its_mark(void **state _unused_)
{
	struct world *w = &world;

	open_key(1, w->a, 0, 1000);
	look(w->tree->root, false);
	assert_credit(w->a, 1000, 0);
	add_reserve(1, 400);
	look(w->tree->root, false);
	assert_credit(w->a, 1000, 0);
	mark(1, 2, SEGMENT_CREDIT);
	look(w->tree->root, false);
	assert_credit(w->a, 600, 400);
	assert_credit(w->tree->root, 600, 400);
}

/* A client may write what it likes. */
static void test_more_idle_than_granted(void **state _unused_)
{
	struct world *w = &world;

	open_key(1, w->a, 0, 1000);
	open_key(2, w->b, 0, 70);
	set_slot(0, 0, 1, WORD_BYTES_MAX);
	set_slot(0, 1, KEYS + 1, 5000);
	set_slot(0, 2, 0xffffe, 5000);
	set_slot(1, 2, 3, 5000);
	add_reserve(1, WORD_BYTES_MAX - 1);
	mark(1, 0, SEGMENT_CREDIT);
	look(w->tree->root, true);
	assert_credit(w->a, 0, 1000);
	assert_credit(w->tree->root, 70, 1000);
}

static void test_subtree_alone(void **state _unused_)
{
	struct world *w = &world;

	open_key(1, w->a, 0, 1000);
	open_key(2, w->b, 0, 2000);
	look(w->a, false);
	assert_credit(w->a, 1000, 0);
	assert_credit(w->b, 0, 0);
	assert_credit(w->tree->root, 1000, 0);
	look(w->b, false);
	assert_credit(w->b, 2000, 0);
	assert_credit(w->tree->root, 3000, 0);
}

/* ------------------------------------------------------------------ what is moved */

static void test_moved(void **state _unused_)
{
	struct world *w = &world;

	open_key(1, w->below_a, GAUGE, 0);
	open_key(100, w->b, EVENT, 0);
	move(1, 0, 1000);
	move(1, CPUS, 10);
	move(1, 1, -200);
	move(100, 2, 7);
	look(w->tree->root, false);
	assert_item(w->tree->root, GAUGE, 0);
	look(w->tree->root, true);
	assert_item(w->below_a, GAUGE, 810);
	assert_item(w->a, GAUGE, 810);
	assert_item(w->tree->root, GAUGE, 810);
	assert_item(w->b, EVENT, 7);
	assert_item(w->tree->root, EVENT, 7);
	assert_int_equal(figures_moved(&w->a->sum, 0, GAUGE), 1010);
	assert_int_equal(figures_moved(&w->a->sum, 1, GAUGE), 0);
	move(1, 1, 300);
	look(w->a, true);
	assert_int_equal(figures_moved(&w->a->sum, 1, GAUGE), 100);
	assert_item(w->tree->root, GAUGE, 1110);
	/* What is charged with it counts too. */
	w->ones[1].granted = 40;
	rstat_touch(&w->ones[1].key);
	look(w->a, true);
	assert_item(w->tree->root, GAUGE, 1150);
}

/* A look at one subtree leaves what has changed in another to be seen. */
static void test_moved_elsewhere(void **state _unused_)
{
	struct world *w = &world;

	/* In one group of marks. */
	open_key(1, w->a, GAUGE, 0);
	open_key(2, w->b, GAUGE, 0);
	move(1, 0, 1);
	move(2, 0, 10);
	look(w->a, true);
	assert_item(w->a, GAUGE, 1);
	assert_item(w->b, GAUGE, 0);
	assert_item(w->tree->root, GAUGE, 1);
	look(w->b, true);
	assert_item(w->b, GAUGE, 10);
	move(1, 1, 100);
	move(2, 1, 1000);
	look(w->b, true);
	look(w->tree->root, true);
	assert_item(w->a, GAUGE, 101);
	assert_item(w->tree->root, GAUGE, 1111);
}

static void test_below_zero(void **state _unused_)
{
	struct world *w = &world;

	open_key(1, w->a, GAUGE, 0);
	open_key(2, w->b, GAUGE, 0);
	move(1, 0, -100);
	move(2, 0, 30);
	look(w->tree->root, true);
	assert_item(w->a, GAUGE, 0);
	assert_item(w->b, GAUGE, 30);
	assert_item(w->tree->root, GAUGE, 0);
	move(1, 0, 90);
	look(w->tree->root, true);
	assert_item(w->a, GAUGE, 0);
	assert_item(w->tree->root, GAUGE, 20);
}

/* No client moves more than a word could hold, and no count goes back. */
static void test_bounds(void **state _unused_)
{
	struct world *w = &world;

	open_key(1, w->a, GAUGE, 0);
	open_key(2, w->a, EVENT, 0);
	move(1, 0, INT64_MAX);
	move(2, 0, 5);
	look(w->tree->root, true);
	assert_item(w->a, GAUGE, WORD_BYTES_MAX);
	assert_item(w->a, EVENT, 5);
	move(1, 0, INT64_MIN + 1);
	move(2, 0, -3);
	look(w->tree->root, true);
	assert_item(w->a, GAUGE, 0);
	assert_int_equal(w->a->sum.moved[GAUGE], -(int64_t)WORD_BYTES_MAX);
	assert_item(w->a, EVENT, 5);
	move(2, 0, 2);
	look(w->tree->root, true);
	assert_item(w->a, EVENT, 7);
	move(2, 0, INT64_MAX);
	look(w->tree->root, true);
	assert_item(w->a, EVENT, 7);
}

/* ------------------------------------------------------------------ the end of a key */

static void test_close(void **state _unused_)
{
	struct world *w = &world;

	open_key(1, w->below_a, GAUGE, 500);
	open_key(2, w->below_a, EVENT, 0);
	open_key(3, w->b, GAUGE, 0);
	set_slot(1, 0, 1, 80);
	move(1, 0, 1000);
	move(1, 1, -10);
	move(2, 0, 3);
	move(3, 0, 6);
	look(w->tree->root, true);
	assert_item(w->a, GAUGE, 420 + 990);
	/* Killed before the mark. */
	move_unmarked(2, 0, 4);
	move_unmarked(1, 0, 4);
	close_key(1);
	close_key(2);
	assert_credit(w->a, 0, 0);
	assert_item(w->a, GAUGE, 0);
	assert_item(w->a, EVENT, 7);
	assert_item(w->tree->root, EVENT, 7);
	assert_item(w->tree->root, GAUGE, 6);
	assert_int_equal(w->a->sum.moved[GAUGE], 0);
	assert_int_equal(w->a->sum.moved[ITEM_MAX + 1 + GAUGE], 0);
	/* What lies there still is nobody's. */
	look(w->tree->root, true);
	assert_credit(w->tree->root, 0, 0);
	assert_item(w->tree->root, GAUGE, 6);
}

static void test_number_again(void **state _unused_)
{
	struct world *w = &world;

	open_key(1, w->a, GAUGE, 0);
	move(1, 0, 1000);
	look(w->tree->root, true);
	close_key(1);
	/* By a thread that was late, on a CPU that was looked at and on one that was not. */
	move(1, 0, 5);
	move(1, 1, 5);
	look(w->tree->root, true);
	open_key(1, w->b, GAUGE, 0);
	look(w->tree->root, true);
	assert_item(w->tree->root, GAUGE, 0);
	move(1, 0, 2);
	move(1, 1, 3);
	look(w->tree->root, true);
	assert_item(w->b, GAUGE, 5);
	assert_item(w->a, GAUGE, 0);
}

/* ------------------------------------------------------------------ while it goes on */

#define UPDATES 1000000

struct mover {
	pthread_t thread;
	uint32_t cpu;
	int64_t moved;
};

static void *move_on(void *arg)
{
	struct mover *m = arg;

	for (unsigned i = 0; i < UPDATES; i++) {
		uint32_t number = 1 + i % 3 * 64;

		move(number, m->cpu, 1 + i % 5);
		m->moved += 1 + i % 5;
	}
	return NULL;
}

static int64_t moved_on_first_node(const struct pool *p)
{
	return p->sum.moved ? p->sum.moved[GAUGE] : 0;
}

static void test_none_lost(void **state _unused_)
{
	struct world *w = &world;
	struct mover movers[2] = {{.cpu = 0}, {.cpu = CPUS}};
	int64_t sum = 0;

	open_key(1, w->a, GAUGE, 0);
	open_key(65, w->below_a, GAUGE, 0);
	open_key(129, w->b, GAUGE, 0);
	for (unsigned i = 0; i < ELEMENTS(movers); i++)
		assert_int_equal(pthread_create(&movers[i].thread, NULL, move_on, &movers[i]), 0);
	for (unsigned i = 0; i < 20000; i++) {
		look(i % 3 == 0 ? w->tree->root : i % 3 == 1 ? w->a : w->b, true);
		assert_int_equal(moved_on_first_node(w->tree->root),
			moved_on_first_node(w->a) + moved_on_first_node(w->b));
	}
	for (unsigned i = 0; i < ELEMENTS(movers); i++) {
		pthread_join(movers[i].thread, NULL);
		sum += movers[i].moved;
	}
	look(w->a, true);
	look(w->b, true);
	assert_item(w->tree->root, GAUGE, (uint64_t)sum);
}

#define SMALL_AND_LARGE(test)                                                                      \
	{#test, test, set_up, tear_down, &small},                                                  \
	{                                                                                          \
#test " of many", test, set_up, tear_down, &large                                  \
	}

int main(void)
{
	static int small = SAME_SMALL, large = SAME_LARGE;
	const struct CMUnitTest tests[] = {
		SMALL_AND_LARGE(test_credit),
		SMALL_AND_LARGE(test_reserve_by_its_mark),
		SMALL_AND_LARGE(test_more_idle_than_granted),
		SMALL_AND_LARGE(test_subtree_alone),
		SMALL_AND_LARGE(test_moved),
		SMALL_AND_LARGE(test_moved_elsewhere),
		SMALL_AND_LARGE(test_below_zero),
		SMALL_AND_LARGE(test_bounds),
		SMALL_AND_LARGE(test_close),
		SMALL_AND_LARGE(test_number_again),
		SMALL_AND_LARGE(test_none_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
