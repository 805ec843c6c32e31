/* SPDX-License-Identifier: MIT */

/*
 * What went wrong in other accounting systems, and must not here: each test is named after its trap.
 * These are about numbers: what is held, idle, at most, at the peak. Those about processes and about
 * the daemon are in test-traps-daemon.c.
 */

#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include "core/util.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * KIB)
#define BATCH (64 * KIB)
#define HIGH_BATCHES 16 /* what a slot may hold beside what is charged, in batches */

static struct harness harness;
static struct tally *tally;

static uint64_t stat_of(const char *path, const char *key)
{
	return harness_value(tally, path, "memory.stat", key);
}

static uint64_t number_of(const char *path, const char *file)
{
	char *text = harness_get(tally, path, file);
	uint64_t n = strtoull(text, NULL, 10);

	free(text);
	return n;
}

static void set(const char *path, const char *file, const char *value)
{
	assert_int_equal(tally_set(tally, path, file, value), 0);
}

static void pin(unsigned cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one) < 0)
		skip();
}

static void unpin(void)
{
	cpu_set_t all;

	CPU_ZERO(&all);
	for (int i = 0; i < get_nprocs_conf() && i < CPU_SETSIZE; i++)
		CPU_SET((unsigned)i, &all);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

/* ------------------------------------------------------------------ slack */

static void *charge_and_uncharge(void *pool)
{
	for (unsigned i = 0; i < 100; i++) {
		if (tally_charge(pool, 1000) < 0)
			return pool;
		tally_uncharge(pool, 1000);
	}
	return NULL;
}

static void test_slack_per_thread_grows_without_bound(void **state)
{
	struct tally_pool *p = harness_attach(tally, "/traps");
	uint64_t cpus = (uint64_t)get_nprocs_conf();

	(void)state;
	for (unsigned round = 0; round < 16; round++) {
		pthread_t threads[32];
		void *failed;

		for (unsigned i = 0; i < ELEMENTS(threads); i++)
			assert_int_equal(
				pthread_create(&threads[i], NULL, charge_and_uncharge, p), 0);
		for (unsigned i = 0; i < ELEMENTS(threads); i++) {
			assert_int_equal(pthread_join(threads[i], &failed), 0);
			assert_null(failed);
		}
	}
	/* 512 threads have been: by CPU, and one reserve. */
	assert_true(stat_of("/traps", "stock") <= (cpus + 1) * HIGH_BATCHES * BATCH);
	assert_int_equal(stat_of("/traps", "held"), 0);
	tally_detach(p);
}

static void test_a_parked_free_hides_a_charge(void **state)
{
	struct tally_pool *p = harness_attach(tally, "/traps");

	(void)state;
	assert_int_equal(tally_charge(p, 10 * MIB), 0);
	tally_uncharge(p, 40 * KIB); /* lies in the stock */
	assert_int_equal(harness_current(tally, "/traps"), 10 * MIB - 40 * KIB);
	assert_int_equal(tally_charge(p, 30 * KIB), 0); /* comes out of it */
	assert_int_equal(harness_current(tally, "/traps"), 10 * MIB - 10 * KIB);
	tally_uncharge(p, 10 * MIB - 10 * KIB);
	assert_int_equal(harness_current(tally, "/traps"), 0);
	tally_detach(p);
}

static void test_an_isolated_cpu_whose_stock_is_never_drained(void **state)
{
	struct actor idle, needy;

	(void)state;
	if (get_nprocs() < 2)
		skip();
	actor_start(&idle, &harness, "/traps/isolated/a");
	actor_start(&needy, &harness, "/traps/isolated/b");
	set("/traps/isolated", "memory.max", "1M");
	assert_int_equal(actor_do(&idle, ACTOR_PIN, 1, 0), 0);
	assert_int_equal(actor_do(&needy, ACTOR_PIN, 0, 0), 0);
	/* It never runs again, so nobody on that CPU gives this back. */
	assert_int_equal(actor_do(&idle, ACTOR_CHARGE, 60 * KIB, 0), 0);
	assert_int_equal(actor_do(&idle, ACTOR_UNCHARGE, 60 * KIB, 0), 0);
	assert_int_equal(kill(idle.pid, SIGSTOP), 0);
	assert_true(stat_of("/traps/isolated", "stock") > 0);
	assert_int_equal(actor_do(&needy, ACTOR_CHARGE, MIB, 0), 0);
	assert_int_equal(kill(idle.pid, SIGCONT), 0);
	actor_kill(&idle);
	actor_kill(&needy);
}

/* ------------------------------------------------------------------ limits */

static void test_check_then_add_lets_two_processes_pass_together(void **state)
{
	struct actor actors[8];
	unsigned passed = 0;

	(void)state;
	for (unsigned i = 0; i < ELEMENTS(actors); i++)
		actor_start(&actors[i], &harness, "/traps/together");
	set("/traps/together", "memory.max", "10M");
	for (unsigned round = 0; round < 50; round++) {
		passed = 0;
		for (unsigned i = 0; i < ELEMENTS(actors); i++)
			actor_tell(&actors[i], ACTOR_CHARGE, 4 * MIB, 0);
		for (unsigned i = 0; i < ELEMENTS(actors); i++)
			if (actor_result(&actors[i]) == 0) {
				passed++;
				actors[i].fd = -actors[i].fd;
			}
		assert_true(passed <= 2);
		assert_true(number_of("/traps/together", "memory.peak") <= 10 * MIB);
		for (unsigned i = 0; i < ELEMENTS(actors); i++)
			if (actors[i].fd < 0) {
				actors[i].fd = -actors[i].fd;
				assert_int_equal(
					actor_do(&actors[i], ACTOR_UNCHARGE, 4 * MIB, 0), 0);
			}
	}
	assert_true(passed > 0);
	for (unsigned i = 0; i < ELEMENTS(actors); i++)
		actor_kill(&actors[i]);
}

static void test_limit_minus_usage_underflows_once_the_limit_is_lowered(void **state)
{
	struct tally_pool *p = harness_attach(tally, "/traps/lowered");
	struct tally_usage u;

	(void)state;
	assert_int_equal(tally_charge(p, 8 * MIB), 0);
	set("/traps/lowered", "memory.max", "1M");
	assert_int_equal(tally_usage(p, sizeof(u), &u), 0);
	assert_int_equal(u.headroom, 0);
	assert_int_equal(u.limit, MIB);
	assert_int_equal(tally_charge(p, 8 * MIB), -ENOMEM);
	assert_int_equal(tally_charge(p, 1), -ENOMEM);
	tally_uncharge(p, 8 * MIB);
	assert_int_equal(tally_charge(p, MIB), 0);
	tally_detach(p);
}

static void test_a_limit_that_can_be_set_but_not_unset(void **state)
{
	static const char *const files[] = {"memory.max", "stat.sock.max"};
	struct tally_pool *p = harness_attach(tally, "/traps/unset");
	tally_item sock;

	(void)state;
	assert_int_equal(tally_item_lookup(tally, "sock", &sock), 0);
	for (unsigned i = 0; i < ELEMENTS(files); i++) {
		char *text;

		set("/traps/unset", files[i], "1M");
		assert_int_equal(tally_charge_item(p, sock, 2 * MIB), -ENOMEM);
		set("/traps/unset", files[i], "max");
		assert_int_equal(tally_charge_item(p, sock, 2 * MIB), 0);
		tally_uncharge_item(p, sock, 2 * MIB);
		text = harness_get(tally, "/traps/unset", files[i]);
		assert_string_equal(text, "max\n");
		free(text);
	}
	tally_detach(p);
}

/* ------------------------------------------------------------------ peaks */

static void test_peak_records_a_charge_that_was_rolled_back(void **state)
{
	struct tally_pool *p = harness_attach(tally, "/traps/above/below");

	(void)state;
	set("/traps/above", "memory.max", "2M");
	assert_int_equal(tally_charge(p, MIB), 0);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(tally_charge(p, 3 * MIB), -ENOMEM);
	assert_true(number_of("/traps/above/below", "memory.peak") <= 2 * MIB);
	assert_true(number_of("/traps/above", "memory.peak") <= 2 * MIB);
	tally_detach(p);
}

static void test_peak_misses_the_last_charge(void **state)
{
	struct tally_pool *p = harness_attach(tally, "/traps/last");

	(void)state;
	for (uint64_t sum = MIB; sum <= 16 * MIB; sum += MIB) {
		assert_int_equal(tally_charge(p, MIB), 0);
		assert_true(number_of("/traps/last", "memory.peak") >= sum);
	}
	tally_detach(p);
	assert_true(number_of("/traps/last", "memory.peak") >= 16 * MIB);
}

/* ------------------------------------------------------------------ figures */

static void test_gauge_below_zero_exported_as_18_eb(void **state)
{
	struct tally_pool *p = harness_attach(tally, "/traps");
	struct tally_pool *child = harness_attach(tally, "/traps/child");
	tally_item slab;
	char *text;

	(void)state;
	assert_int_equal(tally_item_lookup(tally, "slab", &slab), 0);
	tally_stat_add(p, slab, -5000);
	tally_stat_add(child, slab, -7);
	assert_int_equal(stat_of("/traps", "slab"), 0);
	assert_int_equal(stat_of("/traps/child", "slab"), 0);
	text = harness_get(tally, "/traps", "memory.numa_stat");
	assert_non_null(strstr(text, "slab N0="));
	assert_null(strstr(text, "1844"));
	assert_null(strchr(text, '-'));
	free(text);
	tally_stat_add(p, slab, 6000);
	assert_int_equal(stat_of("/traps", "slab"), 993);
	tally_detach(p);
	tally_detach(child);
}

/* What two levels show is of one look: the files that show it are read cached, after one flush. */
static void test_sum_of_children_larger_than_the_parent(void **state)
{
	struct actor actors[4];
	char path[64], *text;

	(void)state;
	for (unsigned i = 0; i < ELEMENTS(actors); i++) {
		snprintf(path, sizeof(path), "/traps/sum/%u", i);
		actor_start(&actors[i], &harness, path);
	}
	for (unsigned round = 1; round <= 50; round++) {
		uint64_t sum = 0, parent;

		for (unsigned i = 0; i < ELEMENTS(actors); i++)
			actor_tell(&actors[i], ACTOR_CHARGE, (i + 1) * 1000 * KIB, 0);
		free(harness_get(tally, "/traps/sum", "memory.stat"));
		for (unsigned i = 0; i < ELEMENTS(actors); i++) {
			snprintf(path, sizeof(path), "/traps/sum/%u", i);
			assert_int_equal(
				tally_get(tally, path, "memory.stat", TALLY_CACHED, &text), 0);
			sum += strtoull(text + strlen("held "), NULL, 10);
			free(text);
		}
		assert_int_equal(
			tally_get(tally, "/traps/sum", "memory.stat", TALLY_CACHED, &text), 0);
		parent = strtoull(text + strlen("held "), NULL, 10);
		free(text);
		for (unsigned i = 0; i < ELEMENTS(actors); i++)
			assert_int_equal(actor_result(&actors[i]), 0);
		/* What shows what is charged may be newer in what is read later, never older. */
		assert_true(parent >= sum);
	}
	assert_int_equal(harness_current(tally, "/traps/sum"), 50 * 10 * 1000 * KIB);
	for (unsigned i = 0; i < ELEMENTS(actors); i++)
		actor_kill(&actors[i]);
}

static void *move_credit(void *arg)
{
	struct tally_pool *const *pools = arg;

	/* Slots fill above HIGH, the rest goes to reserves; eight keys evict each other. */
	for (unsigned i = 0; i < 20000; i++) {
		struct tally_pool *p = pools[i % 9];

		if (tally_charge(p, 1 + i % 7 * BATCH) < 0)
			return arg;
		tally_uncharge(p, 1 + i % 7 * BATCH);
	}
	return NULL;
}

static void test_a_moved_remainder_counted_twice(void **state)
{
	struct tally_pool *pools[9];
	pthread_t threads[2];
	char path[64];

	(void)state;
	for (unsigned i = 0; i < ELEMENTS(pools); i++) {
		snprintf(path, sizeof(path), "/traps/moved/%u", i);
		pools[i] = harness_attach(tally, path);
		assert_int_equal(tally_charge(pools[i], 100 * (i + 1)), 0);
	}
	for (unsigned i = 0; i < ELEMENTS(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, move_credit, pools), 0);
	for (unsigned i = 0; i < ELEMENTS(threads); i++) {
		void *failed;

		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
	for (unsigned i = 0; i < ELEMENTS(pools); i++) {
		snprintf(path, sizeof(path), "/traps/moved/%u", i);
		assert_int_equal(harness_current(tally, path), 100 * (i + 1));
		assert_int_equal(stat_of(path, "overdraft"), 0);
	}
	assert_int_equal(harness_current(tally, "/traps/moved"), 4500);
	for (unsigned i = 0; i < ELEMENTS(pools); i++)
		tally_detach(pools[i]);
}

static void test_u16_truncation_of_a_byte_remainder(void **state)
{
	static const uint64_t sizes[] = {1, 4095, 4097, 65535, 65536, 65537, 131071, 131073,
		(UINT64_C(1) << 31) - 1, (UINT64_C(1) << 31) + 1, (UINT64_C(1) << 32) + 1};
	struct tally_pool *p = harness_attach(tally, "/traps/truncation");
	uint64_t sum = 0;

	(void)state;
	for (unsigned i = 0; i < ELEMENTS(sizes); i++) {
		assert_int_equal(tally_charge(p, sizes[i]), 0);
		sum += sizes[i];
		assert_int_equal(harness_current(tally, "/traps/truncation"), sum);
	}
	for (unsigned i = 0; i < ELEMENTS(sizes); i++) {
		tally_uncharge(p, sizes[i]);
		sum -= sizes[i];
		assert_int_equal(harness_current(tally, "/traps/truncation"), sum);
	}
	tally_detach(p);
}

/* Whoever decides by what it reads sees what has happened before it looked, without asking for it. */
static void test_stale_sums_that_trigger_a_kill(void **state)
{
	struct actor a;
	char *text;

	(void)state;
	actor_start(&a, &harness, "/traps/stale");
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(actor_do(&a, ACTOR_CHARGE, 32 * MIB, 0), 0);
		assert_int_equal(tally_get(tally, "/traps/stale", "memory.current", 0, &text), 0);
		assert_int_equal(strtoull(text, NULL, 10), 32 * MIB);
		free(text);
		assert_int_equal(actor_do(&a, ACTOR_UNCHARGE, 32 * MIB, 0), 0);
		assert_int_equal(tally_get(tally, "/traps/stale", "memory.current", 0, &text), 0);
		assert_int_equal(strtoull(text, NULL, 10), 0);
		free(text);
	}
	actor_kill(&a);
}

static void *keep_moving(void *arg)
{
	struct tally_pool *p = ((void **)arg)[0];
	atomic_bool *stop = ((void **)arg)[1];
	uintptr_t n = 0;
	tally_item slab;

	assert_int_equal(tally_item_lookup(tally, "slab", &slab), 0);
	for (; !atomic_load(stop); n++)
		tally_stat_add(p, slab, 1);
	return (void *)n;
}

/* An update that comes just when a flush clears the marks is in that flush or in the next one. */
static void test_a_mark_tested_before_it_is_set(void **state)
{
	struct tally_pool *p = harness_attach(tally, "/traps/marks");
	atomic_bool stop = false;
	void *arg[] = {p, &stop}, *n;
	uint64_t sum = 0;
	pthread_t threads[2];

	(void)state;
	for (unsigned i = 0; i < ELEMENTS(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, keep_moving, arg), 0);
	for (unsigned i = 0; i < 500; i++)
		free(harness_get(tally, "/traps/marks", "memory.stat"));
	atomic_store(&stop, true);
	for (unsigned i = 0; i < ELEMENTS(threads); i++) {
		assert_int_equal(pthread_join(threads[i], &n), 0);
		sum += (uintptr_t)n;
	}
	assert_int_equal(stat_of("/traps/marks", "slab"), sum);
	tally_detach(p);
}

/* ------------------------------------------------------------------ whose is it */

/* Two sessions at a limit: what one asked for is not taken by the other before it sees it, so every
 * charge that fits succeeds at once, however long they go on. */
static void test_a_grant_stolen_before_its_asker_takes_it(void **state)
{
	struct actor a, b;

	(void)state;
	actor_start(&a, &harness, "/traps/pingpong/a");
	actor_start(&b, &harness, "/traps/pingpong/b");
	set("/traps/pingpong", "memory.max", "2M");
	for (unsigned i = 0; i < 300; i++) {
		actor_tell(&a, ACTOR_CHARGE, MIB, 0);
		actor_tell(&b, ACTOR_CHARGE, MIB, 0);
		assert_int_equal(actor_result(&a), 0);
		assert_int_equal(actor_result(&b), 0);
		assert_int_equal(actor_do(&a, ACTOR_UNCHARGE, MIB, 0), 0);
		assert_int_equal(actor_do(&b, ACTOR_UNCHARGE, MIB, 0), 0);
	}
	actor_kill(&a);
	actor_kill(&b);
}

static void *wait_in_line(void *pool)
{
	struct timespec now;
	struct tally_charge_args args = {.bytes = 2 * MIB};

	clock_gettime(CLOCK_MONOTONIC, &now);
	args.deadline_usec = ((uint64_t)now.tv_sec + 600) * 1000000;
	return (void *)(intptr_t)tally_charge_with(pool, &args, sizeof(args));
}

static int somebody_waits(void *userdata)
{
	(void)userdata;
	return harness_waiting(tally, "/traps/tenant-a") > 0;
}

static void test_one_tenants_wait_holds_up_another_of_the_same_process(void **state)
{
	struct tally_pool *a = harness_attach(tally, "/traps/tenant-a");
	struct tally_pool *b = harness_attach(tally, "/traps/tenant-b");
	pthread_t thread;
	void *result;

	(void)state;
	set("/traps/tenant-a", "memory.max", "1M");
	assert_int_equal(pthread_create(&thread, NULL, wait_in_line, a), 0);
	assert_true(harness_wait(somebody_waits, NULL, HARNESS_PATIENCE_MS));
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(tally_charge(b, 20 * MIB), 0);
		tally_uncharge(b, 20 * MIB);
	}
	assert_int_equal(harness_waiting(tally, "/traps/tenant-a"), 1);
	set("/traps/tenant-a", "memory.max", "max");
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal((intptr_t)result, 0);
	tally_detach(a);
	tally_detach(b);
}

