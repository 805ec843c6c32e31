/* SPDX-License-Identifier: MIT */

/*
 * Limits from the outside: that all of a limit can be used, whoever's stock the credit lies in;
 * which level refuses, and how that is counted; how charges wait, in which order, and whom that
 * does not concern.
 */

#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/util.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * KIB)
#define LONG_MS 120000 /* a deadline that no test waits for */
#define CPUS_MAX 64

static struct harness harness;
static struct tally *tally; /* the test's own session */

/* The CPUs that this process may use. */
static unsigned usable_cpus(unsigned cpus[static CPUS_MAX])
{
	cpu_set_t set;
	unsigned n = 0;

	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE && n < CPUS_MAX; cpu++)
		if (CPU_ISSET(cpu, &set))
			cpus[n++] = cpu;
	return n;
}

static void pin(unsigned cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		abort();
}

static void create(const char *path, const char *max)
{
	assert_int_equal(tally_create(tally, path), 0);
	assert_int_equal(tally_set(tally, path, "memory.max", max), 0);
}

static uint64_t status(const char *key)
{
	return harness_value(tally, "/", "tallyd.status", key);
}

static void assert_events(const char *path, const char *file, uint64_t max, uint64_t oom)
{
	assert_int_equal(harness_value(tally, path, file, "max"), max);
	assert_int_equal(harness_value(tally, path, file, "oom"), oom);
}

/* ------------------------------------------------------------------ conditions */

struct n_waiting {
	const char *path;
	unsigned n;
};

static int waits_so_many(void *userdata)
{
	const struct n_waiting *w = userdata;

	return harness_waiting(tally, w->path) == w->n;
}

static void await_waiting(const char *path, unsigned n)
{
	struct n_waiting w = {path, n};

	assert_true(harness_wait(waits_so_many, &w, HARNESS_PATIENCE_MS));
}

static int has_drained_to(void *userdata)
{
	return status("drains") >= *(uint64_t *)userdata;
}

/* Long enough for whoever could be served to be served: queues have been looked at several times.
 */
static void await_ticks(void)
{
	uint64_t n = status("drains") + 4;

	assert_true(harness_wait(has_drained_to, &n, HARNESS_PATIENCE_MS));
}

static void await_result(struct actor *a, int result)
{
	assert_true(harness_wait(actor_has_result, a, HARNESS_PATIENCE_MS));
	assert_int_equal(actor_result(a), result);
}

/* ------------------------------------------------------------------ filling a limit */

#define FILL_PROCESSES 8
#define FILL_POOLS 7
#define FILL_MAX (64 * MIB)
#define FILL_CHARGE (4 * KIB)

struct fill {
	_Atomic uint64_t held, at_first;
	_Atomic unsigned warm;
	unsigned n_threads; /* in all */
};

static struct fill *fill;
static struct tally_pool *fill_pool; /* of this process */

static void *fill_thread(void *cpu)
{
	uint64_t none = 0, held;

	pin((unsigned)(uintptr_t)cpu);
	/* Everyone's stock on every CPU has credit before the race begins. */
	if (tally_charge(fill_pool, FILL_CHARGE) < 0)
		abort();
	atomic_fetch_add(&fill->held, FILL_CHARGE);
	atomic_fetch_add(&fill->warm, 1);
	while (atomic_load(&fill->warm) < fill->n_threads)
		sched_yield();

	while (tally_charge(fill_pool, FILL_CHARGE) == 0)
		atomic_fetch_add(&fill->held, FILL_CHARGE);
	held = atomic_load(&fill->held);
	atomic_compare_exchange_strong(&fill->at_first, &none, held);
	return NULL;
}

static int fill_process(void *userdata)
{
	unsigned cpus[CPUS_MAX], n = usable_cpus(cpus);
	pthread_t threads[CPUS_MAX];
	struct tally *t;
	char path[32];

	snprintf(path, sizeof(path), "/fill/p%u", (unsigned)(uintptr_t)userdata % FILL_POOLS);
	if (tally_open(harness.address, 0, &t) < 0 ||
		tally_attach(t, path, TALLY_CREATE, &fill_pool) < 0)
		return 1;
	for (unsigned i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, fill_thread, (void *)(uintptr_t)cpus[i]) != 0)
			return 1;
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	pause();
	return 0;
}

