/* SPDX-License-Identifier: MIT */

#include "teller.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core/util.h"
#include "engine.h"

struct engine_watch {
	struct watch watch;
	struct embedded *engine;
	TAILQ_ENTRY(engine_watch) entry, ready;
	bool is_ready; /* it is among those */
};

static struct engine_watch *watch_of(struct watch *w)
{
	return container_of(w, struct engine_watch, watch);
}

static struct engine_watch *find(struct embedded *e, uint64_t number)
{
	struct engine_watch *w;

	TAILQ_FOREACH (w, &e->teller.watches, entry)
		if (w->watch.number == number)
			return w;
	return NULL;
}

/* UINT64_MAX: not at all. Also takes away that it has been readable. */
static void arm(struct teller *t, uint64_t at_usec)
{
	struct itimerspec timer = {0};

	t->armed_usec = at_usec;
	if (at_usec != UINT64_MAX) {
		timer.it_value.tv_sec = (time_t)(at_usec / 1000000);
		/* 0 would mean never. */
		timer.it_value.tv_nsec = (long)(at_usec % 1000000) * 1000 + 1;
	}
	timerfd_settime(t->fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

static void arm_earlier(struct teller *t, uint64_t at_usec)
{
	if (at_usec < t->armed_usec)
		arm(t, at_usec);
}

static void make_ready(struct engine_watch *w)
{
	struct teller *t = &w->engine->teller;

	if (!w->is_ready)
		TAILQ_INSERT_TAIL(&t->ready, w, ready);
	w->is_ready = true;
	arm_earlier(t, 0);
}

static void not_ready(struct engine_watch *w)
{
	if (w->is_ready)
		TAILQ_REMOVE(&w->engine->teller.ready, w, ready);
	w->is_ready = false;
}

static void on_marked(struct watch *watch)
{
	struct engine_watch *w = watch_of(watch);

	if (watch_telling(watch))
		make_ready(w);
	else
		arm_earlier(&w->engine->teller, watch->cool_usec);
}

int teller_watch(struct embedded *e, uint64_t number, struct pool *p)
{
	struct engine_watch *w;

	if (find(e, number))
		return -EEXIST;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->engine = e;
	watch_begin(&w->watch, &e->teller.host, p, number);
	TAILQ_INSERT_TAIL(&e->teller.watches, w, entry);
	return 0;
}

static void drop(struct engine_watch *w)
{
	not_ready(w);
	watch_end(&w->watch);
	TAILQ_REMOVE(&w->engine->teller.watches, w, entry);
	free(w);
}

void teller_unwatch(struct embedded *e, uint64_t number)
{
	struct engine_watch *w = find(e, number);

	if (w)
		drop(w);
}

void teller_credit(struct embedded *e, const struct pool *p)
{
	struct engine_watch *w;

	TAILQ_FOREACH (w, &e->teller.watches, entry)
		if (!w->watch.removed && (!p || w->watch.pool == p))
			watch_credit(&w->watch);
}

size_t teller_next(struct embedded *e, void *buf)
{
	struct teller *t = &e->teller;
	uint64_t now = engine_now();
	struct engine_watch *w;

	watch_cool(&t->host, now);
	w = TAILQ_FIRST(&t->ready);
	if (!w) {
		arm(t, watch_next_cool(&t->host));
		return 0;
	}
	not_ready(w);
	watch_pack(&w->watch, buf);
	watch_told(&w->watch, now);
	return sizeof(struct wire_event);
}

void teller_init(struct embedded *e)
{
	struct teller *t = &e->teller;

	t->fd = -1;
	t->armed_usec = UINT64_MAX;
	TAILQ_INIT(&t->watches);
	TAILQ_INIT(&t->ready);
	watch_host_init(&t->host, on_marked);
}

int teller_open(struct embedded *e, int *ret_fd)
{
	_cleanup_(close_fdp) int theirs = -1;
	struct teller *t = &e->teller;

	t->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (t->fd < 0)
		return -errno;
	theirs = fcntl(t->fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (theirs < 0)
		return -errno;
	*ret_fd = take_fd(&theirs);
	return 0;
}

void teller_clear(struct embedded *e)
{
	while (!TAILQ_EMPTY(&e->teller.watches))
		drop(TAILQ_FIRST(&e->teller.watches));
	e->teller.fd = close_fd(e->teller.fd);
}
