/* SPDX-License-Identifier: MIT */

/*
 * memory.high with real charges: that they succeed and are slowed, who is and who is not, that
 * nothing is granted beyond the need there, and that the time is seen in memory.pressure. Times are
 * asserted from below alone: a delay cannot be shorter than it was computed.
 */

#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/high.h"
#include "core/util.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * KIB)
#define UNIT (256 * KIB)
#define SECONDS_USEC UINT64_C(1000000)
#define LONG_DELAY HIGH_DELAY_MAX_USEC

static struct harness harness;
static struct tally *tally; /* of the daemon, or embedded: the test is the same */

static void set(const char *path, const char *file, const char *value)
{
	assert_int_equal(tally_set(tally, path, file, value), 0);
}

static uint64_t event(const char *path, const char *key)
{
	return harness_value(tally, path, "memory.events", key);
}

static void expect(const char *path, const char *file, const char *text)
{
	_cleanup_(freep) char *got = harness_get(tally, path, file);

	assert_string_equal(got, text);
}

/* The total of `some`, or of `full`. */
static uint64_t pressure(const char *path, bool full)
{
	_cleanup_(freep) char *text = harness_get(tally, path, "memory.pressure");
	const char *total = strstr(text, "total=");

	if (full)
		total = strstr(total + 1, "total=");
	return strtoull(total + strlen("total="), NULL, 10);
}

static struct tally_pool *attach(const char *path, const char *high)
{
	struct tally_pool *p = harness_attach(tally, path);

	set(path, "memory.high", high);
	return p;
}

/* What is not charged goes back, so that usage is what is held. */
static void drain(const char *path)
{
	set(path, "pool.drain", "1");
}

struct stalls {
	const char *path;
	uint64_t least;
};

static int has_stalled(void *userdata)
{
	const struct stalls *s = userdata;

	return pressure(s->path, false) >= s->least;
}

static int has_no_members(void *userdata)
{
	_cleanup_(freep) char *clients = harness_get(tally, userdata, "pool.clients");

	return *clients == '\0';
}

/* While anybody waits the total grows from one look to the next. */
static int has_come_to_rest(void *userdata)
{
	uint64_t total = pressure(userdata, false);

	return pressure(userdata, false) == total;
}

/* ------------------------------------------------------------------ the kernel's own */

static void test_default(void **state _unused_)
{
	assert_int_equal(tally_create(tally, "/k"), 0);
	expect("/k", "memory.high", "max\n");
	expect("/k", "memory.max", "max\n");
	expect("/k", "memory.low", "0\n");
	expect("/k", "memory.min", "0\n");
	set("/k", "memory.high", "30M");
	expect("/k", "memory.high", "31457280\n");
	assert_int_equal(tally_set(tally, "/k", "memory.high", "30X"), -EINVAL);
	assert_int_equal(tally_set(tally, "/k", "memory.low", "-1"), -EINVAL);
	assert_int_equal(tally_set(tally, "/k", "memory.min", "99E"), -ERANGE);
	expect("/k", "memory.high", "31457280\n");
}

/* 50 M are wanted, 30 M are high: usage stays near it because each step more takes longer, every one
 * of them is counted, and nobody is refused. */
static void test_stays_near_high(void **state _unused_)
{
	struct tally_pool *p = attach("/n", "30M");
	uint64_t begin = harness_now(), charged = 0, high;

	while (charged < 50 * MIB && harness_now() - begin < 2 * SECONDS_USEC) {
		assert_int_equal(tally_charge(p, UNIT), 0);
		charged += UNIT;
	}
	high = event("/n", "high");
	assert_true(high > 0);
	assert_true(harness_current(tally, "/n") == charged);
	assert_true(charged > 30 * MIB);
	/* each step above it was a request of its own */
	assert_true(charged <= 30 * MIB + high * UNIT);
	assert_int_equal(event("/n", "max"), 0);
	assert_int_equal(event("/n", "oom"), 0);
	assert_int_equal(harness_value(tally, "/n", "memory.stat", "stock"), 0);
	tally_detach(p);
}

