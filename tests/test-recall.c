/* SPDX-License-Identifier: MIT */

/*
 * Giving back inside the embedded engine: functions run in the thread that charges, without a lock, and
 * must not charge.
 */

#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/util.h"

#define M (UINT64_C(1) << 20)
#define CACHES 8

struct cache {
	struct tally *t;
	struct tally_pool *p;
	_Atomic uint64_t held;
	_Atomic unsigned asked;
	pthread_t asked_by;
	int64_t (*fn)(struct cache *c, uint64_t want, uint64_t token); /* NULL: gives */
};

struct rig {
	struct tally *t;
	struct cache caches[CACHES];
	unsigned n;
};

static int set_up(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	assert_int_equal(tally_open("embedded:", 0, &rig->t), 0);
	*state = rig;
	return 0;
}

static int tear_down(void **state)
{
	struct rig *rig = *state;

	for (unsigned i = 0; i < rig->n; i++)
		tally_detach(rig->caches[i].p);
	tally_close(rig->t);
	free(rig);
	return 0;
}

static uint64_t give(struct cache *c, uint64_t want)
{
	uint64_t held = atomic_load(&c->held), bytes;

	do
		bytes = want < held ? want : held;
	while (!atomic_compare_exchange_weak(&c->held, &held, held - bytes));
	tally_uncharge(c->p, bytes);
	return bytes;
}

static int64_t on_reclaim(
	struct tally_pool *p, uint64_t want, uint64_t deadline, uint64_t token, void *userdata)
{
	struct cache *c = userdata;

	(void)deadline;
	assert_ptr_equal(p, c->p);
	c->asked_by = pthread_self();
	atomic_fetch_add(&c->asked, 1);
	return c->fn ? c->fn(c, want, token) : (int64_t)give(c, want);
}

static struct cache *add(struct rig *rig, const char *path, uint64_t bytes)
{
	struct cache *c = &rig->caches[rig->n++];

	*c = (struct cache){.t = rig->t, .held = bytes};
	c->p = harness_attach(rig->t, path);
	for (uint64_t done = 0; done < bytes; done += M)
		assert_int_equal(tally_charge(c->p, M), 0);
	assert_int_equal(tally_on_reclaim(c->p, on_reclaim, c), 0);
	return c;
}

static void make(struct rig *rig, const char *path, const char *file, const char *value)
{
	int r = tally_create(rig->t, path);

	assert_true(r == 0 || r == -EEXIST);
	assert_int_equal(tally_set(rig->t, path, file, value), 0);
}

static uint64_t event(struct rig *rig, const char *path, const char *name)
{
	return harness_value(rig->t, path, "memory.events.local", name);
}

static void assert_near(uint64_t value, uint64_t expected)
{
	assert_in_range(value, expected - expected / 10, expected + expected / 10);
}

/* ------------------------------------------------------------------ tests */

static void test_charge(void **state)
{
	struct rig *rig = *state;
	struct cache *a, *b;
	struct tally_pool *p;

	make(rig, "/c", "memory.max", "100M");
	a = add(rig, "/c/a", 60 * M);
	b = add(rig, "/c/b", 40 * M);
	p = harness_attach(rig->t, "/c/p");
	assert_int_equal(tally_charge(p, 80 * M), 0);
	assert_near(a->held, 12 * M);
	assert_near(b->held, 8 * M);
	assert_true(pthread_equal(a->asked_by, pthread_self()));
	assert_int_equal(a->asked, 1);
	assert_int_equal(event(rig, "/c", "reclaim"), 1);
	assert_int_equal(event(rig, "/c", "oom"), 0);
	assert_int_equal(tally_charge(p, 30 * M), -ENOMEM);
	assert_int_equal(event(rig, "/c", "oom"), 1);
	tally_detach(p);
}

/* Nobody is asked by it. */
static void test_try(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p;
	struct cache *a;

	make(rig, "/c", "memory.max", "20M");
	a = add(rig, "/c/a", 20 * M);
	p = harness_attach(rig->t, "/c/p");
	for (unsigned i = 0; i < 10; i++)
		assert_true(tally_try_charge(p, 5 * M) < 0);
	assert_int_equal(a->asked, 0);
	assert_int_equal(tally_charge(p, 5 * M), 0);
	tally_detach(p);
}

