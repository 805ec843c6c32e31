/* SPDX-License-Identifier: MIT */

/*
 * Asking the program to give back: over a daemon with the daemon's end of the second socket in the
 * test's hand, so that it asks and says what it likes; embedded by the engine's own question. What
 * a program may do with its handles meanwhile it does here.
 */

#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"
#include "core/util.h"
#include "engine.h"
#include "question.h"

#define K UINT64_C(1024)

static struct harness h;
static struct tally *t;
static struct tally_pool *p;
static int daemon_end;

struct asked {
	struct tally_pool *pool;
	unsigned calls;
	uint64_t want, deadline_usec, token;
	int64_t answer;
	void (*meanwhile)(struct asked *a);
	_Atomic bool entered, leave, left;
};

static int64_t on_reclaim(struct tally_pool *pool, uint64_t want, uint64_t deadline_usec,
	uint64_t token, void *userdata)
{
	struct asked *a = userdata;

	a->pool = pool;
	a->want = want;
	a->deadline_usec = deadline_usec;
	a->token = token;
	a->calls++;
	if (a->meanwhile)
		a->meanwhile(a);
	return a->answer;
}

/* From now on the test is the daemon on that socket. */
static int start_daemon(void **state)
{
	int fds[2];

	(void)state;
	harness_start(&h, "[daemon]\nexport =\n");
	t = harness_open(&h);
	p = harness_attach(t, "/a");
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
	assert_true(dup3(fds[1], t->event_fd, O_CLOEXEC) >= 0);
	close(fds[1]);
	daemon_end = fds[0];
	return 0;
}

static int stop_daemon(void **state)
{
	(void)state;
	p = tally_detach(p);
	t = tally_close(t);
	daemon_end = close_fd(daemon_end);
	harness_stop(&h);
	return 0;
}

static int start_embedded(void **state)
{
	(void)state;
	assert_int_equal(tally_open("embedded:", 0, &t), 0);
	p = harness_attach(t, "/a");
	return 0;
}

static int stop_embedded(void **state)
{
	(void)state;
	p = tally_detach(p);
	t = tally_close(t);
	return 0;
}

/* ------------------------------------------------------------------ over a daemon */

static void ask(uint64_t attachment, uint64_t token, uint64_t want)
{
	const struct wire_reclaim m = {.h = WIRE_HEADER(WIRE_RECLAIM, struct wire_reclaim, 0),
		.attachment = attachment,
		.token = token,
		.want = want,
		.deadline_usec = 12345};

	assert_int_equal(send(daemon_end, &m, sizeof(m), MSG_NOSIGNAL), sizeof(m));
}

/* The next answer; token 0: none. */
static struct wire_reclaimed answer(void)
{
	struct wire_reclaimed m = {0};
	ssize_t n = recv(daemon_end, &m, sizeof(m), MSG_DONTWAIT);

	if (n < 0) {
		assert_int_equal(errno, EAGAIN);
		return (struct wire_reclaimed){0};
	}
	assert_int_equal(wire_check_report(&m, (size_t)n), 0);
	return m;
}

static void assert_answer(uint64_t attachment, uint64_t token, uint64_t bytes)
{
	struct wire_reclaimed m = answer();

	assert_int_equal(m.attachment, attachment);
	assert_int_equal(m.token, token);
	assert_int_equal(m.bytes, bytes);
}

static void test_asked_and_answered(void **state)
{
	struct asked a = {.answer = 100};

	(void)state;
	assert_int_equal(tally_on_reclaim(p, on_reclaim, &a), 0);
	ask(p->attachment, 7, 4096);
	assert_int_equal(tally_dispatch(t), 1);
	assert_ptr_equal(a.pool, p);
	assert_int_equal(a.want, 4096);
	assert_int_equal(a.deadline_usec, 12345);
	assert_int_equal(a.token, 7);
	assert_answer(p->attachment, 7, 100);
	assert_int_equal(tally_reclaim_done(t, 7, 1), -ENOENT);

	/* nonsense is nothing */
	a.answer = -5;
	ask(p->attachment, 8, 1);
	assert_int_equal(tally_dispatch(t), 1);
	assert_answer(p->attachment, 8, 0);
}

