/* SPDX-License-Identifier: MIT */

#include "watch.h"

#include <errno.h>
#include <search.h>
#include <string.h>

#include "cancel.h"
#include "client.h"
#include "core/path.h"

struct tally_watch {
	struct tally *tally;
	uint64_t number;
	tally_event_fn fn;
	void *userdata;
	struct dispatch_call call;
	_Atomic bool ended;
	bool orphaned; /* ended from within its callback: freed behind that */
	char path[];
};

/* By the bits of the message. */
static const int types[WIRE_EVENT_KINDS] = {
	[WIRE_EVENT_LOW] = TALLY_EVENT_LOW,
	[WIRE_EVENT_HIGH] = TALLY_EVENT_HIGH,
	[WIRE_EVENT_MAX] = TALLY_EVENT_MAX,
	[WIRE_EVENT_OOM] = TALLY_EVENT_OOM,
	[WIRE_EVENT_RECLAIM] = TALLY_EVENT_RECLAIM,
	[WIRE_EVENT_FORCE] = TALLY_EVENT_FORCE,
	[WIRE_EVENT_REMOVED] = TALLY_EVENT_REMOVED,
	[WIRE_EVENT_CREDIT] = TALLY_EVENT_CREDIT,
};

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* ------------------------------------------------------------------ telling */

/* The watch of that number, which runs from now on; NULL: there is none any more. */
static struct tally_watch *begin(struct tally *t, uint64_t number)
{
	struct dispatch *d = &t->dispatch;
	struct tally_watch *w = NULL;
	void *found;

	pthread_mutex_lock(&d->lock);
	found = tfind(&number, &d->watches, by_number);
	if (found) {
		w = container_of(*(uint64_t **)found, struct tally_watch, number);
		dispatch_begin(&w->call);
	}
	pthread_mutex_unlock(&d->lock);
	return w;
}

static void free_watch(struct tally_watch *w)
{
	client_unref(w->tally);
	free(w);
}

static void finish(struct tally *t, struct tally_watch *w)
{
	struct dispatch *d = &t->dispatch;
	bool orphaned;

	pthread_mutex_lock(&d->lock);
	orphaned = w->orphaned;
	dispatch_finish(d, &w->call);
	pthread_mutex_unlock(&d->lock);
	if (orphaned)
		free_watch(w);
}

int watch_tell(struct tally *t, const struct wire_event *m)
{
	struct tally_watch *w = begin(t, m->watch);
	int n = 0;

	if (!w)
		return 0;
	for (unsigned kind = 0; kind < WIRE_EVENT_KINDS && !atomic_load(&w->ended); kind++) {
		const struct tally_event e = {
			.size = sizeof(e), .type = types[kind], .count = m->counts[kind]};

		if (!(m->mask & (UINT32_C(1) << kind)))
			continue;
		w->fn(w->path, &e, w->userdata);
		n++;
	}
	finish(t, w);
	return n;
}

/* ------------------------------------------------------------------ coming and going */

static int enter(struct tally_watch *w)
{
	struct dispatch *d = &w->tally->dispatch;
	void *entered;

	pthread_mutex_lock(&d->lock);
	w->number = ++d->last_watch;
	entered = tsearch(&w->number, &d->watches, by_number);
	pthread_mutex_unlock(&d->lock);
	return entered ? 0 : -ENOMEM;
}

/* Nothing is called any more; false: it is freed behind the callback from which this comes. */
static bool leave(struct tally_watch *w)
{
	struct dispatch *d = &w->tally->dispatch;

	pthread_mutex_lock(&d->lock);
	atomic_store(&w->ended, true);
	tdelete(&w->number, &d->watches, by_number);
	dispatch_await(d, &w->call);
	w->orphaned = w->call.running;
	pthread_mutex_unlock(&d->lock);
	return !w->orphaned;
}

static int ask(struct tally_watch *w)
{
	const char *strings[WIRE_STRINGS_MAX] = {w->path};
	struct wire_watch m = {.watch = w->number};
	struct wire_done answer;
	int r = client_call(w->tally, WIRE_WATCH, &m, sizeof(m), strings, &answer, sizeof(answer));

	return r < 0 ? r : answer.status;
}

/* Also where it may not have come to be. */
static void tell_end(struct tally_watch *w)
{
	const struct wire_unwatch m = {
		.h = WIRE_HEADER(WIRE_UNWATCH, struct wire_unwatch, 0), .watch = w->number};

	if (client_check(w->tally) == 0)
		link_send(&w->tally->link, &m, sizeof(m), link_now() + CLIENT_WAIT_USEC);
}

_public_ int tally_watch(struct tally *t, const char *path, tally_event_fn fn, void *userdata,
	struct tally_watch **ret)
{
	NO_CANCELLATION;
	struct tally_watch *w;
	size_t n;
	int r = path_check(path);

	if (r < 0)
		return r;
	if (!fn || !ret)
		return -EINVAL;
	r = client_check(t);
	if (r < 0)
		return r;
	n = strlen(path) + 1;
	w = calloc(1, sizeof(*w) + n);
	if (!w)
		return -ENOMEM;
	w->tally = client_ref(t);
	w->fn = fn;
	w->userdata = userdata;
	memcpy(w->path, path, n);
	r = enter(w);
	if (r < 0) {
		free_watch(w);
		return r;
	}
	r = ask(w);
	if (r < 0) {
		tell_end(w);
		if (leave(w))
			free_watch(w);
		return r;
	}
	*ret = w;
	return 0;
}

_public_ struct tally_watch *tally_unwatch(struct tally_watch *w)
{
	NO_CANCELLATION;

	if (!w)
		return NULL;
	/* A child takes its memory, and leaves alone what belongs to others. */
	if (client_check(w->tally) == -ECHILD) {
		free_watch(w);
		return NULL;
	}
	tell_end(w);
	if (leave(w))
		free_watch(w);
	return NULL;
}

_public_ int tally_dispatch(struct tally *t)
{
	NO_CANCELLATION;

	return dispatch_run(t);
}

_public_ int tally_on_reclaim(struct tally_pool *p, tally_reclaim_fn fn, void *userdata)
{
	NO_CANCELLATION;

	return dispatch_set_reclaim(p, fn, userdata);
}

_public_ int tally_reclaim_done(struct tally *t, uint64_t token, uint64_t bytes)
{
	NO_CANCELLATION;

	return dispatch_reclaimed(t, token, bytes);
}