static void press(struct rig *rig, const char *file, uint64_t step)
{
	struct cache *c, *d, *e, *f;
	struct tally_pool *g;
	bool min = strcmp(file, "memory.min") == 0;

	make(rig, "/A", "memory.max", "200M");
	make(rig, "/A/B", file, "50M");
	make(rig, "/A/B/C", file, "75M");
	make(rig, "/A/B/D", file, "25M");
	make(rig, "/A/B/F", file, "500M");
	c = add(rig, "/A/B/C", 50 * M);
	d = add(rig, "/A/B/D", 50 * M);
	e = add(rig, "/A/B/E", 50 * M);
	f = add(rig, "/A/B/F", 0);
	g = harness_attach(rig->t, "/A/G");
	for (uint64_t done = 0; done < 148 * M; done += step)
		assert_int_equal(tally_charge(g, step), 0);
	assert_near(c->held, 29 * M);
	assert_near(d->held, 21 * M);
	assert_true(e->held < 3 * M);
	assert_int_equal(event(rig, "/A/B/C", "low"), 0);
	assert_int_equal(tally_charge(g, (min ? 22 : 18) * M), min ? -ENOMEM : 0);
	assert_int_equal(event(rig, "/A/B/C", "low") > 0, !min);
	assert_int_equal(event(rig, "/A/B/D", "low") > 0, !min);
	assert_int_equal(event(rig, "/A/B/E", "low"), 0);
	assert_int_equal(event(rig, "/A/B/F", "low"), 0);
	assert_int_equal(f->held, 0);
	tally_detach(g);
}

static void test_min(void **state)
{
	press(*state, "memory.min", 148 * M);
}

static void test_low(void **state)
{
	press(*state, "memory.low", M);
}

static void test_memory_reclaim(void **state)
{
	struct rig *rig = *state;
	struct cache *a = add(rig, "/c/a", 20 * M);

	assert_int_equal(tally_set(rig->t, "/c", "pool.drain", "1"), 0);
	assert_int_equal(tally_set(rig->t, "/c", "memory.reclaim", "5M"), 0);
	assert_in_range(a->held, 14 * M, 15 * M);
	assert_int_equal(tally_set(rig->t, "/c", "memory.reclaim", "1G"), -EAGAIN);
	assert_int_equal(a->held, 0);
	assert_int_equal(tally_set(rig->t, "/c", "memory.reclaim", "x"), -EINVAL);
	assert_int_equal(tally_set(rig->t, "/c", "memory.reclaim", "0"), 0);
}

/* In a function: nothing that would wait for itself. */
static int64_t charge_inside(struct cache *c, uint64_t want, uint64_t token)
{
	struct tally_charge_args a = {.bytes = 5 * M, .deadline_usec = UINT64_MAX};
	struct tally_pool *other = harness_attach(c->t, "/elsewhere");
	char *text = harness_get(c->t, "/c", "memory.current");

	(void)token;
	free(text);
	assert_int_equal(tally_charge(c->p, 5 * M), -EDEADLK);
	assert_int_equal(tally_charge(other, 5 * M), -EDEADLK);
	assert_int_equal(tally_charge_with(c->p, &a, sizeof(a)), -EDEADLK);
	assert_int_equal(tally_set(c->t, "/c", "memory.reclaim", "1M"), -EDEADLK);
	assert_true(tally_try_charge(c->p, 500 * M) < 0);
	tally_detach(other);
	return (int64_t)give(c, want);
}

static void test_inside(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p;
	struct cache *a;

	make(rig, "/c", "memory.max", "20M");
	a = add(rig, "/c/a", 20 * M);
	a->fn = charge_inside;
	p = harness_attach(rig->t, "/c/p");
	assert_int_equal(tally_charge(p, 10 * M), 0);
	assert_int_equal(a->asked, 1);
	/* Afterwards it may. */
	a->fn = NULL;
	assert_int_equal(tally_charge(p, 2 * M), 0);
	tally_detach(p);
}

struct promise {
	struct cache *cache;
	uint64_t want, token;
};

static void *keep_promise(void *userdata)
{
	struct promise *p = userdata;

	usleep(20000);
	tally_reclaim_done(p->cache->t, p->token, give(p->cache, p->want));
	free(p);
	return NULL;
}

static int64_t promise(struct cache *c, uint64_t want, uint64_t token)
{
	struct promise *later = malloc(sizeof(*later));
	pthread_t thread;

	assert_non_null(later);
	*later = (struct promise){c, want, token};
	assert_int_equal(pthread_create(&thread, NULL, keep_promise, later), 0);
	pthread_detach(thread);
	return TALLY_LATER;
}

static int64_t break_promise(struct cache *c, uint64_t want, uint64_t token)
{
	(void)c;
	(void)want;
	(void)token;
	return TALLY_LATER;
}

