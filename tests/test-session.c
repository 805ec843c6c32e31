/* SPDX-License-Identifier: MIT */

/*
 * How sessions end. Whatever a process does with itself (it is killed, forks, execs, closes what it
 * has, says goodbye), what it held goes back once, when it should, and nothing of it stays in the
 * daemon.
 */

#include "harness.h"

#include <dirent.h>
#include <errno.h>
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
#define GRACE_USEC 1000000
/* No exports: files that are just being written would be counted as descriptors. */
#define CONFIG "[daemon]\ngrace = 1s\nexport =\n"
#define RELEASE_MS 10000 /* within a second; the rest is for slow machines */

static struct harness harness;
static struct tally *tally; /* the test's own session */

static uint64_t status(const char *key)
{
	return harness_value(tally, "/", "tallyd.status", key);
}

/* Nothing is held there, or lies idle, and the counter knows it. */
static void assert_empty(const char *path)
{
	char *peak;

	assert_int_equal(harness_current(tally, path), 0);
	assert_int_equal(harness_value(tally, path, "memory.stat", "stock"), 0);
	assert_int_equal(harness_value(tally, path, "memory.stat", "overdraft"), 0);
	assert_int_equal(tally_set(tally, path, "memory.peak", "now"), 0);
	peak = harness_get(tally, path, "memory.peak");
	assert_string_equal(peak, "0\n");
	free(peak);
}

/* Descriptors of the daemon. */
static unsigned count_fds(void)
{
	char path[64];
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)harness.daemon);
	d = opendir(path);
	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* ------------------------------------------------------------------ conditions */

struct holding {
	const char *path;
	uint64_t bytes;
};

static int holds(void *userdata)
{
	const struct holding *h = userdata;

	return harness_current(tally, h->path) == h->bytes;
}

static void await_current(const char *path, uint64_t bytes, unsigned ms)
{
	struct holding h = {path, bytes};

	assert_true(harness_wait(holds, &h, ms));
}

struct load {
	uint64_t sessions, rows;
	unsigned fds;
};

static struct load load_now(void)
{
	return (struct load){status("sessions"), status("rows"), count_fds()};
}

static int is_load(void *userdata)
{
	const struct load *wanted = userdata;
	struct load now = load_now();

	return now.sessions == wanted->sessions && now.rows == wanted->rows &&
		now.fds == wanted->fds;
}

static void await_load(struct load wanted)
{
	assert_true(harness_wait(is_load, &wanted, RELEASE_MS));
}

/* ------------------------------------------------------------------ killed */

/* Does all that a client can do, over and over. */
static int live(void *userdata)
{
	unsigned seed = (unsigned)(uintptr_t)userdata;
	struct tally *t;

	for (;;) {
		struct tally_pool *p[4];
		tally_item anon;

		if (tally_open(harness.address, 0, &t) < 0 ||
			tally_item_lookup(t, "anon", &anon) < 0)
			return 1;
		for (unsigned i = 0; i < ELEMENTS(p); i++)
			if (tally_attach(
				    t, i % 2 ? "/k/full/deep" : "/k/free", TALLY_CREATE, &p[i]) < 0)
				return 1;
		for (unsigned i = 0; i < 64; i++) {
			struct tally_pool *pool = p[(unsigned)rand_r(&seed) % ELEMENTS(p)];
			uint64_t bytes = (uint64_t)rand_r(&seed) % (2 * MIB);
			struct tally_charge_args args = {.bytes = bytes,
				.item = rand_r(&seed) % 2 ? anon : 0,
				.deadline_usec = harness_now() + 2000};

			if (tally_charge_with(pool, &args, sizeof(args)) == 0 && rand_r(&seed) % 2)
				tally_uncharge_item(pool, args.item, bytes);
		}
		for (unsigned i = 0; i < ELEMENTS(p); i++)
			if (rand_r(&seed) % 2)
				tally_detach(p[i]);
			else
				tally_pool_unref(p[i]);
		tally_close(t);
	}
}