static int all_refused(void *userdata)
{
	(void)userdata;
	return status("refusals") >= fill->n_threads;
}

static void test_limit_is_used_up(void **state _unused_)
{
	unsigned cpus[CPUS_MAX], n_cpus = usable_cpus(cpus);
	pid_t pids[FILL_PROCESSES];

	fill = harness_shared(sizeof(*fill));
	fill->n_threads = FILL_PROCESSES * n_cpus;
	create("/fill", "64M");
	for (unsigned i = 0; i < FILL_PROCESSES; i++)
		pids[i] = harness_fork(fill_process, (void *)(uintptr_t)i);
	assert_true(harness_wait(all_refused, NULL, HARNESS_PATIENCE_MS));

	print_message("limit used at the first refusal: %.3f %%, at the last: %.3f %%\n",
		100. * (double)fill->at_first / FILL_MAX, 100. * (double)fill->held / FILL_MAX);
	assert_true(fill->at_first >= FILL_MAX / 100 * 99);
	assert_true(fill->held >= FILL_MAX / 1000 * 999);
	assert_true(fill->held <= FILL_MAX);
	assert_int_equal(harness_current(tally, "/fill"), fill->held);

	for (unsigned i = 0; i < FILL_PROCESSES; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	harness_unshare(fill, sizeof(*fill));
}

/* ------------------------------------------------------------------ idle credit */

/* Leaves credit in every CPU's stock and in the reserve. */
static void park(struct actor *a, uint64_t bytes)
{
	unsigned cpus[CPUS_MAX], n = usable_cpus(cpus);

	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(actor_do(a, ACTOR_PIN, cpus[i], 0), 0);
		assert_int_equal(actor_do(a, ACTOR_CHARGE, bytes, 0), 0);
	}
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(actor_do(a, ACTOR_PIN, cpus[i], 0), 0);
		assert_int_equal(actor_do(a, ACTOR_UNCHARGE, bytes, 0), 0);
	}
}

static void test_idle_credit_is_taken_back(void **state _unused_)
{
	struct actor idle, busy;

	create("/i", "64M");
	actor_start(&idle, &harness, "/i/idle");
	actor_start(&busy, &harness, "/i/busy");
	park(&idle, 300 * KIB);
	assert_true(harness_value(tally, "/i/idle", "memory.stat", "stock") > 0);

	assert_int_equal(actor_do(&busy, ACTOR_CHARGE, 64 * MIB, 0), 0);
	assert_int_equal(harness_current(tally, "/i"), 64 * MIB);
	assert_int_equal(harness_value(tally, "/i", "memory.stat", "stock"), 0);
	/* The limit was met, and nobody was refused. */
	assert_events("/i", "memory.events", 1, 0);

	/* What it held, it holds; what it gives back is not lost either. */
	actor_do(&busy, ACTOR_UNCHARGE, 64 * MIB, 0);
	park(&busy, 2 * MIB);
	assert_int_equal(actor_do(&idle, ACTOR_CHARGE, 64 * MIB, 0), 0);
	assert_int_equal(harness_current(tally, "/i/idle"), 64 * MIB);
	actor_kill(&idle);
	actor_kill(&busy);
}

/* The sessions of a sibling keep their credit: it would help nobody. */
static void test_drain_stays_below_the_limit(void **state _unused_)
{
	struct actor inside, beside;
	uint64_t idle;

	create("/d", "max");
	create("/d/limited", "4M");
	actor_start(&beside, &harness, "/d/beside");
	actor_start(&inside, &harness, "/d/limited");
	park(&beside, 100 * KIB);
	idle = harness_value(tally, "/d/beside", "memory.stat", "stock");
	assert_true(idle > 0);
	assert_int_equal(actor_do(&inside, ACTOR_CHARGE, 5 * MIB, 0), -ENOMEM);
	assert_int_equal(harness_value(tally, "/d/beside", "memory.stat", "stock"), idle);
	actor_kill(&inside);
	actor_kill(&beside);
}

/* ------------------------------------------------------------------ levels */