static void test_later(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p;
	struct cache *a, *b;

	make(rig, "/c", "memory.max", "40M");
	a = add(rig, "/c/a", 20 * M);
	b = add(rig, "/c/b", 20 * M);
	a->fn = promise;
	p = harness_attach(rig->t, "/c/p");
	assert_int_equal(tally_charge(p, 20 * M), 0);
	assert_near(a->held, 10 * M);
	assert_near(b->held, 10 * M);
	/* One that never comes is not waited for for ever, and not asked again. */
	a->fn = break_promise;
	assert_int_equal(tally_charge(p, 18 * M), -ENOMEM);
	assert_int_equal(tally_charge(p, 18 * M), -ENOMEM);
	assert_int_equal(a->asked, 2);
	tally_detach(p);
}

static int64_t lie(struct cache *c, uint64_t want, uint64_t token)
{
	(void)c;
	(void)token;
	return (int64_t)want;
}

static int64_t boast(struct cache *c, uint64_t want, uint64_t token)
{
	(void)c;
	(void)want;
	(void)token;
	return INT64_MAX;
}

static void test_refused(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p;
	struct tally_refusal f;
	struct cache *a;
	char *text;

	make(rig, "/c", "memory.max", "20M");
	a = add(rig, "/c/a", 20 * M);
	a->fn = lie;
	p = harness_attach(rig->t, "/c/p");
	assert_int_equal(tally_charge(p, 10 * M), -ENOMEM);
	assert_int_equal(tally_last_refusal(rig->t, sizeof(f), &f), 0);
	assert_int_equal(f.held, 20 * M);
	assert_string_equal(f.holders, "20971520 /c/a\n");
	text = harness_get(rig->t, "/c", "pool.refusals");
	assert_null(strstr(text, " asked=0 "));
	assert_null(strstr(text, " reclaimed=0 "));
	free(text);
	tally_detach(p);
}

static uint64_t number_of(const char *text, const char *key)
{
	const char *found = strstr(text, key);

	assert_non_null(found);
	return strtoull(found + strlen(key), NULL, 10);
}

/* No more is counted than was asked for. */
static void test_boasted(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p;
	char *text;

	make(rig, "/c", "memory.max", "20M");
	add(rig, "/c/a", 20 * M)->fn = boast;
	p = harness_attach(rig->t, "/c/p");
	assert_int_equal(tally_charge(p, 10 * M), -ENOMEM);
	text = harness_get(rig->t, "/c", "pool.refusals");
	assert_in_range(number_of(text, " reclaimed="), 1, number_of(text, " asked="));
	free(text);
	tally_detach(p);
}

static void test_high(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p;
	struct cache *a;

	a = add(rig, "/c/a", 20 * M);
	make(rig, "/c", "memory.high", "20M");
	p = harness_attach(rig->t, "/c/p");
	assert_int_equal(tally_charge(p, 4 * M), 0);
	assert_int_equal(a->asked, 1);
	assert_in_range(a->held, 15 * M, 16 * M);
	tally_detach(p);
}

static void test_deadline(void **state)
{
	struct rig *rig = *state;
	struct tally_charge_args args = {.bytes = 10 * M};
	struct tally_pool *p;
	struct timespec now;

	make(rig, "/c", "memory.max", "20M");
	add(rig, "/c/a", 20 * M);
	p = harness_attach(rig->t, "/c/p");
	clock_gettime(CLOCK_MONOTONIC, &now);
	args.deadline_usec = ((uint64_t)now.tv_sec + HARNESS_PATIENCE_MS / 1000) * 1000000;
	assert_int_equal(tally_charge_with(p, &args, sizeof(args)), 0);
	tally_detach(p);
}

/* ------------------------------------------------------------------ ends meanwhile */

static struct tally_pool *to_detach;

/* The handle of who charges, and the one that is asked, both by its own function. */
static int64_t detach_charger(struct cache *c, uint64_t want, uint64_t token)
{
	(void)token;
	tally_pool_ref(to_detach);
	tally_detach(to_detach);
	return (int64_t)give(c, want);
}

static void test_detach_inside(void **state)
{
	struct rig *rig = *state;
	struct cache *a;

	make(rig, "/c", "memory.max", "20M");
	a = add(rig, "/c/a", 20 * M);
	a->fn = detach_charger;
	to_detach = harness_attach(rig->t, "/c/p");
	assert_int_equal(tally_charge(to_detach, 10 * M), -ENODEV);
	tally_pool_unref(to_detach);
	assert_int_equal(tally_remove(rig->t, "/c/p", 0), 0);
	assert_int_equal(harness_current(rig->t, "/c"), 10 * M);
}

