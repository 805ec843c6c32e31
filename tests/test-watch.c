/* SPDX-License-Identifier: MIT */

/*
 * Watches, over a daemon and in the embedded engine: who is told of which event, how often at most,
 * and that the last state is always told.
 */

#include "harness.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/util.h"

#define K UINT64_C(1024)
#define M (K * K)
#define TYPES 9

static struct harness h;
static struct tally *t;

/* What a watch was told. */
struct heard {
	struct tally_watch *watch;
	const char *path; /* as it was called with */
	unsigned calls, of[TYPES];
	uint64_t count[TYPES];
	bool unwatch; /* when it is called */
};

static int start_daemon(void **state)
{
	(void)state;
	harness_start(&h, "[daemon]\nexport =\n");
	t = harness_open(&h);
	return 0;
}

static int stop_daemon(void **state)
{
	(void)state;
	t = tally_close(t);
	harness_stop(&h);
	return 0;
}

static int start_embedded(void **state)
{
	(void)state;
	assert_int_equal(tally_open("embedded:", 0, &t), 0);
	return 0;
}

static int stop_embedded(void **state)
{
	(void)state;
	t = tally_close(t);
	return 0;
}

static void on_event(const char *path, const struct tally_event *e, void *userdata)
{
	struct heard *w = userdata;

	assert_int_equal(e->size, sizeof(*e));
	assert_in_range(e->type, 1, TYPES - 1);
	assert_true(e->count >= w->count[e->type]);
	w->path = path;
	w->calls++;
	w->of[e->type]++;
	w->count[e->type] = e->count;
	if (w->unwatch)
		w->watch = tally_unwatch(w->watch);
}

static void watch(struct heard *w, const char *path)
{
	*w = (struct heard){0};
	assert_int_equal(tally_watch(t, path, on_event, w, &w->watch), 0);
}

static void unwatch(struct heard *w)
{
	w->watch = tally_unwatch(w->watch);
	assert_null(w->watch);
}

static bool is_readable(int ms)
{
	struct pollfd p = {.fd = tally_fd(t), .events = POLLIN};

	return poll(&p, 1, ms) > 0;
}

static void dispatch(void)
{
	assert_true(tally_dispatch(t) >= 0);
}

struct wanted {
	const struct heard *heard;
	int type;
	uint64_t count;
};

static int was_told(void *userdata)
{
	const struct wanted *w = userdata;

	dispatch();
	return w->heard->count[w->type] >= w->count;
}

static void wait_for(const struct heard *heard, int type, uint64_t count)
{
	struct wanted w = {heard, type, count};

	assert_true(harness_wait(was_told, &w, HARNESS_PATIENCE_MS));
	assert_int_equal(heard->count[type], count);
}

static void make(const char *path, const char *max)
{
	struct tally_pool *p = harness_attach(t, path);

	tally_detach(p);
	if (max)
		assert_int_equal(tally_set(t, path, "memory.max", max), 0);
}

/* ------------------------------------------------------------------ who is told */

static void test_up_the_tree(void **state)
{
	struct heard root, a, b, sibling;
	struct tally_pool *p;

	(void)state;
	make("/a/b/c", NULL);
	make("/a/s", NULL);
	assert_int_equal(tally_set(t, "/a/b", "memory.max", "1M"), 0);
	watch(&root, "/");
	watch(&a, "/a");
	watch(&b, "/a/b/c");
	watch(&sibling, "/a/s");
	assert_false(is_readable(0));
	assert_int_equal(tally_dispatch(t), 0);

	p = harness_attach(t, "/a/b/c");
	assert_int_equal(tally_charge(p, 2 * M), -ENOMEM);
	assert_true(is_readable(HARNESS_PATIENCE_MS));
	wait_for(&a, TALLY_EVENT_OOM, 1);
	wait_for(&a, TALLY_EVENT_MAX, 1);
	wait_for(&root, TALLY_EVENT_OOM, 1);
	assert_string_equal(a.path, "/a");
	assert_string_equal(root.path, "/");
	/* it is the limit's pool that has the event, and those above */
	assert_int_equal(b.calls, 0);
	assert_int_equal(sibling.calls, 0);
	assert_int_equal(harness_value(t, "/a", "memory.events", "oom"), 1);
	assert_int_equal(harness_value(t, "/a", "memory.events.local", "oom"), 0);
	assert_int_equal(harness_value(t, "/a/b", "memory.events.local", "oom"), 1);
	assert_int_equal(a.of[TALLY_EVENT_OOM], 1);
	assert_int_equal(a.of[TALLY_EVENT_LOW] + a.of[TALLY_EVENT_REMOVED], 0);

	tally_charge_force(p, 0, 2 * M);
	free(harness_get(t, "/a", "memory.current"));
	wait_for(&b, TALLY_EVENT_FORCE, harness_value(t, "/a/b/c", "memory.events", "force"));
	assert_true(b.count[TALLY_EVENT_FORCE] >= 1);
	tally_detach(p);
	unwatch(&root);
	unwatch(&a);
	unwatch(&b);
	unwatch(&sibling);
}

