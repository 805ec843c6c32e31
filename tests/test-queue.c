/* SPDX-License-Identifier: MIT */

/*
 * Requests that wait without blocking: what comes of each, in which order, and that nothing is lost or
 * kept when one is cancelled, its pool detached, its queue freed, its session closed or its daemon
 * killed. Everything that does not need a second process is tried over a daemon and embedded.
 */

#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/util.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define PATIENCE_USEC (HARNESS_PATIENCE_MS * UINT64_C(1000))

static struct harness harness;

/* One session, of either engine, with a pool "/q" of at most 1 MiB, and all of that held. */
struct scene {
	struct tally *t;
	struct tally_queue *q;
	struct tally_pool *p, *holder;
};

/* ------------------------------------------------------------------ scenes */

static void open_scene(struct scene *s, bool embedded)
{
	if (embedded)
		assert_int_equal(tally_open("embedded:", 0, &s->t), 0);
	else
		s->t = harness_open(&harness);
	assert_int_equal(tally_queue_new(s->t, &s->q), 0);
	s->p = harness_attach(s->t, "/q");
	s->holder = harness_attach(s->t, "/q");
	assert_int_equal(tally_set(s->t, "/q", "memory.max", "1M"), 0);
	assert_int_equal(tally_charge(s->holder, MIB), 0);
}

static int is_empty(void *userdata)
{
	struct tally *t = userdata;

	tally_set(t, "/q", "pool.drain", "1");
	return harness_current(t, "/q") == 0 && harness_value(t, "/q", "memory.stat", "stock") == 0;
}

/* All is given back: the whole limit can be had by one. */
static void assert_nothing_left(struct tally *t)
{
	struct tally_pool *p = harness_attach(t, "/q");

	assert_true(harness_wait(is_empty, t, HARNESS_PATIENCE_MS));
	assert_int_equal(tally_charge(p, MIB), 0);
	assert_int_equal(tally_charge(p, 1), -ENOMEM);
	tally_detach(p);
}

static void close_scene(struct scene *s)
{
	tally_queue_free(s->q);
	tally_detach(s->p);
	tally_detach(s->holder);
	assert_nothing_left(s->t);
	tally_close(s->t);
}

/* ------------------------------------------------------------------ requests and what comes of them */

struct outcome {
	struct tally_request *r;
	unsigned n;     /* how often the callback ran */
	unsigned order; /* among all */
	int result;
};

static unsigned n_done;

static void on_done(struct tally_request *r, int result, void *userdata)
{
	struct outcome *o = userdata;

	assert_ptr_equal(r, o->r);
	o->n++;
	o->order = n_done++;
	o->result = result;
}

static int ask(struct scene *s, uint64_t bytes, uint64_t wait_usec, struct outcome *o)
{
	struct tally_charge_args a = {
		.bytes = bytes, .deadline_usec = wait_usec ? harness_now() + wait_usec : 0};

	memset(o, 0, sizeof(*o));
	return tally_request(s->q, s->p, &a, sizeof(a), on_done, o, &o->r);
}

/* As an event loop: until n callbacks have run. */
static void serve(struct tally_queue *q, unsigned n)
{
	uint64_t until = harness_now() + PATIENCE_USEC;

	while (n > 0) {
		struct pollfd p = {.fd = tally_queue_fd(q), .events = POLLIN};
		int r;

		poll(&p, 1, 1000);
		r = tally_queue_dispatch(q);
		assert_true(r >= 0 && (unsigned)r <= n);
		n -= (unsigned)r;
		assert_true(harness_now() < until);
	}
}

/* So often that whoever could be served would have been. */
static void serve_idly(struct scene *s)
{
	for (unsigned i = 0; i < 20; i++) {
		struct pollfd p = {.fd = tally_queue_fd(s->q), .events = POLLIN};

		poll(&p, 1, 10);
		assert_int_equal(tally_queue_dispatch(s->q), 0);
	}
}

