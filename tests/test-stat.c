/* SPDX-License-Identifier: MIT */

/*
 * tally_stat_add() and tally_usage() as a program sees them: over a daemon and with the engine in the
 * process, by each kind of operation. What was moved is there when it is looked at, whoever moved it
 * and however it was interrupted; and it is gone, or stays, when the program ends.
 */

#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/item.h"
#include "core/percpu.h"
#include "core/segment.h"
#include "core/util.h"

#if PERCPU_HAS_RSEQ
#include <sys/rseq.h>
#endif

/* Figures change when a test asks for it. */
static const char config[] = "[daemon]\nflush_interval = 1h\ngrace = 100ms\nexport =\n";

struct setting {
	bool embedded;
	const char *kind;
};

static const struct setting settings[] = {
	{false, "atomic"}, {false, "rseq"}, {true, "atomic"}, {true, "rseq"}};

/* ------------------------------------------------------------------ before and after each test */

static struct harness h;
static const struct setting *setting;
static struct tally *t;
static struct tally_pool *pool;
static tally_item gauge, count; /* of the gauge `sock`, of the event `alloc` */

#define POOL "/stat/a"
#define PARENT "/stat"

static struct tally *open_session(void)
{
	struct tally *opened;
	int r = tally_open(setting->embedded ? "embedded:" : h.address, 0, &opened);

	assert_int_equal(r, 0);
	return opened;
}

