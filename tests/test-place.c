/* SPDX-License-Identifier: MIT */

/*
 * Places: that a session has one for each pool it needs and no more, what is pending there, and that
 * the figures published there are whole, right and written only where they changed.
 */

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/place.h"
#include "core/util.h"

#define PLACES 64 /* of the first extent */
#define SESSIONS 2

static struct world {
	struct item_table items;
	struct pool_tree *tree;
	struct rstat_host host;
	struct segment segments[SESSIONS];
	struct rstat sessions[SESSIONS];
} world;

static void extend(struct segment *s)
{
	int fds[2];

	assert_int_equal(segment_extend(s, 1, PERCPU_ATOMIC, fds), 0);
	close_fd(fds[0]);
	close_fd(fds[1]);
}

static int set_up(void **state _unused_)
{
	struct world *w = &world;

	*w = (struct world){0};
	assert_int_equal(pool_tree_new(&w->items, &w->tree), 0);
	rstat_host_init(&w->host, w->tree);
	for (unsigned i = 0; i < SESSIONS; i++) {
		extend(&w->segments[i]);
		extend(&w->segments[i]);
		assert_int_equal(rstat_begin(&w->sessions[i], &w->host, &w->segments[i]), 0);
	}
	return 0;
}

static int tear_down(void **state _unused_)
{
	for (unsigned i = 0; i < SESSIONS; i++) {
		assert_null(world.sessions[i].place_index);
		rstat_end(&world.sessions[i]);
		segment_unmap(&world.segments[i]);
	}
	pool_tree_free(world.tree);
	return 0;
}

static struct pool *pool(const char *path)
{
	struct pool *p;

	assert_int_equal(pool_create_all(world.tree, path, &p), 0);
	return p;
}

/* So many parts below `top`. */
static struct pool *deep_pool(const char *top, unsigned parts)
{
	char path[4096];
	size_t n = (size_t)snprintf(path, sizeof(path), "%s", top);

	for (unsigned i = 1; i < parts; i++)
		n += (size_t)snprintf(path + n, sizeof(path) - n, "/%u", i);
	return pool(path);
}

static struct rstat_place *ref(unsigned session, struct pool *p)
{
	struct rstat_place *place = NULL;

	assert_int_equal(place_ref(&world.sessions[session], p, &place), 0);
	assert_ptr_equal(place->pool, p);
	assert_ptr_equal(place->rstat, &world.sessions[session]);
	return place;
}

static bool has_room(struct pool *p)
{
	return place_has_room(&world.sessions[0], p);
}

static unsigned n_places(const struct pool *p)
{
	const struct rstat_place *place;
	unsigned n = 0;

	TAILQ_FOREACH (place, &p->places, entry)
		n++;
	return n;
}

static struct segment_pool *shown(const struct rstat_place *place)
{
	return segment_pool(place->rstat->segment, place->number);
}

/* ------------------------------------------------------------------ which there are */

static void test_made_for_all_above(void **state _unused_)
{
	struct pool *c = pool("/a/b/c"), *other = pool("/a/other");
	struct rstat_place *place = ref(0, c);
	const struct rstat_place *above = place;

	for (const struct pool *p = c; p; p = p->parent, above = above->above) {
		assert_ptr_equal(above->pool, p);
		assert_int_equal(n_places(p), 1);
		assert_in_range(above->number, 1, PLACES);
		assert_int_equal(shown(above)->parent, above->above ? above->above->number : 0);
	}
	assert_null(above);
	assert_int_equal(n_places(other), 0);
	place_unref(place);
	for (const struct pool *p = c; p; p = p->parent)
		assert_int_equal(n_places(p), 0);
	assert_null(place_unref(NULL));
}