static void test_later(void **state)
{
	struct asked a = {.answer = TALLY_LATER};

	(void)state;
	assert_int_equal(tally_on_reclaim(p, on_reclaim, &a), 0);
	ask(p->attachment, 7, 1);
	assert_int_equal(tally_dispatch(t), 1);
	assert_int_equal(answer().token, 0);
	assert_int_equal(tally_reclaim_done(t, 8, 1), -ENOENT);
	assert_int_equal(tally_reclaim_done(t, 7, 5 * K), 0);
	assert_answer(p->attachment, 7, 5 * K);
	assert_int_equal(tally_reclaim_done(t, 7, 1), -ENOENT);
}

static void done_already(struct asked *a)
{
	assert_int_equal(tally_reclaim_done(t, a->token, 9), 0);
}

static void test_done_before_it_returns(void **state)
{
	struct asked a = {.answer = TALLY_LATER, .meanwhile = done_already};

	(void)state;
	assert_int_equal(tally_on_reclaim(p, on_reclaim, &a), 0);
	ask(p->attachment, 7, 1);
	assert_int_equal(tally_dispatch(t), 1);
	assert_answer(p->attachment, 7, 9);
	a.answer = 3;
	ask(p->attachment, 8, 1);
	assert_int_equal(tally_dispatch(t), 1);
	assert_answer(p->attachment, 8, 9);
	assert_int_equal(answer().token, 0);
}

