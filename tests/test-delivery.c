/* SPDX-License-Identifier: MIT */

/*
 * The engine inside a process, as programs meet it: through tally.h, with threads that charge,
 * signals that interrupt them, and drains that close the gate on all of them. Each case runs with
 * both kinds of per-CPU operation.
 */

#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "core/batch.h"
#include "core/percpu.h"

#define K UINT64_C(1024)
#define M (K * K)
#define THREADS 4
#define POOLS 10 /* more than a stock has slots */

static const char *kind;

static int set_up_atomics(void **state _unused_)
{
	kind = "atomic";
	return setenv("TALLY_PERCPU", kind, 1);
}

static int set_up_sequences(void **state _unused_)
{
	kind = "rseq";
	return setenv("TALLY_PERCPU", kind, 1);
}

static int tear_down(void **state _unused_)
{
	return unsetenv("TALLY_PERCPU");
}

static struct tally *open_embedded(const char *config)
{
	struct tally_options o = {.address = "embedded:", .config = config};
	struct tally *t;

	assert_int_equal(tally_open_with(&o, sizeof(o), &t), 0);
	return t;
}

static void set(struct tally *t, const char *path, const char *file, const char *value)
{
	assert_int_equal(tally_set(t, path, file, value), 0);
}

/* ------------------------------------------------------------------ opening */

static void test_engines_are_apart(void **state _unused_)
{
	struct tally *a = open_embedded(NULL), *b = open_embedded(NULL);
	struct tally_pool *p = harness_attach(a, "/one");
	char *text;

	assert_int_equal(tally_charge(p, 1000), 0);
	assert_int_equal(harness_current(a, "/"), 1000);
	assert_int_equal(harness_current(b, "/"), 0);
	assert_int_equal(tally_get(b, "/one", "memory.current", 0, &text), -ENOENT);
	tally_detach(p);
	assert_int_equal(harness_current(a, "/"), 0);
	tally_close(b);
	tally_close(a);
}