/* One large charge raises high, not max. */
static void test_large(void **state _unused_)
{
	struct tally_pool *p = attach("/l", "30M");
	uint64_t begin = harness_now();

	set("/l", "memory.max", "140M");
	assert_int_equal(tally_charge(p, 100 * MIB), 0);
	assert_true(harness_now() - begin >= LONG_DELAY);
	assert_int_equal(event("/l", "high"), 1);
	assert_int_equal(event("/l", "max"), 0);
	assert_int_equal(harness_current(tally, "/l"), 100 * MIB);
	tally_detach(p);
}

static void test_max_and_peak(void **state _unused_)
{
	struct tally_pool *p = harness_attach(tally, "/m/c");
	uint64_t charged = 0;

	expect("/m", "memory.current", "0\n");
	expect("/m", "memory.peak", "0\n");
	set("/m/c", "memory.max", "30M");
	while (tally_charge(p, UNIT) == 0)
		charged += UNIT;
	assert_in_range(harness_current(tally, "/m/c"), 1, 30 * MIB);
	assert_int_equal(charged, 30 * MIB);
	assert_true(event("/m/c", "max") > 0);
	expect("/m", "memory.peak", "31457280\n");
	tally_uncharge(p, charged - UNIT);
	drain("/m");
	/* a reset is of one pool alone */
	set("/m", "memory.peak", "reset");
	expect("/m", "memory.peak", "262144\n");
	expect("/m/c", "memory.peak", "31457280\n");
	tally_detach(p);
}

/* ------------------------------------------------------------------ how long, and who */

/* Exactly so long as the formula says, in one piece. */
static void test_exact(void **state _unused_)
{
	struct tally_pool *p = attach("/e", "max");
	uint64_t delay = high_delay(110 * MIB, 100 * MIB, UNIT), begin;
	struct stalls s = {"/e", delay};

	assert_int_equal(tally_charge(p, 110 * MIB - UNIT), 0);
	drain("/e");
	set("/e", "memory.high", "100M");
	assert_int_equal(pressure("/e", false), 0);
	begin = harness_now();
	assert_int_equal(tally_charge(p, UNIT), 0);
	assert_true(harness_now() - begin >= delay);
	assert_int_equal(event("/e", "high"), 1);
	/* who sleeps waits: all of the pool do, and it ends by itself */
	assert_true(harness_wait(has_stalled, &s, HARNESS_PATIENCE_MS));
	assert_true(pressure("/e", true) >= delay);
	assert_true(pressure("/", false) >= delay);
	tally_detach(p);
}

/* Below the least one there is none, whatever is counted. */
static void test_small_delays_are_none(void **state _unused_)
{
	struct tally_pool *p = attach("/s", "100M");

	assert_int_equal(tally_charge(p, 99 * MIB), 0);
	drain("/s");
	assert_int_equal(tally_charge(p, 1 * MIB), 0);
	assert_int_equal(event("/s", "high"), 0);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(tally_charge(p, 4 * KIB), 0);
	assert_int_equal(event("/s", "high"), 16);
	assert_int_equal(pressure("/s", false), 0);
	tally_detach(p);
}

/* Who may not wait does not, however far above. */
static void test_nowait(void **state _unused_)
{
	struct tally_pool *p = attach("/w", "max");
	uint64_t force;
	int r;

	assert_int_equal(tally_charge(p, 64 * MIB), 0);
	drain("/w");
	set("/w", "memory.high", "1M");
	do {
		r = tally_try_charge(p, 8 * KIB);
	} while (r == -EAGAIN && usleep(1000) == 0);
	assert_int_equal(r, 0);
	assert_true(event("/w", "high") >= 1);
	force = event("/w", "high");
	tally_charge_force(p, 0, 64 * MIB);
	assert_int_equal(harness_current(tally, "/w"), 128 * MIB + 8 * KIB);
	assert_int_equal(event("/w", "high"), force);
	assert_int_equal(pressure("/w", false), 0);
	tally_detach(p);
}

