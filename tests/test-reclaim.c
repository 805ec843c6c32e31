/* SPDX-License-Identifier: MIT */

/*
 * Clients that give back when others are short: real processes with callbacks under one limit, with the
 * numbers of the kernel's selftests of memory.min, memory.low and memory.reclaim; and clients whose
 * callback hangs, lies, or dies.
 */

#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/util.h"

#define M (UINT64_C(1) << 20)
#define CACHES 8

enum mood {
	GIVES,  /* what it is asked for */
	HANGS,  /* in its callback, for ten minutes */
	LIES,   /* that it has given */
	BOASTS, /* that it has given more than there is */
	LATER,  /* gives, and says so, from another thread, in 20 ms */
	DIES,   /* in its callback */
	FORKS,  /* in its callback, a child that asks what it may not */
	SILENT, /* never calls tally_dispatch() */
};

/* A process that caches: one attachment, so many bytes, a callback. */
struct cache {
	const char *address, *path;
	enum mood mood;
	uint64_t goal;
	pid_t pid;
	_Atomic uint64_t held, asked; /* bytes; questions */
	_Atomic bool ready;
};

struct rig {
	struct harness h;
	struct tally *t;
	struct cache *caches; /* CACHES of them, shared */
};

/* ------------------------------------------------------------------ caches */

static struct tally *child_tally;

static uint64_t give(struct cache *c, struct tally_pool *p, uint64_t want)
{
	uint64_t held = atomic_load(&c->held), bytes = want < held ? want : held;

	tally_uncharge(p, bytes);
	atomic_fetch_sub(&c->held, bytes);
	return bytes;
}

struct promise {
	struct cache *cache;
	struct tally_pool *pool;
	uint64_t want, token;
};

static void *keep_promise(void *userdata)
{
	struct promise *p = userdata;

	usleep(20000);
	tally_reclaim_done(child_tally, p->token, give(p->cache, p->pool, p->want));
	free(p);
	return NULL;
}

static int64_t promise(struct cache *c, struct tally_pool *p, uint64_t want, uint64_t token)
{
	struct promise *later = malloc(sizeof(*later));
	pthread_t thread;

	*later = (struct promise){c, p, want, token};
	if (pthread_create(&thread, NULL, keep_promise, later) != 0)
		_exit(4);
	pthread_detach(thread);
	return TALLY_LATER;
}

static void fork_and_ask(struct tally_pool *p, uint64_t token)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		tally_uncharge(p, M);
		_exit(tally_reclaim_done(child_tally, token, 1) != -ECHILD ||
			tally_charge(p, 1) != -ECHILD);
	}
	if (waitpid(child, &status, 0) != child || status != 0)
		_exit(5);
}

static int64_t on_reclaim(
	struct tally_pool *p, uint64_t want, uint64_t deadline, uint64_t token, void *userdata)
{
	struct cache *c = userdata;

	(void)deadline;
	atomic_fetch_add(&c->asked, 1);
	switch (c->mood) {
	case HANGS:
		sleep(600);
		return 0;
	case LIES:
		return (int64_t)want;
	case BOASTS:
		return INT64_MAX;
	case LATER:
		return promise(c, p, want, token);
	case DIES:
		raise(SIGKILL);
		return 0;
	case FORKS:
		fork_and_ask(p, token);
		return (int64_t)give(c, p, want);
	default:
		return (int64_t)give(c, p, want);
	}
}

static int run_cache(void *userdata)
{
	struct cache *c = userdata;
	struct tally_pool *p;
	struct pollfd poller;

	if (tally_open(c->address, 0, &child_tally) < 0 ||
		tally_attach(child_tally, c->path, TALLY_CREATE, &p) < 0 ||
		tally_on_reclaim(p, on_reclaim, c) < 0)
		return 1;
	while (atomic_load(&c->held) < c->goal) {
		if (tally_charge(p, M) < 0)
			return 2;
		atomic_fetch_add(&c->held, M);
	}
	atomic_store(&c->ready, true);
	if (c->mood == SILENT)
		sleep(600);
	poller = (struct pollfd){.fd = tally_fd(child_tally), .events = POLLIN};
	for (;;)
		if (poll(&poller, 1, -1) > 0 && tally_dispatch(child_tally) < 0)
			return 0;
}

