/* SPDX-License-Identifier: MIT */

/*
 * The counter is what keeps a limit: never passed, never refusing what fits, and never showing a
 * peak that was not held. Each of these has a test of one thread and one of many.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <time.h>

#include "core/counter.h"
#include "core/util.h"
#include "harness.h"

#define DEPTH 4

#ifndef ROUNDS /* of each thread; fewer will do where a tool makes them slow */
#define ROUNDS 60000
#endif

/* path[0] is the leaf, path[DEPTH - 1] the root. */
static void make_path(struct counter path[static DEPTH])
{
	for (int i = 0; i < DEPTH; i++)
		counter_init(&path[i], i + 1 < DEPTH ? &path[i + 1] : NULL);
}

/* Usage and decided agree whenever nothing is going on. */
static void assert_holds(const struct counter *c, uint64_t bytes)
{
	assert_int_equal(atomic_load(&c->usage), bytes);
	assert_int_equal(counter_read(c), bytes);
}

static void assert_path_holds(const struct counter path[static DEPTH], uint64_t bytes)
{
	for (int i = 0; i < DEPTH; i++)
		assert_holds(&path[i], bytes);
}

static void sleep_msec(long msec)
{
	nanosleep(&(struct timespec){.tv_nsec = msec * 1000000}, NULL);
}

static void test_init(void **state _unused_)
{
	struct counter parent, c;

	counter_init(&parent, NULL);
	counter_init(&c, &parent);
	assert_null(parent.parent);
	assert_ptr_equal(c.parent, &parent);
	assert_holds(&c, 0);
	assert_int_equal(atomic_load(&c.max), COUNTER_MAX);
	assert_int_equal(atomic_load(&c.peak), 0);
	assert_int_equal(atomic_load(&c.failcnt), 0);
}

static void test_charges_all_levels(void **state _unused_)
{
	struct counter path[DEPTH];

	make_path(path);
	assert_int_equal(counter_try_charge(&path[0], 100, NULL), 0);
	assert_path_holds(path, 100);
	assert_int_equal(counter_try_charge(&path[2], 7, NULL), 0);
	assert_holds(&path[1], 100);
	assert_holds(&path[2], 107);
	assert_holds(&path[3], 107);
	assert_int_equal(counter_uncharge(&path[2], 7), 0);
	assert_int_equal(counter_uncharge(&path[0], 100), 0);
	assert_path_holds(path, 0);
}

static void test_refusal_at_each_level(void **state _unused_)
{
	for (int level = 0; level < DEPTH; level++) {
		struct counter path[DEPTH], *failed = NULL;

		make_path(path);
		counter_set_max(&path[level], 100);
		assert_int_equal(counter_try_charge(&path[0], 60, &failed), 0);
		assert_null(failed);

		assert_int_equal(counter_try_charge(&path[0], 41, &failed), -ENOMEM);
		assert_ptr_equal(failed, &path[level]);
		assert_path_holds(path, 60);
		for (int i = 0; i < DEPTH; i++) {
			assert_int_equal(atomic_load(&path[i].failcnt), i == level);
			assert_int_equal(atomic_load(&path[i].peak), 60);
		}

		assert_int_equal(counter_try_charge(&path[0], 41, NULL), -ENOMEM);
		assert_int_equal(atomic_load(&path[level].failcnt), 2);
		assert_int_equal(counter_try_charge(&path[0], 40, NULL), 0);
		assert_path_holds(path, 100);
		assert_int_equal(counter_try_charge(&path[0], 1, NULL), -ENOMEM);
	}
}

static void test_zero_bytes(void **state _unused_)
{
	struct counter c;

	counter_init(&c, NULL);
	counter_charge(&c, 10);
	counter_set_max(&c, 5);
	assert_int_equal(counter_try_charge(&c, 0, NULL), 0);
	assert_int_equal(counter_uncharge(&c, 0), 0);
	assert_holds(&c, 10);
	assert_int_equal(atomic_load(&c.failcnt), 0);
}

