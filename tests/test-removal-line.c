/* SPDX-License-Identifier: MIT */

/*
 * Pools that are removed by force while others wait there for credit, in threads and in line, or have
 * their turn: all of them hear of it, and what is above is as if they had never waited.
 */

#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/util.h"

static const char config[] = "[daemon]\nflush_interval = 1h\ngrace = 100ms\nexport =\n";

#define LIMIT 1000000
#define HELD 600000
#define PENDING 1 /* no result of a charge */

static struct harness h;
static bool is_embedded;
static struct tally *t, *other; /* another session, where there can be one */

static int begin(void **state)
{
	is_embedded = *state;
	if (is_embedded) {
		assert_int_equal(tally_open("embedded:", 0, &t), 0);
		other = t;
	} else {
		harness_start(&h, config);
		t = harness_open(&h);
		other = harness_open(&h);
	}
	return 0;
}

static int end(void **state)
{
	(void)state;
	if (other != t)
		tally_close(other);
	t = tally_close(t);
	if (!is_embedded)
		harness_stop(&h);
	return 0;
}

static void sleep_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static uint64_t dying(const char *path)
{
	return harness_value(t, path, "cgroup.stat", "nr_dying_descendants");
}

static void limit(const char *path, const char *bytes)
{
	int r = tally_create(t, path);

	assert_true(r == 0 || r == -EEXIST);
	assert_int_equal(tally_set(t, path, "memory.max", bytes), 0);
}

/* Nobody waits, and nothing is charged: one has the limit to the last byte. */
static void assert_whole(const char *path)
{
	struct tally_pool *p = harness_attach(t, path);

	assert_int_equal(harness_current(t, path), 0);
	assert_int_equal(tally_charge(p, LIMIT), 0);
	assert_int_equal(tally_charge(p, 1), -ENOMEM);
	tally_detach(p);
}

/* ------------------------------------------------------------------ who waits */

struct waiter {
	struct tally_pool *pool;
	uint64_t bytes;
	pthread_t thread;
	_Atomic int result;
};

static void *run_waiter(void *userdata)
{
	struct waiter *w = userdata;
	struct tally_charge_args a = {.bytes = w->bytes, .deadline_usec = UINT64_MAX / 2};

	atomic_store(&w->result, tally_charge_with(w->pool, &a, sizeof(a)));
	return NULL;
}

static void start_waiter(struct waiter *w, struct tally_pool *p, uint64_t bytes)
{
	*w = (struct waiter){.pool = p, .bytes = bytes, .result = PENDING};
	assert_int_equal(pthread_create(&w->thread, NULL, run_waiter, w), 0);
}

static int join_waiter(struct waiter *w)
{
	pthread_join(w->thread, NULL);
	return w->result;
}

struct place {
	struct tally_queue *queue;
	_Atomic int result;
};

static void on_place(struct tally_request *r, int result, void *userdata)
{
	(void)r;
	((struct place *)userdata)->result = result;
}

static void stand(struct place *s, struct tally_queue *q, struct tally_pool *p, uint64_t bytes)
{
	struct tally_charge_args a = {.bytes = bytes};

	*s = (struct place){.queue = q, .result = PENDING};
	assert_int_equal(tally_request(q, p, &a, sizeof(a), on_place, s, NULL), 0);
}

static int is_over(void *userdata)
{
	struct place *s = userdata;

	assert_true(tally_queue_dispatch(s->queue) >= 0);
	return s->result != PENDING;
}

static int end_of(struct place *s)
{
	assert_true(harness_wait(is_over, s, HARNESS_PATIENCE_MS));
	return s->result;
}

struct expected {
	const char *path;
	unsigned n;
};

static int are_waiting(void *userdata)
{
	struct expected *e = userdata;

	return harness_waiting(t, e->path) == e->n;
}

/* The daemon has so many of the pool's that wait, set aside ones too; the embedded engine has no file
 * that tells. */