static int is_ready(void *userdata)
{
	return atomic_load(&((struct cache *)userdata)->ready);
}

static struct cache *start(
	struct rig *rig, unsigned i, const char *path, enum mood mood, uint64_t bytes)
{
	struct cache *c = &rig->caches[i];

	*c = (struct cache){.address = rig->h.address, .path = path, .mood = mood, .goal = bytes};
	c->pid = harness_fork(run_cache, c);
	assert_true(harness_wait(is_ready, c, HARNESS_PATIENCE_MS));
	return c;
}

static void stop(struct cache *c)
{
	if (c->pid == 0)
		return;
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	c->pid = 0;
}

/* ------------------------------------------------------------------ the rig */

static int set_up(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	harness_start(&rig->h, "");
	rig->t = harness_open(&rig->h);
	rig->caches = harness_shared(CACHES * sizeof(*rig->caches));
	*state = rig;
	return 0;
}

static int tear_down(void **state)
{
	struct rig *rig = *state;

	for (unsigned i = 0; i < CACHES; i++)
		stop(&rig->caches[i]);
	harness_unshare(rig->caches, CACHES * sizeof(*rig->caches));
	tally_close(rig->t);
	harness_stop(&rig->h);
	free(rig);
	return 0;
}

static void make(struct rig *rig, const char *path, const char *file, const char *value)
{
	int r = tally_create(rig->t, path);

	assert_true(r == 0 || r == -EEXIST);
	if (file)
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

/* ------------------------------------------------------------------ memory.min, memory.low */

static void build_kernels_tree(struct rig *rig, const char *file)
{
	make(rig, "/A", "memory.max", "200M");
	make(rig, "/A/B", file, "50M");
	make(rig, "/A/B/C", file, "75M");
	make(rig, "/A/B/D", file, "25M");
	make(rig, "/A/B/E", file, "0");
	make(rig, "/A/B/F", file, "500M");
	make(rig, "/A/G", NULL, NULL);
	start(rig, 0, "/A/B/C", GIVES, 50 * M);
	start(rig, 1, "/A/B/D", GIVES, 50 * M);
	start(rig, 2, "/A/B/E", GIVES, 50 * M);
	start(rig, 3, "/A/B/F", GIVES, 0);
}

static void print_kernels_numbers(struct rig *rig)
{
	print_message("C %" PRIu64 ".%" PRIu64 "M, D %" PRIu64 ".%" PRIu64 "M, E %" PRIu64
		      "K, F %" PRIu64 "K\n",
		rig->caches[0].held / M, rig->caches[0].held % M * 10 / M, rig->caches[1].held / M,
		rig->caches[1].held % M * 10 / M, rig->caches[2].held / 1024,
		rig->caches[3].held / 1024);
}

static void assert_kernels_numbers(struct rig *rig)
{
	print_kernels_numbers(rig);
	assert_near(harness_current(rig->t, "/A/B"), 50 * M);
	assert_near(harness_current(rig->t, "/A/B/C"), 29 * M);
	assert_near(harness_current(rig->t, "/A/B/D"), 21 * M);
	assert_true(harness_current(rig->t, "/A/B/E") < 3 * M);
	assert_int_equal(harness_current(rig->t, "/A/B/F"), 0);
}

/* 148M in A/G, in steps or at once, and then more than the protection leaves. */
static void press(struct rig *rig, const char *file, uint64_t step)
{
	bool min = strcmp(file, "memory.min") == 0;
	struct tally_pool *g;
	uint64_t more = (min ? 170 : 166) - 148;

	build_kernels_tree(rig, file);
	g = harness_attach(rig->t, "/A/G");
	for (uint64_t done = 0; done < 148 * M; done += step)
		assert_int_equal(tally_charge(g, step), 0);
	assert_kernels_numbers(rig);
	assert_int_equal(event(rig, "/A/B/C", "low"), 0);
	assert_int_equal(event(rig, "/A/B/D", "low"), 0);
	assert_true(event(rig, "/A", "reclaim") > 0);
	assert_int_equal(event(rig, "/A", "oom"), 0);

	if (min) {
		assert_int_equal(tally_charge(g, more * M), -ENOMEM);
		assert_int_equal(event(rig, "/A", "oom"), 1);
		assert_kernels_numbers(rig);
	} else {
		assert_int_equal(tally_charge(g, more * M), 0);
		assert_true(event(rig, "/A/B/C", "low") > 0);
		assert_true(event(rig, "/A/B/D", "low") > 0);
		assert_near(harness_current(rig->t, "/A/B"), 34 * M);
	}
	assert_int_equal(event(rig, "/A/B/E", "low"), 0);
	assert_int_equal(event(rig, "/A/B/F", "low"), 0);
	tally_detach(g);
}

static void test_min_at_once(void **state)
{
	press(*state, "memory.min", 148 * M);
}

static void test_min_in_steps(void **state)
{
	press(*state, "memory.min", M);
}

static void test_low_at_once(void **state)
{
	press(*state, "memory.low", 148 * M);
}

static void test_low_in_steps(void **state)
{
	press(*state, "memory.low", M / 2);
}

/* ------------------------------------------------------------------ memory.reclaim */

/* 0 only when the goal is reached, else only EAGAIN. */
static void test_memory_reclaim(void **state)
{
	struct rig *rig = *state;
	uint64_t before, after;
	int r;

	make(rig, "/a", NULL, NULL);
	assert_int_equal(tally_set(rig->t, "/a", "memory.reclaim", "1M"), -EAGAIN);
	assert_int_equal(tally_set(rig->t, "/a", "memory.reclaim", "0"), 0);
	assert_int_equal(tally_set(rig->t, "/a", "memory.reclaim", "-1"), -EINVAL);
	assert_int_equal(tally_set(rig->t, "/a", "memory.reclaim", "max"), -EINVAL);
	assert_int_equal(tally_set(rig->t, "/a", "memory.reclaim", "9999999E"), -ERANGE);
	start(rig, 0, "/a/x", GIVES, 40 * M);
	start(rig, 1, "/a/y", GIVES, 10 * M);
	/* What lies idle would count. */
	assert_int_equal(tally_set(rig->t, "/a", "pool.drain", "1"), 0);
	before = harness_current(rig->t, "/a");
	assert_int_equal(before, 50 * M);
	assert_int_equal(tally_set(rig->t, "/a", "memory.reclaim", "10M"), 0);
	after = harness_current(rig->t, "/a");
	assert_in_range(after, 39 * M, 40 * M);
	assert_near(rig->caches[0].held, 32 * M);
	assert_near(rig->caches[1].held, 8 * M);
	assert_int_equal(event(rig, "/a", "reclaim"), 1);
	/* More than there is: all of it comes. */
	assert_int_equal(tally_set(rig->t, "/a", "memory.reclaim", "1G"), -EAGAIN);
	assert_int_equal(harness_current(rig->t, "/a"), 0);
	for (unsigned i = 0; i < 3; i++) {
		r = tally_set(rig->t, "/a", "memory.reclaim", "4K");
		assert_int_equal(r, -EAGAIN);
	}
}

/* Idle credit counts, and protection holds. */
static void test_memory_reclaim_idle(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p = harness_attach(rig->t, "/a");

	assert_int_equal(tally_charge(p, M), 0);
	tally_uncharge(p, M);
	assert_int_equal(tally_set(rig->t, "/a", "memory.reclaim", "1M"), 0);
	assert_int_equal(harness_value(rig->t, "/a", "memory.stat", "stock"), 0);
	tally_detach(p);
	make(rig, "/a/x", "memory.min", "100M");
	start(rig, 0, "/a/x", GIVES, 20 * M);
	assert_int_equal(tally_set(rig->t, "/a", "pool.drain", "1"), 0);
	assert_int_equal(tally_set(rig->t, "/a", "memory.reclaim", "1M"), -EAGAIN);
	assert_int_equal(rig->caches[0].held, 20 * M);
	/* From below the protected pool itself nothing protects. */
	assert_int_equal(tally_set(rig->t, "/a/x", "memory.reclaim", "1M"), 0);
}

/* Who wrote is gone before it is answered. */
static void test_memory_reclaim_left(void **state)
{
	struct rig *rig = *state;
	struct tally *t = harness_open(&rig->h);
	pid_t child;

	tally_close(t);
	start(rig, 0, "/a", HANGS, 20 * M);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		if (tally_open(rig->h.address, 0, &t) < 0)
			_exit(1);
		alarm(1);
		tally_set(t, "/a", "memory.reclaim", "10M");
		raise(SIGKILL);
	}
	waitpid(child, NULL, 0);
	assert_int_equal(tally_set(rig->t, "/a", "memory.reclaim", "10M"), -EAGAIN);
}