static void test_every_ancestor_limits(void **state _unused_)
{
	static const char *const levels[] = {"/", "/g", "/g/p", "/g/p/c"};
	static const char *const events[] = {"memory.events", "memory.events.local"};
	struct tally_pool *p;

	tally_create(tally, "/g");
	tally_create(tally, "/g/p");
	p = harness_attach(tally, "/g/p/c");
	for (unsigned limited = 0; limited < ELEMENTS(levels); limited++) {
		uint64_t before[ELEMENTS(levels)][2];

		/* What lies idle would be taken back first, and that counts as `max` too. */
		assert_int_equal(tally_set(tally, "/", "pool.drain", "1"), 0);
		for (unsigned l = 0; l < ELEMENTS(levels); l++)
			for (unsigned e = 0; e < 2; e++)
				before[l][e] = harness_value(tally, levels[l], events[e], "max");
		assert_int_equal(tally_set(tally, levels[limited], "memory.max", "3M"), 0);
		assert_int_equal(tally_charge(p, 3 * MIB), 0);
		assert_int_equal(tally_charge(p, 1 * MIB), -ENOMEM);
		for (unsigned l = 0; l < ELEMENTS(levels); l++) {
			/* Counted at the pool whose limit it was, and in the sums of those above.
			 */
			uint64_t all = before[l][0] + (l <= limited);
			uint64_t local = before[l][1] + (l == limited);

			assert_events(levels[l], events[0], all, all);
			assert_events(levels[l], events[1], local, local);
		}
		tally_uncharge(p, 3 * MIB);
		assert_int_equal(tally_set(tally, levels[limited], "memory.max", "max"), 0);
	}
	tally_detach(p);
}

static void test_limit_lowered_below_usage(void **state _unused_)
{
	struct actor a;

	create("/low", "max");
	actor_start(&a, &harness, "/low/a");
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 10 * MIB, 0), 0);
	assert_int_equal(tally_set(tally, "/low", "memory.max", "4M"), 0);
	assert_int_equal(harness_current(tally, "/low"), 10 * MIB);
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 512 * KIB, 0), -ENOMEM);

	actor_do(&a, ACTOR_UNCHARGE, 6 * MIB, 0);
	assert_int_equal(tally_set(tally, "/low", "pool.drain", "1"), 0);
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 512 * KIB, 0), -ENOMEM);
	actor_do(&a, ACTOR_UNCHARGE, 512 * KIB, 0);
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 512 * KIB, 0), 0);
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 1, 0), -ENOMEM);

	/* 0 is a limit too, and max is none. */
	assert_int_equal(tally_set(tally, "/low", "memory.max", "0"), 0);
	actor_do(&a, ACTOR_UNCHARGE, 4 * MIB, 0);
	assert_int_equal(tally_set(tally, "/low", "pool.drain", "1"), 0);
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 1, 0), -ENOMEM);
	assert_int_equal(tally_set(tally, "/low", "memory.max", "max"), 0);
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 1024 * MIB, 0), 0);
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 1, 0), 0);
	assert_int_equal(harness_current(tally, "/low"), 1024 * MIB + 1);
	actor_kill(&a);
}

/* What the drainer has in its hands is nobody's charge. */
static void test_exact_while_draining(void **state _unused_)
{
	struct tally *other = harness_open(&harness);
	struct actor holder;

	create("/drained", "max");
	actor_start(&holder, &harness, "/drained/holder");
	assert_int_equal(actor_do(&holder, ACTOR_CHARGE, 1 * MIB, 0), 0);
	for (unsigned i = 0; i < 300; i++) {
		/* Credit lies in its stock, and it stands still. */
		assert_int_equal(actor_do(&holder, ACTOR_CHARGE, 100 * KIB, 0), 0);
		actor_do(&holder, ACTOR_UNCHARGE, 100 * KIB, 0);
		/* A limit below usage begins a drain without waiting for it. */
		assert_int_equal(tally_set(tally, "/drained", "memory.max", "1"), 0);
		assert_int_equal(tally_set(tally, "/drained", "memory.max", "max"), 0);
		assert_int_equal(harness_current(other, "/drained/holder"), 1 * MIB);
	}
	actor_kill(&holder);
	tally_close(other);
}

/* ------------------------------------------------------------------ waiting */