static char *write_config(const char *text)
{
	static char path[] = "/tmp/tally-embedded-XXXXXX";
	int fd;

	strcpy(path + strlen(path) - 6, "XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	return path;
}

static void test_configuration(void **state _unused_)
{
	char *path = write_config("[stat buffers]\ntype = gauge\n"
				  "[pool a]\npath = /a\nmemory.max = 1M\n"
				  "[pool b]\npath = /b\nstat.buffers.max = 4K\n");
	struct tally_options o = {.address = "embedded:", .config = path};
	struct tally *t = open_embedded(path), *none = NULL;
	struct tally_pool *p = harness_attach(t, "/a/b");
	tally_item buffers;

	assert_int_equal(tally_item_lookup(t, "buffers", &buffers), 0);
	assert_int_equal(tally_charge_item(p, buffers, M), 0);
	assert_int_equal(tally_charge(p, 1), -ENOMEM);
	assert_int_equal(harness_value(t, "/a", "memory.stat", "buffers"), M);
	assert_int_equal(harness_value(t, "/a", "memory.events", "max"), 1);
	tally_uncharge_item(p, buffers, M);
	tally_detach(p);
	p = harness_attach(t, "/b");
	assert_int_equal(tally_charge_item(p, buffers, 4 * K), 0);
	assert_int_equal(tally_charge_item(p, buffers, 1), -ENOMEM);
	assert_int_equal(tally_charge(p, M), 0);
	tally_detach(p);
	tally_close(t);
	unlink(path);
	assert_int_equal(tally_open_with(&o, sizeof(o), &none), -ENOENT);

	path = write_config("[pool a]\npath = /a\nmemory.max = much\n");
	o.config = path;
	assert_int_equal(tally_open_with(&o, sizeof(o), &none), -EINVAL);
	unlink(path);
	o.address = "unix:/nonexistent/s";
	assert_int_equal(tally_open_with(&o, sizeof(o), &none), -EINVAL);
	assert_null(none);
}

static void test_define(void **state _unused_)
{
	struct tally *t = open_embedded(NULL);
	struct tally_pool *p = harness_attach(t, "/define");
	struct tally_item_def d = {.name = "rows", .type = TALLY_GAUGE, .unit = "bytes"};
	tally_item rows = 0, again = 0, untouched = 99;

	assert_int_equal(tally_item_define(t, &d, sizeof(d), &rows), 0);
	assert_true(rows > 0);
	assert_int_equal(tally_item_define(t, &d, sizeof(d), &again), 0);
	assert_int_equal(again, rows);
	assert_int_equal(tally_charge_item(p, rows, 77), 0);
	assert_int_equal(harness_value(t, "/define", "memory.stat", "rows"), 77);
	tally_uncharge_item(p, rows, 77);

	d.type = TALLY_EVENT;
	assert_int_equal(tally_item_define(t, &d, sizeof(d), &untouched), -EEXIST);
	d.type = 2;
	assert_int_equal(tally_item_define(t, &d, sizeof(d), &untouched), -EINVAL);
	d = (struct tally_item_def){.name = "Rows"};
	assert_int_equal(tally_item_define(t, &d, sizeof(d), &untouched), -EINVAL);
	d.name = NULL;
	assert_int_equal(tally_item_define(t, &d, sizeof(d), &untouched), -EINVAL);
	assert_int_equal(untouched, 99);
	tally_detach(p);
	tally_close(t);
}

/* ------------------------------------------------------------------ one thread */

/* Into the page of another CPU than the one that needs it, and from there by the gate. */
static void test_idle_credit_serves_others(void **state _unused_)
{
	struct tally *t = open_embedded(NULL);
	struct tally_pool *idle = harness_attach(t, "/m/idle"), *p = harness_attach(t, "/m/p");

	set(t, "/m", "memory.max", "4M");
	assert_int_equal(tally_charge(idle, 4 * M), 0);
	for (unsigned i = 0; i < 64; i++)
		tally_uncharge(idle, 64 * K);
	assert_true(harness_value(t, "/m", "memory.stat", "stock") > 0);
	assert_int_equal(tally_charge(p, 4 * M), 0);
	assert_int_equal(harness_current(t, "/m"), 4 * M);
	assert_int_equal(harness_value(t, "/m", "memory.events", "oom"), 0);
	assert_int_equal(tally_charge(idle, 1), -ENOMEM);
	tally_uncharge(p, 4 * M);
	set(t, "/m", "pool.drain", "1");
	assert_int_equal(harness_value(t, "/m", "memory.stat", "stock"), 0);
	tally_detach(p);
	tally_detach(idle);
	tally_close(t);
}

/* Of one item, up the tree; the rest of the pool is not touched by it. */
static uint64_t high_after_swings(struct tally_pool *p, uint64_t bytes, unsigned charges)
{
	for (unsigned swing = 0; swing < 50; swing++) {
		for (unsigned i = 0; i < charges; i++)
			assert_int_equal(tally_charge(p, bytes), 0);
		for (unsigned i = 0; i < charges; i++)
			tally_uncharge(p, bytes);
	}
	return atomic_load(&p->live->high);
}

/* A slot comes to hold several of the charges that it serves. */
static void test_mark_follows_charges(void **state _unused_)
{
	struct tally *t = open_embedded(NULL);
	struct tally_pool *p = harness_attach(t, "/p");
	uint64_t least = atomic_load(&p->live->high);

	assert_int_equal(high_after_swings(p, K, 2 * least / K), least);
	/* As far as the swing, and no farther than it takes to have the swing in the slot. */
	assert_true(high_after_swings(p, 100 * K, 20) >= 20 * 100 * K);
	assert_true(high_after_swings(p, 16 * M, 4) <= least * BATCH_HIGH_TIMES);
	assert_int_equal(high_after_swings(p, K, 64 * least / K), least);
	tally_detach(p);
	tally_close(t);
}

static void test_item_limit(void **state _unused_)
{
	struct tally *t = open_embedded(NULL);
	struct tally_pool *a = harness_attach(t, "/i/a"), *b = harness_attach(t, "/i/b");
	uint64_t held = 0;
	tally_item sock;

	assert_int_equal(tally_item_lookup(t, "sock", &sock), 0);
	assert_int_equal(tally_charge_item(a, sock, 100 * K), 0);
	set(t, "/i", "stat.sock.max", "64M");
	/* Idle credit of a neighbour, which counts as well. */
	assert_int_equal(tally_charge_item(b, sock, 4 * M), 0);
	tally_uncharge_item(b, sock, 4 * M);
	while (tally_charge_item(a, sock, 4 * K) == 0)
		held += 4 * K;
	assert_in_range(held + 100 * K, 64 * M / 1000 * 999, 64 * M);
	assert_int_equal(harness_value(t, "/i", "memory.stat", "sock"), held + 100 * K);
	assert_int_equal(tally_charge_item(b, sock, 64 * K), -ENOMEM);
	assert_int_equal(tally_charge(b, 64 * M), 0);
	set(t, "/i", "stat.sock.max", "max");
	assert_int_equal(tally_charge_item(b, sock, 64 * K), 0);
	tally_detach(a);
	tally_detach(b);
	tally_close(t);
}

static void test_force(void **state _unused_)
{
	struct tally *t = open_embedded(NULL);
	struct tally_pool *p = harness_attach(t, "/f");
	struct tally_charge_args a = {.bytes = 10, .flags = TALLY_FORCE};
	tally_item sock;

	assert_int_equal(tally_item_lookup(t, "sock", &sock), 0);
	set(t, "/f", "memory.max", "1M");
	assert_int_equal(tally_charge(p, M), 0);
	assert_int_equal(tally_charge(p, 1), -ENOMEM);
	tally_charge_force(p, 0, 5 * M);
	/* Of a key that the handle does not have yet, and some of it back before it has. */
	tally_charge_force(p, sock, 1000);
	tally_charge_force(p, sock, 2000);
	tally_uncharge_item(p, sock, 500);
	assert_int_equal(tally_charge_with(p, &a, sizeof(a)), 0);
	assert_int_equal(harness_current(t, "/f"), 6 * M + 2510);
	assert_int_equal(harness_value(t, "/f", "memory.stat", "sock"), 2500);
	assert_true(harness_value(t, "/f", "memory.events", "force") > 0);
	/* What it cannot charge it does not. */
	tally_charge_force(p, 65, 10);
	tally_charge_force(p, 0, TALLY_BYTES_MAX + 1);
	tally_charge_force(p, 0, 0);
	assert_int_equal(harness_current(t, "/f"), 6 * M + 2510);

	tally_uncharge_item(p, sock, 2500);
	tally_uncharge(p, 6 * M + 10);
	assert_int_equal(harness_current(t, "/f"), 0);
	assert_int_equal(harness_value(t, "/f", "memory.stat", "overdraft"), 0);
	tally_detach(p);
	tally_close(t);
}

static int use_in_child(void *userdata)
{
	struct tally_pool *p = userdata;
	struct tally *own;

	if (tally_charge(p, 10) != -ECHILD || tally_try_charge(p, 10) != -ECHILD)
		return 1;
	tally_uncharge(p, 10);
	tally_charge_force(p, 0, 10);
	tally_detach(p);
	if (tally_open("embedded:", 0, &own) < 0)
		return 2;
	p = harness_attach(own, "/child");
	if (tally_charge(p, 10) < 0 || harness_current(own, "/child") != 10)
		return 3;
	tally_close(own);
	return 0;
}

static void test_fork(void **state _unused_)
{
	struct tally_pool *p;
	struct tally *t;

	harness_skip_emulated("ignores MADV_WIPEONFORK");
	t = open_embedded(NULL);
	p = harness_attach(t, "/fork");

	assert_int_equal(tally_charge(p, 1000), 0);
	harness_join(harness_fork(use_in_child, p), 0);
	assert_int_equal(harness_current(t, "/fork"), 1000);
	assert_int_equal(tally_charge(p, 1000), 0);
	assert_int_equal(harness_current(t, "/fork"), 2000);
	tally_detach(p);
	tally_close(t);
}

static void test_close(void **state _unused_)
{
	struct tally *t = open_embedded(NULL);
	struct tally_pool *p = harness_attach(t, "/close");

	assert_int_equal(tally_charge(p, 1000), 0);
	tally_close(t);
	assert_int_equal(tally_charge(p, 1000), -ENODEV);
	assert_int_equal(tally_try_charge(p, 1000), -ENODEV);
	tally_uncharge(p, 1000);
	tally_charge_force(p, 0, 1000);
	tally_pool_unref(p);
}

/* ------------------------------------------------------------------ threads, signals, drains */

struct book {
	uint64_t held[POOLS][2]; /* by pool, and with the item */
};

struct worker {
	pthread_t thread;
	struct rig *rig;
	timer_t timer;
	uint64_t seed, seed_in_handler;
	struct book book, book_in_handler;
	_Atomic uint64_t signals;
};

struct rig {
	struct tally *t;
	struct tally_pool *pool[POOLS];
	tally_item item;
	_Atomic bool stop;
	_Atomic uint64_t filled, at_first_refusal;
	struct worker workers[THREADS];
};

static __thread struct worker *self;

static uint64_t next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static void step(struct rig *rig, uint64_t *seed, struct book *book, bool may_wait)
{
	uint64_t random = next_random(seed), bytes = 1 + (random >> 32) % (40 * K);
	unsigned n = random % POOLS, with_item = random >> 8 & 1;
	uint64_t *held = &book->held[n][with_item];
	tally_item item = with_item ? rig->item : 0;
	int r;

	if (random >> 9 & 1) {
		r = may_wait ? tally_charge_item(rig->pool[n], item, bytes)
			     : tally_try_charge_item(rig->pool[n], item, bytes);
		*held += r == 0 ? bytes : 0;
		return;
	}
	if (bytes > *held || (random >> 10) % 8 == 0)
		bytes = *held;
	*held -= bytes;
	tally_uncharge_item(rig->pool[n], item, bytes);
}

static void arm(struct worker *w)
{
	struct itimerspec t = {.it_value.tv_nsec = 200000};

	timer_settime(w->timer, 0, &t, NULL);
}

static void on_signal(int number _unused_)
{
	int saved = errno;

	self->signals++;
	for (unsigned i = 0; i < 3; i++)
		step(self->rig, &self->seed_in_handler, &self->book_in_handler, false);
	arm(self);
	errno = saved;
}

static void *work(void *arg)
{
	struct worker *w = self = arg;
	struct sigevent to_me = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};

	to_me._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	if (timer_create(CLOCK_MONOTONIC, &to_me, &w->timer) < 0)
		return w;
	arm(w);
	while (!atomic_load(&w->rig->stop))
		for (unsigned i = 0; i < 100; i++)
			step(w->rig, &w->seed, &w->book, true);
	timer_delete(w->timer);
	return NULL;
}