static void check_arguments(struct scene *s)
{
	struct tally_charge_args a = {.bytes = 1};
	struct tally_request *r = (void *)s;
	struct tally_queue *q;

	assert_int_equal(tally_queue_new(NULL, &q), -EINVAL);
	assert_int_equal(tally_queue_new(s->t, NULL), -EINVAL);
	assert_null(tally_queue_free(NULL));
	assert_null(tally_request_cancel(NULL));
	assert_int_equal(tally_request(NULL, s->p, &a, sizeof(a), on_done, NULL, &r), -EINVAL);
	assert_int_equal(tally_request(s->q, NULL, &a, sizeof(a), on_done, NULL, &r), -EINVAL);
	assert_int_equal(tally_request(s->q, s->p, NULL, sizeof(a), on_done, NULL, &r), -EINVAL);
	assert_int_equal(tally_request(s->q, s->p, &a, sizeof(a), NULL, NULL, &r), -EINVAL);
	for (uint32_t flag = 1; flag; flag <<= 1) {
		a.flags = flag;
		assert_int_equal(
			tally_request(s->q, s->p, &a, sizeof(a), on_done, NULL, &r), -EINVAL);
	}
	a = (struct tally_charge_args){.bytes = TALLY_BYTES_MAX + 1};
	assert_int_equal(tally_request(s->q, s->p, &a, sizeof(a), on_done, NULL, &r), -EINVAL);
	a = (struct tally_charge_args){.bytes = 1, .item = 1000};
	assert_int_equal(tally_request(s->q, s->p, &a, sizeof(a), on_done, NULL, &r), -EINVAL);
	assert_ptr_equal(r, s);
	assert_int_equal(tally_queue_dispatch(s->q), 0);
	assert_true(fcntl(tally_queue_fd(s->q), F_GETFD) & FD_CLOEXEC);
}

static void check_what_fits(struct scene *s)
{
	struct outcome o;

	tally_uncharge(s->holder, MIB);
	assert_int_equal(ask(s, 512 * KIB, 0, &o), 0);
	assert_int_equal(o.n, 0); /* never from within */
	serve(s->q, 1);
	assert_int_equal(o.n, 1);
	assert_int_equal(o.result, 0);
	assert_int_equal(harness_current(s->t, "/q"), 512 * KIB);
	/* from what lies at hand, and nothing at all */
	tally_uncharge(s->p, 512 * KIB);
	assert_int_equal(ask(s, 64 * KIB, 0, &o), 0);
	serve(s->q, 1);
	assert_int_equal(o.result, 0);
	tally_uncharge(s->p, 64 * KIB);
	assert_int_equal(ask(s, 0, 0, &o), 0);
	serve(s->q, 1);
	assert_int_equal(o.result, 0);
}

/* Only the first is served, and then the next, whatever they need. */
static void check_order(struct scene *s)
{
	static const uint64_t needs[] = {256 * KIB, 4 * KIB, 512 * KIB, 1, 64 * KIB};
	struct outcome o[ELEMENTS(needs)];

	for (unsigned i = 0; i < ELEMENTS(needs); i++)
		assert_int_equal(ask(s, needs[i], 0, &o[i]), 0);
	tally_uncharge(s->holder, 128 * KIB);
	serve_idly(s);
	tally_uncharge(s->holder, 128 * KIB);
	serve(s->q, 1);
	assert_int_equal(o[0].n, 1);
	assert_int_equal(o[0].result, 0);
	for (unsigned i = 1; i < ELEMENTS(needs); i++) {
		assert_int_equal(o[i].n, 0);
		tally_uncharge(s->holder, needs[i]);
		serve(s->q, 1);
		assert_int_equal(o[i].n, 1);
		assert_int_equal(o[i].result, 0);
		assert_true(o[i].order > o[i - 1].order);
	}
	assert_int_equal(harness_current(s->t, "/q"), MIB);
}

static void check_deadline(struct scene *s)
{
	struct outcome late, patient;

	assert_int_equal(ask(s, 64 * KIB, 1000, &late), 0);
	assert_int_equal(ask(s, 32 * KIB, 0, &patient), 0);
	serve(s->q, 1);
	assert_int_equal(late.n, 1);
	assert_int_equal(late.result, -ETIMEDOUT);
	tally_uncharge(s->holder, 32 * KIB);
	serve(s->q, 1);
	assert_int_equal(patient.result, 0);
	assert_int_equal(late.n, 1);
}