static void test_what_cannot_be_watched(void **state)
{
	struct tally_watch *w = NULL;
	struct heard heard = {0};

	(void)state;
	assert_int_equal(tally_watch(t, "/none", on_event, &heard, &w), -ENOENT);
	assert_int_equal(tally_watch(t, "none", on_event, &heard, &w), -EINVAL);
	assert_int_equal(tally_watch(t, "/", NULL, &heard, &w), -EINVAL);
	assert_int_equal(tally_watch(t, "/", on_event, &heard, NULL), -EINVAL);
	assert_null(w);
	assert_null(tally_unwatch(NULL));
}

static void test_removed(void **state)
{
	struct heard gone, above, again;
	struct tally_pool *p;

	(void)state;
	make("/gone", NULL);
	watch(&gone, "/gone");
	watch(&above, "/");
	assert_int_equal(tally_remove(t, "/gone", 0), 0);
	wait_for(&gone, TALLY_EVENT_REMOVED, 1);
	assert_int_equal(gone.calls, 1);

	/* another pool of that name is another pool */
	make("/gone", "1M");
	watch(&again, "/gone");
	p = harness_attach(t, "/gone");
	assert_int_equal(tally_charge(p, 2 * M), -ENOMEM);
	wait_for(&again, TALLY_EVENT_OOM, 1);
	wait_for(&above, TALLY_EVENT_OOM, harness_value(t, "/", "memory.events", "oom"));
	assert_int_equal(above.of[TALLY_EVENT_REMOVED], 0);
	assert_int_equal(gone.calls, 1);
	tally_detach(p);
	unwatch(&gone);
	unwatch(&again);
	unwatch(&above);
}

static void test_credit(void **state)
{
	struct heard heard;
	struct tally_pool *p;
	int r;

	(void)state;
	make("/try", NULL);
	watch(&heard, "/try");
	p = harness_attach(t, "/try");
	r = tally_try_charge(p, 64 * K);
	if (r != 0) {
		assert_int_equal(r, -EAGAIN);
		assert_true(is_readable(HARNESS_PATIENCE_MS));
		wait_for(&heard, TALLY_EVENT_CREDIT, 1);
		assert_int_equal(tally_try_charge(p, 64 * K), 0);
	}
	tally_uncharge(p, 64 * K);

	/* also what is refused was answered */
	assert_int_equal(tally_set(t, "/try", "memory.max", "0"), 0);
	assert_int_equal(tally_set(t, "/try", "pool.drain", "1"), 0);
	r = tally_try_charge(p, 1 * M);
	if (r == -EAGAIN) {
		wait_for(&heard, TALLY_EVENT_CREDIT, 2);
		r = tally_try_charge(p, 1 * M);
	}
	assert_int_equal(r, -ENOMEM);
	tally_detach(p);
	unwatch(&heard);
}

/* The first charge of an item without waiting has to ask for its key first. */
static void test_credit_for_an_item(void **state)
{
	struct heard heard;
	struct tally_pool *p;
	tally_item item;
	int r;

	(void)state;
	assert_int_equal(tally_item_lookup(t, "sock", &item), 0);
	make("/item", NULL);
	watch(&heard, "/item");
	p = harness_attach(t, "/item");
	for (unsigned i = 0; (r = tally_try_charge_item(p, item, 64 * K)) != 0; i++) {
		assert_int_equal(r, -EAGAIN);
		assert_true(is_readable(HARNESS_PATIENCE_MS));
		dispatch();
		assert_in_range(i, 0, 10);
	}
	tally_uncharge_item(p, item, 64 * K);
	tally_detach(p);
	unwatch(&heard);
}