static void test_waiter_gets_what_is_uncharged(void **state _unused_)
{
	struct actor holder, waiter;

	create("/w", "1M");
	actor_start(&holder, &harness, "/w/h");
	actor_start(&waiter, &harness, "/w/w");
	assert_int_equal(actor_do(&holder, ACTOR_CHARGE, 1 * MIB, 0), 0);
	actor_tell(&waiter, ACTOR_CHARGE, 64 * KIB, LONG_MS);
	await_waiting("/w/w", 1);
	/* So little stays in the stock: the daemon is not told. */
	actor_do(&holder, ACTOR_UNCHARGE, 64 * KIB, 0);
	await_result(&waiter, 0);
	assert_int_equal(harness_current(tally, "/w/w"), 64 * KIB);
	assert_int_equal(harness_current(tally, "/w/h"), 1 * MIB - 64 * KIB);
	assert_events("/w", "memory.events", 1, 0);
	actor_kill(&holder);
	actor_kill(&waiter);
}

static void test_waiter_gets_a_raised_limit(void **state _unused_)
{
	struct actor waiter;

	create("/r", "1M");
	actor_start(&waiter, &harness, "/r/w");
	actor_tell(&waiter, ACTOR_CHARGE, 2 * MIB, LONG_MS);
	await_waiting("/r/w", 1);
	assert_int_equal(tally_set(tally, "/r", "memory.max", "2M"), 0);
	await_result(&waiter, 0);
	actor_kill(&waiter);
}

#define N_WAITERS 5

/* First come, first served: each gets what is given back only when all before it have theirs. */
static void test_waiters_are_served_in_order(void **state _unused_)
{
	static const uint64_t needs[N_WAITERS] = {500 * KIB, 4 * KIB, 300 * KIB, 1, 64 * KIB};
	struct actor holder, waiters[N_WAITERS];
	char path[32];

	create("/f", "2M");
	actor_start(&holder, &harness, "/f");
	assert_int_equal(actor_do(&holder, ACTOR_CHARGE, 2 * MIB, 0), 0);
	for (unsigned i = 0; i < N_WAITERS; i++) {
		snprintf(path, sizeof(path), "/f/w%u", i % 3);
		actor_start(&waiters[i], &harness, path);
	}
	for (unsigned i = 0; i < N_WAITERS; i++) {
		snprintf(path, sizeof(path), "/f/w%u", i % 3);
		actor_tell(&waiters[i], ACTOR_CHARGE, needs[i], LONG_MS);
		await_waiting(path, i / 3 + 1);
	}

	/* Enough for any of the others, but not for the first. */
	actor_do(&holder, ACTOR_UNCHARGE, 400 * KIB, 0);
	await_ticks();
	for (unsigned i = 0; i < N_WAITERS; i++)
		assert_false(actor_has_result(&waiters[i]));
	actor_do(&holder, ACTOR_UNCHARGE, 100 * KIB, 0);
	await_result(&waiters[0], 0);
	for (unsigned i = 1; i < N_WAITERS; i++) {
		await_ticks();
		assert_false(actor_has_result(&waiters[i]));
		actor_do(&holder, ACTOR_UNCHARGE, needs[i], 0);
		await_result(&waiters[i], 0);
	}
	actor_kill(&holder);
	for (unsigned i = 0; i < N_WAITERS; i++)
		actor_kill(&waiters[i]);
}

static void test_deadline_passes(void **state _unused_)
{
	struct tally_charge_args args = {.bytes = 2 * MIB};
	struct tally_pool *p;

	create("/t", "1M");
	p = harness_attach(tally, "/t");
	args.deadline_usec = harness_now() + 150000;
	assert_int_equal(tally_charge_with(p, &args, sizeof(args)), -ETIMEDOUT);
	assert_true(harness_now() >= args.deadline_usec);
	assert_int_equal(harness_current(tally, "/t"), 0);
	await_waiting("/t", 0);
	assert_events("/t", "memory.events.local", 1, 1);

	/* One that is over already does not wait, but is tried. */
	args.deadline_usec = 1;
	assert_int_equal(tally_charge_with(p, &args, sizeof(args)), -ETIMEDOUT);
	args.bytes = 64 * KIB;
	args.deadline_usec = harness_now() + LONG_MS * UINT64_C(1000);
	assert_int_equal(tally_charge_with(p, &args, sizeof(args)), 0);
	tally_detach(p);
}