static void test_references(void **state _unused_)
{
	struct pool *a = pool("/a"), *b = pool("/a/b"), *c = pool("/a/c");
	struct rstat_place *at_b = ref(0, b), *again = ref(0, b), *at_c = ref(0, c), *at_a;

	assert_ptr_equal(at_b, again);
	assert_ptr_equal(at_b->above, at_c->above);
	assert_int_not_equal(at_b->number, at_c->number);
	place_unref(at_b);
	assert_int_equal(n_places(b), 1);
	place_unref(again);
	assert_int_equal(n_places(b), 0);
	assert_int_equal(n_places(a), 1);
	/* One that is above others and attached to itself. */
	at_a = ref(0, a);
	assert_ptr_equal(at_a, at_c->above);
	place_unref(at_c);
	assert_int_equal(n_places(c), 0);
	assert_int_equal(n_places(a), 1);
	assert_int_equal(n_places(world.tree->root), 1);
	at_b = ref(0, b);
	assert_ptr_equal(at_b->above, at_a);
	place_unref(at_a);
	assert_int_equal(n_places(a), 1);
	place_unref(at_b);
	assert_int_equal(n_places(world.tree->root), 0);
}

static void test_sessions_have_their_own(void **state _unused_)
{
	struct pool *a = pool("/a");
	struct rstat_place *mine = ref(0, a), *others = ref(1, a);

	assert_ptr_not_equal(mine, others);
	assert_int_equal(n_places(a), 2);
	assert_int_equal(n_places(world.tree->root), 2);
	place_unref(mine);
	assert_int_equal(n_places(a), 1);
	assert_ptr_equal(TAILQ_FIRST(&a->places), others);
	place_unref(others);
}

/* ------------------------------------------------------------------ room */

static void test_room(void **state _unused_)
{
	struct pool *fits = deep_pool("/a", PLACES - 1), *too_deep = deep_pool("/a", PLACES);
	struct rstat_place *place, *more;

	assert_true(has_room(fits));
	assert_false(has_room(too_deep));
	place = ref(0, fits);
	assert_true(has_room(fits));
	assert_true(has_room(world.tree->root));
	assert_false(has_room(pool("/b")));
	extend(&world.segments[0]);
	assert_true(has_room(too_deep));
	more = ref(0, too_deep);
	assert_ptr_equal(more->above, place);
	assert_in_range(more->number, PLACES + 1, 3 * PLACES);
	place_unref(place);
	place_unref(more);
	/* Those that came back are as good as new ones. */
	assert_true(has_room(deep_pool("/c", 3 * PLACES - 1)));
	assert_false(has_room(deep_pool("/c", 3 * PLACES)));
}

static void test_no_place_left(void **state _unused_)
{
	struct pool *other = pool("/b");
	struct rstat_place *all = ref(0, deep_pool("/a", PLACES - 1)), *untouched = all;

	assert_int_equal(place_ref(&world.sessions[0], other, &untouched), -ENOSPC);
	assert_ptr_equal(untouched, all);
	assert_int_equal(n_places(other), 0);
	assert_int_equal(n_places(world.tree->root), 1);
	place_unref(ref(1, other));
	place_unref(all);
	place_unref(ref(0, other));
}

/* A place of its own is what an attachment needs; above it as many as there are left. */
static void test_not_for_all_above(void **state _unused_)
{
	struct pool *leaf = pool("/b/c/d");
	struct rstat_place *most = ref(0, deep_pool("/a", PLACES - 3)), *place;

	assert_false(has_room(leaf));
	place = ref(0, leaf);
	assert_ptr_equal(place->above->pool, leaf->parent);
	assert_null(place->above->above);
	assert_int_equal(shown(place)->parent, place->above->number);
	assert_int_equal(shown(place->above)->parent, 0);
	/* The one that nothing is above of answers for what is. */
	counter_set_max(&leaf->parent->parent->counter, 1000);
	place_publish(place->above);
	assert_int_equal(shown(place->above)->headroom, 1000);
	assert_int_equal(n_places(leaf->parent->parent), 0);
	/* What is pending there is no business of the root's places, but goes with the whole tree's. */
	atomic_store(&segment_pending(&world.segments[0], place->number)->updates, 7);
	assert_int_equal(place_pending(leaf), 7);
	place_clear_all_pending(&world.host);
	assert_int_equal(place_pending(leaf), 0);
	place_unref(place);
	assert_int_equal(n_places(leaf->parent), 0);
	place_unref(most);
	assert_int_equal(n_places(world.tree->root), 0);
}

