/* SPDX-License-Identifier: MIT */

/* Pools that are removed by force; over a daemon and embedded, by each kind of operation. */

#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/percpu.h"
#include "core/util.h"

/* Figures change when a test asks for it. */
static const char config[] = "[daemon]\nflush_interval = 1h\ngrace = 100ms\nexport =\n";

#define MB (UINT64_C(1) << 20)

struct setting {
	bool embedded;
	const char *kind;
};

static const struct setting settings[] = {
	{false, "atomic"}, {false, "rseq"}, {true, "atomic"}, {true, "rseq"}};

static struct harness h;
static const struct setting *setting;
static struct tally *t;
static struct tally_pool *pool;
static tally_item sock;

static int begin(void **state)
{
	setting = *state;
	if (strcmp(setting->kind, "rseq") == 0 && !percpu_has_rseq())
		return 0;
	setenv("TALLY_PERCPU", setting->kind, 1);
	if (!setting->embedded)
		harness_start(&h, config);
	assert_int_equal(tally_open(setting->embedded ? "embedded:" : h.address, 0, &t), 0);
	pool = harness_attach(t, "/a/b");
	assert_int_equal(tally_item_lookup(t, "sock", &sock), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	pool = tally_detach(pool);
	t = tally_close(t);
	if (!setting->embedded && h.daemon > 0)
		harness_stop(&h);
	h.daemon = 0;
	unsetenv("TALLY_PERCPU");
	return 0;
}

static void skip_if_not_begun(void)
{
	if (t)
		return;
	print_message("skipped: the threads of this process have no restartable sequences\n");
	skip();
}

static uint64_t stat_of(const char *path, const char *key)
{
	return harness_value(t, path, "memory.stat", key);
}

static uint64_t dying(const char *path)
{
	return harness_value(t, path, "cgroup.stat", "nr_dying_descendants");
}

static void remove_pool(const char *path)
{
	assert_int_equal(tally_remove(t, path, TALLY_FORCE), 0);
}

static void assert_lost(struct tally_pool *p)
{
	struct tally_charge_args a = {.bytes = 1, .deadline_usec = UINT64_MAX / 2};
	struct tally_usage u;

	assert_int_equal(tally_charge(p, 1), -ENODEV);
	assert_int_equal(tally_try_charge(p, 1), -ENODEV);
	assert_int_equal(tally_charge_item(p, sock, 1), -ENODEV);
	assert_int_equal(tally_try_charge_item(p, sock, 1), -ENODEV);
	assert_int_equal(tally_charge_with(p, &a, sizeof(a)), -ENODEV);
	a = (struct tally_charge_args){.bytes = 1, .flags = TALLY_FORCE};
	assert_int_equal(tally_charge_with(p, &a, sizeof(a)), -ENODEV);
	assert_int_equal(tally_usage(p, sizeof(u), &u), -ENODEV);
}

/* ------------------------------------------------------------------ one process */

static void test_refused(void **state)
{
	(void)state;
	skip_if_not_begun();
	assert_int_equal(tally_charge(pool, 1000), 0);
	assert_int_equal(tally_remove(t, "/", TALLY_FORCE), -EPERM);
	assert_int_equal(tally_remove(t, "/a", TALLY_FORCE), -EBUSY);
	assert_int_equal(tally_remove(t, "/nowhere", TALLY_FORCE), -ENOENT);
	assert_int_equal(tally_remove(t, "/a/b", 1), -EINVAL);
	assert_int_equal(tally_remove(t, "/a/b", TALLY_FORCE | 4), -EINVAL);
	assert_int_equal(tally_remove(t, "/a/b", 0), -EBUSY);
	assert_int_equal(tally_charge(pool, 1000), 0);
	assert_int_equal(harness_current(t, "/a/b"), 2000);
}

static int nothing_is_idle(void *userdata)
{
	(void)userdata;
	return stat_of("/a", "stock") == 0;
}

static void test_goes_to_the_parent(void **state)
{
	_cleanup_(freep) char *gone = NULL;

	(void)state;
	skip_if_not_begun();
	assert_int_equal(tally_charge(pool, 1000), 0);
	assert_int_equal(tally_charge_item(pool, sock, 500), 0);
	remove_pool("/a/b");
	assert_int_equal(tally_get(t, "/a/b", "memory.max", 0, &gone), -ENOENT);
	assert_lost(pool);
	/* What lay idle is back, what was held is not. */
	assert_int_equal(stat_of("/a", "stock"), 0);
	assert_int_equal(stat_of("/a", "held"), 1500);
	assert_int_equal(stat_of("/a", "sock"), 500);
	assert_int_equal(dying("/a"), 1);
	assert_int_equal(dying("/"), 1);

	tally_uncharge(pool, 400);
	tally_uncharge_item(pool, sock, 500);
	assert_lost(pool);
	assert_int_equal(harness_current(t, "/a"), 600);
	assert_int_equal(stat_of("/", "sock"), 0);
	assert_true(harness_wait(nothing_is_idle, NULL, HARNESS_PATIENCE_MS));
	assert_int_equal(tally_remove(t, "/a", 0), -EBUSY);
	pool = tally_detach(pool);
	assert_int_equal(harness_current(t, "/"), 0);
	assert_int_equal(dying("/"), 0);
	assert_int_equal(stat_of("/", "overdraft"), 0);
	assert_int_equal(tally_remove(t, "/a", 0), 0);
}

static void test_same_path_again(void **state)
{
	struct tally_pool *again;

	(void)state;
	skip_if_not_begun();
	assert_int_equal(tally_set(t, "/a/b", "memory.max", "1M"), 0);
	assert_int_equal(tally_charge(pool, 1000), 0);
	remove_pool("/a/b");
	again = harness_attach(t, "/a/b");
	assert_int_equal(tally_charge(again, 2 * MB), 0);
	assert_lost(pool);
	assert_int_equal(harness_current(t, "/a/b"), 2 * MB);
	assert_int_equal(harness_current(t, "/a"), 2 * MB + 1000);
	tally_uncharge(pool, 1000);
	assert_int_equal(harness_current(t, "/a"), 2 * MB);
	assert_int_equal(tally_charge(again, 1000), 0);
	remove_pool("/a/b");
	assert_int_equal(dying("/a"), 2);
	assert_lost(again);
	tally_detach(again);
	assert_int_equal(dying("/a"), 1);
	assert_int_equal(harness_current(t, "/a"), 0);
}

static void test_parent_too(void **state)
{
	struct tally_pool *other;

	(void)state;
	skip_if_not_begun();
	other = harness_attach(t, "/a");
	assert_int_equal(tally_charge(pool, 1000), 0);
	assert_int_equal(tally_charge(other, 100), 0);
	remove_pool("/a/b");
	remove_pool("/a");
	assert_int_equal(harness_current(t, "/"), 1100);
	assert_int_equal(dying("/"), 2);
	assert_lost(pool);
	assert_lost(other);
	tally_uncharge(pool, 1000);
	assert_int_equal(harness_current(t, "/"), 100);
	tally_detach(other);
	/* It is the parent of one that is held still. */
	assert_int_equal(dying("/"), 2);
	pool = tally_detach(pool);
	assert_int_equal(dying("/"), 0);
	assert_int_equal(harness_current(t, "/"), 0);
}

static void test_limits_of_the_parent_hold(void **state)
{
	struct tally_pool *parent;

	(void)state;
	skip_if_not_begun();
	assert_int_equal(tally_set(t, "/a", "memory.max", "10M"), 0);
	assert_int_equal(tally_set(t, "/a", "stat.sock.max", "4M"), 0);
	assert_int_equal(tally_set(t, "/a/b", "stat.sock.max", "3M"), 0);
	parent = harness_attach(t, "/a");
	assert_int_equal(tally_charge_item(pool, sock, 3 * MB), 0);
	remove_pool("/a/b");
	assert_int_equal(tally_charge_item(parent, sock, 2 * MB), -ENOMEM);
	assert_int_equal(tally_charge_item(parent, sock, MB), 0);
	assert_int_equal(tally_charge(parent, 6 * MB), 0);
	assert_int_equal(tally_charge(parent, 1), -ENOMEM);
	tally_uncharge_item(pool, sock, 3 * MB);
	assert_int_equal(tally_charge_item(parent, sock, 3 * MB), 0);
	assert_int_equal(tally_charge(parent, 1), -ENOMEM);
	assert_int_equal(harness_current(t, "/a"), 10 * MB);
	tally_detach(parent);
	pool = tally_detach(pool);
	assert_int_equal(harness_current(t, "/"), 0);
	/* The counter of the item has come back to 0 too. */
	parent = harness_attach(t, "/a");
	assert_int_equal(tally_charge_item(parent, sock, 4 * MB), 0);
	tally_detach(parent);
}

static void test_moved(void **state)
{
	(void)state;
	skip_if_not_begun();
	tally_stat_add(pool, sock, 100);
	assert_int_equal(stat_of("/a", "sock"), 100);
	tally_stat_add(pool, sock, 11);
	remove_pool("/a/b");
	assert_int_equal(stat_of("/a", "sock"), 111);
	tally_stat_add(pool, sock, 1000);
	assert_int_equal(stat_of("/a", "sock"), 111);
	pool = tally_detach(pool);
	assert_int_equal(stat_of("/a", "sock"), 0);
}

static void test_forced(void **state)
{
	(void)state;
	skip_if_not_begun();
	assert_int_equal(tally_charge(pool, 1000), 0);
	remove_pool("/a/b");
	/* It cannot say no, and what is uncharged later must have been charged. */
	tally_charge_force(pool, 0, 500);
	assert_int_equal(harness_current(t, "/a"), 1500);
	tally_uncharge(pool, 1500);
	assert_int_equal(harness_current(t, "/a"), 0);
	pool = tally_detach(pool);
	assert_int_equal(stat_of("/", "overdraft"), 0);
}

static void test_uncharge_comes_first(void **state)
{
	(void)state;
	skip_if_not_begun();
	assert_int_equal(tally_charge(pool, 100000), 0);
	remove_pool("/a/b");
	tally_uncharge(pool, 50000);
	assert_int_equal(tally_charge(pool, 1), -ENODEV);
	assert_int_equal(tally_try_charge(pool, 1), -ENODEV);
	assert_int_equal(harness_current(t, "/a"), 50000);
}

/* ------------------------------------------------------------------ threads */

#define THREADS 4

struct crowd {
	_Atomic bool stop;
	_Atomic unsigned lost;
};

static void *hammer(void *userdata)
{
	struct crowd *c = userdata;
	uint64_t held = 0;
	int r = 0;

	while (r != -ENODEV && !atomic_load(&c->stop)) {
		r = held % 3 ? tally_charge(pool, 3000) : tally_try_charge(pool, 3000);
		held += r == 0;
		if (held > 20) {
			tally_uncharge(pool, 3000 * held);
			held = 0;
		}
	}
	atomic_fetch_add(&c->lost, r == -ENODEV);
	tally_uncharge(pool, 3000 * held);
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t threads[THREADS];
	struct crowd c = {0};

	(void)state;
	skip_if_not_begun();
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, hammer, &c), 0);
	nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	remove_pool("/a/b");
	/* Who is in the middle of putting something down may leave it where one more charge finds it. */
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(c.lost, THREADS);
	assert_lost(pool);
	assert_int_equal(harness_current(t, "/a"), 0);
	pool = tally_detach(pool);
	assert_int_equal(stat_of("/", "overdraft"), 0);
	assert_int_equal(dying("/"), 0);
}