/* All that it needs lies idle elsewhere when the time of the head is over: that is looked for before it
 * is refused. The client gives up a while later, on a slow machine before the answer. */
static void test_deadline_passes_beside_idle_credit(void **state _unused_)
{
	struct tally_charge_args args = {.bytes = 1 * MIB};
	struct tally_pool *p;
	struct actor holder;
	int r = -ETIMEDOUT;

	create("/idle", "1M");
	p = harness_attach(tally, "/idle");
	actor_start(&holder, &harness, "/idle");
	for (unsigned i = 0; i < 50 && r == -ETIMEDOUT; i++) {
		assert_int_equal(actor_do(&holder, ACTOR_CHARGE, 1 * MIB, 0), 0);
		assert_int_equal(actor_do(&holder, ACTOR_UNCHARGE, 1 * MIB, 0), 0);
		args.deadline_usec = harness_now() + 1;
		r = tally_charge_with(p, &args, sizeof(args));
	}
	assert_int_equal(r, 0);
	actor_kill(&holder);
	tally_detach(p);
}

/* Several wait; the one in front is killed. */
static void test_killed_waiter_blocks_nobody(void **state _unused_)
{
	struct actor holder, first, second;

	create("/k", "1M");
	actor_start(&holder, &harness, "/k");
	actor_start(&first, &harness, "/k/first");
	actor_start(&second, &harness, "/k/second");
	assert_int_equal(actor_do(&holder, ACTOR_CHARGE, 1 * MIB - 64 * KIB, 0), 0);
	actor_tell(&first, ACTOR_CHARGE, 900 * KIB, LONG_MS);
	await_waiting("/k/first", 1);
	actor_tell(&second, ACTOR_CHARGE, 64 * KIB, LONG_MS);
	await_waiting("/k/second", 1);
	await_ticks();
	assert_false(actor_has_result(&second));

	actor_kill(&first);
	await_result(&second, 0);
	actor_kill(&second);
	actor_kill(&holder);
}

struct waiting_thread {
	pthread_t thread;
	struct tally_pool *pool;
	uint64_t bytes;
	_Atomic int done;
	int result;
};

static void *wait_in_thread(void *arg)
{
	struct waiting_thread *w = arg;
	struct tally_charge_args args = {
		.bytes = w->bytes, .deadline_usec = harness_now() + LONG_MS * UINT64_C(1000)};

	w->result = tally_charge_with(w->pool, &args, sizeof(args));
	atomic_store(&w->done, 1);
	return NULL;
}

static void start_waiting(struct waiting_thread *w, struct tally_pool *p, uint64_t bytes)
{
	*w = (struct waiting_thread){.pool = p, .bytes = bytes};
	assert_int_equal(pthread_create(&w->thread, NULL, wait_in_thread, w), 0);
}

static void test_detached_waiter_blocks_nobody(void **state _unused_)
{
	struct waiting_thread first;
	struct tally_pool *p;
	struct actor second;

	create("/e", "1M");
	p = harness_attach(tally, "/e/first");
	actor_start(&second, &harness, "/e/second");
	start_waiting(&first, tally_pool_ref(p), 2 * MIB);
	await_waiting("/e/first", 1);
	actor_tell(&second, ACTOR_CHARGE, 64 * KIB, LONG_MS);
	await_waiting("/e/second", 1);
	await_ticks();
	assert_false(actor_has_result(&second));

	tally_detach(p);
	await_result(&second, 0);
	pthread_join(first.thread, NULL);
	assert_int_equal(first.result, -ENODEV);
	tally_pool_unref(p);
	actor_kill(&second);
}