/* ------------------------------------------------------------------ how often */

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* However fast they come, and however often it asks. */
static void test_storm(void **state)
{
	uint64_t began, took, oom;
	struct heard heard;
	struct tally_pool *p;

	(void)state;
	make("/storm", "64K");
	watch(&heard, "/storm");
	p = harness_attach(t, "/storm");
	began = now_ms();
	for (unsigned i = 0; i < 2000; i++) {
		assert_int_equal(tally_charge(p, 1 * M), -ENOMEM);
		dispatch();
	}
	oom = harness_value(t, "/storm", "memory.events", "oom");
	assert_int_equal(oom, 2000);
	wait_for(&heard, TALLY_EVENT_OOM, oom);
	wait_for(&heard, TALLY_EVENT_MAX, harness_value(t, "/storm", "memory.events", "max"));
	took = now_ms() - began;
	assert_in_range(heard.of[TALLY_EVENT_OOM], 1, took / 10 + 2);
	assert_false(is_readable(30));
	tally_detach(p);
	unwatch(&heard);
}

/* ------------------------------------------------------------------ no more of it */

static void refuse(const char *path)
{
	struct tally_pool *p = harness_attach(t, path);

	assert_int_equal(tally_charge(p, 2 * M), -ENOMEM);
	tally_detach(p);
}

static void test_unwatched(void **state)
{
	struct heard first, second;

	(void)state;
	make("/un", "1M");
	watch(&first, "/un");
	watch(&second, "/un");
	refuse("/un");
	wait_for(&first, TALLY_EVENT_OOM, 1);
	wait_for(&second, TALLY_EVENT_OOM, 1);

	/* with something on the way */
	refuse("/un");
	is_readable(20);
	unwatch(&first);
	wait_for(&second, TALLY_EVENT_OOM, 2);
	assert_int_equal(first.count[TALLY_EVENT_OOM], 1);
	unwatch(&second);
	refuse("/un");
	assert_int_equal(tally_dispatch(t), 0);
}

static void test_unwatched_by_its_callback(void **state)
{
	struct heard heard;

	(void)state;
	make("/self", "1M");
	watch(&heard, "/self");
	heard.unwatch = true;
	refuse("/self");
	assert_true(is_readable(HARNESS_PATIENCE_MS));
	dispatch();
	/* MAX and OOM came together */
	assert_int_equal(heard.calls, 1);
	assert_null(heard.watch);
	refuse("/self");
	assert_int_equal(tally_dispatch(t), 0);
	assert_int_equal(heard.calls, 1);
}

/* A callback that is in no hurry. */
struct slow {
	_Atomic bool entered, leave, left;
	_Atomic unsigned calls;
};

static void on_slow_event(const char *path, const struct tally_event *e, void *userdata)
{
	struct slow *s = userdata;

	(void)path;
	(void)e;
	atomic_fetch_add(&s->calls, 1);
	atomic_store(&s->entered, true);
	while (!atomic_load(&s->leave))
		usleep(100);
	usleep(20000);
	atomic_store(&s->left, true);
}

static int has_entered(void *userdata)
{
	return atomic_load(&((struct slow *)userdata)->entered);
}

static void *dispatch_until_entered(void *userdata)
{
	while (!has_entered(userdata)) {
		is_readable(1000);
		dispatch();
	}
	return NULL;
}