static int is_below_high(void *userdata)
{
	return harness_current(userdata, "/a") <= 20 * M;
}

/* memory.high is asked for in the background. */
static void test_high(void **state)
{
	struct rig *rig = *state;

	make(rig, "/a", "memory.high", "20M");
	start(rig, 0, "/a/x", GIVES, 19 * M);
	assert_int_equal(tally_set(rig->t, "/a", "memory.high", "10M"), 0);
	assert_int_equal(tally_set(rig->t, "/a", "memory.high", "20M"), 0);
	start(rig, 1, "/a/y", GIVES, 10 * M);
	assert_true(harness_wait(is_below_high, rig->t, HARNESS_PATIENCE_MS));
	assert_true(event(rig, "/a", "high") > 0);
	assert_true(event(rig, "/a", "reclaim") > 0);
}

/* ------------------------------------------------------------------ the ninth */

/* /c has 800M, of which eight cache all; their sizes, in M. */
static const unsigned sizes[CACHES] = {30, 50, 70, 90, 110, 130, 150, 170};
static const char *const paths[CACHES] = {
	"/c/0", "/c/1", "/c/2", "/c/3", "/c/4", "/c/5", "/c/6", "/c/7"};

static void fill(struct rig *rig, const enum mood moods[static CACHES])
{
	make(rig, "/c", "memory.max", "800M");
	for (unsigned i = 0; i < CACHES; i++)
		start(rig, i, paths[i], moods ? moods[i] : GIVES, sizes[i] * M);
	assert_int_equal(harness_current(rig->t, "/c"), 800 * M);
}