static int begin(void **state)
{
	setting = *state;
	if (strcmp(setting->kind, "rseq") == 0 && !percpu_has_rseq())
		return 0;
	setenv("TALLY_PERCPU", setting->kind, 1);
	if (!setting->embedded)
		harness_start(&h, config);
	t = open_session();
	pool = harness_attach(t, POOL);
	assert_int_equal(tally_item_lookup(t, "sock", &gauge), 0);
	assert_int_equal(tally_item_lookup(t, "alloc", &count), 0);
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

/* ------------------------------------------------------------------ helpers */

static uint64_t value_at(struct tally *session, const char *path, const char *key)
{
	return harness_value(session, path, "memory.stat", key);
}

static uint64_t value(const char *key)
{
	return value_at(t, POOL, key);
}

static void assert_moved(uint64_t of_gauge, uint64_t of_count)
{
	assert_int_equal(value("sock"), of_gauge);
	assert_int_equal(value("alloc"), of_count);
	assert_int_equal(value_at(t, PARENT, "sock"), of_gauge);
	assert_int_equal(value_at(t, PARENT, "alloc"), of_count);
}

static struct tally_usage usage(void)
{
	struct tally_usage u;

	assert_int_equal(tally_usage(pool, sizeof(u), &u), 0);
	return u;
}

/* ------------------------------------------------------------------ moving */

static void test_moves(void **state _unused_)
{
	skip_if_not_begun();
	assert_moved(0, 0);
	tally_stat_add(pool, gauge, 5000);
	assert_moved(5000, 0);
	tally_stat_add(pool, gauge, -2000);
	tally_stat_add(pool, count, 1);
	tally_stat_add(pool, count, 41);
	assert_moved(3000, 42);
	tally_stat_add(pool, gauge, 0);
	tally_stat_add(pool, count, 0);
	tally_stat_add(pool, count, -7);
	tally_stat_add(pool, count, INT64_MIN);
	assert_moved(3000, 42);
	/* Below nothing is shown as nothing, and counts. */
	tally_stat_add(pool, gauge, -3500);
	assert_moved(0, 42);
	tally_stat_add(pool, gauge, 600);
	assert_moved(100, 42);
	assert_int_equal(value("held"), 0);
}

/* The first move of an item asks for its key, and is not lost. */
static void test_first(void **state _unused_)
{
	skip_if_not_begun();
	tally_stat_add(pool, gauge, 700);
	tally_stat_add(pool, gauge, -200);
	tally_stat_add(pool, count, -9);
	tally_stat_add(pool, count, 3);
	tally_stat_add(pool, count, -9);
	assert_moved(500, 3);
}

static void test_unknown_items(void **state _unused_)
{
	static const tally_item unknown[] = {
		0, ITEM_MAX, ITEM_MAX + 1, UINT32_MAX, UINT32_MAX - ITEM_MAX};
	char *before, *after;

	skip_if_not_begun();
	before = harness_get(t, POOL, "memory.stat");
	for (unsigned i = 0; i < ELEMENTS(unknown); i++)
		for (unsigned n = 0; n < 3; n++) {
			tally_stat_add(pool, unknown[i], 1000);
			after = harness_get(t, POOL, "memory.stat");
			assert_string_equal(after, before);
			free(after);
		}
	free(before);
	tally_stat_add(pool, gauge, 1);
	assert_moved(1, 0);
}

/* What was moved before an item was defined was moved by mistake. */
static void test_defined_later(void **state _unused_)
{
	struct tally_item_def d = {.name = "later", .type = TALLY_GAUGE};
	tally_item last, later;

	skip_if_not_begun();
	if (!setting->embedded)
		return;
	assert_int_equal(tally_item_lookup(t, "free", &last), 0);
	tally_stat_add(pool, last + 1, 50);
	assert_int_equal(tally_item_define(t, &d, sizeof(d), &later), 0);
	assert_int_equal(later, last + 1);
	assert_int_equal(value("later"), 0);
	tally_stat_add(pool, later, 60);
	assert_int_equal(value("later"), 60);
}

static void test_beside_charges(void **state _unused_)
{
	int r;

	skip_if_not_begun();
	tally_stat_add(pool, gauge, 100);
	assert_int_equal(tally_charge_item(pool, gauge, 3000), 0);
	assert_moved(3100, 0);
	assert_int_equal(value("held"), 3000);
	tally_stat_add(pool, gauge, 50);
	tally_uncharge_item(pool, gauge, 1000);
	assert_moved(2150, 0);

	/* An event is not charged, moved before or not. */
	assert_int_equal(tally_charge_item(pool, count, 1), -EINVAL);
	tally_stat_add(pool, count, 8);
	assert_int_equal(value("alloc"), 8);
	assert_int_equal(tally_charge_item(pool, count, 1), -EINVAL);
	while ((r = tally_try_charge_item(pool, count, 1)) == -EAGAIN)
		assert_moved(2150, 8);
	assert_int_equal(r, -EINVAL);
	tally_charge_force(pool, count, 1);
	tally_uncharge_item(pool, count, 1);
	assert_moved(2150, 8);
	assert_int_equal(value("held"), 2000);
	assert_int_equal(value("overdraft"), 0);
	tally_uncharge_item(pool, gauge, 2000);
}

static void test_charged_first(void **state _unused_)
{
	skip_if_not_begun();
	assert_int_equal(tally_charge_item(pool, gauge, 3000), 0);
	for (unsigned i = 0; i < 200; i++)
		tally_stat_add(pool, gauge, 10);
	assert_moved(5000, 0);
	tally_uncharge_item(pool, gauge, 3000);
	assert_moved(2000, 0);
}

/* Gauges go back with the attachment, counts stay; also those that are not yet on their way. */
static void test_detach(void **state _unused_)
{
	struct tally_pool *other;

	skip_if_not_begun();
	other = harness_attach(t, POOL);
	tally_stat_add(pool, gauge, 100);
	tally_stat_add(other, gauge, 10);
	tally_stat_add(other, count, 1);
	assert_moved(110, 1);
	tally_pool_ref(other);
	tally_detach(other);
	assert_moved(100, 1);
	tally_stat_add(other, gauge, 10);
	tally_stat_add(other, count, 10);
	assert_moved(100, 1);
	tally_pool_unref(other);

	other = harness_attach(t, POOL);
	tally_stat_add(other, gauge, 10);
	tally_stat_add(other, count, 5);
	tally_detach(other);
	assert_moved(100, 6);
}

/* Keys are used again; what others moved by them is not there. */
static void test_again(void **state _unused_)
{
	uint64_t counted = 0;

	skip_if_not_begun();
	for (unsigned i = 0; i < 3 * SEGMENT_FIRST_KEYS; i++) {
		struct tally_pool *other = harness_attach(t, POOL);

		tally_stat_add(other, gauge, 100000);
		tally_stat_add(other, count, 1);
		counted++;
		if (i % 16 == 0)
			assert_moved(100000, counted);
		tally_detach(other);
	}
	assert_moved(0, counted);
}

static void test_close(void **state _unused_)
{
	struct tally *closed;
	struct tally_pool *other;
	struct tally_usage u;

	skip_if_not_begun();
	if (setting->embedded)
		return;
	closed = open_session();
	other = harness_attach(closed, POOL);
	tally_pool_ref(other);
	tally_stat_add(other, gauge, 10);
	tally_stat_add(other, count, 5);
	tally_close(closed);
	assert_moved(0, 5);
	tally_stat_add(other, gauge, 10);
	tally_stat_add(other, count, 5);
	assert_moved(0, 5);
	assert_int_equal(tally_usage(other, sizeof(u), &u), -ENODEV);
	tally_pool_unref(other);
	tally_pool_unref(other);
}

static int move_and_die(void *userdata _unused_)
{
	struct tally *mine = open_session();
	struct tally_pool *p = harness_attach(mine, POOL);

	for (unsigned i = 0; i < 1000; i++) {
		tally_stat_add(p, gauge, 10);
		tally_stat_add(p, count, 1);
	}
	/* The keys have come, so all of it is where the daemon sees it. */
	assert_int_equal(value_at(mine, POOL, "sock"), 10000);
	for (unsigned i = 0; i < 7; i++)
		tally_stat_add(p, count, 1);
	kill(getpid(), SIGKILL);
	return 1;
}

static int is_alone(void *userdata _unused_)
{
	char *text = harness_get(t, POOL, "cgroup.procs");
	bool alone = strchr(text, '\n') == strrchr(text, '\n');

	free(text);
	return alone;
}

static void test_killed(void **state _unused_)
{
	pid_t child;

	skip_if_not_begun();
	if (setting->embedded)
		return;
	child = harness_fork(move_and_die, NULL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_true(harness_wait(is_alone, NULL, HARNESS_PATIENCE_MS));
	assert_moved(0, 1007);
}

/* More than the threshold is seen by who does not ask for it. */
static void test_pending(void **state _unused_)
{
	unsigned n = 64 * ((unsigned)sysconf(_SC_NPROCESSORS_CONF) + 2) + 10;
	struct tally_pool *other;
	char *text, *line;

	skip_if_not_begun();
	tally_stat_add(pool, count, 1);
	assert_moved(0, 1);
	for (unsigned i = 0; i < n * 2; i++)
		tally_stat_add(pool, count, 1);
	assert_int_equal(tally_get(t, PARENT, "memory.stat", 0, &text), 0);
	line = strstr(text, "\nalloc ");
	assert_non_null(line);
	assert_true(strtoull(line + 7, NULL, 10) > n);
	free(text);

	/* Bytes count as pages: two moves of so many are enough. */
	other = harness_attach(t, "/stat/b");
	tally_stat_add(other, gauge, 1);
	assert_int_equal(value_at(t, "/stat/b", "sock"), 1);
	tally_stat_add(other, gauge, (int64_t)n * 4096);
	tally_stat_add(other, gauge, (int64_t)n * 4096);
	assert_int_equal(tally_get(t, PARENT, "memory.stat", 0, &text), 0);
	line = strstr(text, "\nsock ");
	assert_non_null(line);
	assert_int_equal(strtoull(line + 6, NULL, 10), n * UINT64_C(8192) + 1);
	free(text);
	tally_detach(other);
}

/* ------------------------------------------------------------------ interrupted, forked, at once */

static volatile sig_atomic_t interrupts;

static void on_signal(int number _unused_)
{
	int saved = errno;

	errno = 4711;
	tally_stat_add(pool, gauge, 3);
	tally_stat_add(pool, count, 1);
	if (errno != 4711)
		abort();
	errno = saved;
	interrupts++;
}

/* From the first move on, when neither has the key. */
static void test_signals(void **state _unused_)
{
	struct itimerspec every = {.it_interval.tv_nsec = 50000, .it_value.tv_nsec = 50000};
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old;
	struct sigevent to_me = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	uint64_t moved = 0;
	timer_t timer;

	skip_if_not_begun();
	interrupts = 0;
	assert_int_equal(sigaction(SIGUSR1, &sa, &old), 0);
	assert_int_equal(timer_create(CLOCK_MONOTONIC, &to_me, &timer), 0);
	assert_int_equal(timer_settime(timer, 0, &every, NULL), 0);
	while (interrupts < 300) {
		tally_stat_add(pool, gauge, -2);
		tally_stat_add(pool, gauge, 4);
		tally_stat_add(pool, count, 1);
		moved++;
	}
	assert_int_equal(timer_delete(timer), 0);
	assert_int_equal(sigaction(SIGUSR1, &old, NULL), 0);
	assert_moved(moved * 2 + (uint64_t)interrupts * 3, moved + (uint64_t)interrupts);
}

static int move_in_child(void *userdata _unused_)
{
	struct tally_usage u;
	struct tally *mine;

	tally_stat_add(pool, gauge, 1000000);
	tally_stat_add(pool, count, 1000000);
	tally_stat_add(pool, gauge + 1, 1000000);
	if (tally_usage(pool, sizeof(u), &u) != -ECHILD)
		return 1;
	pool = tally_detach(pool);
	t = tally_close(t);
	if (setting->embedded)
		return 0;
	/* A session of its own has all of it. */
	mine = open_session();
	pool = harness_attach(mine, POOL);
	tally_stat_add(pool, count, 5);
	tally_detach(pool);
	tally_close(mine);
	return 0;
}

static void test_fork(void **state _unused_)
{
	skip_if_not_begun();
	tally_stat_add(pool, gauge, 100);
	tally_stat_add(pool, count, 1);
	assert_moved(100, 1);
	harness_join(harness_fork(move_in_child, NULL), 0);
	assert_moved(100, setting->embedded ? 1 : 6);
	assert_int_equal(value_at(t, POOL, "slab"), 0);
	tally_stat_add(pool, gauge, 1);
	assert_moved(101, setting->embedded ? 1 : 6);
}

#define THREADS 4
#define EACH 250000

static _Atomic unsigned running;

static void *move_much(void *userdata _unused_)
{
	for (unsigned i = 0; i < EACH; i++) {
		tally_stat_add(pool, count, 1);
		tally_stat_add(pool, gauge, i & 1 ? -4096 : 4096 * 2);
	}
	atomic_fetch_sub(&running, 1);
	return NULL;
}

/* None is lost, whatever the looks do meanwhile; and no look sees less than the one before. */
static void test_race(void **state _unused_)
{
	pthread_t threads[THREADS];
	uint64_t before = 0;
	bool last;

	skip_if_not_begun();
	running = THREADS;
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, move_much, NULL), 0);
	do {
		uint64_t now;

		last = atomic_load(&running) == 0;
		now = value("alloc");
		assert_true(now >= before && now <= THREADS * EACH);
		before = now;
	} while (!last);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_moved(UINT64_C(4096) * THREADS * EACH / 2, THREADS * EACH);
}

