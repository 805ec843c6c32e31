/* SPDX-License-Identifier: MIT */

#include "dispatch.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <search.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client.h"
#include "core/util.h"
#include "watch.h"

/* Messages in one call: then the program has its turn, and finds the descriptor readable. */
#define TURN 1024

/* Aligned for every message. */
union notice {
	struct wire_header h;
	struct wire_event event;
	struct wire_reclaim reclaim;
	char bytes[WIRE_NOTICE_MAX];
};

/* ------------------------------------------------------------------ who is inside */

void dispatch_begin(struct dispatch_call *c)
{
	c->running = true;
	c->by = pthread_self();
}

void dispatch_finish(struct dispatch *d, struct dispatch_call *c)
{
	c->running = false;
	atomic_fetch_add(&d->turns, 1);
	syscall(SYS_futex, &d->turns, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void dispatch_await(struct dispatch *d, struct dispatch_call *c)
{
	while (c->running && !pthread_equal(c->by, pthread_self())) {
		uint32_t seen = atomic_load(&d->turns);

		pthread_mutex_unlock(&d->lock);
		syscall(SYS_futex, &d->turns, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
		pthread_mutex_lock(&d->lock);
	}
}

/* ------------------------------------------------------------------ giving back */

/* Takes it off the list of those that are asked. */
static void settle(struct dispatch *d, struct tally_pool *p)
{
	if (p->reclaim.question != DISPATCH_ANSWERED)
		TAILQ_REMOVE(&d->asked, p, reclaim.entry);
	p->reclaim.question = DISPATCH_ANSWERED;
}

/* What cannot be sent now is sent by the next call of tally_dispatch(). */
static void send_answer(struct tally *t, struct tally_pool *p)
{
	const struct wire_reclaimed m = {.h = WIRE_HEADER(WIRE_RECLAIMED, struct wire_reclaimed, 0),
		.attachment = p->attachment,
		.token = p->reclaim.token,
		.bytes = p->reclaim.bytes};

	p->reclaim.question = DISPATCH_UNSENT;
	if (t->embedded)
		embedded_reclaimed(t->embedded, m.attachment, m.token);
	else if (send(t->event_fd, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
		(errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM))
		return;
	settle(&t->dispatch, p);
}

static void send_answers(struct tally *t)
{
	struct tally_pool *p, *next;

	for (p = TAILQ_FIRST(&t->dispatch.asked); p; p = next) {
		next = TAILQ_NEXT(p, reclaim.entry);
		if (p->reclaim.question == DISPATCH_UNSENT)
			send_answer(t, p);
	}
}

/* The function that is to run, NULL: none any more. */
static tally_reclaim_fn begin_reclaim(
	struct tally_pool *p, const struct wire_reclaim *m, void **ret_userdata)
{
	struct dispatch *d = &p->tally->dispatch;
	tally_reclaim_fn fn;

	pthread_mutex_lock(&d->lock);
	fn = client_check(p->tally) == 0 ? p->reclaim.fn : NULL;
	if (fn) {
		settle(d, p);
		p->reclaim.token = m->token;
		p->reclaim.question = DISPATCH_ASKED;
		TAILQ_INSERT_TAIL(&d->asked, p, reclaim.entry);
		dispatch_begin(&p->reclaim.call);
		dispatch_begin(&d->reclaim);
		*ret_userdata = p->reclaim.userdata;
	}
	pthread_mutex_unlock(&d->lock);
	return fn;
}

/* Unless tally_reclaim_done() has been faster. The embedded engine has the answer from the one who
 * ran it. */
static void finish_reclaim(struct tally_pool *p, uint64_t token, int64_t freed)
{
	struct tally *t = p->tally;
	struct dispatch *d = &t->dispatch;

	pthread_mutex_lock(&d->lock);
	if (freed != TALLY_LATER && p->reclaim.question == DISPATCH_ASKED &&
		p->reclaim.token == token) {
		p->reclaim.bytes = (uint64_t)freed;
		if (t->embedded)
			settle(d, p);
		else
			send_answer(t, p);
	}
	dispatch_finish(d, &p->reclaim.call);
	dispatch_finish(d, &d->reclaim);
	pthread_mutex_unlock(&d->lock);
}

bool dispatch_reclaim(struct tally *t, const struct wire_reclaim *m, int64_t *ret_freed)
{
	struct tally_pool *p = client_ref_pool(t, m->attachment);
	tally_reclaim_fn fn;
	void *userdata = NULL;
	int64_t freed;

	if (!p)
		return false;
	fn = begin_reclaim(p, m, &userdata);
	if (fn) {
		freed = fn(p, m->want, m->deadline_usec, m->token, userdata);
		if (freed < 0 && freed != TALLY_LATER)
			freed = 0;
		finish_reclaim(p, m->token, freed);
		*ret_freed = freed;
	}
	tally_pool_unref(p);
	return fn;
}

static int tell_daemon(struct tally_pool *p, bool on)
{
	static const char *const none[WIRE_STRINGS_MAX];
	struct wire_on_reclaim m = {
		.attachment = p->attachment, .flags = on ? WIRE_ON_RECLAIM_SET : 0};
	struct wire_done answer;
	int r = client_call(
		p->tally, WIRE_ON_RECLAIM, &m, sizeof(m), none, &answer, sizeof(answer));

	return r < 0 ? r : answer.status;
}

/* One that runs for what was there before is waited for. */
static void set_reclaim(struct tally_pool *p, tally_reclaim_fn fn, void *userdata)
{
	struct dispatch *d = &p->tally->dispatch;

	pthread_mutex_lock(&d->lock);
	if (!fn)
		settle(d, p);
	p->reclaim.fn = fn;
	p->reclaim.userdata = userdata;
	dispatch_await(d, &p->reclaim.call);
	pthread_mutex_unlock(&d->lock);
}

int dispatch_set_reclaim(struct tally_pool *p, tally_reclaim_fn fn, void *userdata)
{
	int r = client_check(p->tally);

	if (r < 0)
		return r;
	if (atomic_load(&p->detached))
		return -ENODEV;
	/* First, so that it is there when it is asked for. */
	if (fn)
		set_reclaim(p, fn, userdata);
	r = tell_daemon(p, fn);
	if (!fn || r < 0)
		set_reclaim(p, NULL, NULL);
	return r;
}

int dispatch_reclaimed(struct tally *t, uint64_t token, uint64_t bytes)
{
	struct dispatch *d = &t->dispatch;
	struct tally_pool *p;
	int r = client_check(t);

	if (r < 0)
		return r;
	pthread_mutex_lock(&d->lock);
	TAILQ_FOREACH (p, &d->asked, reclaim.entry)
		if (p->reclaim.token == token && p->reclaim.question == DISPATCH_ASKED)
			break;
	if (p) {
		p->reclaim.bytes = bytes;
		send_answer(t, p);
	}
	pthread_mutex_unlock(&d->lock);
	return p ? 0 : -ENOENT;
}

/* ------------------------------------------------------------------ running */

/* Bytes of the next message, 0: none now. */
static int receive(struct tally *t, union notice *m)
{
	ssize_t n;

	if (t->embedded)
		return embedded_next_notice(t->embedded, m);
	n = recv(t->event_fd, m, sizeof(*m), MSG_DONTWAIT | MSG_TRUNC);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return -ENOTCONN;
	return (size_t)n > sizeof(*m) || wire_check_notice(m, (size_t)n) < 0 ? -EPROTO : (int)n;
}

static int handle(struct tally *t, const union notice *m)
{
	int64_t freed;

	if (m->h.type == WIRE_EVENT)
		return watch_tell(t, &m->event);
	return dispatch_reclaim(t, &m->reclaim, &freed);
}

static int run(struct tally *t)
{
	int n = 0;

	for (unsigned i = 0; i < TURN; i++) {
		union notice m;
		int r = client_check(t);

		if (r >= 0)
			r = receive(t, &m);
		if (r <= 0)
			return n > 0 ? n : r;
		n += handle(t, &m);
	}
	return n;
}

int dispatch_run(struct tally *t)
{
	struct dispatch *d = &t->dispatch;
	int r = client_check(t);
	bool busy;

	if (r < 0)
		return r;
	pthread_mutex_lock(&d->lock);
	busy = d->call.running;
	if (!busy) {
		dispatch_begin(&d->call);
		send_answers(t);
	}
	pthread_mutex_unlock(&d->lock);
	if (busy)
		return 0;

	/* The session may be closed from a callback. */
	client_ref(t);
	r = run(t);
	pthread_mutex_lock(&d->lock);
	dispatch_finish(d, &d->call);
	pthread_mutex_unlock(&d->lock);
	client_unref(t);
	return r;
}

/* ------------------------------------------------------------------ the end */

void dispatch_end(struct tally_pool *p)
{
	set_reclaim(p, NULL, NULL);
}

void dispatch_stop(struct tally *t)
{
	struct dispatch *d = &t->dispatch;

	pthread_mutex_lock(&d->lock);
	dispatch_await(d, &d->call);
	dispatch_await(d, &d->reclaim);
	pthread_mutex_unlock(&d->lock);
}

void dispatch_init(struct dispatch *d)
{
	pthread_mutex_init(&d->lock, NULL);
	TAILQ_INIT(&d->asked);
}

static void keep(void *watch)
{
	(void)watch;
}

void dispatch_clear(struct dispatch *d)
{
	/* In a child whose fork came upon a change half made nothing of it can be relied on. */
	if (pthread_mutex_trylock(&d->lock) != 0)
		return;
	tdestroy(d->watches, keep);
	pthread_mutex_unlock(&d->lock);
	pthread_mutex_destroy(&d->lock);
}