/* One with a deadline is slowed too, but not past it. */
static void test_deadline(void **state _unused_)
{
	struct tally_pool *p = attach("/q", "1M");
	uint64_t begin = harness_now(), left = 100000;
	struct tally_charge_args a = {.bytes = 32 * MIB, .deadline_usec = begin + left};

	assert_int_equal(tally_charge_with(p, &a, sizeof(a)), 0);
	assert_true(harness_now() - begin >= left);
	assert_int_equal(event("/q", "high"), 1);
	tally_detach(p);
}

/* The pool that is furthest above decides, also if it is not the one that is charged. */
static void test_above(void **state _unused_)
{
	struct tally_pool *p = harness_attach(tally, "/a/b/c");
	uint64_t begin;

	assert_int_equal(tally_charge(p, 110 * MIB - UNIT), 0);
	drain("/a");
	set("/a", "memory.high", "100M");
	set("/a/b", "memory.high", "109M");
	begin = harness_now();
	assert_int_equal(tally_charge(p, UNIT), 0);
	assert_true(harness_now() - begin >= high_delay(110 * MIB, 100 * MIB, UNIT));
	assert_int_equal(harness_value(tally, "/a/b/c", "memory.events.local", "high"), 0);
	assert_int_equal(harness_value(tally, "/a/b", "memory.events.local", "high"), 1);
	assert_int_equal(harness_value(tally, "/a", "memory.events.local", "high"), 1);
	assert_int_equal(event("/", "high"), 2);
	tally_detach(p);
}

/* ------------------------------------------------------------------ idle credit */

struct stock_below {
	const char *path;
	uint64_t bytes;
};

static int has_stock_below(void *userdata)
{
	const struct stock_below *b = userdata;

	return harness_value(tally, b->path, "memory.stat", "stock") < b->bytes;
}

/* Near high no more is granted than fits below it, and what lies idle goes back when it is passed. */
static void test_credit(void **state _unused_)
{
	struct tally_pool *p = attach("/c", "1M"), *other = harness_attach(tally, "/c/d");
	struct stock_below b = {"/c", 1};
	struct tally_usage u;

	assert_int_equal(tally_charge(p, 900 * KIB), 0);
	assert_int_equal(tally_charge(other, 4 * KIB), 0);
	assert_int_equal(tally_usage(p, sizeof(u), &u), 0);
	/* held and idle credit together are not above it */
	assert_true(u.peak <= 1 * MIB);
	tally_uncharge(p, 600 * KIB);
	assert_int_equal(event("/c", "high"), 0);
	/* 304 K are held and 600 idle: with these usage is above high until that has gone back */
	assert_int_equal(tally_charge(other, 320 * KIB), 0);
	assert_int_equal(event("/c", "high"), 1);
	assert_true(harness_wait(has_stock_below, &b, HARNESS_PATIENCE_MS));
	assert_int_equal(tally_charge(other, 320 * KIB), 0);
	assert_int_equal(event("/c", "high"), 1);
	tally_detach(other);
	tally_detach(p);
}

/* Whoever has a callback is asked for what the pool is above. */
struct giver {
	_Atomic uint64_t wanted;
};

static int64_t give(struct tally_pool *p, uint64_t want, uint64_t deadline_usec _unused_,
	uint64_t token _unused_, void *userdata)
{
	struct giver *g = userdata;

	atomic_fetch_add(&g->wanted, want);
	tally_uncharge(p, want);
	return (int64_t)want;
}

static int has_given(void *userdata)
{
	struct giver *g = userdata;

	assert_true(tally_dispatch(tally) >= 0);
	return atomic_load(&g->wanted) > 0 && harness_current(tally, "/g") <= 4 * MIB;
}

static void test_giver(void **state _unused_)
{
	struct tally_pool *p = attach("/g", "4M"), *holder = harness_attach(tally, "/g/h");
	struct giver g = {0};

	assert_int_equal(tally_on_reclaim(holder, give, &g), 0);
	assert_int_equal(tally_charge(holder, 4 * MIB), 0);
	assert_int_equal(tally_charge(p, 64 * KIB), 0);
	assert_true(event("/g", "high") > 0);
	assert_true(harness_wait(has_given, &g, HARNESS_PATIENCE_MS));
	assert_int_equal(event("/g", "max"), 0);
	tally_detach(holder);
	tally_detach(p);
}