static void wait_for_waiting(const char *path, unsigned n)
{
	struct expected e = {path, n};

	if (is_embedded)
		sleep_ms(50);
	else
		assert_true(harness_wait(are_waiting, &e, HARNESS_PATIENCE_MS));
}

/* ------------------------------------------------------------------ one pool */

/* At a limit of the pool, or of the one above, where others wait who are not concerned. */
static void remove_while_waiting(const char *limited)
{
	struct place turn, first, last, above;
	struct tally_pool *a = harness_attach(t, "/a"), *b = harness_attach(t, "/a/b");
	struct tally_pool *c = harness_attach(other, "/a/b");
	bool at_parent = strcmp(limited, "/a") == 0;
	struct tally_queue *q, *r;
	struct waiter w, v, u;

	limit("/a", "max");
	limit("/a/b", "max");
	limit(limited, "1000000");
	assert_int_equal(tally_queue_new(t, &q), 0);
	assert_int_equal(tally_queue_new(other, &r), 0);
	assert_int_equal(tally_charge(at_parent ? a : b, HELD), 0);

	/* Its turn comes at once, and it does not look. */
	stand(&turn, r, c, 100000);
	wait_for_waiting("/a/b", 1);
	stand(&first, q, b, 900000);
	wait_for_waiting("/a/b", 2);
	start_waiter(&w, b, 900000);
	start_waiter(&v, c, 900000);
	stand(&last, r, c, 900000);
	wait_for_waiting("/a/b", 5);
	stand(&above, q, a, 800000);
	start_waiter(&u, a, 700000);
	if (at_parent)
		wait_for_waiting("/a", 2);

	assert_int_equal(tally_remove(t, "/a/b", TALLY_FORCE), 0);
	assert_int_equal(join_waiter(&w), -ENODEV);
	assert_int_equal(join_waiter(&v), -ENODEV);
	assert_int_equal(end_of(&turn), -ENODEV);
	assert_int_equal(end_of(&first), -ENODEV);
	assert_int_equal(end_of(&last), -ENODEV);
	if (at_parent) {
		assert_int_equal(above.result, PENDING);
		assert_int_equal(atomic_load(&u.result), PENDING);
		assert_int_equal(harness_current(t, "/a"), HELD);
		tally_uncharge(a, HELD);
	}
	assert_int_equal(end_of(&above), 0);
	tally_uncharge(a, 800000);
	assert_int_equal(join_waiter(&u), 0);
	tally_uncharge(a, 700000);
	assert_int_equal(harness_current(t, "/a"), at_parent ? 0 : HELD);
	tally_detach(b);
	tally_detach(c);
	assert_int_equal(dying("/"), 0);
	tally_detach(a);
	limit("/a", "1000000");
	assert_whole("/a");
	tally_queue_free(q);
	tally_queue_free(r);
}

static void test_at_own_limit(void **state)
{
	(void)state;
	remove_while_waiting("/a/b");
}

static void test_at_limit_above(void **state)
{
	(void)state;
	remove_while_waiting("/a");
}

/* ------------------------------------------------------------------ a subtree */

#define LEVELS 3

static const char *const levels[LEVELS] = {"/a", "/a/b", "/a/b/c"};

/* As `tallyctl remove --recursive --force`, which a daemon's is removed by. */
static void remove_all(void)
{
	const char *program = getenv("TALLYCTL");
	char command[512];

	if (!is_embedded && program) {
		snprintf(command, sizeof(command), "%s --socket %s remove --recursive --force /a",
			program, h.address + strlen("unix:"));
		assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
		return;
	}
	for (unsigned i = LEVELS; i-- > 0;)
		assert_int_equal(tally_remove(t, levels[i], TALLY_FORCE), 0);
}