static void check_cancel(struct scene *s)
{
	struct outcome a, b, c, d;

	assert_int_equal(ask(s, 512 * KIB, 0, &a), 0);
	assert_int_equal(ask(s, 64 * KIB, 0, &b), 0);
	assert_int_equal(ask(s, 64 * KIB, 0, &c), 0);
	serve_idly(s);
	assert_null(tally_request_cancel(a.r));
	assert_null(tally_request_cancel(c.r));
	tally_uncharge(s->holder, 64 * KIB);
	serve(s->q, 1);
	assert_int_equal(b.result, 0);
	/* one whose turn has come, or which has been charged and does not know it yet */
	assert_int_equal(ask(s, 64 * KIB, 0, &d), 0);
	tally_uncharge(s->holder, 128 * KIB);
	usleep(50000);
	assert_null(tally_request_cancel(d.r));
	serve_idly(s);
	assert_int_equal(a.n + c.n + d.n, 0);
}

static void check_detach(struct scene *s)
{
	struct outcome o[3];

	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(ask(s, 64 * KIB, 0, &o[i]), 0);
	serve_idly(s);
	s->p = tally_detach(s->p);
	serve(s->q, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(o[i].result, -ENODEV);
	tally_uncharge(s->holder, 256 * KIB);
}

static void check_freed(struct scene *s)
{
	struct outcome o[3];

	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(ask(s, 64 * KIB, 0, &o[i]), 0);
	serve_idly(s);
	/* one has its turn meanwhile */
	tally_uncharge(s->holder, 64 * KIB);
	usleep(50000);
	s->q = tally_queue_free(s->q);
	assert_int_equal(o[0].n + o[1].n + o[2].n, 0);
}

static void check_close(struct scene *s)
{
	struct tally_pool *p;
	struct outcome o;

	assert_int_equal(ask(s, 64 * KIB, 0, &o), 0);
	serve_idly(s);
	tally_close(s->t);
	serve(s->q, 1);
	assert_int_equal(o.result, -ENODEV);
	assert_int_equal(ask(s, 1, 0, &o), -ENODEV);
	p = s->p;
	tally_queue_free(s->q);
	tally_detach(p);
	tally_detach(s->holder);
}

/* A callback that asks again, cancels another, and may not dispatch. */
struct chain {
	struct scene *scene;
	struct tally_request *other;
	unsigned n;
	int nested; /* what a dispatch within says */
};

static void on_link(struct tally_request *r, int result, void *userdata)
{
	struct chain *c = userdata;
	struct tally_charge_args a = {.bytes = 64 * KIB};

	assert_int_equal(result, 0);
	assert_null(tally_request_cancel(r)); /* nothing */
	c->nested = tally_queue_dispatch(c->scene->q);
	c->other = tally_request_cancel(c->other);
	tally_uncharge(c->scene->p, 64 * KIB);
	if (++c->n < 5)
		assert_int_equal(
			tally_request(c->scene->q, c->scene->p, &a, sizeof(a), on_link, c, NULL),
			0);
}

static void check_callback(struct scene *s)
{
	struct tally_charge_args a = {.bytes = 64 * KIB};
	struct chain c = {.scene = s};
	struct outcome other;

	assert_int_equal(tally_request(s->q, s->p, &a, sizeof(a), on_link, &c, NULL), 0);
	assert_int_equal(ask(s, 128 * KIB, 0, &other), 0);
	c.other = other.r;
	tally_uncharge(s->holder, 64 * KIB);
	serve(s->q, 5);
	assert_int_equal(c.n, 5);
	assert_int_equal(c.nested, 0);
	assert_int_equal(other.n, 0);
}

/* Whoever waits in tally_charge_with() and whoever has a request stand in one line. */
struct blocker {
	struct tally_pool *pool;
	_Atomic int result;
};

static void *block(void *userdata)
{
	struct blocker *b = userdata;
	struct tally_charge_args a = {
		.bytes = 64 * KIB, .deadline_usec = harness_now() + 2 * PATIENCE_USEC};

	b->result = tally_charge_with(b->pool, &a, sizeof(a));
	return NULL;
}

struct events {
	struct tally *t;
	uint64_t n;
};

static int has_events(void *userdata)
{
	struct events *e = userdata;

	return harness_value(e->t, "/q", "memory.events", "max") >= e->n;
}

static void check_blocking(struct scene *s)
{
	struct blocker b = {.pool = s->holder, .result = 1};
	struct events e = {.t = s->t, .n = 1};
	struct outcome before, after;
	pthread_t thread;

	assert_int_equal(ask(s, 64 * KIB, 0, &before), 0);
	serve_idly(s);
	assert_int_equal(pthread_create(&thread, NULL, block, &b), 0);
	assert_true(harness_wait(has_events, &e, HARNESS_PATIENCE_MS));
	usleep(50000); /* it stands behind the first one now */
	assert_int_equal(ask(s, 64 * KIB, 0, &after), 0);
	serve_idly(s);
	assert_int_equal(b.result, 1);
	tally_uncharge(s->holder, 64 * KIB);
	serve(s->q, 1);
	assert_int_equal(before.result, 0);
	serve_idly(s);
	assert_int_equal(b.result, 1);
	tally_uncharge(s->p, 64 * KIB);
	pthread_join(thread, NULL);
	assert_int_equal(b.result, 0);
	serve_idly(s);
	tally_uncharge(s->holder, 64 * KIB);
	serve(s->q, 1);
	assert_int_equal(after.result, 0);
}

/* One that does not come for its bytes lets others pass, and is the next when it does. */
static void check_asleep(struct scene *s)
{
	struct blocker b = {.pool = s->holder, .result = 1};
	struct outcome o;
	pthread_t thread;

	assert_int_equal(ask(s, 128 * KIB, 0, &o), 0);
	serve_idly(s);
	tally_uncharge(s->holder, 128 * KIB);
	assert_int_equal(pthread_create(&thread, NULL, block, &b), 0);
	pthread_join(thread, NULL);
	assert_int_equal(b.result, 0);
	assert_int_equal(o.n, 0);
	serve_idly(s);
	tally_uncharge(s->holder, 64 * KIB);
	serve(s->q, 1);
	assert_int_equal(o.result, 0);
}

static void check_items(struct scene *s)
{
	struct tally_charge_args a = {.bytes = 64 * KIB};
	struct tally_item_def d = {.name = "event", .type = TALLY_EVENT};
	struct outcome o = {0};
	tally_item event;

	assert_int_equal(tally_item_lookup(s->t, "sock", &a.item), 0);
	assert_int_equal(tally_set(s->t, "/q", "stat.sock.max", "64K"), 0);
	assert_int_equal(tally_request(s->q, s->p, &a, sizeof(a), on_done, &o, &o.r), 0);
	serve_idly(s);
	tally_uncharge(s->holder, 256 * KIB);
	serve(s->q, 1);
	assert_int_equal(o.result, 0);
	assert_int_equal(harness_value(s->t, "/q", "memory.stat", "sock"), 64 * KIB);
	/* there is room in the pool, and none for the item */
	o = (struct outcome){0};
	assert_int_equal(tally_request(s->q, s->p, &a, sizeof(a), on_done, &o, &o.r), 0);
	serve_idly(s);
	tally_uncharge_item(s->p, a.item, 64 * KIB);
	serve(s->q, 1);
	assert_int_equal(o.result, 0);
	assert_int_equal(harness_value(s->t, "/q", "memory.stat", "sock"), 64 * KIB);
	/* an event cannot be charged */
	(void)d;
	assert_int_equal(tally_item_lookup(s->t, "alloc", &event), 0);
	a.item = event;
	o = (struct outcome){0};
	if (tally_request(s->q, s->p, &a, sizeof(a), on_done, &o, &o.r) == 0) {
		serve(s->q, 1);
		assert_int_equal(o.result, -EINVAL);
	}
	assert_int_equal(tally_set(s->t, "/q", "stat.sock.max", "max"), 0);
}

/* The line that it stands in goes with the limit. */
static void check_raised_limit(struct scene *s)
{
	struct outcome o;

	assert_int_equal(ask(s, 2 * MIB, 0, &o), 0);
	serve_idly(s);
	assert_int_equal(tally_set(s->t, "/q", "memory.max", "4M"), 0);
	serve(s->q, 1);
	assert_int_equal(o.result, 0);
	assert_int_equal(harness_current(s->t, "/q"), 3 * MIB);
	assert_int_equal(tally_set(s->t, "/q", "memory.max", "1M"), 0);
}

/* A hundred wait, and the loop has all the ticks of a pipe meanwhile. */
static void check_loop(struct scene *s)
{
	enum { REQUESTS = 100, TICKS = 200 };
	static struct outcome o[REQUESTS];
	struct epoll_event e = {.events = EPOLLIN}, got[4];
	unsigned ticks = 0, served = 0, sent = 0;
	int epoll = epoll_create1(EPOLL_CLOEXEC), ends[2];
	char byte = 0;

	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	e.data.fd = ends[0];
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &e), 0);
	e.data.fd = tally_queue_fd(s->q);
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, e.data.fd, &e), 0);
	for (unsigned i = 0; i < REQUESTS; i++)
		assert_int_equal(ask(s, 8 * KIB, 0, &o[i]), 0);
	while (ticks < TICKS || served < REQUESTS) {
		int n;

		if (sent == ticks && sent < TICKS && write(ends[1], &byte, 1) == 1)
			sent++;
		/* The first half of the ticks comes before anything can be served. */
		if (ticks == TICKS / 2 && served == 0 && sent == ticks + 1)
			tally_uncharge(s->holder, 8 * KIB);
		n = epoll_wait(epoll, got, 4, HARNESS_PATIENCE_MS);
		assert_true(n > 0);
		for (int i = 0; i < n; i++) {
			int r;

			if (got[i].data.fd == ends[0]) {
				ticks += read(ends[0], &byte, 1) == 1;
				continue;
			}
			r = tally_queue_dispatch(s->q);
			assert_true(r >= 0);
			served += (unsigned)r;
			/* It goes from one to the next. */
			for (; r > 0; r--)
				tally_uncharge(s->p, 8 * KIB);
		}
		if (ticks < TICKS / 2)
			assert_int_equal(served, 0);
	}
	for (unsigned i = 0; i < REQUESTS; i++)
		assert_true(o[i].n == 1 && o[i].result == 0);
	close(epoll);
	close(ends[0]);
	close(ends[1]);
}