/* Who is held up by its own pool's limit is no reason for those behind it to wait. */
static void test_own_limit_blocks_nobody(void **state _unused_)
{
	struct actor holder, sibling, head, own, other;

	create("/o", "4M");
	create("/o/a", "1M");
	actor_start(&holder, &harness, "/o");
	actor_start(&sibling, &harness, "/o/a");
	actor_start(&head, &harness, "/o/head");
	actor_start(&own, &harness, "/o/a");
	actor_start(&other, &harness, "/o/other");
	assert_int_equal(actor_do(&sibling, ACTOR_CHARGE, 1 * MIB, 0), 0);
	assert_int_equal(actor_do(&holder, ACTOR_CHARGE, 3 * MIB, 0), 0);
	actor_tell(&head, ACTOR_CHARGE, 2 * MIB, LONG_MS);
	await_waiting("/o/head", 1);
	actor_tell(&own, ACTOR_CHARGE, 512 * KIB, LONG_MS);
	await_waiting("/o/a", 1);
	actor_tell(&other, ACTOR_CHARGE, 64 * KIB, LONG_MS);
	await_waiting("/o/other", 1);

	/* Now /o has room for all of them, and /o/a for none. */
	actor_do(&holder, ACTOR_UNCHARGE, 3 * MIB, 0);
	await_result(&head, 0);
	await_result(&other, 0);
	assert_false(actor_has_result(&own));
	actor_do(&sibling, ACTOR_UNCHARGE, 512 * KIB, 0);
	await_result(&own, 0);
	actor_kill(&holder);
	actor_kill(&sibling);
	actor_kill(&head);
	actor_kill(&own);
	actor_kill(&other);
}

/* It waited for its own pool, and then for the parent: there too idle credit is looked for. */
static void test_waiter_meets_another_limit(void **state _unused_)
{
	struct actor holder, sibling, waiter;

	create("/m", "4M");
	create("/m/a", "1M");
	actor_start(&holder, &harness, "/m/h");
	actor_start(&sibling, &harness, "/m/a");
	actor_start(&waiter, &harness, "/m/a");
	assert_int_equal(actor_do(&sibling, ACTOR_CHARGE, 1 * MIB, 0), 0);
	assert_int_equal(actor_do(&holder, ACTOR_CHARGE, 3 * MIB, 0), 0);
	actor_tell(&waiter, ACTOR_CHARGE, 256 * KIB, LONG_MS);
	await_waiting("/m/a", 1);
	assert_int_equal(tally_set(tally, "/m", "memory.max", "3M"), 0);
	actor_do(&sibling, ACTOR_UNCHARGE, 1 * MIB, 0);
	await_ticks();
	assert_false(actor_has_result(&waiter));
	/* Into the stock and the reserve, without a word to the daemon. */
	actor_do(&holder, ACTOR_UNCHARGE, 256 * KIB, 0);
	await_result(&waiter, 0);
	actor_kill(&holder);
	actor_kill(&sibling);
	actor_kill(&waiter);
}

/* An attachment holds no more than a word can: that too is waited for in vain. */
static void test_more_than_an_attachment_holds(void **state _unused_)
{
	struct actor full, other;

	actor_start(&full, &harness, "/v");
	actor_start(&other, &harness, "/v");
	assert_int_equal(actor_do(&full, ACTOR_CHARGE, TALLY_BYTES_MAX, 0), 0);
	assert_int_equal(actor_do(&full, ACTOR_CHARGE, 1, 0), -ENOMEM);
	assert_int_equal(actor_do(&full, ACTOR_CHARGE, 1, 200), -ETIMEDOUT);
	actor_tell(&full, ACTOR_CHARGE, 1, LONG_MS);
	await_waiting("/v", 1);
	await_ticks();
	assert_int_equal(actor_do(&other, ACTOR_CHARGE, TALLY_BYTES_MAX, 0), 0);
	assert_int_equal(harness_current(tally, "/v"), 2 * TALLY_BYTES_MAX);
	assert_false(actor_has_result(&full));
	actor_kill(&full);
	actor_kill(&other);
}

/* ------------------------------------------------------------------ waiting disturbs nobody */

static void test_small_charges_pass_a_big_one(void **state _unused_)
{
	struct waiting_thread big;
	struct tally_pool *p;

	create("/s", "4M");
	p = harness_attach(tally, "/s");
	start_waiting(&big, p, 8 * MIB);
	await_waiting("/s", 1);
	for (uint64_t held = 0; held < 4 * MIB; held += 32 * KIB)
		assert_int_equal(tally_charge(p, 32 * KIB), 0);
	/* Refused, not held up. */
	assert_int_equal(tally_charge(p, 32 * KIB), -ENOMEM);
	assert_false(atomic_load(&big.done));
	assert_int_equal(harness_current(tally, "/s"), 4 * MIB);

	assert_int_equal(tally_set(tally, "/s", "memory.max", "12M"), 0);
	pthread_join(big.thread, NULL);
	assert_int_equal(big.result, 0);
	tally_detach(p);
}