static void start(struct rig *rig, const char *limit)
{
	memset(rig, 0, sizeof(*rig));
	rig->t = open_embedded(NULL);
	for (unsigned i = 0; i < POOLS; i++) {
		char path[32];

		snprintf(path, sizeof(path), "/all/%u", i);
		rig->pool[i] = harness_attach(rig->t, path);
	}
	set(rig->t, "/all", "memory.max", limit);
	assert_int_equal(tally_item_lookup(rig->t, "sock", &rig->item), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		struct worker *w = &rig->workers[i];

		w->rig = rig;
		w->seed = UINT64_C(0x9e3779b97f4a7c15) * (i + 1);
		w->seed_in_handler = UINT64_C(0xd1b54a32d192ed03) * (i + 1);
		assert_int_equal(pthread_create(&w->thread, NULL, work, w), 0);
	}
}

static int all_were_interrupted(void *userdata)
{
	struct rig *rig = userdata;

	for (unsigned i = 0; i < THREADS; i++)
		if (atomic_load(&rig->workers[i].signals) == 0)
			return 0;
	return 1;
}

static void join(struct rig *rig)
{
	assert_true(harness_wait(all_were_interrupted, rig, HARNESS_PATIENCE_MS));
	atomic_store(&rig->stop, true);
	for (unsigned i = 0; i < THREADS; i++) {
		void *result;

		assert_int_equal(pthread_join(rig->workers[i].thread, &result), 0);
		assert_null(result);
	}
}