static const enum mood all_give[CACHES] = {GIVES};

/* Charges, and tells how long that took. */
static int charge_ninth(struct rig *rig, struct tally_pool *p, uint64_t bytes)
{
	uint64_t begin = harness_now(), took;
	int r = tally_charge(p, bytes);

	(void)rig;
	took = harness_now() - begin;
	print_message("the ninth: %s after %" PRIu64 ".%03" PRIu64 " ms\n",
		r == 0 ? "got it" : strerror(-r), took / 1000, took % 1000);
	/* Far above what it may take: for a broken one. */
	assert_true(took < HARNESS_PATIENCE_MS * UINT64_C(1000));
	return r;
}

static void test_ninth(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p;

	fill(rig, all_give);
	p = harness_attach(rig->t, "/c/ninth");
	assert_int_equal(charge_ninth(rig, p, 640 * M), 0);
	/* In proportion: a fifth is left of each. */
	for (unsigned i = 0; i < CACHES; i++)
		assert_near(rig->caches[i].held, sizes[i] * M / 5);
	assert_int_equal(event(rig, "/c", "oom"), 0);
	assert_int_equal(event(rig, "/c", "reclaim"), 1);
	assert_true(event(rig, "/c", "max") >= 1);
	tally_detach(p);
}

/* Several ask at once: all get theirs. */
static int charge_some(void *userdata)
{
	struct rig *rig = userdata;
	struct tally_pool *p;
	struct tally *t;
	int r;

	if (tally_open(rig->h.address, 0, &t) < 0 ||
		tally_attach(t, "/c/ninth", TALLY_CREATE, &p) < 0)
		return 1;
	r = tally_charge(p, 100 * M);
	if (r == 0)
		sleep(1);
	return r == 0 ? 0 : 2;
}

static void test_several_at_once(void **state)
{
	struct rig *rig = *state;
	pid_t children[6];

	fill(rig, all_give);
	for (unsigned i = 0; i < ELEMENTS(children); i++)
		children[i] = harness_fork(charge_some, rig);
	for (unsigned i = 0; i < ELEMENTS(children); i++)
		harness_join(children[i], 0);
	assert_int_equal(event(rig, "/c", "oom"), 0);
}