static void *wait_for_room(void *userdata)
{
	struct tally_charge_args a = {.bytes = 600000, .deadline_usec = UINT64_MAX / 2};
	struct tally_pool *p = userdata;

	return (void *)(intptr_t)tally_charge_with(p, &a, sizeof(a));
}

static int has_waited(void *path)
{
	return harness_value(t, path, "memory.events", "max") > 0;
}

/* At a limit of the pool, and at one above it. */
static void check_waiting(const char *limited)
{
	pthread_t thread;
	void *status;

	assert_int_equal(tally_set(t, limited, "memory.max", "1000000"), 0);
	assert_int_equal(tally_charge(pool, 600000), 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_room, pool), 0);
	assert_true(harness_wait(has_waited, (void *)limited, HARNESS_PATIENCE_MS));
	remove_pool("/a/b");
	pthread_join(thread, &status);
	assert_int_equal((int)(intptr_t)status, -ENODEV);
	assert_int_equal(harness_current(t, "/a"), 600000);
}

static void test_waiting(void **state)
{
	struct tally_pool *p;

	(void)state;
	skip_if_not_begun();
	check_waiting("/a/b");
	tally_detach(pool);
	pool = harness_attach(t, "/a/b");
	check_waiting("/a");
	/* Nobody waits there any more. */
	p = harness_attach(t, "/a");
	assert_int_equal(tally_charge(p, 400000), 0);
	tally_detach(p);
}