static void test_killed_at_any_time(void **state _unused_)
{
	unsigned seed = (unsigned)time(NULL);
	struct load before = load_now();
	struct tally_pool *p;

	assert_int_equal(tally_create(tally, "/k"), 0);
	assert_int_equal(tally_create(tally, "/k/full"), 0);
	assert_int_equal(tally_set(tally, "/k/full", "memory.max", "3M"), 0);
	for (unsigned i = 0; i < 100; i++) {
		pid_t child = harness_fork(live, (void *)(uintptr_t)(seed + i));

		usleep((useconds_t)rand_r(&seed) % 15000);
		assert_int_equal(kill(child, SIGKILL), 0);
		assert_int_equal(waitpid(child, NULL, 0), child);
	}
	await_load(before);
	assert_empty("/");
	assert_empty("/k/full");

	/* All of the limit is there again. */
	p = harness_attach(tally, "/k/full");
	assert_int_equal(tally_charge(p, 3 * MIB), 0);
	tally_detach(p);
}

/* The child has the parent's socket, and does not know what to do with it. */
static void test_killed_while_its_child_lives(void **state _unused_)
{
	struct actor a;
	pid_t child;

	actor_start(&a, &harness, "/c");
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 3 * MIB, 0), 0);
	child = actor_do(&a, ACTOR_FORK, 0, 0);
	assert_true(child > 0);
	actor_kill(&a);
	await_current("/c", 0, RELEASE_MS);
	assert_int_equal(kill(child, 0), 0);
	assert_empty("/c");
	assert_int_equal(status("sessions"), 1);
	kill(child, SIGKILL);
}

/* ------------------------------------------------------------------ hung up */

/* Nothing goes back before grace is over. If the machine was too slow to look in time, that is not
 * known, and not asserted. */
static void assert_kept_for_grace(const char *path, uint64_t bytes, uint64_t since_usec)
{
	while (harness_now() < since_usec + GRACE_USEC / 2) {
		uint64_t current = harness_current(tally, path);

		if (harness_now() < since_usec + GRACE_USEC)
			assert_int_equal(current, bytes);
		usleep(20000);
	}
}

static void test_closes_everything_and_lives(void **state _unused_)
{
	struct load before = load_now();
	struct actor a;
	uint64_t since;

	actor_start(&a, &harness, "/x");
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 3 * MIB, 0), 0);
	since = harness_now();
	assert_int_equal(actor_do(&a, ACTOR_CLOSE_FDS, 0, 0), 0);
	assert_kept_for_grace("/x", 3 * MIB, since);
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 3 * MIB, 0), -ENOTCONN);
	await_current("/x", 0, RELEASE_MS);
	assert_int_equal(kill(a.pid, 0), 0);
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 3 * MIB, 0), -ENOTCONN);
	await_load(before);
	assert_empty("/x");
	actor_kill(&a);
}

static void test_exec(void **state _unused_)
{
	struct actor plain, keeping;
	uint64_t since;

	actor_start(&keeping, &harness, "/keeping");
	actor_start(&plain, &harness, "/plain");
	assert_int_equal(actor_do(&keeping, ACTOR_CHARGE, 3 * MIB, 0), 0);
	assert_int_equal(actor_do(&plain, ACTOR_CHARGE, 5 * MIB, 0), 0);
	assert_int_equal(actor_do(&keeping, ACTOR_EXEC, 1, 0), -EPIPE);
	since = harness_now();
	assert_int_equal(actor_do(&plain, ACTOR_EXEC, 0, 0), -EPIPE);
	assert_kept_for_grace("/plain", 5 * MIB, since);
	/* By then the grace of the other, which was first, would be over too. */
	await_current("/plain", 0, RELEASE_MS);
	assert_int_equal(harness_current(tally, "/keeping"), 3 * MIB);
	assert_int_equal(kill(plain.pid, 0), 0);
	assert_int_equal(kill(keeping.pid, 0), 0);

	actor_kill(&keeping);
	await_current("/keeping", 0, RELEASE_MS);
	assert_int_equal(status("sessions"), 1);
	actor_kill(&plain);
}

/* ------------------------------------------------------------------ fork */

struct family {
	struct tally_pool *pool;
	tally_item item;
};

#define EXPECT(x)                                                                                  \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: not in a child: %s\n", __FILE__, __LINE__, #x);    \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