/* Protected ones keep theirs, as long as there is anything else. */
static void test_ninth_protected(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p;

	make(rig, "/c", NULL, NULL);
	make(rig, "/c/0", "memory.min", "30M");
	make(rig, "/c/1", "memory.low", "50M");
	fill(rig, all_give);
	p = harness_attach(rig->t, "/c/ninth");
	assert_int_equal(charge_ninth(rig, p, 640 * M), 0);
	assert_int_equal(rig->caches[0].held, 30 * M);
	assert_int_equal(rig->caches[1].held, 50 * M);
	assert_int_equal(event(rig, "/c/1", "low"), 0);
	/* What is left of the others, and then low is broken, but min is not. */
	assert_int_equal(charge_ninth(rig, p, 120 * M), 0);
	assert_int_equal(rig->caches[0].held, 30 * M);
	assert_true(rig->caches[1].held < 50 * M);
	assert_true(event(rig, "/c/1", "low") > 0);
	assert_int_equal(charge_ninth(rig, p, 100 * M), -ENOMEM);
	assert_int_equal(rig->caches[0].held, 30 * M);
	tally_detach(p);
}

static void test_ninth_hanging(void **state)
{
	static const enum mood moods[CACHES] = {
		HANGS, GIVES, GIVES, SILENT, GIVES, GIVES, GIVES, GIVES};
	struct rig *rig = *state;
	struct tally_pool *p;

	fill(rig, moods);
	p = harness_attach(rig->t, "/c/ninth");
	assert_int_equal(charge_ninth(rig, p, 640 * M), 0);
	/* Nobody waits for it a second time. */
	tally_uncharge(p, 640 * M);
	assert_int_equal(tally_set(rig->t, "/c", "pool.drain", "1"), 0);
	assert_int_equal(charge_ninth(rig, p, 700 * M), -ENOMEM);
	assert_int_equal(rig->caches[0].asked, 1);
	assert_int_equal(rig->caches[0].held, 30 * M);
	assert_int_equal(event(rig, "/c", "oom"), 1);
	tally_detach(p);
}

static void test_ninth_all_hang(void **state)
{
	static const enum mood moods[CACHES] = {
		HANGS, HANGS, HANGS, HANGS, SILENT, SILENT, SILENT, SILENT};
	struct rig *rig = *state;
	struct tally_pool *p;

	fill(rig, moods);
	p = harness_attach(rig->t, "/c/ninth");
	assert_int_equal(charge_ninth(rig, p, 640 * M), -ENOMEM);
	assert_int_equal(charge_ninth(rig, p, 640 * M), -ENOMEM);
	tally_detach(p);
}

static void test_ninth_lying(void **state)
{
	static const enum mood moods[CACHES] = {
		LIES, GIVES, GIVES, GIVES, GIVES, GIVES, GIVES, LIES};
	static const enum mood all_lie[CACHES] = {LIES, LIES, LIES, LIES, LIES, LIES, LIES, LIES};
	struct rig *rig = *state;
	struct tally_pool *p;

	fill(rig, moods);
	p = harness_attach(rig->t, "/c/ninth");
	assert_int_equal(charge_ninth(rig, p, 560 * M), 0);
	assert_int_equal(rig->caches[0].held, 30 * M);
	tally_detach(p);
	for (unsigned i = 0; i < CACHES; i++)
		stop(&rig->caches[i]);
	assert_int_equal(tally_set(rig->t, "/c", "memory.max", "max"), 0);
	fill(rig, all_lie);
	p = harness_attach(rig->t, "/c/ninth");
	assert_int_equal(charge_ninth(rig, p, 560 * M), -ENOMEM);
	tally_detach(p);
}

