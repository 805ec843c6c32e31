/* SPDX-License-Identifier: MIT */

/*
 * Reservations: charged as one, taken in parts, and what is left goes back; over a daemon and
 * embedded.
 */

#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/util.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

static struct harness harness;

static void check_parts(struct tally *t)
{
	struct tally_charge_args a = {.bytes = 100 * KIB};
	struct tally_pool *p = harness_attach(t, "/r");
	struct tally_reservation *r = NULL;

	assert_int_equal(tally_reserve(p, &a, sizeof(a), &r), 0);
	assert_int_equal(harness_current(t, "/r"), 100 * KIB);
	assert_int_equal(tally_reservation_charge(r, 0), 0);
	assert_int_equal(tally_reservation_charge(r, 60 * KIB), 0);
	assert_int_equal(tally_reservation_charge(r, 40 * KIB + 1), -ENOMEM);
	assert_int_equal(tally_reservation_charge(r, UINT64_MAX), -ENOMEM);
	assert_int_equal(tally_reservation_charge(r, 30 * KIB), 0);
	assert_int_equal(harness_current(t, "/r"), 100 * KIB);
	assert_null(tally_reservation_free(r));
	/* what was taken stays the caller's */
	assert_int_equal(harness_current(t, "/r"), 90 * KIB);
	tally_uncharge(p, 90 * KIB);
	assert_int_equal(harness_current(t, "/r"), 0);
	assert_int_equal(harness_value(t, "/r", "memory.stat", "overdraft"), 0);
	/* all of it, and none */
	assert_int_equal(tally_reserve(p, &a, sizeof(a), &r), 0);
	assert_int_equal(tally_reservation_charge(r, 100 * KIB), 0);
	assert_int_equal(tally_reservation_charge(r, 1), -ENOMEM);
	tally_reservation_free(r);
	assert_int_equal(harness_current(t, "/r"), 100 * KIB);
	tally_uncharge(p, 100 * KIB);
	a.bytes = 0;
	assert_int_equal(tally_reserve(p, &a, sizeof(a), &r), 0);
	assert_int_equal(tally_reservation_charge(r, 1), -ENOMEM);
	tally_reservation_free(r);
	assert_int_equal(harness_current(t, "/r"), 0);
	tally_detach(p);
}

static void check_errors(struct tally *t)
{
	struct tally_charge_args a = {.bytes = 2 * MIB};
	struct tally_pool *p = harness_attach(t, "/r");
	struct tally_reservation *r = (void *)t;

	assert_int_equal(tally_set(t, "/r", "memory.max", "1M"), 0);
	assert_null(tally_reservation_free(NULL));
	assert_int_equal(tally_reserve(p, &a, sizeof(a), &r), -ENOMEM);
	a.deadline_usec = 1;
	assert_int_equal(tally_reserve(p, &a, sizeof(a), &r), -ETIMEDOUT);
	a = (struct tally_charge_args){.bytes = 1, .flags = TALLY_FORCE};
	assert_int_equal(tally_reserve(p, &a, sizeof(a), &r), -EINVAL);
	a = (struct tally_charge_args){.bytes = TALLY_BYTES_MAX + 1};
	assert_int_equal(tally_reserve(p, &a, sizeof(a), &r), -EINVAL);
	assert_int_equal(tally_reserve(NULL, &a, sizeof(a), &r), -EINVAL);
	assert_int_equal(tally_reserve(p, NULL, sizeof(a), &r), -EINVAL);
	assert_int_equal(tally_reserve(p, &a, sizeof(a), NULL), -EINVAL);
	assert_ptr_equal(r, t);
	assert_int_equal(harness_current(t, "/r"), 0);
	tally_detach(p);
	assert_int_equal(tally_set(t, "/r", "memory.max", "max"), 0);
}

/* With the attachment all goes back, what was not taken yet too. */
static void check_detach(struct tally *t)
{
	struct tally_charge_args a = {.bytes = 64 * KIB};
	struct tally_pool *p = harness_attach(t, "/r");
	struct tally_reservation *r;

	assert_int_equal(tally_reserve(p, &a, sizeof(a), &r), 0);
	assert_int_equal(tally_reservation_charge(r, KIB), 0);
	tally_detach(p);
	assert_int_equal(tally_reservation_charge(r, KIB), -ENODEV);
	assert_int_equal(harness_current(t, "/r"), 0);
	tally_reservation_free(r);
	assert_int_equal(harness_value(t, "/r", "memory.stat", "overdraft"), 0);
}