static int64_t close_inside(struct cache *c, uint64_t want, uint64_t token)
{
	(void)want;
	(void)token;
	tally_close(c->t);
	return 0;
}

static void test_close_inside(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p;
	struct cache *a;

	make(rig, "/c", "memory.max", "20M");
	a = add(rig, "/c/a", 20 * M);
	a->fn = close_inside;
	p = harness_attach(rig->t, "/c/p");
	assert_int_equal(tally_charge(p, 10 * M), -ENODEV);
	tally_detach(p);
	tally_detach(a->p);
	rig->n = 0;
	assert_int_equal(tally_open("embedded:", 0, &rig->t), 0);
}

struct lengthy {
	struct tally_pool *charger;
	_Atomic bool is_inside, is_out;
};

static struct lengthy lengthy;

static int64_t take_long(struct cache *c, uint64_t want, uint64_t token)
{
	(void)c;
	(void)want;
	(void)token;
	atomic_store(&lengthy.is_inside, true);
	usleep(200000);
	atomic_store(&lengthy.is_out, true);
	return 0;
}

static void *charge_too_much(void *userdata)
{
	(void)userdata;
	return (void *)(intptr_t)tally_charge(lengthy.charger, 10 * M);
}

static int somebody_is_inside(void *userdata)
{
	(void)userdata;
	return atomic_load(&lengthy.is_inside);
}

/* Another thread's is waited for, and the next one is not begun. */
static void test_close_meanwhile(void **state)
{
	struct rig *rig = *state;
	struct cache *a, *b;
	pthread_t thread;
	void *result;

	make(rig, "/c", "memory.max", "20M");
	a = add(rig, "/c/a", 10 * M);
	b = add(rig, "/c/b", 10 * M);
	a->fn = b->fn = take_long;
	lengthy = (struct lengthy){.charger = harness_attach(rig->t, "/c/p")};
	assert_int_equal(pthread_create(&thread, NULL, charge_too_much, NULL), 0);
	assert_true(harness_wait(somebody_is_inside, NULL, HARNESS_PATIENCE_MS));
	rig->t = tally_close(rig->t);
	assert_true(atomic_load(&lengthy.is_out));
	assert_int_equal(a->asked + b->asked, 1);
	pthread_join(thread, &result);
	assert_int_equal((int)(intptr_t)result, -ENODEV);
	assert_int_equal(a->asked + b->asked, 1);
	tally_detach(lengthy.charger);
}

/* ------------------------------------------------------------------ many threads */

#define THREADS 4
#define ROUNDS 300

struct worker {
	struct rig *rig;
	struct cache *cache;
	unsigned seed;
	unsigned charged;
};

/* Caches what it can; others take it away. */
static void *work(void *userdata)
{
	struct worker *w = userdata;
	struct tally_pool *p = harness_attach(w->rig->t, "/c/work");

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t bytes = (1 + (uint64_t)rand_r(&w->seed) % 64) * 64 * 1024;
		int r = tally_charge(w->cache->p, bytes);

		assert_true(r == 0 || r == -ENOMEM);
		if (r == 0)
			atomic_fetch_add(&w->cache->held, bytes);
		r = tally_charge(p, 2 * bytes);
		assert_true(r == 0 || r == -ENOMEM);
		if (r == 0) {
			w->charged++;
			tally_uncharge(p, 2 * bytes);
		}
	}
	tally_detach(p);
	return NULL;
}

static void test_threads(void **state)
{
	static const char *const paths[THREADS] = {"/c/0", "/c/1", "/c/2", "/c/3"};
	struct rig *rig = *state;
	struct worker workers[THREADS];
	pthread_t ids[THREADS];
	uint64_t held = 0;

	make(rig, "/c", "memory.max", "64M");
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){rig, add(rig, paths[i], 0), i + 1, 0};
		assert_int_equal(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		held += workers[i].cache->held;
		assert_true(workers[i].charged > ROUNDS / 2);
	}
	assert_int_equal(harness_current(rig->t, "/c"), held);
	assert_true(held <= 64 * M);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_charge),
		TEST(test_try),
		TEST(test_min),
		TEST(test_low),
		TEST(test_memory_reclaim),
		TEST(test_inside),
		TEST(test_later),
		TEST(test_refused),
		TEST(test_boasted),
		TEST(test_high),
		TEST(test_deadline),
		TEST(test_detach_inside),
		TEST(test_close_inside),
		TEST(test_close_meanwhile),
		TEST(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