/* No more is counted than was asked for. */
static void test_ninth_boasting(void **state)
{
	static const enum mood all_boast[CACHES] = {
		BOASTS, BOASTS, BOASTS, BOASTS, BOASTS, BOASTS, BOASTS, BOASTS};
	struct rig *rig = *state;
	uint64_t asked, reclaimed;
	const char *found;
	struct tally_pool *p;
	char *text;

	fill(rig, all_boast);
	p = harness_attach(rig->t, "/c/ninth");
	assert_int_equal(charge_ninth(rig, p, 560 * M), -ENOMEM);
	text = harness_get(rig->t, "/c", "pool.refusals");
	found = strstr(text, " asked=");
	assert_non_null(found);
	asked = strtoull(found + strlen(" asked="), NULL, 10);
	found = strstr(text, " reclaimed=");
	assert_non_null(found);
	reclaimed = strtoull(found + strlen(" reclaimed="), NULL, 10);
	free(text);
	assert_in_range(reclaimed, 1, asked);
	assert_in_range(harness_value(rig->t, "/", "tallyd.status", "reclaimed_bytes"), 1, asked);
	tally_detach(p);
}

static void test_ninth_later(void **state)
{
	static const enum mood moods[CACHES] = {
		LATER, LATER, GIVES, FORKS, GIVES, GIVES, FORKS, LATER};
	struct rig *rig = *state;
	struct tally_pool *p;

	fill(rig, moods);
	p = harness_attach(rig->t, "/c/ninth");
	assert_int_equal(charge_ninth(rig, p, 640 * M), 0);
	for (unsigned i = 0; i < CACHES; i++)
		assert_near(rig->caches[i].held, sizes[i] * M / 5);
	tally_detach(p);
}

/* What a client had that dies in its callback comes free. */
static void test_ninth_dying(void **state)
{
	static const enum mood moods[CACHES] = {
		GIVES, GIVES, GIVES, DIES, GIVES, GIVES, GIVES, DIES};
	struct rig *rig = *state;
	struct tally_pool *p;

	fill(rig, moods);
	p = harness_attach(rig->t, "/c/ninth");
	assert_int_equal(charge_ninth(rig, p, 640 * M), 0);
	tally_detach(p);
}

/* ------------------------------------------------------------------ in between */

struct asker {
	struct rig *rig;
	struct tally_pool *pool;
	uint64_t bytes;
	int result;
};

static void *charge_in_thread(void *userdata)
{
	struct asker *a = userdata;

	a->result = tally_charge(a->pool, a->bytes);
	return NULL;
}

static int was_asked(void *userdata)
{
	return atomic_load(&((struct cache *)userdata)->asked) > 0;
}

/* While a charge waits for clients that hang: they are killed, the charger's pool is detached, and all
 * of it is removed. */
static void test_ends_meanwhile(void **state)
{
	struct rig *rig = *state;
	struct asker a = {.rig = rig, .bytes = 30 * M};
	pthread_t thread;

	make(rig, "/c", "memory.max", "40M");
	start(rig, 0, "/c/0", HANGS, 20 * M);
	start(rig, 1, "/c/1", HANGS, 20 * M);
	a.pool = harness_attach(rig->t, "/c/ninth");
	assert_int_equal(pthread_create(&thread, NULL, charge_in_thread, &a), 0);
	assert_true(harness_wait(was_asked, &rig->caches[0], HARNESS_PATIENCE_MS));
	tally_pool_ref(a.pool);
	tally_detach(a.pool);
	pthread_join(thread, NULL);
	assert_int_equal(a.result, -ENODEV);
	tally_pool_unref(a.pool);
	stop(&rig->caches[0]);
	stop(&rig->caches[1]);
	for (unsigned tries = 0; tally_remove(rig->t, "/c/0", 0) < 0; tries++)
		assert_true(tries < HARNESS_PATIENCE_MS && usleep(1000) == 0);
	for (unsigned tries = 0; tally_remove(rig->t, "/c/1", 0) < 0; tries++)
		assert_true(tries < HARNESS_PATIENCE_MS && usleep(1000) == 0);
	assert_int_equal(tally_remove(rig->t, "/c/ninth", 0), 0);
	assert_int_equal(tally_remove(rig->t, "/c", 0), 0);
	/* The daemon is as before. */
	make(rig, "/c", "memory.max", "40M");
	start(rig, 2, "/c/2", GIVES, 40 * M);
	a.pool = harness_attach(rig->t, "/c/ninth");
	assert_int_equal(tally_charge(a.pool, 30 * M), 0);
	tally_detach(a.pool);
}