/* With the handles of its parent. */
static int be_a_child(void *userdata)
{
	struct family *f = userdata;
	struct tally_charge_args args = {.bytes = 1};
	struct tally_pool *p, *own_pool;
	struct tally *own;
	char *text;

	EXPECT(tally_charge(f->pool, 1) == -ECHILD);
	EXPECT(tally_charge(f->pool, 8 * MIB) == -ECHILD);
	EXPECT(tally_charge_item(f->pool, f->item, 1) == -ECHILD);
	EXPECT(tally_try_charge(f->pool, 1) == -ECHILD);
	EXPECT(tally_try_charge_item(f->pool, f->item, 1) == -ECHILD);
	EXPECT(tally_charge_with(f->pool, &args, sizeof(args)) == -ECHILD);
	tally_uncharge(f->pool, 1 * MIB);
	tally_uncharge_item(f->pool, f->item, 1 * MIB);
	EXPECT(tally_attach(tally, "/fork", 0, &p) == -ECHILD);
	EXPECT(tally_get(tally, "/", "memory.current", 0, &text) == -ECHILD);
	EXPECT(tally_set(tally, "/fork", "memory.max", "1") == -ECHILD);
	EXPECT(tally_create(tally, "/child") == -ECHILD);
	EXPECT(tally_remove(tally, "/fork", 0) == -ECHILD);
	EXPECT(tally_item_lookup(tally, "anon", &f->item) == -ECHILD);
	EXPECT(strcmp(tally_pool_path(f->pool), "/fork") == 0);

	/* Its own session, beside the parent's handles and after it has let go of them. */
	EXPECT(tally_open(harness.address, 0, &own) == 0);
	EXPECT(tally_attach(own, "/fork", 0, &own_pool) == 0);
	EXPECT(tally_charge(own_pool, 1 * MIB) == 0);
	EXPECT(tally_detach(tally_pool_ref(f->pool)) == NULL);
	EXPECT(tally_pool_unref(f->pool) == NULL);
	EXPECT(tally_close(tally) == NULL);
	EXPECT(tally_charge(own_pool, 1 * MIB) == 0);
	EXPECT(harness_current(own, "/fork") == 2 * MIB + 6 * MIB);
	tally_detach(own_pool);
	tally_close(own);
	return 0;
}

static void test_fork(void **state _unused_)
{
	struct family f = {0};

	harness_skip_emulated("ignores MADV_WIPEONFORK");
	f.pool = harness_attach(tally, "/fork");
	assert_int_equal(tally_item_lookup(tally, "anon", &f.item), 0);
	assert_int_equal(tally_charge(f.pool, 4 * MIB), 0);
	assert_int_equal(tally_charge_item(f.pool, f.item, 2 * MIB), 0);
	for (unsigned i = 0; i < 5; i++)
		harness_join(harness_fork(be_a_child, &f), 0);

	/* The parent has noticed nothing. */
	assert_int_equal(harness_current(tally, "/fork"), 6 * MIB);
	assert_int_equal(harness_value(tally, "/fork", "memory.stat", "anon"), 2 * MIB);
	assert_int_equal(tally_charge(f.pool, 1), 0);
	assert_int_equal(tally_charge(f.pool, 8 * MIB), 0);
	assert_int_equal(harness_current(tally, "/fork"), 14 * MIB + 1);
	tally_uncharge(f.pool, 12 * MIB + 1);
	tally_uncharge_item(f.pool, f.item, 2 * MIB);
	assert_int_equal(harness_current(tally, "/fork"), 0);
	assert_int_equal(harness_value(tally, "/fork", "memory.stat", "overdraft"), 0);
	tally_detach(f.pool);
}

static _Atomic int charging_stop;

/* A child of a process whose other threads are in the middle of anything. */
static void *keep_charging(void *pool)
{
	struct tally_pool *p = pool;
	uint64_t bytes = 0;

	while (!atomic_load(&charging_stop)) {
		bytes = (bytes + 100001) % (400 * KIB);
		if (tally_charge(p, bytes) < 0)
			abort();
		tally_uncharge(p, bytes);
	}
	return NULL;
}

static int be_a_child_of_threads(void *userdata)
{
	struct family *f = userdata;
	struct tally_pool *own_pool;
	struct tally *own;

	EXPECT(tally_charge(f->pool, 1) == -ECHILD);
	EXPECT(tally_open(harness.address, 0, &own) == 0);
	EXPECT(tally_attach(own, "/fork/child", TALLY_CREATE, &own_pool) == 0);
	EXPECT(tally_charge(own_pool, 1 * MIB) == 0);
	tally_uncharge(own_pool, 1 * MIB);
	tally_pool_unref(f->pool);
	tally_detach(own_pool);
	tally_close(own);
	return 0;
}