/* Several loops, with an attachment in common, in threads of their own. */
#define LOOPS 4
#define EACH 50

struct loop {
	struct scene *scene;
	pthread_t thread;
	unsigned done;
};

static void on_looped(struct tally_request *r _unused_, int result, void *userdata)
{
	struct loop *l = userdata;

	if (result != 0)
		abort();
	l->done++;
	tally_uncharge(l->scene->p, 16 * KIB);
}

static void *run_loop(void *userdata)
{
	struct loop *l = userdata;
	struct tally_charge_args a = {.bytes = 16 * KIB};
	struct tally_queue *q;

	if (tally_queue_new(l->scene->t, &q) < 0)
		abort();
	for (unsigned i = 0; i < EACH; i++)
		if (tally_request(q, l->scene->p, &a, sizeof(a), on_looped, l, NULL) < 0)
			abort();
	while (l->done < EACH) {
		struct pollfd p = {.fd = tally_queue_fd(q), .events = POLLIN};

		if (poll(&p, 1, HARNESS_PATIENCE_MS) != 1 || tally_queue_dispatch(q) < 0)
			abort();
	}
	tally_queue_free(q);
	return NULL;
}

static void check_threads(struct scene *s)
{
	struct loop loops[LOOPS];

	for (unsigned i = 0; i < LOOPS; i++) {
		loops[i] = (struct loop){.scene = s};
		assert_int_equal(pthread_create(&loops[i].thread, NULL, run_loop, &loops[i]), 0);
	}
	usleep(50000);
	tally_uncharge(s->holder, 32 * KIB);
	for (unsigned i = 0; i < LOOPS; i++)
		pthread_join(loops[i].thread, NULL);
}