/* The counters of a charge that is refused show nothing of it, nor of what was tried. */
static void test_refused_leaves_nothing(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p;
	struct tally_refusal f;
	uint64_t max;
	char *peak, *later;

	make(rig, "/c", "memory.max", "40M");
	make(rig, "/c/0", "memory.min", "40M");
	start(rig, 0, "/c/0", GIVES, 30 * M);
	start(rig, 1, "/c/1", LIES, 5 * M);
	p = harness_attach(rig->t, "/c/ninth");
	peak = harness_get(rig->t, "/c", "memory.peak");
	max = event(rig, "/c", "max");
	assert_int_equal(tally_charge(p, 20 * M), -ENOMEM);
	assert_int_equal(harness_current(rig->t, "/c"), 35 * M);
	assert_int_equal(harness_current(rig->t, "/c/ninth"), 0);
	later = harness_get(rig->t, "/c", "memory.peak");
	assert_string_equal(later, peak);
	free(peak);
	free(later);
	assert_int_equal(event(rig, "/c", "max"), max + 1);
	assert_int_equal(event(rig, "/c", "oom"), 1);
	assert_int_equal(event(rig, "/c", "reclaim"), 1);
	assert_int_equal(tally_last_refusal(rig->t, sizeof(f), &f), 0);
	assert_string_equal(f.pool, "/c");
	assert_int_equal(f.wanted, 20 * M);
	assert_int_equal(f.held, 35 * M);
	assert_string_equal(f.holders, "31457280 /c/0\n5242880 /c/1\n");
	tally_detach(p);
}

/* Who waits in line gets what clients give back. */
static void test_queued(void **state)
{
	struct rig *rig = *state;
	struct tally_charge_args a = {.bytes = 30 * M};
	struct tally_pool *p;

	make(rig, "/c", "memory.max", "40M");
	start(rig, 0, "/c/0", GIVES, 40 * M);
	p = harness_attach(rig->t, "/c/ninth");
	a.deadline_usec = harness_now() + HARNESS_PATIENCE_MS * UINT64_C(1000);
	assert_int_equal(tally_charge_with(p, &a, sizeof(a)), 0);
	assert_true(rig->caches[0].held <= 10 * M);
	tally_detach(p);
}

/* Two limits, one above the other: both are made room below. */
static void test_two_levels(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p;

	make(rig, "/c", "memory.max", "100M");
	make(rig, "/c/d", "memory.max", "40M");
	start(rig, 0, "/c/d/0", GIVES, 40 * M);
	start(rig, 1, "/c/e", GIVES, 60 * M);
	p = harness_attach(rig->t, "/c/d/ninth");
	assert_int_equal(tally_charge(p, 38 * M), 0);
	/* Room below the lower one is room below both. */
	assert_true(rig->caches[0].held <= 2 * M);
	assert_int_equal(rig->caches[1].held, 60 * M);
	tally_detach(p);
	p = harness_attach(rig->t, "/c/f");
	assert_int_equal(tally_charge(p, 90 * M), 0);
	tally_detach(p);
}

static int got_credit(void *userdata)
{
	int r = tally_try_charge(userdata, 30 * M);

	assert_true(r == 0 || r == -EAGAIN);
	return r == 0;
}

/* tally_try_charge() does not wait, but asks for it. */
static void test_try(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p;

	make(rig, "/c", "memory.max", "40M");
	start(rig, 0, "/c/0", GIVES, 40 * M);
	p = harness_attach(rig->t, "/c/ninth");
	assert_true(harness_wait(got_credit, p, HARNESS_PATIENCE_MS));
	tally_detach(p);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_min_at_once),
		TEST(test_min_in_steps),
		TEST(test_low_at_once),
		TEST(test_low_in_steps),
		TEST(test_memory_reclaim),
		TEST(test_memory_reclaim_idle),
		TEST(test_memory_reclaim_left),
		TEST(test_high),
		TEST(test_ninth),
		TEST(test_several_at_once),
		TEST(test_ninth_protected),
		TEST(test_ninth_hanging),
		TEST(test_ninth_all_hang),
		TEST(test_ninth_lying),
		TEST(test_ninth_boasting),
		TEST(test_ninth_later),
		TEST(test_ninth_dying),
		TEST(test_ends_meanwhile),
		TEST(test_refused_leaves_nothing),
		TEST(test_queued),
		TEST(test_two_levels),
		TEST(test_try),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
