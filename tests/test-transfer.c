/* SPDX-License-Identifier: MIT */

/* Bytes that go from one handle to another; over a daemon, and embedded. */

#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "core/util.h"

static const char config[] = "[daemon]\nflush_interval = 1h\ngrace = 100ms\nexport =\n";

#define MB (UINT64_C(1) << 20)

static struct harness h;
static struct tally *t;
static struct tally_pool *a, *b; /* of /t/a and /t/b */
static tally_item sock;
static bool embedded;

static int begin(void **state)
{
	embedded = *state;
	if (!embedded)
		harness_start(&h, config);
	assert_int_equal(tally_open(embedded ? "embedded:" : h.address, 0, &t), 0);
	a = harness_attach(t, "/t/a");
	b = harness_attach(t, "/t/b");
	assert_int_equal(tally_item_lookup(t, "sock", &sock), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	a = tally_detach(a);
	b = tally_detach(b);
	t = tally_close(t);
	if (!embedded)
		harness_stop(&h);
	return 0;
}

static uint64_t number(const char *path, const char *file)
{
	_cleanup_(freep) char *text = harness_get(t, path, file);

	return strtoull(text, NULL, 10);
}

static uint64_t stat_of(const char *path, const char *key)
{
	return harness_value(t, path, "memory.stat", key);
}

static uint64_t held_by(struct tally_pool *p)
{
	struct tally_usage u;

	assert_int_equal(tally_usage(p, sizeof(u), &u), 0);
	return u.held;
}

/* ------------------------------------------------------------------ one at a time */

static void test_moves(void **state)
{
	(void)state;
	assert_int_equal(tally_charge(a, 1000), 0);
	assert_int_equal(tally_charge(b, 100), 0);
	assert_int_equal(tally_transfer(a, b, 0, 600), 0);
	assert_int_equal(harness_current(t, "/t/a"), 400);
	assert_int_equal(harness_current(t, "/t/b"), 700);
	assert_int_equal(harness_current(t, "/t"), 1100);
	assert_int_equal(held_by(a), 400);
	assert_int_equal(held_by(b), 700);
	tally_uncharge(b, 700);
	tally_uncharge(a, 400);
	a = tally_detach(a);
	b = tally_detach(b);
	assert_int_equal(harness_current(t, "/"), 0);
	assert_int_equal(stat_of("/", "stock"), 0);
	assert_int_equal(stat_of("/", "overdraft"), 0);
	a = harness_attach(t, "/t/a");
	b = harness_attach(t, "/t/b");
}

static void test_errors(void **state)
{
	struct tally *other;
	struct tally_pool *p;
	tally_item event;

	(void)state;
	assert_int_equal(tally_item_lookup(t, "alloc", &event), 0);
	assert_int_equal(tally_charge(a, 1000), 0);
	assert_int_equal(tally_transfer(a, b, 0, 0), 0);
	assert_int_equal(tally_transfer(a, a, 0, 500), 0);
	assert_int_equal(tally_transfer(a, b, 0, TALLY_BYTES_MAX + 1), -EINVAL);
	assert_int_equal(tally_transfer(a, b, event, 1), -EINVAL);
	assert_int_equal(tally_transfer(a, b, 63, 1), -EINVAL);
	assert_int_equal(tally_transfer(a, b, 1000, 1), -EINVAL);
	/* More than it was ever granted; and of an item that it has nothing of. */
	assert_int_equal(tally_transfer(a, b, 0, 1000 * MB), -EINVAL);
	assert_int_equal(tally_transfer(a, b, sock, 1000 * MB), -EINVAL);
	assert_int_equal(tally_open(embedded ? "embedded:" : h.address, 0, &other), 0);
	p = harness_attach(other, "/t/a");
	assert_int_equal(tally_transfer(a, p, 0, 1), -EINVAL);
	tally_detach(p);
	tally_close(other);
	p = tally_pool_ref(harness_attach(t, "/t/c"));
	tally_detach(p);
	assert_int_equal(tally_transfer(a, p, 0, 1), -ENODEV);
	assert_int_equal(tally_transfer(p, a, 0, 1), -ENODEV);
	tally_pool_unref(p);
	p = harness_attach(t, "/t/d");
	assert_int_equal(tally_remove(t, "/t/d", TALLY_FORCE), 0);
	assert_int_equal(tally_transfer(a, p, 0, 1), -ENODEV);
	tally_detach(p);
	assert_int_equal(harness_current(t, "/t/a"), 1000);
	assert_int_equal(harness_current(t, "/t"), 1000);
}

/* Nothing of it is seen above both, not even where not a byte more would fit. */
static void test_common_is_full(void **state)
{
	(void)state;
	assert_int_equal(tally_charge(a, 1 * MB), 0);
	assert_int_equal(tally_charge(b, 1 * MB), 0);
	assert_int_equal(tally_set(t, "/", "pool.drain", "1"), 0);
	assert_int_equal(tally_set(t, "/t", "memory.max", "2M"), 0);
	assert_int_equal(tally_set(t, "/t", "memory.peak", "reset"), 0);
	assert_int_equal(tally_charge(a, 1), -ENOMEM);
	assert_int_equal(tally_transfer(a, b, 0, 1 * MB), 0);
	assert_int_equal(number("/t", "memory.peak"), 2 * MB);
	assert_int_equal(harness_current(t, "/t"), 2 * MB);
	assert_int_equal(harness_current(t, "/t/b"), 2 * MB);
	assert_int_equal(tally_transfer(b, a, 0, 2 * MB), 0);
	assert_int_equal(number("/t", "memory.peak"), 2 * MB);
	assert_int_equal(harness_value(t, "/t", "memory.events", "max"), 1);
}

static void test_over_a_limit(void **state)
{
	(void)state;
	assert_int_equal(tally_set(t, "/t/b", "memory.max", "1M"), 0);
	assert_int_equal(tally_charge(a, 3 * MB), 0);
	assert_int_equal(tally_transfer(a, b, 0, 1 * MB + 1), -ENOMEM);
	assert_int_equal(harness_current(t, "/t/a"), 3 * MB);
	assert_int_equal(harness_current(t, "/t/b"), 0);
	assert_int_equal(harness_value(t, "/t/b", "memory.events", "max"), 1);
	assert_int_equal(harness_value(t, "/t/b", "memory.events", "oom"), 1);
	/* Idle credit there is in nobody's way. */
	assert_int_equal(tally_charge(b, 500000), 0);
	tally_uncharge(b, 500000);
	assert_int_equal(tally_transfer(a, b, 0, 1 * MB), 0);
	assert_int_equal(harness_current(t, "/t/b"), 1 * MB);
	assert_int_equal(harness_current(t, "/t"), 3 * MB);
	assert_int_equal(tally_transfer(a, b, 0, 1), -ENOMEM);
}

static void test_items(void **state)
{
	(void)state;
	assert_int_equal(tally_set(t, "/t", "stat.sock.max", "2M"), 0);
	assert_int_equal(tally_set(t, "/t/b", "stat.sock.max", "1M"), 0);
	assert_int_equal(tally_charge_item(a, sock, 2 * MB), 0);
	assert_int_equal(tally_transfer(a, b, sock, 1 * MB + 1), -ENOMEM);
	assert_int_equal(tally_transfer(a, b, sock, 1 * MB), 0);
	assert_int_equal(stat_of("/t/a", "sock"), 1 * MB);
	assert_int_equal(stat_of("/t/b", "sock"), 1 * MB);
	assert_int_equal(stat_of("/t", "sock"), 2 * MB);
	assert_int_equal(tally_charge_item(a, sock, 1), -ENOMEM);
	tally_uncharge_item(b, sock, 1 * MB);
	assert_int_equal(tally_charge_item(a, sock, 1 * MB), 0);
	assert_int_equal(tally_charge_item(a, sock, 1), -ENOMEM);
}

/* Of pools of which one is above the other. */
static void test_up_and_down(void **state)
{
	struct tally_pool *up = harness_attach(t, "/t");

	(void)state;
	assert_int_equal(tally_set(t, "/t", "memory.max", "1M"), 0);
	assert_int_equal(tally_charge(a, 1 * MB), 0);
	assert_int_equal(tally_transfer(a, up, 0, 1 * MB), 0);
	assert_int_equal(harness_current(t, "/t/a"), 0);
	assert_int_equal(harness_current(t, "/t"), 1 * MB);
	assert_int_equal(tally_transfer(up, b, 0, 1 * MB), 0);
	assert_int_equal(harness_current(t, "/t/b"), 1 * MB);
	assert_int_equal(harness_current(t, "/t"), 1 * MB);
	tally_detach(up);
}

static void test_same_pool(void **state)
{
	struct tally_pool *again = harness_attach(t, "/t/a");

	(void)state;
	assert_int_equal(tally_set(t, "/t/a", "memory.max", "1M"), 0);
	assert_int_equal(tally_charge(a, 1 * MB), 0);
	assert_int_equal(tally_transfer(a, again, 0, 1 * MB), 0);
	assert_int_equal(held_by(a), 0);
	assert_int_equal(held_by(again), 1 * MB);
	a = tally_detach(a);
	assert_int_equal(harness_current(t, "/t/a"), 1 * MB);
	a = again;
}

static void test_forced(void **state)
{
	(void)state;
	tally_charge_force(a, sock, 5000);
	assert_int_equal(tally_transfer(a, b, sock, 5000), 0);
	assert_int_equal(stat_of("/t/b", "sock"), 5000);
	assert_int_equal(stat_of("/t/a", "sock"), 0);
	assert_int_equal(harness_current(t, "/t"), 5000);
}

/* ------------------------------------------------------------------ many */

#define THREADS 8
#define TURNS 500
#define SHARE 1000000

static struct tally_pool *ring[THREADS];

static void *turn(void *userdata)
{
	unsigned i = (unsigned)(uintptr_t)userdata, moved = 0;

	for (unsigned n = 0; n < TURNS; n++) {
		struct tally_pool *to = ring[(i + 1) % THREADS];

		assert_int_equal(tally_charge(ring[i], 3000), 0);
		moved += tally_transfer(ring[i], to, 0, 3000) == 0;
		tally_uncharge(to, 3000);
	}
	return (void *)(uintptr_t)moved;
}

static void test_ring(void **state)
{
	pthread_t threads[THREADS];
	char path[32];

	(void)state;
	for (unsigned i = 0; i < THREADS; i++) {
		snprintf(path, sizeof(path), "/ring/%u", i);
		ring[i] = harness_attach(t, path);
		assert_int_equal(tally_charge(ring[i], SHARE), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, turn, (void *)(uintptr_t)i), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		void *moved;

		pthread_join(threads[i], &moved);
		assert_int_equal((uintptr_t)moved, TURNS);
	}
	assert_int_equal(harness_current(t, "/ring"), THREADS * SHARE);
	for (unsigned i = 0; i < THREADS; i++) {
		snprintf(path, sizeof(path), "/ring/%u", i);
		assert_int_equal(harness_current(t, path), SHARE);
		assert_int_equal(held_by(ring[i]), SHARE);
		tally_detach(ring[i]);
	}
	assert_int_equal(harness_current(t, "/"), 0);
	assert_int_equal(stat_of("/", "stock"), 0);
	assert_int_equal(stat_of("/", "overdraft"), 0);
}

/* ------------------------------------------------------------------ over a daemon */

static int transfer_for_ever(void *userdata)
{
	struct tally *own = harness_open(&h);
	struct tally_pool *x = harness_attach(own, "/kill/x"), *y = harness_attach(own, "/kill/y");

	(void)userdata;
	if (tally_charge(x, 1 * MB) < 0)
		return 1;
	for (;;) {
		/* Refused, after a drain. */
		tally_transfer(x, y, 0, 900000);
		tally_transfer(x, y, 0, 500000);
		tally_transfer(y, x, 0, 500000);
	}
}

static int moves(void *userdata)
{
	(void)userdata;
	return harness_value(t, "/kill", "memory.events", "max") > 3;
}

static int nothing_left(void *userdata)
{
	(void)userdata;
	return harness_current(t, "/kill") == 0 && stat_of("/kill", "stock") == 0 &&
		harness_value(t, "/", "cgroup.events", "populated") == 1 &&
		harness_value(t, "/kill", "cgroup.events", "populated") == 0;
}

static void test_killed(void **state)
{
	(void)state;
	assert_int_equal(tally_create(t, "/kill"), 0);
	assert_int_equal(tally_create(t, "/kill/y"), 0);
	assert_int_equal(tally_set(t, "/kill/y", "memory.max", "600000"), 0);
	for (unsigned i = 0; i < 5; i++) {
		struct actor child = {.pid = harness_fork(transfer_for_ever, NULL), .fd = -1};

		assert_true(harness_wait(moves, NULL, HARNESS_PATIENCE_MS));
		nanosleep(&(struct timespec){.tv_nsec = (long)i * 3000000}, NULL);
		actor_kill(&child);
		assert_true(harness_wait(nothing_left, NULL, HARNESS_PATIENCE_MS));
	}
	assert_int_equal(tally_remove(t, "/kill/y", 0), 0);
}

#define TEST(name, engine)                                                                         \
	{                                                                                          \
#name, test_##name, begin, end, engine                                             \
	}
#define DAEMON(name) TEST(name, NULL)
#define BOTH(name) DAEMON(name), TEST(name, "embedded")

/* It says why, as a charge does. */
static void test_refusal(void **state)
{
	struct tally_refusal why;

	(void)state;
	assert_int_equal(tally_set(t, "/t/b", "memory.max", "1M"), 0);
	assert_int_equal(tally_charge(a, 3 * MB), 0);
	assert_int_equal(tally_charge(b, MB - 1000), 0);
	assert_int_equal(tally_last_refusal(t, sizeof(why), &why), -ENODATA);
	assert_int_equal(tally_transfer(a, b, 0, 2 * MB), -ENOMEM);
	assert_int_equal(tally_last_refusal(t, sizeof(why), &why), 0);
	assert_string_equal(why.pool, "/t/b");
	assert_string_equal(why.file, "memory.max");
	assert_int_equal(why.limit, MB);
	assert_int_equal(why.held, MB - 1000);
	assert_int_equal(why.wanted, 2 * MB);
	/* Only what is over a limit is a refusal. */
	assert_int_equal(tally_transfer(a, b, 0, 4 * MB), -EINVAL);
	assert_int_equal(tally_set(t, "/t/b", "stat.sock.max", "1K"), 0);
	assert_int_equal(tally_charge_item(a, sock, 2000), 0);
	tally_uncharge(b, MB / 2);
	assert_int_equal(tally_transfer(a, b, sock, 2000), -ENOMEM);
	assert_int_equal(tally_last_refusal(t, sizeof(why), &why), 0);
	assert_string_equal(why.file, "stat.sock.max");
	assert_int_equal(why.wanted, 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {BOTH(moves), BOTH(errors), BOTH(common_is_full),
		BOTH(over_a_limit), BOTH(items), BOTH(up_and_down), BOTH(same_pool), BOTH(forced),
		BOTH(ring), BOTH(refusal), DAEMON(killed)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