/* A look from elsewhere finds what was moved before it was asked for. */
static void test_event_before_read(void **state _unused_)
{
	struct tally *reader = t;

	skip_if_not_begun();
	if (!setting->embedded)
		reader = open_session();
	tally_stat_add(pool, count, 1);
	assert_moved(0, 1);
	for (uint64_t n = 2; n < 300; n++) {
		tally_stat_add(pool, count, 1);
		assert_int_equal(value_at(reader, PARENT, "alloc"), n);
	}
	if (reader != t)
		tally_close(reader);
}

#if PERCPU_HAS_RSEQ

#ifndef RSEQ_FLAG_UNREGISTER
#define RSEQ_FLAG_UNREGISTER 1
#endif

/* The C library's registration may be larger than it tells. */
static bool unregister(void)
{
	char *area = (char *)__builtin_thread_pointer() + __rseq_offset;

	for (unsigned size = 32; size <= 1024; size += 4)
		if (syscall(SYS_rseq, area, size, RSEQ_FLAG_UNREGISTER, RSEQ_SIG) == 0)
			return (int32_t)percpu_rseq_cpu() < 0;
	return false;
}

static void *move_unregistered(void *ret)
{
	if (!unregister())
		return ret;
	for (unsigned i = 0; i < 1000; i++) {
		tally_stat_add(pool, gauge, 7);
		tally_stat_add(pool, count, 1);
	}
	*(bool *)ret = true;
	return NULL;
}