/* Each place goes to one pool at a time, whatever comes and goes. */
static void test_come_and_go(void **state _unused_)
{
	struct rstat_place *places[100] = {0};
	struct pool *pools[100];
	unsigned seed = 1;

	for (unsigned i = 0; i < ELEMENTS(pools); i++) {
		char path[32];

		snprintf(path, sizeof(path), "/%u/%u", i % 7, i);
		pools[i] = pool(path);
	}
	for (unsigned i = 0; i < 20000; i++) {
		unsigned at = (unsigned)rand_r(&seed) % ELEMENTS(pools);

		if (places[at])
			places[at] = place_unref(places[at]);
		else if (has_room(pools[at]))
			places[at] = ref(0, pools[at]);
	}
	for (uint32_t number = 1; number <= PLACES; number++) {
		const struct rstat_place *place = world.sessions[0].places[number - 1];

		if (place)
			assert_int_equal(place->number, number);
	}
	for (unsigned i = 0; i < ELEMENTS(pools); i++) {
		assert_int_equal(n_places(pools[i]), places[i] != NULL);
		place_unref(places[i]);
	}
	assert_int_equal(world.sessions[0].n_free_places, PLACES);
}

/* ------------------------------------------------------------------ pending updates */

static void set_pending(const struct rstat_place *place, uint64_t n)
{
	atomic_store(&segment_pending(place->rstat->segment, place->number)->updates, n);
}

static void test_pending(void **state _unused_)
{
	struct pool *a = pool("/a"), *b = pool("/a/b");
	struct rstat_place *mine = ref(0, b), *others = ref(1, b);

	assert_int_equal(place_pending(b), 0);
	set_pending(mine, 3);
	set_pending(others, 4);
	set_pending(mine->above, 100);
	assert_int_equal(place_pending(b), 7);
	assert_int_equal(place_pending(a), 100);
	assert_int_equal(place_pending(world.tree->root), 0);
	place_clear_pending(b);
	assert_int_equal(place_pending(b), 0);
	assert_int_equal(place_pending(a), 100);
	set_pending(mine, 3);
	place_clear_pending(a);
	assert_int_equal(place_pending(a), 0);
	assert_int_equal(place_pending(b), 3);
	set_pending(others->above, 5);
	place_clear_all_pending(&world.host);
	assert_int_equal(place_pending(a), 0);
	assert_int_equal(place_pending(b), 0);

	/* A client may write what it likes. */
	set_pending(mine, UINT64_MAX);
	set_pending(others, 2);
	assert_true(place_pending(b) == UINT64_MAX);
	place_unref(mine);
	assert_int_equal(place_pending(b), 2);
	place_unref(others);
	assert_int_equal(place_pending(b), 0);
	/* What was left there is not the next one's. */
	mine = ref(0, b);
	assert_int_equal(place_pending(b), 0);
	place_unref(mine);
}

struct asked {
	struct pool *pools[8];
	unsigned n;
};

static void note(struct pool *p, void *userdata)
{
	struct asked *a = userdata;

	assert_in_range(a->n, 0, ELEMENTS(a->pools) - 1);
	a->pools[a->n++] = p;
}

static unsigned n_asked(const struct asked *a, const struct pool *p)
{
	unsigned n = 0;

	for (unsigned i = 0; i < a->n; i++)
		n += a->pools[i] == p;
	return n;
}

static void test_each_pending(void **state _unused_)
{
	struct pool *a = pool("/a"), *b = pool("/b"), *root = world.tree->root;
	struct rstat_place *a0 = ref(0, a), *b0 = ref(0, b), *a1 = ref(1, a);
	struct asked asked = {0};

	place_each_pending(&world.host, note, &asked);
	assert_int_equal(asked.n, 0);
	set_pending(a0, 1);
	place_each_pending(&world.host, note, &asked);
	assert_int_equal(asked.n, 0);
	set_pending(a0->above, 1);
	set_pending(a1, 1);
	set_pending(a1->above, 1);
	place_each_pending(&world.host, note, &asked);
	assert_int_equal(asked.n, 4);
	assert_int_equal(n_asked(&asked, a), 2);
	assert_int_equal(n_asked(&asked, b), 0);
	assert_int_equal(n_asked(&asked, root), 2);
	place_unref(a0);
	place_unref(b0);
	place_unref(a1);
}