static void test_limit_below_usage(void **state _unused_)
{
	struct counter path[DEPTH];

	make_path(path);
	assert_int_equal(counter_try_charge(&path[0], 100, NULL), 0);
	counter_set_max(&path[1], 40);
	assert_int_equal(counter_headroom(&path[0]), 0);
	assert_int_equal(counter_try_charge(&path[0], 1, NULL), -ENOMEM);
	assert_int_equal(counter_try_charge(&path[0], (UINT64_C(1) << 43) - 1, NULL), -ENOMEM);
	assert_path_holds(path, 100);

	counter_uncharge(&path[0], 60);
	assert_int_equal(counter_headroom(&path[0]), 0);
	assert_int_equal(counter_try_charge(&path[0], 1, NULL), -ENOMEM);
	counter_uncharge(&path[0], 1);
	assert_int_equal(counter_headroom(&path[0]), 1);
	assert_int_equal(counter_try_charge(&path[0], 1, NULL), 0);

	counter_set_max(&path[1], 0);
	counter_uncharge(&path[0], 40);
	assert_int_equal(counter_try_charge(&path[0], 1, NULL), -ENOMEM);
	assert_path_holds(path, 0);
}

static void test_unlimited_again(void **state _unused_)
{
	struct counter c;

	counter_init(&c, NULL);
	counter_set_max(&c, 10);
	assert_int_equal(counter_try_charge(&c, 11, NULL), -ENOMEM);
	counter_set_max(&c, COUNTER_MAX);
	assert_int_equal(counter_headroom(&c), COUNTER_MAX);
	assert_int_equal(counter_try_charge(&c, UINT64_C(1) << 42, NULL), 0);
	assert_holds(&c, UINT64_C(1) << 42);
}

static void test_headroom(void **state _unused_)
{
	struct counter path[DEPTH];

	make_path(path);
	assert_int_equal(counter_headroom(&path[0]), COUNTER_MAX);
	counter_charge(&path[0], 10);
	assert_int_equal(counter_headroom(&path[0]), COUNTER_MAX);
	counter_set_max(&path[3], 100);
	assert_int_equal(counter_headroom(&path[0]), 90);
	counter_set_max(&path[1], 30);
	assert_int_equal(counter_headroom(&path[0]), 20);
	assert_int_equal(counter_headroom(&path[1]), 20);
	assert_int_equal(counter_headroom(&path[2]), 90);
	counter_charge(&path[2], 85);
	assert_int_equal(counter_headroom(&path[0]), 5);
	counter_charge(&path[2], 85);
	assert_int_equal(counter_headroom(&path[0]), 0);
	assert_int_equal(counter_headroom(&path[3]), 0);
}

static void test_force_passes_limits(void **state _unused_)
{
	struct counter path[DEPTH];

	make_path(path);
	counter_set_max(&path[0], 10);
	counter_set_max(&path[2], 10);
	counter_charge(&path[0], 25);
	assert_path_holds(path, 25);
	assert_int_equal(atomic_load(&path[0].failcnt), 0);
	for (int i = 0; i < DEPTH; i++)
		assert_int_equal(atomic_load(&path[i].peak), 25);
	assert_int_equal(counter_try_charge(&path[0], 1, NULL), -ENOMEM);
	assert_int_equal(counter_uncharge(&path[0], 25), 0);
	assert_path_holds(path, 0);
}

static void test_excess_leaves_zero(void **state _unused_)
{
	struct counter path[DEPTH];

	make_path(path);
	assert_int_equal(counter_try_charge(&path[0], 10, NULL), 0);
	assert_int_equal(counter_try_charge(&path[1], 20, NULL), 0);
	assert_int_equal(counter_uncharge(&path[0], 25), 15);
	assert_holds(&path[0], 0);
	for (int i = 1; i < DEPTH; i++)
		assert_holds(&path[i], 5);

	assert_int_equal(counter_uncharge(&path[0], UINT64_MAX), UINT64_MAX);
	assert_path_holds(path, 0);
	assert_int_equal(counter_try_charge(&path[0], 1, NULL), 0);
	assert_path_holds(path, 1);
}