static void test_unregistered(void **state _unused_)
{
	pthread_t thread;
	bool moved = false;

	skip_if_not_begun();
	if (!percpu_has_rseq())
		skip();
	tally_stat_add(pool, count, 1);
	assert_moved(0, 1);
	assert_int_equal(pthread_create(&thread, NULL, move_unregistered, &moved), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(moved);
	assert_moved(7000, 1001);
}

#endif

/* ------------------------------------------------------------------ usage */

static void test_usage_held(void **state _unused_)
{
	tally_item other;

	skip_if_not_begun();
	assert_int_equal(tally_item_lookup(t, "slab", &other), 0);
	assert_int_equal(usage().held, 0);
	assert_int_equal(tally_charge(pool, 1000), 0);
	assert_int_equal(usage().held, 1000);
	assert_int_equal(tally_charge_item(pool, gauge, 10000), 0);
	assert_int_equal(tally_charge_item(pool, other, 5), 0);
	assert_int_equal(usage().held, 11005);
	tally_uncharge_item(pool, gauge, 9000);
	assert_int_equal(usage().held, 2005);
	/* Moved is not held. */
	tally_stat_add(pool, gauge, 12345);
	assert_int_equal(usage().held, 2005);
	/* Larger than a slot, and back into the reserve. */
	assert_int_equal(tally_charge(pool, 300 << 20), 0);
	assert_int_equal(usage().held, 2005 + (300 << 20));
	tally_uncharge(pool, 300 << 20);
	assert_int_equal(usage().held, 2005);
	/* Idle credit is not held, wherever it is. */
	assert_int_equal(tally_set(t, POOL, "pool.drain", "1"), 0);
	assert_int_equal(usage().held, 2005);
	assert_int_equal(value("held"), 2005);
	tally_uncharge_item(pool, gauge, 1000);
	tally_uncharge(pool, 1000);
	assert_int_equal(usage().held, 5);
	tally_uncharge_item(pool, other, 5);
	assert_int_equal(usage().held, 0);
}

static void test_usage_forced(void **state _unused_)
{
	tally_item fresh;

	skip_if_not_begun();
	assert_int_equal(tally_item_lookup(t, "slab", &fresh), 0);
	assert_int_equal(tally_charge(pool, 100), 0);
	assert_int_equal(tally_set(t, POOL, "memory.max", "4K"), 0);
	tally_charge_force(pool, 0, 64 << 20);
	assert_int_equal(usage().held, 100 + (64 << 20));
	/* Owed: its key is not known. */
	tally_charge_force(pool, fresh, 1000);
	assert_int_equal(usage().held, 1100 + (64 << 20));
	/* The key's answer comes before this one. */
	assert_int_equal(tally_item_lookup(t, "slab", &fresh), 0);
	assert_int_equal(usage().held, 1100 + (64 << 20));
	/* The look takes it into what was granted. */
	assert_int_equal(value("held"), 1100 + (64 << 20));
	assert_int_equal(usage().held, 1100 + (64 << 20));
	tally_uncharge_item(pool, fresh, 1000);
	tally_uncharge(pool, 64 << 20);
	assert_int_equal(usage().held, 100);
	assert_int_equal(tally_set(t, POOL, "memory.max", "max"), 0);
	tally_uncharge(pool, 100);
}

static void test_usage_of_pool(void **state _unused_)
{
	struct tally_usage u;

	skip_if_not_begun();
	assert_int_equal(tally_charge(pool, 1 << 20), 0);
	assert_int_equal(value("held"), 1 << 20);
	u = usage();
	assert_int_equal(u.held, 1 << 20);
	assert_int_equal(u.current, 1 << 20);
	assert_true(u.peak >= 1 << 20);
	assert_int_equal(u.limit, UINT64_MAX);
	assert_int_equal(u.headroom, UINT64_MAX);
	assert_true(u.age_usec < HARNESS_PATIENCE_MS * UINT64_C(1000));

	assert_int_equal(tally_set(t, POOL, "memory.max", "64M"), 0);
	assert_int_equal(tally_set(t, PARENT, "memory.max", "32M"), 0);
	/* Each look publishes its own pool. */
	assert_int_equal(value("held"), 1 << 20);
	assert_int_equal(value_at(t, PARENT, "held"), 1 << 20);
	u = usage();
	assert_int_equal(u.limit, 64 << 20);
	assert_in_range(u.headroom, 1, 31 << 20);
	tally_uncharge(pool, 1 << 20);
}

/* A grant, and a limit that is set, are seen without a look. */
static void test_usage_headroom(void **state _unused_)
{
	skip_if_not_begun();
	assert_int_equal(tally_set(t, PARENT, "memory.max", "64M"), 0);
	assert_int_equal(usage().limit, UINT64_MAX);
	assert_int_equal(usage().headroom, 64 << 20);
	assert_int_equal(tally_charge(pool, 32 << 20), 0);
	assert_in_range(usage().headroom, 1, 32 << 20);
	assert_int_equal(tally_set(t, POOL, "memory.max", "40M"), 0);
	assert_int_equal(usage().limit, 40 << 20);
	assert_in_range(usage().headroom, 1, 8 << 20);
	assert_int_equal(tally_set(t, POOL, "memory.max", "max"), 0);
	assert_int_equal(tally_set(t, PARENT, "memory.max", "max"), 0);
	assert_int_equal(usage().headroom, UINT64_MAX);
	tally_uncharge(pool, 32 << 20);
}

/* What a read shows is what the figures beside it are from then on, whether it flushed or not. */
static void test_usage_after_read(void **state _unused_)
{
	char *text;

	skip_if_not_begun();
	assert_int_equal(tally_get(t, POOL, "memory.current", TALLY_EXACT, &text), 0);
	free(text);
	assert_int_equal(tally_charge(pool, 1 << 20), 0);
	assert_int_equal(tally_get(t, POOL, "memory.current", 0, &text), 0);
	assert_string_equal(text, "1048576\n");
	free(text);
	assert_int_equal(usage().current, 1 << 20);
	tally_uncharge(pool, 1 << 20);
}

static void test_usage_sizes(void **state _unused_)
{
	struct {
		struct tally_usage known;
		uint64_t more[2];
	} large;
	uint64_t held = 4711, untouched[2] = {4711, 4711};
	struct tally_usage u;

	skip_if_not_begun();
	assert_int_equal(tally_charge(pool, 1000), 0);
	assert_int_equal(tally_usage(pool, sizeof(held), (struct tally_usage *)(void *)&held), 0);
	assert_int_equal(held, 1000);
	memset(&large, 0xff, sizeof(large));
	assert_int_equal(tally_usage(pool, sizeof(large), &large.known), 0);
	assert_int_equal(large.known.held, 1000);
	assert_int_equal(large.more[0] | large.more[1], 0);
	assert_int_equal(tally_usage(pool, 0, (struct tally_usage *)(void *)untouched), 0);
	assert_int_equal(untouched[0], 4711);
	assert_int_equal(tally_usage(pool, sizeof(u), NULL), -EINVAL);
	tally_uncharge(pool, 1000);

	tally_pool_ref(pool);
	tally_detach(pool);
	assert_int_equal(
		tally_usage(pool, sizeof(untouched), (struct tally_usage *)(void *)untouched),
		-ENODEV);
	assert_int_equal(untouched[0], 4711);
}

static _Atomic bool drained_enough;

static void *drain_much(void *userdata _unused_)
{
	for (unsigned i = 0; i < 300; i++)
		if (tally_set(t, POOL, "pool.drain", "1") < 0)
			break;
	atomic_store(&drained_enough, true);
	return NULL;
}

/* What is taken from a program that does nothing is not seen as held, nor is it missing. */
static void test_usage_while_drained(void **state _unused_)
{
	pthread_t thread;
	uint64_t wrong = 0;

	skip_if_not_begun();
	assert_int_equal(tally_charge(pool, 5000), 0);
	drained_enough = false;
	assert_int_equal(pthread_create(&thread, NULL, drain_much, NULL), 0);
	while (!atomic_load(&drained_enough)) {
		struct tally_usage u;

		wrong += tally_usage(pool, sizeof(u), &u) == 0 && u.held != 5000;
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(wrong, 0);
	tally_uncharge(pool, 5000);
}

/* ------------------------------------------------------------------ all of it */

#define ONE(fn, n)                                                                                 \
	{                                                                                          \
#fn, fn, begin, end, (void *)(uintptr_t)&settings[n]                               \
	}
#define TEST(fn) ONE(fn, 0), ONE(fn, 1), ONE(fn, 2), ONE(fn, 3)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_moves),
		TEST(test_first),
		TEST(test_unknown_items),
		TEST(test_defined_later),
		TEST(test_beside_charges),
		TEST(test_charged_first),
		TEST(test_detach),
		TEST(test_again),
		TEST(test_close),
		TEST(test_killed),
		TEST(test_pending),
		TEST(test_signals),
		TEST(test_fork),
		TEST(test_race),
		TEST(test_event_before_read),
#if PERCPU_HAS_RSEQ
		TEST(test_unregistered),
#endif
		TEST(test_usage_held),
		TEST(test_usage_forced),
		TEST(test_usage_of_pool),
		TEST(test_usage_headroom),
		TEST(test_usage_after_read),
		TEST(test_usage_sizes),
		TEST(test_usage_while_drained),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