static void test_fork_of_threads(void **state _unused_)
{
	struct family f = {0};
	struct tally_pool *busy;
	pthread_t threads[2];

	harness_skip_emulated("ignores MADV_WIPEONFORK");
	f.pool = harness_attach(tally, "/fork");
	busy = harness_attach(tally, "/fork/busy");
	atomic_store(&charging_stop, 0);
	for (unsigned i = 0; i < ELEMENTS(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, keep_charging, busy), 0);
	for (unsigned i = 0; i < 30; i++)
		harness_join(harness_fork(be_a_child_of_threads, &f), 0);
	atomic_store(&charging_stop, 1);
	for (unsigned i = 0; i < ELEMENTS(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(harness_current(tally, "/fork"), 0);
	assert_int_equal(harness_value(tally, "/fork", "memory.stat", "overdraft"), 0);
	tally_detach(busy);
	tally_detach(f.pool);
}

/* ------------------------------------------------------------------ said goodbye */

static void test_close_releases_at_once(void **state _unused_)
{
	struct tally *t = harness_open(&harness);
	struct tally_pool *p = harness_attach(t, "/bye"), *q = harness_attach(t, "/bye/below");
	tally_item anon;
	char *text;

	assert_int_equal(tally_item_lookup(t, "anon", &anon), 0);
	assert_int_equal(tally_charge(p, 3 * MIB), 0);
	assert_int_equal(tally_charge_item(q, anon, 1 * MIB), 0);
	assert_int_equal(harness_current(tally, "/bye"), 4 * MIB);
	tally_pool_ref(p);
	tally_close(t);
	assert_empty("/");
	assert_empty("/bye/below");
	assert_int_equal(status("sessions"), 1);

	/* The handles know it, and are still there to be freed. */
	assert_int_equal(tally_charge(p, 1), -ENODEV);
	assert_int_equal(tally_charge(p, 8 * MIB), -ENODEV);
	assert_int_equal(tally_try_charge(p, 1), -ENODEV);
	assert_int_equal(tally_charge_item(q, anon, 1), -ENODEV);
	tally_uncharge(p, 3 * MIB);
	tally_uncharge_item(q, anon, 1 * MIB);
	assert_string_equal(tally_pool_path(q), "/bye/below");
	tally_pool_unref(p);
	tally_detach(q);
	assert_int_equal(tally_charge(p, 1), -ENODEV);
	tally_detach(p);

	/* With no handle left there is nothing to ask; with one there was. */
	t = harness_open(&harness);
	p = harness_attach(t, "/bye");
	tally_close(t);
	assert_int_equal(tally_get(t, "/", "memory.current", 0, &text), -ENODEV);
	assert_int_equal(tally_attach(t, "/bye", 0, &q), -ENODEV);
	tally_detach(p);
}

static void test_detach_releases_at_once(void **state _unused_)
{
	struct tally *t = harness_open(&harness);
	struct tally_pool *p = harness_attach(t, "/det"), *q = harness_attach(t, "/det");
	tally_item anon;

	assert_int_equal(tally_item_lookup(t, "anon", &anon), 0);
	assert_int_equal(tally_charge(p, 3 * MIB), 0);
	assert_int_equal(tally_charge_item(p, anon, 1 * MIB), 0);
	assert_int_equal(tally_charge(q, 1 * MIB), 0);
	tally_pool_ref(p);
	tally_detach(p);
	/* The other attachment to the same pool keeps its own. */
	assert_int_equal(harness_current(tally, "/det"), 1 * MIB);
	assert_int_equal(harness_value(tally, "/det", "memory.stat", "anon"), 0);
	assert_int_equal(tally_charge(p, 1), -ENODEV);
	assert_int_equal(tally_charge(p, 8 * MIB), -ENODEV);
	assert_int_equal(tally_charge_item(p, anon, 1), -ENODEV);
	assert_int_equal(tally_try_charge(p, 1), -ENODEV);
	tally_uncharge(p, 3 * MIB);
	tally_uncharge_item(p, anon, 1 * MIB);
	assert_int_equal(harness_current(tally, "/det"), 1 * MIB);
	assert_int_equal(harness_value(tally, "/det", "memory.stat", "overdraft"), 0);
	tally_pool_unref(p);
	assert_int_equal(tally_charge(q, 1 * MIB), 0);
	tally_detach(q);
	assert_empty("/");
	assert_empty("/det");
	tally_close(t);
}

/* ------------------------------------------------------------------ over and over */

static void connect_and_leave(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct tally *t = harness_open(&harness);
		struct tally_pool *p = harness_attach(t, "/often");

		assert_int_equal(tally_charge(p, 4 * KIB), 0);
		if (i % 2)
			tally_detach(p);
		tally_close(t);
		if (i % 2 == 0)
			tally_pool_unref(p);
	}
}

static void test_connections_leave_nothing(void **state _unused_)
{
	struct load before = load_now();

	connect_and_leave(500);
	await_load(before);
	assert_empty("/often");
}

static void test_connections_use_no_memory(void **state _unused_)
{
	unsigned long before, after;

	if (!harness_is_bare(&harness)) {
		print_message("skipped: the daemon's memory is not its own alone\n");
		skip();
	}
	connect_and_leave(500);
	before = harness_memory_kib(&harness);
	connect_and_leave(5000);
	after = harness_memory_kib(&harness);
	print_message("VmRSS of the daemon: %lu kB before, %lu kB after\n", before, after);
	assert_true(after <= before + 64);
}

#define CHARGERS 4

struct charger {
	pthread_t thread;
	struct tally_pool *pool;
	uint64_t held; /* in the end */
	unsigned cpu;
};

/* Charges and uncharges on one CPU, and holds something in the end. */
static void *charge_on_cpu(void *arg)
{
	struct charger *c = arg;
	unsigned seed = c->cpu + 1;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(c->cpu, &set);
	pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	while (!atomic_load(&charging_stop)) {
		uint64_t bytes = (uint64_t)rand_r(&seed) % (300 * KIB);

		if (c->held > 8 * MIB) {
			tally_uncharge(c->pool, c->held);
			c->held = 0;
		}
		if (tally_charge(c->pool, bytes) < 0)
			abort();
		c->held += bytes;
		bytes = bytes / 2;
		tally_uncharge(c->pool, bytes);
		c->held -= bytes;
		usleep(100);
	}
	return NULL;
}

/* CPUs that may be used, in turn. */
static void choose_cpus(struct charger chargers[static CHARGERS])
{
	cpu_set_t set;
	unsigned cpu = CPU_SETSIZE - 1;

	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	for (unsigned i = 0; i < CHARGERS; i++) {
		do
			cpu = (cpu + 1) % CPU_SETSIZE;
		while (!CPU_ISSET(cpu, &set));
		chargers[i].cpu = cpu;
	}
}

static unsigned count_extents(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[1024];
	unsigned n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, "tally-rw") != NULL;
	fclose(f);
	return n;
}