static uint64_t held(const struct rig *rig, unsigned pool, unsigned with_item)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < THREADS; i++)
		sum += rig->workers[i].book.held[pool][with_item] +
			rig->workers[i].book_in_handler.held[pool][with_item];
	return sum;
}

static void assert_exact(struct rig *rig)
{
	uint64_t sum = 0, items = 0;

	for (unsigned i = 0; i < POOLS; i++) {
		const char *path = tally_pool_path(rig->pool[i]);

		assert_int_equal(harness_current(rig->t, path), held(rig, i, 0) + held(rig, i, 1));
		assert_int_equal(
			harness_value(rig->t, path, "memory.stat", "sock"), held(rig, i, 1));
		sum += held(rig, i, 0) + held(rig, i, 1);
		items += held(rig, i, 1);
	}
	assert_int_equal(harness_current(rig->t, "/all"), sum);
	assert_int_equal(harness_value(rig->t, "/all", "memory.stat", "sock"), items);
	assert_int_equal(harness_value(rig->t, "/all", "memory.stat", "overdraft"), 0);
}

static uint64_t peak(struct tally *t, const char *path)
{
	char *text = harness_get(t, path, "memory.peak");
	uint64_t peak = strtoull(text, NULL, 10);

	free(text);
	return peak;
}