static void test_unwatch_waits_for_another_thread(void **state)
{
	struct slow slow = {0};
	struct tally_watch *w;
	pthread_t thread;

	(void)state;
	make("/slow", "1M");
	assert_int_equal(tally_watch(t, "/slow", on_slow_event, &slow, &w), 0);
	refuse("/slow");
	assert_int_equal(pthread_create(&thread, NULL, dispatch_until_entered, &slow), 0);
	assert_true(harness_wait(has_entered, &slow, HARNESS_PATIENCE_MS));
	/* one at a time */
	assert_int_equal(tally_dispatch(t), 0);
	atomic_store(&slow.leave, true);
	tally_unwatch(w);
	assert_true(atomic_load(&slow.left));
	/* the other kind of the same message is not told any more */
	assert_int_equal(atomic_load(&slow.calls), 1);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void on_nested(const char *path, const struct tally_event *e, void *userdata)
{
	struct heard inner;

	(void)path;
	(void)e;
	++*(unsigned *)userdata;
	/* anything may be called here */
	assert_int_equal(tally_dispatch(t), 0);
	watch(&inner, "/nest");
	refuse("/nest");
	unwatch(&inner);
	assert_int_equal(inner.calls, 0);
}

static void test_calls_from_a_callback(void **state)
{
	struct tally_watch *w;
	unsigned calls = 0;

	(void)state;
	make("/nest", "1M");
	assert_int_equal(tally_watch(t, "/nest", on_nested, &calls, &w), 0);
	refuse("/nest");
	assert_true(is_readable(HARNESS_PATIENCE_MS));
	dispatch();
	assert_int_equal(calls, 2);
	tally_unwatch(w);
}

/* ------------------------------------------------------------------ threads, forks, ends */

struct churner {
	pthread_t thread;
	char path[32];
	_Atomic bool *stop;
	unsigned told;
};

static void count_call(const char *path, const struct tally_event *e, void *userdata)
{
	(void)path;
	(void)e;
	++*(unsigned *)userdata;
}

/* Watches come and go while others dispatch. */
static void *churn(void *userdata)
{
	struct churner *c = userdata;
	struct tally_pool *p = harness_attach(t, c->path);

	while (!atomic_load(c->stop)) {
		struct tally_watch *w;
		unsigned calls = 0;

		assert_int_equal(tally_watch(t, c->path, count_call, &calls, &w), 0);
		assert_int_equal(tally_charge(p, 2 * M), -ENOMEM);
		is_readable(1);
		dispatch();
		tally_unwatch(w);
		c->told += calls;
	}
	tally_detach(p);
	return NULL;
}

static void test_threads(void **state)
{
	_Atomic bool end = false;
	struct churner c[4];
	unsigned told = 0;

	(void)state;
	for (unsigned i = 0; i < ELEMENTS(c); i++) {
		c[i] = (struct churner){.stop = &end};
		snprintf(c[i].path, sizeof(c[i].path), "/churn%u", i % 2);
		make(c[i].path, "1M");
		assert_int_equal(pthread_create(&c[i].thread, NULL, churn, &c[i]), 0);
	}
	usleep(300000);
	atomic_store(&end, true);
	for (unsigned i = 0; i < ELEMENTS(c); i++) {
		assert_int_equal(pthread_join(c[i].thread, NULL), 0);
		told += c[i].told;
	}
	assert_true(told > 0);
}

static int in_child(void *userdata)
{
	struct heard *heard = userdata;
	struct tally_watch *w = NULL;

	if (tally_dispatch(t) != -ECHILD)
		return 1;
	if (tally_watch(t, "/", on_event, heard, &w) != -ECHILD || w)
		return 2;
	tally_unwatch(heard->watch);
	tally_close(t);
	return 0;
}

static void test_fork(void **state)
{
	struct heard heard;

	(void)state;
	make("/fork", "1M");
	watch(&heard, "/fork");
	refuse("/fork");
	harness_join(harness_fork(in_child, &heard), 0);
	wait_for(&heard, TALLY_EVENT_OOM, 1);
	refuse("/fork");
	wait_for(&heard, TALLY_EVENT_OOM, 2);
	unwatch(&heard);
}

static void close_it(const char *path, const struct tally_event *e, void *userdata)
{
	(void)path;
	(void)e;
	++*(unsigned *)userdata;
	t = tally_close(t);
}

/* The session ends inside a callback; its watch is to be freed after it. */
static void closed_by_a_callback(void)
{
	struct tally *closed = t;
	struct tally_watch *w;
	unsigned calls = 0;

	make("/end", "1M");
	assert_int_equal(tally_watch(t, "/end", close_it, &calls, &w), 0);
	refuse("/end");
	assert_true(is_readable(HARNESS_PATIENCE_MS));
	while (calls == 0)
		assert_true(tally_dispatch(closed) >= 0);
	assert_int_equal(tally_dispatch(closed), -ENODEV);
	tally_unwatch(w);
}

/* ------------------------------------------------------------------ of a daemon alone */

static void test_closed_by_a_callback(void **state)
{
	(void)state;
	closed_by_a_callback();
	t = harness_open(&h);
}

static void test_closed_by_a_callback_embedded(void **state)
{
	(void)state;
	closed_by_a_callback();
	assert_int_equal(tally_open("embedded:", 0, &t), 0);
}

/* Events are the pool's, whoever's charge it was. */
static void test_another_process(void **state)
{
	struct heard heard;
	struct actor a;

	(void)state;
	make("/other", "1M");
	watch(&heard, "/other");
	actor_start(&a, &h, "/other");
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 2 * M, 0), -ENOMEM);
	assert_true(is_readable(HARNESS_PATIENCE_MS));
	wait_for(&heard, TALLY_EVENT_OOM, 1);
	/* its refusal is no credit of this process */
	assert_int_equal(actor_do(&a, ACTOR_TRY, 2 * M, 0), -EAGAIN);
	wait_for(&heard, TALLY_EVENT_OOM, 2);
	assert_int_equal(heard.of[TALLY_EVENT_CREDIT], 0);
	actor_kill(&a);
	unwatch(&heard);
}