/* The numbers end somewhere: at the end charges are refused, or held there, but never start anew.
 */
static void test_end_of_numbers(void **state _unused_)
{
	struct counter c, *failed = NULL;

	counter_init(&c, NULL);
	counter_charge(&c, UINT64_MAX - 5);
	assert_int_equal(counter_try_charge(&c, 6, &failed), -ENOMEM);
	assert_ptr_equal(failed, &c);
	assert_int_equal(counter_try_charge(&c, 3, NULL), 0);
	assert_holds(&c, UINT64_MAX - 2);
	counter_charge(&c, 100);
	assert_holds(&c, UINT64_MAX);
	assert_int_equal(atomic_load(&c.peak), UINT64_MAX);
	assert_int_equal(counter_uncharge(&c, UINT64_MAX), 0);
	assert_holds(&c, 0);
}

static void test_peak(void **state _unused_)
{
	struct counter parent, c;

	counter_init(&parent, NULL);
	counter_init(&c, &parent);
	assert_int_equal(counter_try_charge(&c, 30, NULL), 0);
	assert_int_equal(atomic_load(&c.peak), 30);
	assert_int_equal(counter_try_charge(&c, 12, NULL), 0);
	assert_int_equal(atomic_load(&c.peak), 42);
	counter_uncharge(&c, 40);
	assert_int_equal(counter_try_charge(&c, 39, NULL), 0);
	assert_int_equal(atomic_load(&c.peak), 42);
	assert_int_equal(atomic_load(&parent.peak), 42);

	counter_set_max(&parent, 50);
	assert_int_equal(counter_try_charge(&c, 10, NULL), -ENOMEM);
	assert_int_equal(atomic_load(&c.peak), 42);

	counter_reset_peak(&c);
	assert_int_equal(atomic_load(&c.peak), 41);
	assert_int_equal(atomic_load(&parent.peak), 42);
	counter_uncharge(&c, 41);
	counter_reset_peak(&c);
	assert_int_equal(atomic_load(&c.peak), 0);
	assert_int_equal(counter_try_charge(&c, 1, NULL), 0);
	assert_int_equal(atomic_load(&c.peak), 1);
}

/* ------------------------------------------------------------------ undecided charges */

struct waiter {
	pthread_t thread;
	struct counter *counter;
	uint64_t bytes;
	int result;
	_Atomic bool done;
};

static void *run_waiter(void *arg)
{
	struct waiter *w = arg;

	w->result = counter_try_charge(w->counter, w->bytes, NULL);
	atomic_store(&w->done, true);
	return NULL;
}

/* A thread that charges 20 at the limit of 100 while 30 of the usage of 90 are another's,
 * undecided. */
static void start_beside_undecided(struct waiter *w, struct counter path[static DEPTH])
{
	make_path(path);
	counter_charge(&path[0], 60);
	counter_set_max(&path[1], 100);
	atomic_fetch_add(&path[1].usage, 30);

	*w = (struct waiter){.counter = &path[0], .bytes = 20};
	assert_int_equal(pthread_create(&w->thread, NULL, run_waiter, w), 0);
	sleep_msec(30);
	assert_false(atomic_load(&w->done));
	assert_int_equal(atomic_load(&path[1].usage), 90);
	assert_int_equal(counter_read(&path[0]), 60);
}

static void test_waits_and_fits(void **state _unused_)
{
	struct counter path[DEPTH];
	struct waiter w;

	start_beside_undecided(&w, path);
	atomic_fetch_sub(&path[1].usage, 30);
	pthread_join(w.thread, NULL);
	assert_int_equal(w.result, 0);
	assert_path_holds(path, 80);
	assert_int_equal(atomic_load(&path[1].failcnt), 0);
	for (int i = 0; i < DEPTH; i++)
		assert_int_equal(atomic_load(&path[i].peak), 80);
}