static void test_waiting_thread_delays_no_other(void **state _unused_)
{
	static const char *const paths[] = {"/y/a", "/y/b", "/y/c"};
	struct tally_pool *full, *pools[ELEMENTS(paths)];
	struct waiting_thread w;
	tally_item anon;
	uint64_t grants;

	create("/x", "1M");
	assert_int_equal(tally_item_lookup(tally, "anon", &anon), 0);
	full = harness_attach(tally, "/x");
	for (unsigned i = 0; i < ELEMENTS(paths); i++)
		pools[i] = harness_attach(tally, paths[i]);
	start_waiting(&w, full, 2 * MIB);
	await_waiting("/x", 1);

	grants = status("grants");
	for (unsigned i = 0; i < 600; i++) {
		struct tally_pool *p = pools[i % ELEMENTS(pools)];

		/* So big that every one of them is asked for, whatever the batch has grown to. */
		if (i % 2)
			assert_int_equal(tally_charge(p, 64 * MIB), 0);
		else
			assert_int_equal(tally_charge_item(p, anon, 64 * MIB), 0);
	}
	assert_true(status("grants") >= grants + 600);
	assert_false(atomic_load(&w.done));
	assert_int_equal(harness_current(tally, "/y"), 600 * 64 * MIB);
	assert_int_equal(harness_value(tally, "/y", "memory.stat", "anon"), 300 * 64 * MIB);

	for (unsigned i = 0; i < ELEMENTS(pools); i++)
		tally_detach(pools[i]);
	tally_detach(tally_pool_ref(full));
	pthread_join(w.thread, NULL);
	assert_int_equal(w.result, -ENODEV);
	tally_pool_unref(full);
}

/* ------------------------------------------------------------------ never waiting */

struct attempt {
	struct tally_pool *pool;
	tally_item item;
	uint64_t bytes;
	int wanted;
};

static int comes_out(void *userdata)
{
	const struct attempt *a = userdata;
	int r = tally_try_charge_item(a->pool, a->item, a->bytes);

	if (r != a->wanted && r != -EAGAIN)
		fail_msg("try_charge returned %d", r);
	return r == a->wanted;
}

static void await_try(struct tally_pool *p, tally_item item, uint64_t bytes, int wanted)
{
	struct attempt a = {p, item, bytes, wanted};

	assert_true(harness_wait(comes_out, &a, HARNESS_PATIENCE_MS));
}

/* What was known may be known a moment longer. */
static int fits(void *pool)
{
	int r = tally_try_charge(pool, 64 * KIB);

	assert_true(r == 0 || r == -EAGAIN || r == -ENOMEM);
	return r == 0;
}

static void stop_daemon(void)
{
	int status;

	assert_int_equal(kill(harness.daemon, SIGSTOP), 0);
	assert_int_equal(waitpid(harness.daemon, &status, WUNTRACED), harness.daemon);
	assert_true(WIFSTOPPED(status));
}

static void continue_daemon(void)
{
	assert_int_equal(kill(harness.daemon, SIGCONT), 0);
}

#define N_FLOOD 400 /* more than the socket takes */

static void test_try_charge_never_waits(void **state _unused_)
{
	struct tally_pool *p = harness_attach(tally, "/n"), *flood[N_FLOOD];

	assert_int_equal(tally_charge(p, 1), 0);
	for (unsigned i = 0; i < N_FLOOD; i++)
		flood[i] = harness_attach(tally, "/n/flood");
	stop_daemon();
	/* What is there is there; more is only asked for, as long as the socket takes it. */
	assert_int_equal(tally_try_charge(p, 1), 0);
	assert_int_equal(tally_try_charge(p, 10 * MIB), -EAGAIN);
	assert_int_equal(tally_try_charge(p, 10 * MIB), -EAGAIN);
	for (unsigned i = 0; i < N_FLOOD; i++)
		assert_int_equal(tally_try_charge(flood[i], 1 * MIB), -EAGAIN);
	assert_int_equal(tally_try_charge(p, 1), 0);
	continue_daemon();
	await_try(p, 0, 10 * MIB, 0);
	for (unsigned i = 0; i < N_FLOOD; i++)
		await_try(flood[i], 0, 1 * MIB, 0);
	assert_int_equal(harness_current(tally, "/n"), (N_FLOOD + 10) * MIB + 3);
	tally_detach(p);
	for (unsigned i = 0; i < N_FLOOD; i++)
		tally_detach(flood[i]);
}