/* A limit that is set below what is there takes idle credit back at once. */
static int has_no_stock(void *userdata)
{
	return harness_value(tally, userdata, "memory.stat", "stock") == 0;
}

static void test_set(void **state _unused_)
{
	struct tally_pool *p = harness_attach(tally, "/t");
	char path[] = "/t";

	assert_int_equal(tally_charge(p, 2 * MIB), 0);
	tally_uncharge(p, 1 * MIB);
	assert_false(has_no_stock(path));
	set("/t", "memory.high", "64K");
	assert_true(harness_wait(has_no_stock, path, HARNESS_PATIENCE_MS));
	assert_int_equal(event("/t", "high"), 0);
	tally_detach(p);
}

/* ------------------------------------------------------------------ sleeping */

struct sleeper {
	struct tally_pool *pool;
	pthread_t thread;
	_Atomic int result; /* 1: none yet */
};

static void *sleep_in_charge(void *userdata)
{
	struct sleeper *s = userdata;

	atomic_store(&s->result, tally_charge(s->pool, 8 * MIB));
	pthread_testcancel();
	return NULL;
}

static int has_high(void *userdata)
{
	return event(userdata, "high") > 0;
}

static void start_sleeper(struct sleeper *s, char *path)
{
	atomic_store(&s->result, 1);
	s->pool = attach(path, "1M");
	assert_int_equal(pthread_create(&s->thread, NULL, sleep_in_charge, s), 0);
	assert_true(harness_wait(has_high, path, HARNESS_PATIENCE_MS));
}

/* Nobody else is held up: not who charges another pool, the same pool without waiting, or looks. */
static void test_others_go_on(void **state _unused_)
{
	struct tally_pool *other = harness_attach(tally, "/others");
	bool while_it_slept = false;

	for (unsigned i = 0; i < 20 && !while_it_slept; i++) {
		char path[32];
		struct sleeper s;

		snprintf(path, sizeof(path), "/sleeps/%u", i);
		start_sleeper(&s, path);
		for (unsigned n = 0; n < 32; n++)
			assert_int_equal(tally_charge(other, 64 * KIB), 0);
		tally_uncharge(s.pool, 4 * KIB);
		while_it_slept = atomic_load(&s.result) == 1;
		assert_int_equal(pthread_join(s.thread, NULL), 0);
		assert_int_equal(atomic_load(&s.result), 0);
		tally_detach(s.pool);
	}
	assert_true(while_it_slept);
	tally_detach(other);
}