static void test_waits_and_is_refused(void **state _unused_)
{
	struct counter path[DEPTH];
	struct waiter w;

	start_beside_undecided(&w, path);
	atomic_fetch_add(&path[1].decided, 30);
	pthread_join(w.thread, NULL);
	assert_int_equal(w.result, -ENOMEM);
	assert_holds(&path[0], 60);
	assert_holds(&path[1], 90);
	assert_holds(&path[2], 60);
	assert_int_equal(atomic_load(&path[1].failcnt), 1);
	assert_int_equal(atomic_load(&path[0].peak), 60);
	assert_int_equal(atomic_load(&path[2].peak), 60);
}

static void test_waits_and_limit_is_raised(void **state _unused_)
{
	struct counter path[DEPTH];
	struct waiter w;

	start_beside_undecided(&w, path);
	counter_set_max(&path[1], 110);
	pthread_join(w.thread, NULL);
	assert_int_equal(w.result, 0);
	assert_int_equal(atomic_load(&path[1].usage), 110);
	assert_int_equal(counter_read(&path[1]), 80);
	assert_int_equal(atomic_load(&path[1].peak), 80);
}

/* What is undecided is neither shown nor a reason to refuse, but it is counted against the limit.
 */
static void test_undecided_is_not_held(void **state _unused_)
{
	struct counter c;

	counter_init(&c, NULL);
	counter_set_max(&c, 100);
	atomic_store(&c.usage, 30);
	assert_int_equal(counter_read(&c), 0);
	assert_int_equal(counter_headroom(&c), 70);
	assert_int_equal(counter_try_charge(&c, 70, NULL), 0);
	assert_int_equal(atomic_load(&c.peak), 70);
	counter_reset_peak(&c);
	assert_int_equal(atomic_load(&c.peak), 70);
	assert_int_equal(counter_uncharge(&c, 80), 10);
	assert_int_equal(atomic_load(&c.usage), 30);
}

/* ------------------------------------------------------------------ many threads */

struct load {
	pthread_t thread;
	struct counter *counter;
	uint64_t bytes;
	_Atomic uint64_t *held; /* what the threads hold, as they know it; NULL: nobody asks */
	unsigned rounds;        /* 0: until *stop */
	const _Atomic bool *stop;
	uint64_t charged, refused, most_held;
};

static void count_held(struct load *l)
{
	uint64_t held = atomic_fetch_add(l->held, l->bytes) + l->bytes;

	l->most_held = held > l->most_held ? held : l->most_held;
	atomic_fetch_sub(l->held, l->bytes);
}

static void *run_load(void *arg)
{
	struct load *l = arg;

	for (unsigned i = 0; l->rounds ? i < l->rounds : !atomic_load(l->stop); i++) {
		if (counter_try_charge(l->counter, l->bytes, NULL) < 0) {
			l->refused++;
			continue;
		}
		l->charged++;
		if (l->held)
			count_held(l);
		counter_uncharge(l->counter, l->bytes);
	}
	return NULL;
}

static void start_loads(struct load *l, size_t n)
{
	for (size_t i = 0; i < n; i++)
		assert_int_equal(pthread_create(&l[i].thread, NULL, run_load, &l[i]), 0);
}

static void join_loads(struct load *l, size_t n)
{
	for (size_t i = 0; i < n; i++)
		pthread_join(l[i].thread, NULL);
}

struct sampler {
	pthread_t thread;
	const struct counter *counter;
	uint64_t most_used;
	_Atomic bool stop;
};

static void *run_sampler(void *arg)
{
	struct sampler *s = arg;

	while (!atomic_load(&s->stop)) {
		uint64_t used = atomic_load(&s->counter->usage);

		s->most_used = used > s->most_used ? used : s->most_used;
		sched_yield();
	}
	return NULL;
}

/* The usage of the limited level and what the threads hold never pass the limit, and no level's
 * peak shows more than that, those above the limited one included. */