static void check_fork(struct tally *t)
{
	struct tally_charge_args a = {.bytes = 64 * KIB};
	struct tally_pool *p = harness_attach(t, "/r");
	struct tally_reservation *r;
	pid_t child;

	assert_int_equal(tally_reserve(p, &a, sizeof(a), &r), 0);
	child = fork();
	if (child == 0)
		_exit(tally_reservation_charge(r, 1) != -ECHILD || tally_reservation_free(r));
	harness_join(child, 0);
	assert_int_equal(harness_current(t, "/r"), 64 * KIB);
	tally_reservation_free(r);
	assert_int_equal(harness_current(t, "/r"), 0);
	tally_detach(p);
}

static void check_item(struct tally *t)
{
	struct tally_charge_args a = {.bytes = 64 * KIB};
	struct tally_pool *p = harness_attach(t, "/r");
	struct tally_reservation *r;

	assert_int_equal(tally_item_lookup(t, "sock", &a.item), 0);
	assert_int_equal(tally_reserve(p, &a, sizeof(a), &r), 0);
	assert_int_equal(tally_reservation_charge(r, 16 * KIB), 0);
	assert_int_equal(harness_current(t, "/r"), 64 * KIB);
	assert_int_equal(harness_value(t, "/r", "memory.stat", "sock"), 64 * KIB);
	tally_reservation_free(r);
	assert_int_equal(harness_current(t, "/r"), 16 * KIB);
	assert_int_equal(harness_value(t, "/r", "memory.stat", "sock"), 16 * KIB);
	tally_uncharge_item(p, a.item, 16 * KIB);
	tally_detach(p);
}

/* Threads and a signal handler take from one: together exactly what there is. */
#define TAKERS 4

struct takers {
	struct tally_reservation *r;
	_Atomic uint64_t taken;
};

static struct takers takers;

static bool take_one(void)
{
	int r = tally_reservation_charge(takers.r, 1);

	if (r == 0)
		atomic_fetch_add(&takers.taken, 1);
	else if (r != -ENOMEM)
		abort();
	return r == 0;
}

static void on_signal(int number _unused_)
{
	take_one();
}

static void *take_all(void *userdata _unused_)
{
	for (unsigned i = 0; take_one(); i++)
		if (i % 64 == 0)
			raise(SIGUSR1);
	return NULL;
}

static void check_takers(struct tally *t)
{
	struct tally_charge_args a = {.bytes = 100000};
	struct tally_pool *p = harness_attach(t, "/r");
	struct sigaction action = {.sa_handler = on_signal}, before;
	pthread_t threads[TAKERS];

	takers.taken = 0;
	assert_int_equal(tally_reserve(p, &a, sizeof(a), &takers.r), 0);
	assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
	for (unsigned i = 0; i < TAKERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_all, NULL), 0);
	for (unsigned i = 0; i < TAKERS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
	assert_int_equal(takers.taken, 100000);
	tally_reservation_free(takers.r);
	assert_int_equal(harness_current(t, "/r"), 100000);
	tally_uncharge(p, 100000);
	tally_detach(p);
}

static void run(void (*check)(struct tally *t), bool embedded)
{
	struct tally *t;

	if (embedded)
		assert_int_equal(tally_open("embedded:", 0, &t), 0);
	else
		t = harness_open(&harness);
	check(t);
	tally_close(t);
}

#define BOTH(name)                                                                                 \
	static void test_##name(void **state _unused_)                                             \
	{                                                                                          \
		run(check_##name, false);                                                          \
	}                                                                                          \
	static void test_embedded_##name(void **state _unused_)                                    \
	{                                                                                          \
		run(check_##name, true);                                                           \
	}

BOTH(parts)
BOTH(errors)
BOTH(detach)
BOTH(fork)
BOTH(item)
BOTH(takers)

static int setup(void **state _unused_)
{
	harness_start(&harness, "");
	return 0;
}

static int teardown(void **state _unused_)
{
	harness_stop(&harness);
	return 0;
}

#define TEST_BOTH(name) cmocka_unit_test(test_##name), cmocka_unit_test(test_embedded_##name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_BOTH(parts),
		TEST_BOTH(errors),
		TEST_BOTH(detach),
		TEST_BOTH(fork),
		TEST_BOTH(item),
		TEST_BOTH(takers),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
