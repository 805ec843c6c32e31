/* SPDX-License-Identifier: MIT */

/*
 * Small charges do not overtake a waiting big one for ever, whoever makes them, and go on when it has
 * what it waited for: over a daemon and embedded.
 */

#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "core/fairness.h"
#include "core/util.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define N_SMALL 8
#define SMALL (64 * KIB)
#define LONG_USEC UINT64_C(120000000) /* a deadline that no test waits for */

static struct harness harness;
static struct tally *tally;

/* ------------------------------------------------------------------ the rule */

static void test_who_may_pass(void **state _unused_)
{
	struct counter c;

	counter_init(&c, NULL);
	assert_true(fairness_allows(&c, MIB, MIB, FAIRNESS_USEC)); /* no limit */
	counter_set_max(&c, 1000);
	counter_charge(&c, 600);
	assert_true(fairness_allows(&c, 10, 500, 0));
	assert_true(fairness_allows(&c, 10, 500, FAIRNESS_USEC - 1));
	assert_false(fairness_allows(&c, 10, 500, FAIRNESS_USEC));
	assert_true(fairness_allows(&c, 100, 300, FAIRNESS_USEC));
	assert_false(fairness_allows(&c, 101, 300, FAIRNESS_USEC));
	/* such a one can never be served */
	assert_true(fairness_allows(&c, 10, 1001, FAIRNESS_USEC));
	/* a limit lowered below what is held leaves no room, and not a huge one */
	counter_set_max(&c, 500);
	assert_false(fairness_allows(&c, 1, 400, FAIRNESS_USEC));
}

/* ------------------------------------------------------------------ what comes free */

struct head {
	struct tally_pool *pool;
	int result;
};

static void *wait_for_half(void *userdata)
{
	struct head *h = userdata;
	struct tally_charge_args args = {
		.bytes = MIB / 2, .deadline_usec = harness_now() + LONG_USEC};

	h->result = tally_charge_with(h->pool, &args, sizeof(args));
	return NULL;
}

static int is_refused(void *pool)
{
	int r = tally_charge(pool, 1);

	if (r == 0)
		tally_uncharge(pool, 1);
	return r == -ENOMEM;
}

/* A quarter comes free, of which the small one gets nothing while the half waits; another, and the
 * half has its turn. */
static void check_what_comes_free(struct tally *t, const char *path)
{
	struct tally_pool *holder = harness_attach(t, path), *small = harness_attach(t, path);
	struct head head = {.pool = harness_attach(t, path), .result = 1};
	pthread_t thread;

	assert_int_equal(tally_set(t, path, "memory.max", "1M"), 0);
	assert_int_equal(tally_charge(holder, MIB), 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_half, &head), 0);
	assert_true(harness_wait(is_refused, small, HARNESS_PATIENCE_MS));
	usleep(2 * FAIRNESS_USEC);
	tally_uncharge(holder, MIB / 4);
	assert_true(harness_wait(is_refused, small, HARNESS_PATIENCE_MS));
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(tally_charge(small, 4 * KIB), -ENOMEM);
	tally_uncharge(holder, MIB / 4);
	pthread_join(thread, NULL);
	assert_int_equal(head.result, 0);
	assert_int_equal(tally_charge(small, 4 * KIB), -ENOMEM);
	tally_uncharge(head.pool, MIB / 2);
	assert_int_equal(tally_charge(small, MIB / 2), 0);
	tally_detach(holder);
	tally_detach(head.pool);
	tally_detach(small);
}

static void test_head_has_what_comes_free(void **state _unused_)
{
	check_what_comes_free(tally, "/free");
}

static void test_embedded_head_has_what_comes_free(void **state _unused_)
{
	struct tally *t;

	assert_int_equal(tally_open("embedded:", 0, &t), 0);
	check_what_comes_free(t, "/free");
	tally_close(t);
}

/* Who asks for more than the limit will ever give waits alone. */
static void check_hopeless(struct tally *t, const char *path)
{
	struct tally_pool *small = harness_attach(t, path);
	struct head head = {.pool = harness_attach(t, path), .result = 1};
	pthread_t thread;

	assert_int_equal(tally_set(t, path, "memory.max", "256K"), 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_half, &head), 0);
	usleep(2 * FAIRNESS_USEC);
	assert_int_equal(tally_charge(small, 256 * KIB), 0);
	tally_uncharge(small, 256 * KIB);
	assert_int_equal(tally_set(t, path, "memory.max", "512K"), 0);
	pthread_join(thread, NULL);
	assert_int_equal(head.result, 0);
	tally_detach(head.pool);
	tally_detach(small);
}

static void test_hopeless_one_holds_up_nobody(void **state _unused_)
{
	check_hopeless(tally, "/hopeless");
}