static void test_threads_at_a_limit(void **state _unused_)
{
	static const uint64_t sizes[] = {10, 25, 33, 40, 47, 60, 75, 90};
	struct counter path[DEPTH], leaves[ELEMENTS(sizes)];
	struct load loads[ELEMENTS(sizes)];
	_Atomic uint64_t held = 0;
	struct sampler s = {.counter = &path[1]};
	uint64_t charged = 0, refused = 0;

	make_path(path);
	counter_set_max(&path[1], 100);
	for (size_t i = 0; i < ELEMENTS(sizes); i++) {
		counter_init(&leaves[i], &path[0]);
		loads[i] = (struct load){
			.counter = &leaves[i],
			.bytes = sizes[i],
			.held = &held,
			.rounds = ROUNDS,
		};
	}

	assert_int_equal(pthread_create(&s.thread, NULL, run_sampler, &s), 0);
	start_loads(loads, ELEMENTS(loads));
	join_loads(loads, ELEMENTS(loads));
	atomic_store(&s.stop, true);
	pthread_join(s.thread, NULL);

	assert_in_range(s.most_used, 0, 100);
	assert_path_holds(path, 0);
	for (int i = 0; i < DEPTH; i++)
		assert_in_range(atomic_load(&path[i].peak), 1, 100);
	for (size_t i = 0; i < ELEMENTS(sizes); i++) {
		assert_in_range(loads[i].most_held, 0, 100);
		assert_holds(&leaves[i], 0);
		assert_int_equal(atomic_load(&leaves[i].peak), loads[i].charged ? sizes[i] : 0);
		assert_int_equal(atomic_load(&leaves[i].failcnt), 0);
		charged += loads[i].charged;
		refused += loads[i].refused;
	}
	assert_true(charged > 0);
	assert_int_equal(atomic_load(&path[1].failcnt), refused);
}

/* Of which only one at a time fits. */
static void test_two_at_a_limit(void **state _unused_)
{
	struct counter c;
	_Atomic uint64_t held = 0;
	struct load loads[] = {
		{.counter = &c, .bytes = 60, .held = &held, .rounds = 8 * ROUNDS},
		{.counter = &c, .bytes = 60, .held = &held, .rounds = 8 * ROUNDS},
	};

	counter_init(&c, NULL);
	counter_set_max(&c, 100);
	start_loads(loads, ELEMENTS(loads));
	join_loads(loads, ELEMENTS(loads));

	assert_in_range(loads[0].most_held, 0, 60);
	assert_in_range(loads[1].most_held, 0, 60);
	assert_int_equal(atomic_load(&c.peak), 60);
	assert_int_equal(atomic_load(&c.failcnt), loads[0].refused + loads[1].refused);
	assert_holds(&c, 0);
}

/* Small charges beside big ones, which go on for as long as the small ones do. */
static void run_small_beside_big(struct load *small, struct load *big, size_t n_big)
{
	_Atomic bool stop = false;

	for (size_t i = 0; i < n_big; i++)
		big[i].stop = &stop;
	start_loads(big, n_big);
	start_loads(small, 1);
	join_loads(small, 1);
	atomic_store(&stop, true);
	join_loads(big, n_big);
}

/* The big charges fit the leaf and never its parent; the small one always fits beside them. */
static void test_big_refused_above(void **state _unused_)
{
	struct counter path[DEPTH];
	struct load small = {.counter = &path[0], .bytes = 40, .rounds = 4 * ROUNDS};
	struct load big[] = {
		{.counter = &path[0], .bytes = 80},
		{.counter = &path[0], .bytes = 80},
	};

	make_path(path);
	counter_set_max(&path[0], 100);
	counter_set_max(&path[1], 50);
	run_small_beside_big(&small, big, ELEMENTS(big));

	assert_int_equal(small.refused, 0);
	assert_int_equal(big[0].charged + big[1].charged, 0);
	assert_int_equal(atomic_load(&path[0].failcnt) + atomic_load(&path[1].failcnt),
		big[0].refused + big[1].refused);
	for (int i = 0; i < DEPTH; i++)
		assert_int_equal(atomic_load(&path[i].peak), 40);
	assert_path_holds(path, 0);
}

/*
 * Of the big charges one at a time fits above, so that all look possible and most are rolled back.
 * In flight they exceed the leaf, but no more is ever held there than one of them and the small
 * one.
 */