/* Keys come round again while threads that know the old ones are inside charges. */
static void *attach_and_charge(void *name)
{
	for (unsigned i = 0; i < 400; i++) {
		struct tally_pool *p;

		if (tally_attach(tally, name, TALLY_CREATE, &p) < 0 ||
			tally_charge(p, 3 * KIB + i) < 0)
			return name;
		tally_uncharge(p, 3 * KIB + i);
		tally_detach(p);
	}
	return NULL;
}

static void test_an_id_used_again_while_a_slot_still_names_it(void **state)
{
	static char names[4][32] = {
		"/traps/again/a", "/traps/again/b", "/traps/again/c", "/traps/again/d"};
	pthread_t threads[ELEMENTS(names)];

	(void)state;
	for (unsigned i = 0; i < ELEMENTS(names); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, attach_and_charge, names[i]), 0);
	for (unsigned i = 0; i < ELEMENTS(names); i++) {
		void *failed;

		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
	for (unsigned i = 0; i < ELEMENTS(names); i++) {
		assert_int_equal(harness_current(tally, names[i]), 0);
		assert_int_equal(stat_of(names[i], "overdraft"), 0);
		assert_int_equal(stat_of(names[i], "stock"), 0);
	}
}

static void test_per_cpu_arrays_sized_by_the_affinity_mask(void **state)
{
	struct harness other;
	struct tally_pool *p;
	struct tally *t;
	unsigned last = (unsigned)get_nprocs() - 1;

	(void)state;
	if (last == 0)
		skip();
	/* Daemon and library both see one CPU when they begin, and the last one. */
	pin(last);
	harness_start(&other, "");
	t = harness_open(&other);
	p = harness_attach(t, "/a");
	for (unsigned cpu = 0; cpu <= last; cpu++) {
		unpin();
		pin(cpu);
		assert_int_equal(tally_charge(p, 1000), 0);
		assert_int_equal(tally_charge(p, 1000), 0);
	}
	unpin();
	assert_int_equal(harness_current(t, "/a"), (last + 1) * 2000);
	tally_uncharge(p, (last + 1) * 2000);
	assert_int_equal(harness_current(t, "/a"), 0);
	tally_detach(p);
	tally_close(t);
	harness_stop(&other);
}