static void check_fork(struct scene *s)
{
	struct tally_charge_args a = {.bytes = 1};
	struct outcome o;
	pid_t child;

	assert_int_equal(ask(s, 64 * KIB, 0, &o), 0);
	serve_idly(s);
	child = fork();
	if (child == 0) {
		bool right = tally_queue_dispatch(s->q) == -ECHILD &&
			tally_request(s->q, s->p, &a, sizeof(a), on_done, &o, NULL) == -ECHILD &&
			!tally_request_cancel(o.r) && !tally_queue_free(s->q);

		_exit(!right);
	}
	harness_join(child, 0);
	tally_uncharge(s->holder, 64 * KIB);
	serve(s->q, 1);
	assert_int_equal(o.result, 0);
}

typedef void (*check_fn)(struct scene *s);

static void run(check_fn check, bool embedded)
{
	struct scene s;

	open_scene(&s, embedded);
	check(&s);
	if (check != check_close)
		close_scene(&s);
}

#define BOTH(name)                                                                                 \
	static void test_##name(void **state _unused_)                                             \
	{                                                                                          \
		run(check_##name, false);                                                          \
	}                                                                                          \
	static void test_embedded_##name(void **state _unused_)                                    \
	{                                                                                          \
		run(check_##name, true);                                                           \
	}

BOTH(arguments)
BOTH(what_fits)
BOTH(order)
BOTH(deadline)
BOTH(cancel)
BOTH(detach)
BOTH(freed)
BOTH(close)
BOTH(callback)
BOTH(blocking)
BOTH(asleep)
BOTH(items)
BOTH(raised_limit)
BOTH(loop)
BOTH(threads)
BOTH(fork)

/* ------------------------------------------------------------------ the daemon goes */

static void test_killed_daemon(void **state _unused_)
{
	struct harness other;
	struct tally_charge_args a = {.bytes = 2 * MIB};
	struct outcome o = {0};
	struct tally_queue *q;
	struct tally_pool *p;
	struct tally *t;

	harness_start(&other, "");
	t = harness_open(&other);
	p = harness_attach(t, "/q");
	assert_int_equal(tally_set(t, "/q", "memory.max", "1M"), 0);
	assert_int_equal(tally_queue_new(t, &q), 0);
	assert_int_equal(tally_request(q, p, &a, sizeof(a), on_done, &o, &o.r), 0);
	harness_kill(&other);
	serve(q, 1);
	assert_int_equal(o.result, -ENOTCONN);
	assert_int_equal(tally_request(q, p, &a, sizeof(a), on_done, &o, &o.r), -ENOTCONN);
	tally_queue_free(q);
	tally_detach(p);
	tally_close(t);
	harness_stop(&other);
}

/* A user has only so many requests. */
static void test_quota(void **state _unused_)
{
	enum { MAX = 10 };
	struct harness other;
	struct tally_charge_args a = {.bytes = 2 * MIB};
	struct outcome o[MAX] = {0};
	struct tally_queue *q;
	struct tally_pool *p;
	struct tally *t;
	unsigned refused = 0;

	harness_start(&other, "[daemon]\nmax_queued_per_uid = 10\n");
	t = harness_open(&other);
	p = harness_attach(t, "/q");
	assert_int_equal(tally_set(t, "/q", "memory.max", "1M"), 0);
	assert_int_equal(tally_queue_new(t, &q), 0);
	for (unsigned i = 0; i < MAX; i++)
		assert_int_equal(tally_request(q, p, &a, sizeof(a), on_done, &o[i], &o[i].r), 0);
	serve(q, 1);
	for (unsigned i = 0; i < MAX; i++)
		refused += o[i].n == 1 && o[i].result == -EDQUOT;
	assert_int_equal(refused, 1);
	/* what is cancelled makes room */
	tally_request_cancel(o[0].r);
	assert_int_equal(tally_request(q, p, &a, sizeof(a), on_done, &o[0], &o[0].r), 0);
	for (unsigned i = 0; i < 20; i++) {
		usleep(5000);
		assert_int_equal(tally_queue_dispatch(q), 0);
	}
	tally_queue_free(q);
	tally_detach(p);
	tally_close(t);
	harness_stop(&other);
}

static int setup(void **state _unused_)
{
	harness_start(&harness, "");
	return 0;
}

static int teardown(void **state _unused_)
{
	harness_stop(&harness);
	return 0;
}

#define TEST_BOTH(name) cmocka_unit_test(test_##name), cmocka_unit_test(test_embedded_##name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_BOTH(arguments),
		TEST_BOTH(what_fits),
		TEST_BOTH(order),
		TEST_BOTH(deadline),
		TEST_BOTH(cancel),
		TEST_BOTH(detach),
		TEST_BOTH(freed),
		TEST_BOTH(close),
		TEST_BOTH(callback),
		TEST_BOTH(blocking),
		TEST_BOTH(asleep),
		TEST_BOTH(items),
		TEST_BOTH(raised_limit),
		TEST_BOTH(loop),
		TEST_BOTH(threads),
		TEST_BOTH(fork),
		cmocka_unit_test(test_killed_daemon),
		cmocka_unit_test(test_quota),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