static void test_big_rolled_back(void **state _unused_)
{
	struct counter path[DEPTH];
	struct load small = {.counter = &path[0], .bytes = 40, .rounds = 4 * ROUNDS};
	struct load big[] = {
		{.counter = &path[0], .bytes = 60},
		{.counter = &path[0], .bytes = 60},
		{.counter = &path[0], .bytes = 60},
	};

	make_path(path);
	counter_set_max(&path[0], 130);
	counter_set_max(&path[2], 100);
	run_small_beside_big(&small, big, ELEMENTS(big));

	assert_int_equal(small.refused, 0);
	for (int i = 0; i < DEPTH; i++)
		assert_in_range(atomic_load(&path[i].peak), 40, 100);
	assert_path_holds(path, 0);
}

/* ------------------------------------------------------------------ peaks of many threads */

struct climber {
	pthread_t thread;
	struct counter *counter;
	uint64_t bytes;
	_Atomic uint64_t *finished; /* bytes of all charges that have returned */
	uint64_t missed;            /* how often the peak was below that */
};

static void *run_climber(void *arg)
{
	struct climber *k = arg;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t finished;

		if (counter_try_charge(k->counter, k->bytes, NULL) < 0)
			continue;
		finished = atomic_fetch_add(k->finished, k->bytes) + k->bytes;
		if (atomic_load(&k->counter->peak) < finished)
			k->missed++;
	}
	return NULL;
}

static void start_climbers(struct climber *k, size_t n)
{
	for (size_t i = 0; i < n; i++)
		assert_int_equal(pthread_create(&k[i].thread, NULL, run_climber, &k[i]), 0);
}

static void join_climbers(struct climber *k, size_t n)
{
	for (size_t i = 0; i < n; i++)
		pthread_join(k[i].thread, NULL);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(k[i].missed, 0);
}

/* Charges alone, beside others that are always refused: the peak is the sum, to the byte. */
static void test_peak_of_many(void **state _unused_)
{
	struct counter path[DEPTH];
	_Atomic uint64_t finished = 0;
	struct climber climbers[] = {
		{.counter = &path[0], .bytes = 1, .finished = &finished},
		{.counter = &path[0], .bytes = 2, .finished = &finished},
		{.counter = &path[0], .bytes = 3, .finished = &finished},
	};
	struct load refused = {
		.counter = &path[0],
		.bytes = (UINT64_C(1) << 40) + 1,
		.rounds = ROUNDS,
	};

	make_path(path);
	counter_set_max(&path[1], UINT64_C(1) << 40);
	start_loads(&refused, 1);
	start_climbers(climbers, ELEMENTS(climbers));
	join_loads(&refused, 1);
	join_climbers(climbers, ELEMENTS(climbers));

	assert_int_equal(refused.charged, 0);
	assert_path_holds(path, (1 + 2 + 3) * ROUNDS);
	for (int i = 0; i < DEPTH; i++)
		assert_int_equal(atomic_load(&path[i].peak), (1 + 2 + 3) * ROUNDS);
}

/* One charge of 1 byte at each number that `turn` takes. */
struct turns {
	pthread_t thread;
	struct counter counter;
	_Atomic uint64_t turn, done;
};

static void *run_turns(void *arg)
{
	struct turns *t = arg;

	for (uint64_t i = 1; i <= ROUNDS / 2; i++) {
		while (atomic_load(&t->turn) < i)
			sched_yield();
		counter_charge(&t->counter, 1);
		atomic_store(&t->done, i);
	}
	return NULL;
}

/* Whoever resets the peak at the moment of a charge must not lose it. */
static void test_peak_reset_beside_charge(void **state _unused_)
{
	struct turns t = {0};
	unsigned missed = 0;

	harness_skip_emulated("on x86 lets a load pass the store before it (STLR, LDAR)");
	counter_init(&t.counter, NULL);
	assert_int_equal(pthread_create(&t.thread, NULL, run_turns, &t), 0);
	for (uint64_t i = 1; i <= ROUNDS / 2; i++) {
		atomic_store(&t.counter.peak, UINT64_C(1) << 40);
		atomic_store(&t.turn, i);
		for (uint64_t delay = i % 128; delay > 0; delay--)
			atomic_load(&t.done);
		counter_reset_peak(&t.counter);
		while (atomic_load(&t.done) < i)
			sched_yield();
		if (atomic_load(&t.counter.peak) != i)
			missed++;
	}
	pthread_join(t.thread, NULL);
	assert_int_equal(missed, 0);
}