static void note(struct tally_request *r, int result, void *userdata)
{
	(void)r;
	*(int *)userdata = result;
}

/* A place in line, which blocks nobody. */
static void test_place_in_line(void **state)
{
	struct tally_charge_args a = {.bytes = 600000, .deadline_usec = UINT64_MAX / 2};
	struct tally_request *r;
	struct tally_queue *q;
	int result = 1;

	(void)state;
	skip_if_not_begun();
	assert_int_equal(tally_set(t, "/a/b", "memory.max", "1000000"), 0);
	assert_int_equal(tally_charge(pool, 600000), 0);
	assert_int_equal(tally_queue_new(t, &q), 0);
	assert_int_equal(tally_request(q, pool, &a, sizeof(a), note, &result, &r), 0);
	remove_pool("/a/b");
	for (unsigned i = 0; result == 1 && i < HARNESS_PATIENCE_MS / 5; i++) {
		assert_true(tally_queue_dispatch(q) >= 0);
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	assert_int_equal(result, -ENODEV);
	tally_queue_free(q);
	assert_int_equal(harness_current(t, "/a"), 600000);
}

/* ------------------------------------------------------------------ other processes */

static void test_another_process(void **state)
{
	struct actor a, b;

	(void)state;
	skip_if_not_begun();
	if (setting->embedded)
		skip();
	actor_start(&a, &h, "/a/b");
	actor_start(&b, &h, "/a/b");
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 1000, 0), 0);
	assert_int_equal(actor_do(&b, ACTOR_CHARGE, 2000, 0), 0);
	remove_pool("/a/b");
	/* It has had credit at hand. */
	assert_int_equal(actor_do(&a, ACTOR_TRY, 1, 0), -ENODEV);
	assert_int_equal(actor_do(&a, ACTOR_UNCHARGE, 500, 0), 0);
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 1, 0), -ENODEV);
	assert_int_equal(actor_do(&b, ACTOR_UNCHARGE, 500, 0), 0);
	assert_int_equal(actor_do(&b, ACTOR_CHARGE, 1, 0), -ENODEV);
	assert_int_equal(harness_current(t, "/a"), 2000);
	pool = tally_detach(pool);
	assert_int_equal(dying("/"), 1);
	assert_int_equal(actor_do(&a, ACTOR_DETACH, 0, 0), 0);
	assert_int_equal(harness_current(t, "/a"), 1500);
	actor_kill(&a);
	actor_kill(&b);
	while (harness_current(t, "/a") != 0 || dying("/") != 0)
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/* ------------------------------------------------------------------ many times */