/* ------------------------------------------------------------------ figures */

static void test_published(void **state _unused_)
{
	struct pool *a = pool("/a"), *b = pool("/a/b");
	struct rstat_place *place;
	const struct segment_pool *f;

	b->sum.held = 4000;
	b->threshold = 77;
	counter_set_max(&b->counter, 10000);
	counter_charge(&b->counter, 6000);
	counter_uncharge(&b->counter, 1000);
	counter_set_max(&a->counter, 7000);
	place = ref(0, b);
	f = shown(place);
	assert_int_equal(f->seq % 2, 0);
	assert_int_equal(f->parent, place->above->number);
	assert_int_equal(f->threshold, 77);
	assert_int_equal(f->current, 4000);
	assert_int_equal(f->peak, 6000);
	assert_int_equal(f->limit, 10000);
	assert_int_equal(f->headroom, 5000);
	assert_int_equal(f->looked_usec, 0);
	/* Of those above too, from the first on. */
	assert_int_equal(shown(place->above)->limit, 7000);
	assert_int_equal(shown(place->above)->headroom, 2000);
	assert_true(shown(place->above->above)->limit == UINT64_MAX);
	assert_true(shown(place->above->above)->headroom == UINT64_MAX);
	assert_int_equal(shown(place->above->above)->parent, 0);

	b->sum.held = -5;
	counter_set_max(&a->counter, UINT64_MAX);
	counter_set_max(&b->counter, 100);
	place_publish(place);
	assert_int_equal(f->current, 0);
	assert_int_equal(f->headroom, 0);
	assert_int_equal(f->limit, 100);
	assert_int_equal(f->looked_usec, 0);
	assert_int_equal(f->seq % 2, 0);
	place_publish(NULL);
	counter_uncharge(&b->counter, 5000);
	place_unref(place);
}

static void test_written_where_changed(void **state _unused_)
{
	struct pool *a = pool("/a");
	struct rstat_place *place = ref(0, a), *others = ref(1, a);
	const struct segment_pool *f = shown(place), *g = shown(others);
	uint32_t seq = f->seq, above = shown(place->above)->seq;

	place_publish(place);
	place_publish_all(&world.host, 123);
	assert_int_equal(f->seq, seq);
	assert_int_equal(segment_info(&world.segments[0])->flushed_usec, 123);
	assert_int_equal(segment_info(&world.segments[1])->flushed_usec, 123);
	a->sum.held = 1;
	pool_change(a);
	place_publish(place);
	assert_int_equal(f->seq, seq + 2);
	assert_int_equal(g->current, 0);
	place_publish_all(&world.host, 124);
	assert_int_equal(f->seq, seq + 2);
	assert_int_equal(g->current, 1);
	/* A look at the pool alone tells its time, in all sessions. */
	place_publish_pool(a, 200);
	assert_int_equal(f->looked_usec, 200);
	assert_int_equal(g->looked_usec, 200);
	a->sum.held = 2;
	place_publish(place);
	assert_int_equal(f->looked_usec, 200);
	assert_int_equal(f->current, 2);
	assert_int_equal(shown(place->above)->seq, above);
	assert_int_equal(segment_info(&world.segments[0])->flushed_usec, 124);
	place_unref(place);
	place_unref(others);
}

/* Thresholds go to all whom they concern, with the next flush of the whole tree. */
static void test_thresholds(void **state _unused_)
{
	struct pool *b = pool("/a/b");
	struct rstat_place *place = ref(0, b), *others = ref(1, b);

	place_publish_all(&world.host, 1);
	pool_set_threshold(b->parent, 500, 0);
	place_publish_all(&world.host, 2);
	assert_int_equal(shown(place)->threshold, 500);
	assert_int_equal(shown(others)->threshold, 500);
	assert_int_equal(shown(others->above)->threshold, 500);
	assert_int_equal(shown(others->above->above)->threshold, POOL_THRESHOLD);
	pool_set_threshold(b, 7, 0);
	place_publish_all(&world.host, 3);
	assert_int_equal(shown(place)->threshold, 7);
	assert_int_equal(shown(place->above)->threshold, 500);
	place_unref(place);
	place_unref(others);
}