/* ------------------------------------------------------------------ paths that end */

/* Two leaves below one counter, and a root above that. */
struct fork {
	struct counter root, common, middle, left, right;
};

static void make_fork(struct fork *f)
{
	counter_init(&f->root, NULL);
	counter_init(&f->common, &f->root);
	counter_init(&f->middle, &f->common);
	counter_init(&f->left, &f->middle);
	counter_init(&f->right, &f->common);
}

static void assert_fork_holds(const struct fork *f, uint64_t left, uint64_t right)
{
	assert_holds(&f->left, left);
	assert_holds(&f->middle, left);
	assert_holds(&f->right, right);
	assert_holds(&f->common, 0);
	assert_holds(&f->root, 0);
}

/* What they end at, and what is above it, is neither asked nor changed. */
static void test_paths_end(void **state _unused_)
{
	struct counter_path left, right, none;
	struct counter *failed = NULL;
	struct fork f;

	make_fork(&f);
	left = (struct counter_path){&f.left, &f.common};
	right = (struct counter_path){&f.right, &f.common};
	none = (struct counter_path){&f.right, &f.right};
	counter_set_max(&f.common, 10);
	counter_set_max(&f.root, 10);
	assert_int_equal(counter_try_charge_paths(left, right, 100, &failed), 0);
	assert_fork_holds(&f, 100, 100);
	assert_null(failed);
	assert_int_equal(atomic_load(&f.common.peak), 0);
	assert_int_equal(atomic_load(&f.common.failcnt), 0);
	assert_int_equal(counter_try_charge_paths(left, none, 7, NULL), 0);
	assert_int_equal(counter_try_charge_paths(none, none, 7, NULL), 0);
	assert_int_equal(counter_try_charge_paths(left, right, 0, NULL), 0);
	assert_fork_holds(&f, 107, 100);
	assert_int_equal(counter_uncharge_paths(none, left, 7), 0);
	assert_fork_holds(&f, 100, 100);
	assert_int_equal(counter_uncharge_paths(left, right, 100), 0);
	assert_fork_holds(&f, 0, 0);
	/* as far as the root */
	counter_set_max(&f.root, 1000);
	counter_set_max(&f.common, COUNTER_MAX);
	left.end = NULL;
	assert_int_equal(counter_try_charge_paths(left, right, 50, NULL), 0);
	assert_holds(&f.root, 50);
	assert_holds(&f.right, 50);
	assert_int_equal(counter_uncharge_paths(left, right, 50), 0);
	assert_fork_holds(&f, 0, 0);
}

static void refuse_paths(struct fork *f, struct counter *at, uint64_t left, uint64_t right)
{
	const struct counter_path paths[2] = {{&f->left, &f->common}, {&f->right, &f->common}};
	uint64_t failcnt = atomic_load(&at->failcnt);
	struct counter *failed = NULL;

	for (unsigned first = 0; first < 2; first++) {
		assert_int_equal(counter_try_charge_paths(paths[first], paths[!first], 60, &failed),
			-ENOMEM);
		assert_ptr_equal(failed, at);
		assert_fork_holds(f, left, right);
	}
	assert_int_equal(atomic_load(&at->failcnt), failcnt + 2);
	assert_int_equal(atomic_load(&f->left.peak), left);
	assert_int_equal(atomic_load(&f->right.peak), right);
}