static void test_thirty_cycles(void **state)
{
	(void)state;
	skip_if_not_begun();
	for (int i = 0; i < 30; i++) {
		struct tally_pool *p = harness_attach(t, "/cycle/a");

		assert_int_equal(tally_charge(p, 10000), 0);
		remove_pool("/cycle/a");
		if (i % 2)
			tally_uncharge(p, 10000);
		tally_detach(p);
	}
	assert_int_equal(dying("/"), 0);
	assert_int_equal(harness_current(t, "/"), 0);
	assert_int_equal(stat_of("/", "stock"), 0);
}

/* What items say stays what is held, over hundred pools that come and go by force. */
static void test_hundred_cycles(void **state)
{
	struct tally_pool *held[10];
	char path[32];

	(void)state;
	skip_if_not_begun();
	for (unsigned i = 0; i < 100; i++) {
		struct tally_pool **p = &held[i % 10];

		if (i >= 10)
			tally_detach(*p);
		snprintf(path, sizeof(path), "/many/%u", i);
		*p = harness_attach(t, path);
		assert_int_equal(tally_charge_item(*p, sock, 1000 + i), 0);
		remove_pool(path);
		tally_uncharge_item(*p, sock, 500);
		if (i % 20 == 19) {
			assert_int_equal(stat_of("/", "sock"), harness_current(t, "/"));
			assert_int_equal(dying("/many"), 10);
		}
	}
	for (unsigned i = 0; i < 10; i++)
		tally_detach(held[i]);
	assert_int_equal(stat_of("/", "sock"), 0);
	assert_int_equal(harness_current(t, "/"), 0);
	assert_int_equal(dying("/"), 0);
}

#define TEST(name, n)                                                                              \
	{                                                                                          \
#name, test_##name, begin, end, (void *)&settings[n]                               \
	}
#define ALL(name) TEST(name, 0), TEST(name, 1), TEST(name, 2), TEST(name, 3)

int main(void)
{
	const struct CMUnitTest tests[] = {ALL(refused), ALL(goes_to_the_parent),
		ALL(same_path_again), ALL(parent_too), ALL(limits_of_the_parent_hold), ALL(moved),
		ALL(forced), ALL(uncharge_comes_first), ALL(threads), ALL(waiting),
		ALL(place_in_line), ALL(another_process), ALL(thirty_cycles), ALL(hundred_cycles)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