static void attach_and_detach(struct tally *t, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct tally_pool *p = harness_attach(t, "/loop/short");

		assert_int_equal(tally_charge(p, 1 + i % 5000), 0);
		if (i % 3 == 0)
			tally_uncharge(p, 1 + i % 5000);
		tally_detach(p);
	}
}

static void test_keys_are_used_again(void **state _unused_)
{
	struct tally *t = harness_open(&harness);
	struct charger chargers[CHARGERS] = {0};
	uint64_t held = 0;
	unsigned extents;

	atomic_store(&charging_stop, 0);
	choose_cpus(chargers);
	for (unsigned i = 0; i < CHARGERS; i++) {
		chargers[i].pool = harness_attach(t, "/loop/long");
		assert_int_equal(
			pthread_create(&chargers[i].thread, NULL, charge_on_cpu, &chargers[i]), 0);
	}
	extents = count_extents();
	assert_true(extents >= 2);
	attach_and_detach(t, 20000);
	/* A collection waits for threads that were preempted just then, and keys are taken
	 * meanwhile; as many as there were attachments would need eight extents more. */
	print_message("extents: %u before, %u after\n", extents, count_extents());
	assert_true(count_extents() <= extents + 4);

	atomic_store(&charging_stop, 1);
	for (unsigned i = 0; i < CHARGERS; i++) {
		pthread_join(chargers[i].thread, NULL);
		held += chargers[i].held;
	}
	assert_int_equal(harness_current(tally, "/loop/long"), held);
	assert_int_equal(harness_current(tally, "/loop"), held);
	assert_int_equal(harness_value(tally, "/loop", "memory.stat", "overdraft"), 0);
	for (unsigned i = 0; i < CHARGERS; i++)
		tally_detach(chargers[i].pool);
	tally_close(t);
}