/* Both or neither, whichever refuses, and no peak of what was not charged. */
static void test_paths_both_or_neither(void **state _unused_)
{
	struct fork f;

	make_fork(&f);
	assert_int_equal(counter_try_charge_paths((struct counter_path){&f.left, &f.common},
				 (struct counter_path){&f.right, &f.common}, 50, NULL),
		0);
	counter_set_max(&f.middle, 100);
	refuse_paths(&f, &f.middle, 50, 50);
	counter_set_max(&f.middle, COUNTER_MAX);
	counter_set_max(&f.right, 109);
	refuse_paths(&f, &f.right, 50, 50);
	counter_set_max(&f.right, 110);
	assert_int_equal(counter_try_charge_paths((struct counter_path){&f.left, &f.common},
				 (struct counter_path){&f.right, &f.common}, 60, NULL),
		0);
	assert_fork_holds(&f, 110, 110);
}

/* More than there is leaves 0, and the most of it is told. */
static void test_paths_excess(void **state _unused_)
{
	struct counter_path left, right;
	struct fork f;

	make_fork(&f);
	left = (struct counter_path){&f.left, &f.common};
	right = (struct counter_path){&f.right, &f.common};
	counter_charge(&f.root, 1000);
	assert_int_equal(counter_try_charge_paths(left, right, 100, NULL), 0);
	assert_int_equal(
		counter_uncharge_paths(left, (struct counter_path){&f.right, &f.right}, 30), 0);
	assert_int_equal(counter_uncharge_paths(left, right, 100), 30);
	assert_holds(&f.left, 0);
	assert_holds(&f.middle, 0);
	assert_holds(&f.right, 0);
	assert_holds(&f.common, 0);
	assert_holds(&f.root, 1000);
}

#define ENDED_ROUNDS 20000

/* What is charged to both ends is charged to both. */
static void *charge_paths(void *userdata)
{
	struct fork *f = userdata;
	const struct counter_path left = {&f->left, &f->common}, right = {&f->right, &f->common};

	for (unsigned i = 0; i < ENDED_ROUNDS; i++) {
		uint64_t n = 1 + i % 7;

		if (counter_try_charge_paths(left, right, n, NULL) == 0 &&
			counter_uncharge_paths(left, right, n) != 0)
			return f;
	}
	return NULL;
}

static void test_paths_of_many(void **state _unused_)
{
	pthread_t threads[4];
	struct fork f;

	make_fork(&f);
	counter_set_max(&f.middle, 12);
	counter_set_max(&f.right, 10);
	for (unsigned i = 0; i < ELEMENTS(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, charge_paths, &f), 0);
	for (unsigned i = 0; i < ELEMENTS(threads); i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	assert_fork_holds(&f, 0, 0);
	assert_true(atomic_load(&f.left.peak) <= 10);
	assert_true(atomic_load(&f.right.peak) <= 10);
	assert_int_equal(atomic_load(&f.common.peak), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_init),
		cmocka_unit_test(test_charges_all_levels),
		cmocka_unit_test(test_refusal_at_each_level),
		cmocka_unit_test(test_zero_bytes),
		cmocka_unit_test(test_limit_below_usage),
		cmocka_unit_test(test_unlimited_again),
		cmocka_unit_test(test_headroom),
		cmocka_unit_test(test_force_passes_limits),
		cmocka_unit_test(test_excess_leaves_zero),
		cmocka_unit_test(test_end_of_numbers),
		cmocka_unit_test(test_peak),
		cmocka_unit_test(test_waits_and_fits),
		cmocka_unit_test(test_waits_and_is_refused),
		cmocka_unit_test(test_waits_and_limit_is_raised),
		cmocka_unit_test(test_undecided_is_not_held),
		cmocka_unit_test(test_threads_at_a_limit),
		cmocka_unit_test(test_two_at_a_limit),
		cmocka_unit_test(test_big_refused_above),
		cmocka_unit_test(test_big_rolled_back),
		cmocka_unit_test(test_peak_of_many),
		cmocka_unit_test(test_peak_reset_beside_charge),
		cmocka_unit_test(test_paths_end),
		cmocka_unit_test(test_paths_both_or_neither),
		cmocka_unit_test(test_paths_excess),
		cmocka_unit_test(test_paths_of_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