static void test_subtree(void **state)
{
	struct place turns[LEVELS], places[LEVELS];
	struct tally_pool *pools[LEVELS];
	struct waiter waiters[LEVELS];
	struct tally_queue *q;

	(void)state;
	assert_int_equal(tally_queue_new(other, &q), 0);
	for (unsigned i = 0; i < LEVELS; i++) {
		pools[i] = harness_attach(other, levels[i]);
		assert_int_equal(tally_charge(pools[i], HELD / LEVELS), 0);
	}
	/* All of them wait there. */
	limit("/a", "1000000");
	for (unsigned i = 0; i < LEVELS; i++) {
		stand(&turns[i], q, pools[i], 10000);
		wait_for_waiting(levels[i], 1);
	}
	for (unsigned i = 0; i < LEVELS; i++) {
		stand(&places[i], q, pools[i], 950000);
		start_waiter(&waiters[i], pools[i], 950000);
		wait_for_waiting(levels[i], 3);
	}
	remove_all();
	for (unsigned i = 0; i < LEVELS; i++) {
		assert_int_equal(join_waiter(&waiters[i]), -ENODEV);
		assert_int_equal(end_of(&turns[i]), -ENODEV);
		assert_int_equal(end_of(&places[i]), -ENODEV);
	}
	assert_int_equal(harness_current(t, "/"), HELD);
	assert_int_equal(dying("/"), LEVELS);
	tally_uncharge(pools[1], HELD / LEVELS);
	assert_int_equal(harness_current(t, "/"), HELD - HELD / LEVELS);
	for (unsigned i = 0; i < LEVELS; i++)
		tally_detach(pools[i]);
	assert_int_equal(harness_current(t, "/"), 0);
	assert_int_equal(dying("/"), 0);
	limit("/a", "1000000");
	assert_whole("/a");
	tally_queue_free(q);
}

/* ------------------------------------------------------------------ any moment */

#define CYCLES 150

struct racer {
	struct tally_queue *queue;
	_Atomic bool stop;
};

static void *dispatch_always(void *userdata)
{
	struct racer *r = userdata;

	while (!atomic_load(&r->stop))
		if (tally_queue_dispatch(r->queue) < 0)
			abort();
	return NULL;
}

/* Turns that come while the pool goes: each request ends by what it was, or by the removal. */
static void test_turns_meanwhile(void **state)
{
	struct racer racer = {0};
	pthread_t thread;
	unsigned lost = 0;

	(void)state;
	assert_int_equal(tally_queue_new(other, &racer.queue), 0);
	limit("/a", "1000000");
	assert_int_equal(pthread_create(&thread, NULL, dispatch_always, &racer), 0);
	for (unsigned i = 0; i < CYCLES; i++) {
		struct tally_pool *p = harness_attach(other, "/a/b");
		struct place places[8];
		struct waiter w;

		for (unsigned j = 0; j < ELEMENTS(places); j++)
			stand(&places[j], racer.queue, p, 200000);
		start_waiter(&w, p, 200000);
		if (i % 3)
			nanosleep(&(struct timespec){.tv_nsec = i % 50 * 10000}, NULL);
		assert_int_equal(tally_remove(t, "/a/b", TALLY_FORCE), 0);
		for (unsigned j = 0; j < ELEMENTS(places); j++) {
			int r = end_of(&places[j]);

			lost += r != 0;
			assert_true(r == 0 || r == -ENODEV);
		}
		join_waiter(&w);
		assert_true(w.result == 0 || w.result == -ENODEV);
		tally_detach(p);
	}
	racer.stop = true;
	pthread_join(thread, NULL);
	assert_true(lost > 0);
	tally_queue_free(racer.queue);
	assert_int_equal(dying("/"), 0);
	assert_whole("/a");
}

#define TEST(name, embedded)                                                                       \
	{                                                                                          \
		(embedded) ? #name "_embedded" : #name, test_##name, begin, end,                   \
			(embedded) ? (void *)&is_embedded : NULL                                   \
	}
#define BOTH(name) TEST(name, false), TEST(name, true)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(at_own_limit),
		BOTH(at_limit_above),
		BOTH(subtree),
		BOTH(turns_meanwhile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