/* No answer is lost for want of room: without one it would not be asked again. */
static void test_no_room_for_the_answer(void **state)
{
	static const char filling[1000];
	struct asked a = {.answer = 1};

	(void)state;
	assert_int_equal(tally_on_reclaim(p, on_reclaim, &a), 0);
	while (send(t->event_fd, filling, sizeof(filling), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
	ask(p->attachment, 7, 1);
	assert_int_equal(tally_dispatch(t), 1);
	assert_int_equal(tally_dispatch(t), 0);
	for (char drop[2000]; recv(daemon_end, drop, sizeof(drop), MSG_DONTWAIT) == 1000;)
		;
	assert_int_equal(tally_dispatch(t), 0);
	assert_answer(p->attachment, 7, 1);
	assert_int_equal(answer().token, 0);
	assert_int_equal(a.calls, 1);
}

static void test_who_is_not_asked(void **state)
{
	struct asked a = {.answer = 1};
	struct tally_pool *detached = harness_attach(t, "/a");

	(void)state;
	/* no function, no such handle, none any more, detached but referenced */
	ask(p->attachment, 7, 1);
	ask(4711, 7, 1);
	assert_int_equal(tally_on_reclaim(p, on_reclaim, &a), 0);
	assert_int_equal(tally_on_reclaim(p, NULL, NULL), 0);
	assert_int_equal(tally_on_reclaim(p, NULL, NULL), 0);
	ask(p->attachment, 7, 1);
	assert_int_equal(tally_on_reclaim(detached, on_reclaim, &a), 0);
	tally_pool_ref(detached);
	tally_detach(detached);
	ask(detached->attachment, 7, 1);
	assert_int_equal(tally_dispatch(t), 0);
	assert_int_equal(a.calls, 0);
	assert_int_equal(answer().token, 0);
	assert_int_equal(tally_on_reclaim(detached, on_reclaim, &a), -ENODEV);
	tally_pool_unref(detached);
}

static void detach_it(struct asked *a)
{
	struct tally_pool *mine = a->pool;

	p = tally_detach(p);
	/* it is alive, and knows that it is detached */
	assert_string_equal(tally_pool_path(mine), "/a");
	assert_int_equal(tally_charge(mine, 1), -ENODEV);
}

static void test_detached_by_its_callback(void **state)
{
	struct asked a = {.answer = 1, .meanwhile = detach_it};

	(void)state;
	assert_int_equal(tally_on_reclaim(p, on_reclaim, &a), 0);
	ask(p->attachment, 7, 1);
	assert_int_equal(tally_dispatch(t), 1);
	assert_null(p);
	assert_int_equal(a.calls, 1);
}

static void take_it_away(struct asked *a)
{
	assert_int_equal(tally_on_reclaim(a->pool, NULL, NULL), 0);
}

static void test_taken_away_by_itself(void **state)
{
	struct asked a = {.answer = 1, .meanwhile = take_it_away};

	(void)state;
	assert_int_equal(tally_on_reclaim(p, on_reclaim, &a), 0);
	ask(p->attachment, 7, 1);
	ask(p->attachment, 8, 1);
	assert_int_equal(tally_dispatch(t), 1);
	assert_int_equal(a.calls, 1);
	/* the daemon was told that there is none */
	assert_int_equal(answer().token, 0);
}

static void dawdle(struct asked *a)
{
	atomic_store(&a->entered, true);
	while (!atomic_load(&a->leave))
		usleep(100);
	usleep(20000);
	atomic_store(&a->left, true);
}

static int has_entered(void *userdata)
{
	return atomic_load(&((struct asked *)userdata)->entered);
}

static void *dispatch_once(void *userdata)
{
	(void)userdata;
	assert_int_equal(tally_dispatch(t), 1);
	return NULL;
}

static void while_another_thread_is_in_it(void (*then)(void))
{
	struct asked a = {.answer = 1, .meanwhile = dawdle};
	pthread_t thread;

	assert_int_equal(tally_on_reclaim(p, on_reclaim, &a), 0);
	ask(p->attachment, 7, 1);
	assert_int_equal(pthread_create(&thread, NULL, dispatch_once, NULL), 0);
	assert_true(harness_wait(has_entered, &a, HARNESS_PATIENCE_MS));
	atomic_store(&a.leave, true);
	then();
	assert_true(atomic_load(&a.left));
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void take_away(void)
{
	assert_int_equal(tally_on_reclaim(p, NULL, NULL), 0);
}

static void detach(void)
{
	p = tally_detach(p);
}

static void close_all(void)
{
	p = tally_pool_unref(p);
	t = tally_close(t);
}

static void test_others_wait_for_it(void **state)
{
	(void)state;
	while_another_thread_is_in_it(take_away);
	while_another_thread_is_in_it(detach);
	p = harness_attach(t, "/a");
	while_another_thread_is_in_it(close_all);
}

static int in_child(void *userdata)
{
	if (tally_on_reclaim(p, on_reclaim, userdata) != -ECHILD)
		return 1;
	if (tally_reclaim_done(t, 7, 1) != -ECHILD || tally_dispatch(t) != -ECHILD)
		return 2;
	tally_detach(p);
	tally_close(t);
	return 0;
}

static void test_fork(void **state)
{
	struct asked a = {.answer = TALLY_LATER};

	(void)state;
	assert_int_equal(tally_on_reclaim(p, on_reclaim, &a), 0);
	ask(p->attachment, 7, 1);
	assert_int_equal(tally_dispatch(t), 1);
	harness_join(harness_fork(in_child, &a), 0);
	assert_int_equal(answer().token, 0);
	assert_int_equal(tally_reclaim_done(t, 7, 1), 0);
	assert_answer(p->attachment, 7, 1);
}

/* What a broken daemon says is no reason to run anything. */
static void test_noise(void **state)
{
	static const char noise[300];

	(void)state;
	assert_int_equal(send(daemon_end, noise, sizeof(noise), 0), sizeof(noise));
	assert_int_equal(tally_dispatch(t), -EPROTO);
	assert_int_equal(send(daemon_end, noise, 100, 0), 100);
	assert_int_equal(tally_dispatch(t), -EPROTO);
	daemon_end = close_fd(daemon_end);
	assert_int_equal(tally_dispatch(t), -ENOTCONN);
}

/* ------------------------------------------------------------------ embedded */

/* As a thread that charges does. */
static uint64_t engine_ask(struct tally_pool *of, uint64_t want)
{
	struct embedded *e = t->embedded;
	struct engine_attachment *a;
	uint64_t freed = UINT64_MAX;

	pthread_mutex_lock(&e->mutex);
	a = engine_find(e, of->attachment);
	if (question_can_run(a))
		freed = question_run(a, want, 999);
	engine_unlock(e);
	return freed;
}

static void uncharge_some(struct asked *a)
{
	/* the engine is open meanwhile */
	tally_uncharge(a->pool, 10 * K);
	assert_int_equal(harness_current(t, "/a"), 90 * K);
	/* and does not ask it twice at a time */
	assert_int_equal(engine_ask(a->pool, 1), UINT64_MAX);
}

static void test_embedded(void **state)
{
	struct asked a = {.answer = 10 * (int64_t)K, .meanwhile = uncharge_some};

	(void)state;
	assert_int_equal(tally_charge(p, 100 * K), 0);
	assert_int_equal(engine_ask(p, 1), UINT64_MAX);
	assert_int_equal(tally_on_reclaim(p, on_reclaim, &a), 0);
	assert_int_equal(t->embedded->tree->root->n_reclaimers_below, 1);
	assert_int_equal(engine_ask(p, 20 * K), 10 * K);
	assert_int_equal(a.calls, 1);
	assert_int_equal(a.want, 20 * K);
	assert_int_equal(a.deadline_usec, 999);
	assert_int_equal(tally_on_reclaim(p, NULL, NULL), 0);
	assert_int_equal(engine_ask(p, 1), UINT64_MAX);
	assert_int_equal(t->embedded->tree->root->n_reclaimers_below, 0);
	tally_uncharge(p, 90 * K);
}

static void test_embedded_later(void **state)
{
	struct asked a = {.answer = TALLY_LATER};

	(void)state;
	assert_int_equal(tally_on_reclaim(p, on_reclaim, &a), 0);
	assert_int_equal(engine_ask(p, 1), 0);
	assert_int_equal(engine_ask(p, 1), UINT64_MAX);
	assert_int_equal(a.calls, 1);
	assert_int_equal(tally_reclaim_done(t, a.token, 5), 0);
	assert_int_equal(tally_reclaim_done(t, a.token, 5), -ENOENT);
	a.answer = 0;
	assert_int_equal(engine_ask(p, 1), 0);
	assert_int_equal(a.calls, 2);
}

static void test_embedded_detached_meanwhile(void **state)
{
	struct asked a = {.answer = 5, .meanwhile = detach_it};

	(void)state;
	assert_int_equal(tally_on_reclaim(p, on_reclaim, &a), 0);
	assert_int_equal(engine_ask(p, 1), 5);
	assert_null(p);
}

#define DAEMON(test) cmocka_unit_test_setup_teardown(test, start_daemon, stop_daemon)
#define EMBEDDED(test) cmocka_unit_test_setup_teardown(test, start_embedded, stop_embedded)

int main(void)
{
	const struct CMUnitTest tests[] = {
		DAEMON(test_asked_and_answered),
		DAEMON(test_later),
		DAEMON(test_done_before_it_returns),
		DAEMON(test_no_room_for_the_answer),
		DAEMON(test_who_is_not_asked),
		DAEMON(test_detached_by_its_callback),
		DAEMON(test_taken_away_by_itself),
		DAEMON(test_others_wait_for_it),
		DAEMON(test_fork),
		DAEMON(test_noise),
		EMBEDDED(test_embedded),
		EMBEDDED(test_embedded_later),
		EMBEDDED(test_embedded_detached_meanwhile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