static void finish(struct rig *rig)
{
	for (unsigned i = 0; i < POOLS; i++)
		tally_detach(rig->pool[i]);
	assert_int_equal(harness_current(rig->t, "/"), 0);
	set(rig->t, "/", "memory.peak", "now");
	assert_int_equal(peak(rig->t, "/"), 0);
	tally_close(rig->t);
}

static void drain_for(struct rig *rig, unsigned ms)
{
	struct timespec now, end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += ms / 1000;
	do {
		set(rig->t, "/all", "pool.drain", "1");
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (
		now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
}

/* The gate closes and opens all the time. */
static void test_drains(void **state _unused_)
{
	struct rig rig;

	start(&rig, "max");
	drain_for(&rig, 1000);
	join(&rig);
	assert_exact(&rig);
	finish(&rig);
}

/* So little room that charges drain each other. */
static void test_limit(void **state _unused_)
{
	struct rig rig;

	start(&rig, "8M");
	while (harness_value(rig.t, "/all", "memory.events", "max") < 200)
		assert_true(harness_current(rig.t, "/all") <= 8 * M);
	join(&rig);
	assert_exact(&rig);
	assert_true(peak(rig.t, "/all") <= 8 * M);
	finish(&rig);
}

static void *fill(void *arg)
{
	struct worker *w = arg;
	struct tally_pool *p = w->rig->pool[w - w->rig->workers];

	uint64_t none = 0;

	while (tally_charge(p, 4 * K) == 0) {
		w->book.held[0][0] += 4 * K;
		atomic_fetch_add(&w->rig->filled, 4 * K);
	}
	/* The first refusal of any of them is the one that counts. */
	atomic_compare_exchange_strong(
		&w->rig->at_first_refusal, &none, atomic_load(&w->rig->filled));
	return NULL;
}

/* With credit lying about on every CPU, in pools that do not use it. */
static void test_limit_is_usable(void **state _unused_)
{
	uint64_t all = 0;
	struct rig rig;

	start(&rig, "64M");
	join(&rig);
	assert_exact(&rig);
	for (unsigned i = 0; i < THREADS; i++)
		for (unsigned p = 0; p < POOLS; p++)
			all += rig.workers[i].book.held[p][0] + rig.workers[i].book.held[p][1] +
				rig.workers[i].book_in_handler.held[p][0] +
				rig.workers[i].book_in_handler.held[p][1];
	for (unsigned i = 0; i < THREADS; i++) {
		memset(&rig.workers[i].book, 0, sizeof(rig.workers[i].book));
		assert_int_equal(
			pthread_create(&rig.workers[i].thread, NULL, fill, &rig.workers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(rig.workers[i].thread, NULL), 0);
	}
	assert_in_range(all + atomic_load(&rig.at_first_refusal), 64 * M / 1000 * 999, 64 * M);
	assert_int_equal(harness_current(rig.t, "/all"), all + atomic_load(&rig.filled));
	finish(&rig);
}

static void test_no_sequences(void **state _unused_)
{
	print_message("skipped: the threads of this process have no restartable sequences\n");
	skip();
}

#define BY(how, test)                                                                              \
	{                                                                                          \
#test " by " #how, test, set_up_##how, tear_down, NULL                             \
	}
#define BOTH(test) BY(atomics, test), BY(sequences, test)

int main(void)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	/* In pairs. */
	struct CMUnitTest tests[] = {
		BOTH(test_engines_are_apart),
		BOTH(test_configuration),
		BOTH(test_define),
		BOTH(test_idle_credit_serves_others),
		BOTH(test_mark_follows_charges),
		BOTH(test_item_limit),
		BOTH(test_force),
		BOTH(test_fork),
		BOTH(test_close),
		BOTH(test_drains),
		BOTH(test_limit),
		BOTH(test_limit_is_usable),
	};

	sigaction(SIGUSR1, &sa, NULL);
	if (!percpu_has_rseq())
		for (size_t i = 1; i < ELEMENTS(tests); i += 2) {
			tests[i].test_func = test_no_sequences;
			tests[i].setup_func = NULL;
			tests[i].teardown_func = NULL;
		}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