static void test_try_charge_of_a_new_item(void **state _unused_)
{
	struct tally_pool *p = harness_attach(tally, "/n");
	tally_item sock;

	assert_int_equal(tally_item_lookup(tally, "sock", &sock), 0);
	await_try(p, sock, 4 * KIB, 0);
	assert_int_equal(harness_value(tally, "/n", "memory.stat", "sock"), 4 * KIB);
	tally_detach(p);
}

static void test_try_charge_known_full(void **state _unused_)
{
	struct tally_pool *p;
	struct actor holder;

	create("/q", "1M");
	p = harness_attach(tally, "/q/p");
	actor_start(&holder, &harness, "/q/h");
	assert_int_equal(actor_do(&holder, ACTOR_CHARGE, 1 * MIB, 0), 0);
	await_try(p, 0, 64 * KIB, -ENOMEM);
	await_try(p, 0, 64 * KIB, -ENOMEM);
	assert_int_equal(harness_current(tally, "/q/p"), 0);
	actor_kill(&holder);
	assert_true(harness_wait(fits, p, HARNESS_PATIENCE_MS));
	tally_detach(p);
}

/* An answer for which nobody waits any more lies before those that bring credit. */
static void test_try_charge_after_a_late_answer(void **state _unused_)
{
	struct tally *t = harness_open(&harness);
	struct tally_pool *p = harness_attach(t, "/late");
	char *text;

	stop_daemon();
	assert_int_equal(tally_get(t, "/", "memory.current", 0, &text), -ETIMEDOUT);
	continue_daemon();
	await_try(p, 0, 64 * KIB, 0);
	tally_detach(p);
	tally_close(t);
}

static int set_up(void **state _unused_)
{
	harness_start(&harness, "");
	tally = harness_open(&harness);
	return 0;
}

static int has_no_stock(void *userdata)
{
	return harness_value(tally, userdata, "memory.stat", "stock") == 0;
}

/* What lies idle is no reserve against a limit that was lowered below it. */
static void test_lowered_limit_drains(void **state _unused_)
{
	char path[] = "/lowered";
	struct tally_pool *p;

	create(path, "64M");
	p = harness_attach(tally, path);
	assert_int_equal(tally_charge(p, 4096), 0);
	tally_uncharge(p, 4096);
	assert_true(harness_value(tally, path, "memory.stat", "stock") > 0);
	assert_int_equal(tally_set(tally, path, "memory.max", "1"), 0);
	assert_true(harness_wait(has_no_stock, path, HARNESS_PATIENCE_MS));
	assert_int_equal(tally_charge(p, 2), -ENOMEM);
	tally_detach(p);
}

static int tear_down(void **state _unused_)
{
	tally = tally_close(tally);
	harness_stop(&harness);
	return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_limit_is_used_up),
		TEST(test_idle_credit_is_taken_back),
		TEST(test_drain_stays_below_the_limit),
		TEST(test_every_ancestor_limits),
		TEST(test_limit_lowered_below_usage),
		TEST(test_exact_while_draining),
		TEST(test_lowered_limit_drains),
		TEST(test_waiter_gets_what_is_uncharged),
		TEST(test_waiter_gets_a_raised_limit),
		TEST(test_waiters_are_served_in_order),
		TEST(test_deadline_passes),
		TEST(test_deadline_passes_beside_idle_credit),
		TEST(test_killed_waiter_blocks_nobody),
		TEST(test_detached_waiter_blocks_nobody),
		TEST(test_own_limit_blocks_nobody),
		TEST(test_waiter_meets_another_limit),
		TEST(test_more_than_an_attachment_holds),
		TEST(test_small_charges_pass_a_big_one),
		TEST(test_waiting_thread_delays_no_other),
		TEST(test_try_charge_never_waits),
		TEST(test_try_charge_of_a_new_item),
		TEST(test_try_charge_known_full),
		TEST(test_try_charge_after_a_late_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