/* Sessions that watch and never dispatch cost what they have made, and delay nobody. */
static void test_never_dispatched(void **state)
{
	static struct heard deaf[8][50];
	struct tally *sessions[8], *own = t;
	struct heard heard;
	uint64_t before;
	struct tally_pool *p;

	(void)state;
	make("/deaf", "1M");
	for (unsigned i = 0; i < ELEMENTS(sessions); i++) {
		sessions[i] = t = harness_open(&h);
		for (unsigned n = 0; n < ELEMENTS(deaf[i]); n++)
			watch(&deaf[i][n], "/deaf");
	}
	t = own;
	watch(&heard, "/deaf");
	p = harness_attach(t, "/deaf");
	before = harness_memory_kib(&h);
	for (uint64_t n = 1; n <= 300; n++) {
		assert_int_equal(tally_charge(p, 2 * M), -ENOMEM);
		usleep(1000);
		if (n % 10 == 0)
			wait_for(&heard, TALLY_EVENT_OOM, n);
	}
	if (harness_is_bare(&h))
		assert_true(harness_memory_kib(&h) < before + K);
	tally_detach(p);
	unwatch(&heard);

	/* and if one of them wakes up, it hears the last state */
	t = sessions[0];
	wait_for(&deaf[0][0], TALLY_EVENT_OOM, 300);
	wait_for(&deaf[0][49], TALLY_EVENT_OOM, 300);
	assert_in_range(deaf[0][49].of[TALLY_EVENT_OOM], 1, 50);
	t = own;
	for (unsigned i = 0; i < ELEMENTS(sessions); i++) {
		tally_close(sessions[i]);
		for (unsigned n = 0; n < ELEMENTS(deaf[i]); n++)
			unwatch(&deaf[i][n]);
	}
}

static void test_daemon_gone(void **state)
{
	struct heard heard;

	(void)state;
	watch(&heard, "/");
	harness_kill(&h);
	assert_true(is_readable(HARNESS_PATIENCE_MS));
	assert_int_equal(tally_dispatch(t), -ENOTCONN);
	unwatch(&heard);
}

#define BOTH(test)                                                                                 \
	cmocka_unit_test_setup_teardown(test, start_daemon, stop_daemon),                          \
		cmocka_unit_test_setup_teardown(test, start_embedded, stop_embedded)
#define DAEMON(test) cmocka_unit_test_setup_teardown(test, start_daemon, stop_daemon)
#define EMBEDDED(test) cmocka_unit_test_setup_teardown(test, start_embedded, stop_embedded)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_up_the_tree),
		BOTH(test_what_cannot_be_watched),
		BOTH(test_removed),
		BOTH(test_credit),
		BOTH(test_credit_for_an_item),
		BOTH(test_storm),
		BOTH(test_unwatched),
		BOTH(test_unwatched_by_its_callback),
		BOTH(test_unwatch_waits_for_another_thread),
		BOTH(test_calls_from_a_callback),
		BOTH(test_threads),
		BOTH(test_fork),
		DAEMON(test_closed_by_a_callback),
		EMBEDDED(test_closed_by_a_callback_embedded),
		DAEMON(test_another_process),
		DAEMON(test_never_dispatched),
		DAEMON(test_daemon_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