/* It is no cancellation point: the charge is whole, and the thread ends behind it. */
static void test_cancel(void **state _unused_)
{
	char path[] = "/cancel";
	struct sleeper s;
	void *result;

	start_sleeper(&s, path);
	assert_int_equal(pthread_cancel(s.thread), 0);
	assert_int_equal(pthread_join(s.thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	assert_int_equal(atomic_load(&s.result), 0);
	assert_int_equal(harness_current(tally, path), 8 * MIB);
	tally_detach(s.pool);
}

static struct tally_pool *handled;
static _Atomic unsigned n_handled;

static void on_signal(int n _unused_)
{
	if (tally_try_charge(handled, 1) == 0)
		tally_uncharge(handled, 1);
	atomic_fetch_add(&n_handled, 1);
}

/* Signals, whose handlers charge, make it no shorter. */
static void test_signals(void **state _unused_)
{
	struct sigaction sa = {.sa_handler = on_signal};
	uint64_t begin = harness_now();
	char path[] = "/signals";
	struct sleeper s;

	handled = harness_attach(tally, "/handled");
	assert_int_equal(sigaction(SIGUSR1, &sa, NULL), 0);
	start_sleeper(&s, path);
	for (unsigned i = 0; i < 50; i++) {
		assert_int_equal(pthread_kill(s.thread, SIGUSR1), 0);
		usleep(1000);
	}
	assert_int_equal(pthread_join(s.thread, NULL), 0);
	assert_int_equal(atomic_load(&s.result), 0);
	assert_true(harness_now() - begin >= LONG_DELAY);
	assert_true(atomic_load(&n_handled) > 0);
	tally_detach(handled);
	tally_detach(s.pool);
}

/* Whoever leaves the pool while it sleeps waits there no more. */
static void test_detached(void **state _unused_)
{
	char path[] = "/leaves/p";
	struct tally_pool *stays = harness_attach(tally, "/leaves");
	struct sleeper s;
	uint64_t total;

	start_sleeper(&s, path);
	tally_pool_ref(s.pool);
	tally_detach(s.pool);
	total = pressure("/leaves", false);
	assert_int_equal(pressure("/leaves", false), total);
	assert_int_equal(pthread_join(s.thread, NULL), 0);
	assert_int_equal(atomic_load(&s.result), 0);
	assert_int_equal(pressure("/leaves", false), total);
	tally_pool_unref(s.pool);
	/* and what was never told does not come to light later */
	assert_int_equal(tally_remove(tally, path, 0), 0);
	assert_int_equal(pressure("/leaves", false), total);
	assert_int_equal(pressure("/leaves", true), 0);
	tally_detach(stays);
}

/* ------------------------------------------------------------------ waiting at a limit */

struct waiter {
	struct tally_pool *pool;
	uint64_t deadline_usec;
	_Atomic int result;
};

static void *wait_in_queue(void *userdata)
{
	struct waiter *w = userdata;
	struct tally_charge_args a = {.bytes = 1 * MIB, .deadline_usec = w->deadline_usec};

	atomic_store(&w->result, tally_charge_with(w->pool, &a, sizeof(a)));
	return NULL;
}

/* Who stands in line waits, and the pools above have that too. */
static void test_queue(void **state _unused_)
{
	struct tally_pool *p = harness_attach(tally, "/line"),
			  *q = harness_attach(tally, "/line/q");
	struct waiter w = {q, harness_now() + 600 * SECONDS_USEC, 1};
	struct stalls s = {"/line", 20000};
	pthread_t thread;

	set("/line", "memory.max", "1M");
	assert_int_equal(tally_charge(p, 1 * MIB), 0);
	assert_int_equal(pressure("/line", false), 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_in_queue, &w), 0);
	assert_true(harness_wait(has_stalled, &s, HARNESS_PATIENCE_MS));
	tally_uncharge(p, 1 * MIB);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(atomic_load(&w.result), 0);
	/* all of /line/q waited, not all of /line */
	assert_true(pressure("/line/q", true) >= s.least);
	assert_int_equal(pressure("/line", true), 0);
	/* and it is over */
	s.least = pressure("/line", false);
	assert_int_equal(pressure("/line", false), s.least);
	tally_detach(q);
	tally_detach(p);
}

/* ------------------------------------------------------------------ processes */

/* The delay of one that dies while it sleeps is over with it. */
static void test_killed(void **state _unused_)
{
	struct tally_pool *p = harness_attach(tally, "/dies");
	char path[] = "/dies/a";
	struct actor a;
	uint64_t total;

	actor_start(&a, &harness, path);
	set(path, "memory.high", "1M");
	actor_tell(&a, ACTOR_CHARGE, 32 * MIB, 0);
	assert_true(harness_wait(has_high, path, HARNESS_PATIENCE_MS));
	actor_kill(&a);
	assert_true(harness_wait(has_no_members, path, HARNESS_PATIENCE_MS));
	total = pressure("/dies", false);
	assert_true(total > 0);
	assert_int_equal(pressure("/dies", false), total);
	assert_int_equal(harness_current(tally, "/dies"), 0);
	tally_detach(p);
}

/* Many at once, with delays of all lengths: each of them ends. */
static void test_many(void **state _unused_)
{
	struct actor a[24];
	struct tally_pool *p = attach("/many", "8M");
	char path[] = "/many";
	uint64_t total;

	for (unsigned i = 0; i < ELEMENTS(a); i++)
		actor_start(&a[i], &harness, "/many");
	assert_int_equal(tally_charge(p, 8 * MIB), 0);
	for (unsigned i = 0; i < ELEMENTS(a); i++)
		actor_tell(&a[i], ACTOR_CHARGE, (i + 1) * 8 * KIB, 0);
	for (unsigned i = 0; i < ELEMENTS(a); i++)
		assert_int_equal(actor_result(&a[i]), 0);
	assert_true(harness_wait(has_come_to_rest, path, HARNESS_PATIENCE_MS));
	total = pressure("/many", false);
	assert_true(total > 0);
	assert_int_equal(pressure("/many", true), 0);
	for (unsigned i = 0; i < ELEMENTS(a); i++)
		actor_kill(&a[i]);
	tally_detach(p);
}

/* ------------------------------------------------------------------ exported */

static int stop_daemon(void **state _unused_)
{
	tally = tally_close(tally);
	harness_stop(&harness);
	return 0;
}

/* Averages fall when nothing happens: the file follows. */
static int file_is_right(void *userdata)
{
	_cleanup_(freep) char *asked = harness_get(tally, userdata, "memory.pressure");
	char name[256], text[512];
	size_t n;
	FILE *f;

	snprintf(name, sizeof(name), "%s/pools%s/memory.pressure", harness.runtime,
		(const char *)userdata);
	f = fopen(name, "re");
	if (!f)
		return 0;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	return strcmp(asked, text) == 0;
}

struct average {
	char *path;
	char text[512];
};

static int file_is_right_again(void *userdata)
{
	struct average *a = userdata;
	_cleanup_(freep) char *asked = harness_get(tally, a->path, "memory.pressure");

	return strcmp(asked, a->text) != 0 && file_is_right(a->path);
}

static void test_exported(void **state _unused_)
{
	char path[] = "/x";
	struct average average = {.path = path};
	struct tally_pool *p;

	harness_start(&harness,
		"[daemon]\nflush_interval = 100ms\nexport = /x\nexport_files = memory.pressure\n");
	tally = harness_open(&harness);
	p = attach(path, "1M");
	assert_true(harness_wait(file_is_right, path, HARNESS_PATIENCE_MS));
	assert_int_equal(tally_charge(p, 32 * MIB), 0);
	for (unsigned i = 0; i < 2; i++) {
		char *text;

		assert_true(harness_wait(file_is_right, path, HARNESS_PATIENCE_MS));
		text = harness_get(tally, path, "memory.pressure");
		snprintf(average.text, sizeof(average.text), "%s", text);
		free(text);
		assert_true(harness_wait(file_is_right_again, &average, HARNESS_PATIENCE_MS));
	}
	tally_detach(p);
	stop_daemon(NULL);
}

/* ------------------------------------------------------------------ both engines */

static int start_daemon(void **state _unused_)
{
	harness_start(&harness, "");
	tally = harness_open(&harness);
	return 0;
}

static int start_embedded(void **state _unused_)
{
	return tally_open("embedded:", 0, &tally);
}

static int stop_embedded(void **state _unused_)
{
	tally = tally_close(tally);
	return 0;
}

#define DAEMON(test) cmocka_unit_test_setup_teardown(test, start_daemon, stop_daemon)
#define BOTH(test)                                                                                 \
	DAEMON(test), cmocka_unit_test_setup_teardown(test, start_embedded, stop_embedded)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_default),
		BOTH(test_stays_near_high),
		BOTH(test_large),
		BOTH(test_max_and_peak),
		BOTH(test_exact),
		BOTH(test_small_delays_are_none),
		BOTH(test_nowait),
		BOTH(test_deadline),
		BOTH(test_above),
		BOTH(test_credit),
		DAEMON(test_giver),
		BOTH(test_set),
		BOTH(test_others_go_on),
		BOTH(test_cancel),
		BOTH(test_signals),
		BOTH(test_detached),
		BOTH(test_queue),
		DAEMON(test_killed),
		DAEMON(test_many),
		cmocka_unit_test(test_exported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