/* A number's next pool shows nothing of the one before. */
static void test_number_again(void **state _unused_)
{
	struct pool *a = pool("/a"), *b = pool("/b");
	struct rstat_place *root = ref(0, world.tree->root), *place = ref(0, a);
	uint32_t number = place->number;

	a->sum.held = 1000;
	place_publish_pool(a, 500);
	place_unref(place);
	place = ref(0, b);
	assert_int_equal(place->number, number);
	assert_int_equal(shown(place)->current, 0);
	assert_int_equal(shown(place)->looked_usec, 0);
	place_unref(place);
	place_unref(root);
}

/* ------------------------------------------------------------------ while somebody reads */

#define ROUNDS 300000

static _Atomic bool over;

struct reading {
	const struct segment_pool *f;
	uint64_t whole, halves, backwards;
};

static void *read_on(void *arg)
{
	struct reading *r = arg;
	uint64_t last = 0;

	while (!atomic_load(&over)) {
		uint32_t seq = atomic_load_explicit(&r->f->seq, memory_order_acquire);
		uint64_t n[6] = {
			atomic_load_explicit(&r->f->threshold, memory_order_relaxed),
			atomic_load_explicit(&r->f->current, memory_order_relaxed),
			atomic_load_explicit(&r->f->peak, memory_order_relaxed),
			atomic_load_explicit(&r->f->limit, memory_order_relaxed),
			atomic_load_explicit(&r->f->headroom, memory_order_relaxed),
			atomic_load_explicit(&r->f->looked_usec, memory_order_relaxed),
		};

		atomic_thread_fence(memory_order_acquire);
		if (seq % 2 != 0 || atomic_load_explicit(&r->f->seq, memory_order_relaxed) != seq)
			continue;
		for (unsigned i = 1; i < ELEMENTS(n); i++)
			r->halves += n[i] != n[0];
		r->backwards += n[0] < last;
		last = n[0];
		r->whole++;
	}
	return NULL;
}

static void test_no_halves(void **state _unused_)
{
	struct pool *a = pool("/a");
	struct rstat_place *place;
	struct reading reading = {0};
	pthread_t thread;

	a->threshold = 1;
	a->sum.held = 1;
	atomic_store(&a->counter.peak, 1);
	counter_set_max(&a->counter, 1);
	place = ref(0, a);
	place_publish_pool(a, 1);
	reading.f = shown(place);
	atomic_store(&over, false);
	assert_int_equal(pthread_create(&thread, NULL, read_on, &reading), 0);
	for (uint64_t i = 2; i < ROUNDS; i++) {
		a->threshold = i;
		a->sum.held = (int64_t)i;
		atomic_store(&a->counter.peak, i);
		counter_set_max(&a->counter, i);
		place_publish_pool(a, i);
		/* Nothing to write: readers are not held up. */
		place_publish(place);
	}
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	assert_int_equal(reading.halves, 0);
	assert_int_equal(reading.backwards, 0);
	assert_int_equal(reading.f->seq % 2, 0);
	place_unref(place);
}

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORLD(test_made_for_all_above),
		WITH_WORLD(test_references),
		WITH_WORLD(test_sessions_have_their_own),
		WITH_WORLD(test_room),
		WITH_WORLD(test_no_place_left),
		WITH_WORLD(test_not_for_all_above),
		WITH_WORLD(test_come_and_go),
		WITH_WORLD(test_pending),
		WITH_WORLD(test_each_pending),
		WITH_WORLD(test_published),
		WITH_WORLD(test_written_where_changed),
		WITH_WORLD(test_thresholds),
		WITH_WORLD(test_number_again),
		WITH_WORLD(test_no_halves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