static int setup(void **state)
{
	(void)state;
	harness_start(&harness, "[daemon]\nbatch = 64K\nbatch_max = 64K\n");
	tally = harness_open(&harness);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	tally = tally_close(tally);
	harness_stop(&harness);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slack_per_thread_grows_without_bound),
		cmocka_unit_test(test_a_parked_free_hides_a_charge),
		cmocka_unit_test(test_an_isolated_cpu_whose_stock_is_never_drained),
		cmocka_unit_test(test_check_then_add_lets_two_processes_pass_together),
		cmocka_unit_test(test_limit_minus_usage_underflows_once_the_limit_is_lowered),
		cmocka_unit_test(test_a_limit_that_can_be_set_but_not_unset),
		cmocka_unit_test(test_peak_records_a_charge_that_was_rolled_back),
		cmocka_unit_test(test_peak_misses_the_last_charge),
		cmocka_unit_test(test_gauge_below_zero_exported_as_18_eb),
		cmocka_unit_test(test_sum_of_children_larger_than_the_parent),
		cmocka_unit_test(test_a_moved_remainder_counted_twice),
		cmocka_unit_test(test_u16_truncation_of_a_byte_remainder),
		cmocka_unit_test(test_stale_sums_that_trigger_a_kill),
		cmocka_unit_test(test_a_mark_tested_before_it_is_set),
		cmocka_unit_test(test_a_grant_stolen_before_its_asker_takes_it),
		cmocka_unit_test(test_one_tenants_wait_holds_up_another_of_the_same_process),
		cmocka_unit_test(test_an_id_used_again_while_a_slot_still_names_it),
		cmocka_unit_test(test_per_cpu_arrays_sized_by_the_affinity_mask),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