static void test_embedded_hopeless_one_holds_up_nobody(void **state _unused_)
{
	struct tally *t;

	assert_int_equal(tally_open("embedded:", 0, &t), 0);
	check_hopeless(t, "/hopeless");
	tally_close(t);
}

/* ------------------------------------------------------------------ many small ones */

struct board {
	_Atomic bool stop;
	_Atomic uint64_t rounds[N_SMALL];
};

/* Another attachment each round, so that nothing is kept in hand. */
static void be_small(struct tally *t, const char *path, struct board *b, unsigned i)
{
	while (!atomic_load(&b->stop)) {
		struct tally_pool *p;

		if (tally_attach(t, path, 0, &p) < 0)
			abort();
		if (tally_charge(p, SMALL) == 0) {
			atomic_fetch_add(&b->rounds[i], 1);
			usleep(1000 * (i + 1));
		}
		tally_detach(p);
	}
}

struct small {
	struct board *board;
	struct tally *tally; /* NULL: a process, with its own */
	unsigned i;
};

static int be_process(void *userdata)
{
	struct small *s = userdata;
	struct tally *t = harness_open(&harness);

	be_small(t, "/many", s->board, s->i);
	tally_close(t);
	return 0;
}

static void *be_thread(void *userdata)
{
	struct small *s = userdata;

	be_small(s->tally, "/many", s->board, s->i);
	return NULL;
}

struct goal {
	struct board *board;
	uint64_t from[N_SMALL];
};

static int all_went_on(void *userdata)
{
	const struct goal *g = userdata;

	for (unsigned i = 0; i < N_SMALL; i++)
		if (atomic_load(&g->board->rounds[i]) < g->from[i] + 3)
			return false;
	return true;
}

static void await_all(struct board *b)
{
	struct goal g = {.board = b};

	for (unsigned i = 0; i < N_SMALL; i++)
		g.from[i] = atomic_load(&b->rounds[i]);
	assert_true(harness_wait(all_went_on, &g, HARNESS_PATIENCE_MS));
}

/* The limit is what they have together, and one needs nearly all of it, again and again. */
static void check_big_one(struct tally *t, struct board *b)
{
	struct tally_pool *big = harness_attach(t, "/many");

	await_all(b);
	for (unsigned i = 0; i < 5; i++) {
		struct tally_charge_args args = {
			.bytes = 7 * SMALL, .deadline_usec = harness_now() + LONG_USEC};

		assert_int_equal(tally_charge_with(big, &args, sizeof(args)), 0);
		tally_uncharge(big, 7 * SMALL);
		await_all(b);
	}
	tally_detach(big);
}

static void prepare_many(struct tally *t)
{
	assert_int_equal(tally_create(t, "/many"), 0);
	assert_int_equal(tally_set(t, "/many", "memory.max", "512K"), 0);
}

static void test_many_small_ones(void **state _unused_)
{
	struct board *b = harness_shared(sizeof(*b));
	struct small small[N_SMALL];
	pid_t pids[N_SMALL];

	prepare_many(tally);
	for (unsigned i = 0; i < N_SMALL; i++) {
		small[i] = (struct small){.board = b, .i = i};
		pids[i] = harness_fork(be_process, &small[i]);
	}
	check_big_one(tally, b);
	atomic_store(&b->stop, true);
	for (unsigned i = 0; i < N_SMALL; i++)
		harness_join(pids[i], 0);
	assert_int_equal(harness_current(tally, "/many"), 0);
	harness_unshare(b, sizeof(*b));
}

static void test_embedded_many_small_ones(void **state _unused_)
{
	struct board b = {0};
	struct small small[N_SMALL];
	pthread_t threads[N_SMALL];
	struct tally *t;

	assert_int_equal(tally_open("embedded:", 0, &t), 0);
	prepare_many(t);
	for (unsigned i = 0; i < N_SMALL; i++) {
		small[i] = (struct small){.board = &b, .tally = t, .i = i};
		assert_int_equal(pthread_create(&threads[i], NULL, be_thread, &small[i]), 0);
	}
	check_big_one(t, &b);
	atomic_store(&b.stop, true);
	for (unsigned i = 0; i < N_SMALL; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(harness_current(t, "/many"), 0);
	tally_close(t);
}

static int setup(void **state _unused_)
{
	harness_start(&harness, "");
	tally = harness_open(&harness);
	return 0;
}

static int teardown(void **state _unused_)
{
	tally_close(tally);
	harness_stop(&harness);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_may_pass),
		cmocka_unit_test(test_head_has_what_comes_free),
		cmocka_unit_test(test_embedded_head_has_what_comes_free),
		cmocka_unit_test(test_hopeless_one_holds_up_nobody),
		cmocka_unit_test(test_embedded_hopeless_one_holds_up_nobody),
		cmocka_unit_test(test_many_small_ones),
		cmocka_unit_test(test_embedded_many_small_ones),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