/* ------------------------------------------------------------------ the daemon goes */

static void test_daemon_killed(void **state _unused_)
{
	struct tally_pool *p = harness_attach(tally, "/gone");
	struct tally *t;
	char *text;

	assert_int_equal(tally_charge(p, 4 * KIB), 0);
	harness_kill(&harness);
	/* What lies in the stock needs no daemon. */
	assert_int_equal(tally_charge(p, 4 * KIB), 0);
	tally_uncharge(p, 4 * KIB);
	assert_int_equal(tally_try_charge(p, 4 * KIB), 0);
	assert_int_equal(tally_charge(p, 8 * MIB), -ENOTCONN);
	assert_int_equal(tally_try_charge(p, 8 * MIB), -ENOTCONN);
	assert_int_equal(tally_get(tally, "/", "memory.current", 0, &text), -ENOTCONN);
	assert_int_equal(tally_open(harness.address, 0, &t), -ENOTCONN);

	harness_restart(&harness);
	assert_int_equal(harness_log_lines(&harness, "state/ledger: cleared; "), 1);
	assert_int_equal(tally_charge(p, 8 * MIB), -ENOTCONN);
	assert_int_equal(tally_charge(p, 4 * KIB), 0);
	tally_detach(p);
	tally_close(tally);

	tally = harness_open(&harness);
	p = harness_attach(tally, "/gone");
	assert_int_equal(harness_current(tally, "/gone"), 0);
	assert_int_equal(tally_charge(p, 8 * MIB), 0);
	assert_int_equal(harness_current(tally, "/"), 8 * MIB);
	tally_detach(p);
	assert_int_equal(status("sessions"), 1);
}

/* Stopped as it should be, it has nothing to clear. */
static void test_daemon_stopped(void **state _unused_)
{
	struct actor a;

	actor_start(&a, &harness, "/stop");
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 4 * KIB, 0), 0);
	assert_int_equal(kill(harness.daemon, SIGTERM), 0);
	harness_join(harness.daemon, 0);
	harness.daemon = -1;
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 8 * MIB, 0), -ENOTCONN);
	tally_close(tally);
	harness_restart(&harness);
	tally = harness_open(&harness);
	assert_int_equal(harness_log_lines(&harness, "cleared"), 0);
	actor_kill(&a);
}

static int run_second(void *userdata _unused_)
{
	char config[128];

	snprintf(config, sizeof(config), "%s/tallyd.conf", harness.dir);
	if (!freopen(harness.log, "a", stderr))
		return 126;
	execlp(harness_program(), harness_program(), "--config", config, "--runtime-dir",
		harness.runtime, (char *)NULL);
	return 127;
}

static void test_second_daemon(void **state _unused_)
{
	struct tally_pool *p = harness_attach(tally, "/own");

	assert_int_equal(tally_charge(p, 1 * MIB), 0);
	harness_join(harness_fork(run_second, NULL), 3);
	assert_int_equal(harness_log_lines(&harness, "another tallyd owns this directory"), 1);
	/* The first one has not been disturbed. */
	assert_int_equal(harness_current(tally, "/own"), 1 * MIB);
	assert_int_equal(tally_charge(p, 8 * MIB), 0);
	tally_close(harness_open(&harness));
	tally_detach(p);
}

static int set_up(void **state _unused_)
{
	harness_start(&harness, CONFIG);
	tally = harness_open(&harness);
	return 0;
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
		TEST(test_killed_at_any_time),
		TEST(test_killed_while_its_child_lives),
		TEST(test_closes_everything_and_lives),
		TEST(test_exec),
		TEST(test_fork),
		TEST(test_fork_of_threads),
		TEST(test_close_releases_at_once),
		TEST(test_detach_releases_at_once),
		TEST(test_connections_leave_nothing),
		TEST(test_connections_use_no_memory),
		TEST(test_keys_are_used_again),
		TEST(test_daemon_killed),
		TEST(test_daemon_stopped),
		TEST(test_second_daemon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
