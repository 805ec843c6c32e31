/* SPDX-License-Identifier: MIT */

/*
 * There is one round at a limit at a time. Who wants something there while it runs gets the next one,
 * together with all others that came meanwhile: the sum of what they want is asked for, so that eight
 * who wait are not served one after the other.
 */

#include "reclaim.h"

#include <errno.h>

#include "callback.h"
#include "core/reclaim.h"
#include "drain.h"
#include "key.h"

/* What is waited for clients in one round. */
#define ROUND_USEC UINT64_C(300000)
#define RETRY_USEC 10000
#define BARREN_USEC 1000000 /* how long one is not asked that gave nothing */
/* Each time that somebody is asked it costs a trip: so much is always worth it. */
#define LEAST_BYTES (UINT64_C(256) << 10)

struct reclaim_wait {
	TAILQ_ENTRY(reclaim_wait) entry;
	uint64_t bytes;
	enum drain_scope scope; /* of the drain behind it */
	reclaim_done_fn fn;     /* NULL: cancelled */
	void *userdata;
};

TAILQ_HEAD(wait_list, reclaim_wait);

struct round {
	TAILQ_ENTRY(round) entry;
	struct reclaims *all;
	struct itemlimit_place at;
	struct wait_list active, next; /* who waits for this round, and for the one behind it */
	uint64_t number, bytes, asked, reclaimed, deadline_usec;
	struct asked_list clients; /* that have not answered */
	bool closed;               /* they are not waited for any more */
	struct drain_wait *drain;
};

struct reclaims {
	struct manager *manager;
	TAILQ_HEAD(, round) rounds;
	uint64_t last_number, now_usec;
	uv_timer_t timer; /* for the first deadline of a round */
};

static void close_round(struct round *r);

/* ------------------------------------------------------------------ time */

static void on_timer(uv_timer_t *t);

static void set_timer(struct reclaims *all)
{
	uint64_t first = UINT64_MAX, now = manager_now();
	const struct round *r;

	TAILQ_FOREACH (r, &all->rounds, entry)
		if (!r->closed && r->deadline_usec < first)
			first = r->deadline_usec;
	if (first == UINT64_MAX)
		uv_timer_stop(&all->timer);
	else
		uv_timer_start(
			&all->timer, on_timer, first > now ? (first - now + 999) / 1000 : 0, 0);
}

static void on_timer(uv_timer_t *t)
{
	struct reclaims *all = t->data;
	uint64_t now = manager_now();
	struct round *r, *next;

	for (r = TAILQ_FIRST(&all->rounds); r; r = next) {
		next = TAILQ_NEXT(r, entry);
		if (!r->closed && r->deadline_usec <= now)
			close_round(r);
	}
	set_timer(all);
}

/* ------------------------------------------------------------------ rounds */

static struct round *find(struct reclaims *all, struct itemlimit_place at)
{
	struct round *r;

	TAILQ_FOREACH (r, &all->rounds, entry)
		if (itemlimit_is_same(r->at, at))
			break;
	return r;
}

/* A round of another limit that waits for clients of this subtree. */
static struct round *find_overlapping(struct reclaims *all, const struct pool *top)
{
	const struct attachment *a;
	struct round *r;

	TAILQ_FOREACH (r, &all->rounds, entry)
		TAILQ_FOREACH (a, &r->clients, asked_entry)
			if (pool_is_below(a->pool, top))
				return r;
	return NULL;
}

static void free_waits(struct wait_list *list)
{
	struct reclaim_wait *w;

	while ((w = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, w, entry);
		free(w);
	}
}

static struct round *free_round(struct round *r)
{
	TAILQ_REMOVE(&r->all->rounds, r, entry);
	free_waits(&r->active);
	free_waits(&r->next);
	pool_unref(r->at.pool);
	free(r);
	return NULL;
}

/* What counts there. */
static uint64_t own_bytes(struct pool_member *m, uint32_t item)
{
	const struct attachment *a = attachment_of(m);
	const struct key *k;
	uint64_t sum = 0;

	TAILQ_FOREACH (k, &a->keys, entry)
		if (item == 0 || k->item == item)
			sum += ledger_read(k->row)->granted;
	return sum;
}

/* The same; 0 of those that cannot be asked, or have shown that it is of no use. */
static uint64_t bytes_to_ask(struct pool_member *m, uint32_t item)
{
	const struct attachment *a = attachment_of(m);

	if (!callback_can_ask(a) || a->session->state != SESSION_LIVE ||
		a->session->manager->reclaims->now_usec < a->ask_again_usec)
		return 0;
	return own_bytes(m, item);
}

/*
 * Who says that it has given back, and has not, takes a part of every round for nothing. What really
 * came is known after the drain: those who gave less than half are left out for a while, so that the
 * next round is of the others. Returns what came from all who were asked.
 */
static uint64_t look_at_clients(struct round *r)
{
	struct reclaim_cursor c = {.top = r->at.pool};
	uint64_t now = manager_now(), sum = 0;

	while (reclaim_next(&c)) {
		struct attachment *a = attachment_of(c.member);
		uint64_t own;

		if (a->asked_round != r->number)
			continue;
		own = own_bytes(c.member, r->at.item);
		if (own > a->asked_own - a->asked_want / 2)
			a->ask_again_usec = now + BARREN_USEC;
		sum += own < a->asked_own ? a->asked_own - own : 0;
	}
	return sum;
}

/* Those that do not answer are left to themselves: what they give back later is still welcome. */
static void leave_clients(struct round *r)
{
	struct attachment *a;

	while ((a = TAILQ_FIRST(&r->clients))) {
		TAILQ_REMOVE(&r->clients, a, asked_entry);
		callback_cancel(a);
	}
}

static void on_answer(void *userdata, struct attachment *a, uint64_t bytes)
{
	struct round *r = userdata;

	TAILQ_REMOVE(&r->clients, a, asked_entry);
	/* It is only said: more than what was asked for would make the figures anybody's. */
	r->reclaimed += bytes < a->asked_want ? bytes : a->asked_want;
	if (TAILQ_EMPTY(&r->clients) || r->reclaimed >= r->bytes)
		close_round(r);
}

/* Plans, and asks all. False: there is nobody to ask. */
static bool ask(struct round *r)
{
	struct reclaim_cursor c = {.top = r->at.pool};
	struct reclaim_wait *w;

	r->bytes = 0;
	TAILQ_FOREACH (w, &r->active, entry)
		if (w->fn && __builtin_add_overflow(r->bytes, w->bytes, &r->bytes))
			r->bytes = UINT64_MAX;
	if (r->bytes > 0 && r->bytes < LEAST_BYTES)
		r->bytes = LEAST_BYTES;
	r->reclaimed = 0;
	r->deadline_usec = manager_now() + ROUND_USEC;
	r->closed = false;
	r->number = ++r->all->last_number;
	r->all->now_usec = manager_now();
	r->asked = reclaim_plan(r->at, r->bytes, bytes_to_ask);
	if (r->asked == 0)
		return false;
	while (reclaim_next(&c)) {
		struct attachment *a = attachment_of(c.member);

		if (c.member->want == 0)
			continue;
		TAILQ_INSERT_TAIL(&r->clients, a, asked_entry);
		a->asked_round = r->number;
		a->asked_want = c.member->want;
		a->asked_own = c.member->own;
		callback_ask(a, c.member->want, r->deadline_usec, on_answer, r);
	}
	r->all->manager->stats.reclaims++;
	set_timer(r->all);
	return true;
}

/* Tells those who waited for it, and begins the next one if somebody waits for that. */
static void finish(struct round *r, const struct reclaim_result *result)
{
	static const struct reclaim_result nothing;
	bool begun;

	do {
		struct wait_list done = TAILQ_HEAD_INITIALIZER(done);
		struct reclaim_wait *w;

		TAILQ_CONCAT(&done, &r->active, entry);
		while ((w = TAILQ_FIRST(&done))) {
			TAILQ_REMOVE(&done, w, entry);
			if (w->fn)
				w->fn(w->userdata, result);
			free(w);
		}
		TAILQ_CONCAT(&r->active, &r->next, entry);
		begun = !TAILQ_EMPTY(&r->active) && ask(r);
		result = &nothing;
	} while (!begun && !TAILQ_EMPTY(&r->active));
	if (!begun)
		free_round(r);
}

static void on_drained(void *userdata, uint64_t bytes)
{
	struct round *r = userdata;
	struct reclaim_result result = {
		.drained = bytes, .asked = r->asked, .reclaimed = r->reclaimed};

	r->drain = NULL;
	result.came = look_at_clients(r);
	if (bytes > result.came)
		result.came = bytes;
	r->all->manager->stats.reclaimed_bytes += r->reclaimed;
	finish(r, &result);
}

static enum drain_scope scope_of(const struct round *r)
{
	const struct reclaim_wait *w;

	TAILQ_FOREACH (w, &r->active, entry)
		if (w->scope == DRAIN_COUNTED)
			return DRAIN_COUNTED;
	return DRAIN_SURPLUS;
}

static void close_round(struct round *r)
{
	leave_clients(r);
	r->closed = drain_start_scope(r->all->manager->drain, r->at, scope_of(r), on_drained, r,
			    &r->drain) == 0;
	if (!r->closed) {
		/* No memory. Nobody is called back from here, so it is tried again. */
		r->deadline_usec = manager_now() + RETRY_USEC;
		set_timer(r->all);
	}
}

static int make_round(struct reclaims *all, struct itemlimit_place at, struct round **ret)
{
	struct round *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->all = all;
	r->at = at;
	pool_ref(at.pool);
	TAILQ_INIT(&r->active);
	TAILQ_INIT(&r->next);
	TAILQ_INIT(&r->clients);
	TAILQ_INSERT_TAIL(&all->rounds, r, entry);
	*ret = r;
	return 0;
}

/* A round of its own; where all that could be asked are asked by another one, that. */
static int begin(struct reclaims *all, struct itemlimit_place at, struct reclaim_wait *w)
{
	struct round *r, *other;
	int error = make_round(all, at, &r);

	if (error < 0)
		return error;
	TAILQ_INSERT_TAIL(&r->active, w, entry);
	if (ask(r))
		return 0;
	TAILQ_REMOVE(&r->active, w, entry);
	free_round(r);
	other = find_overlapping(all, at.pool);
	if (!other)
		return -EAGAIN;
	TAILQ_INSERT_TAIL(&other->active, w, entry);
	return 0;
}

int reclaim_start(struct manager *m, struct itemlimit_place at, uint64_t bytes, reclaim_done_fn fn,
	void *userdata, struct reclaim_wait **ret)
{
	return reclaim_start_scope(m, at, bytes, DRAIN_COUNTED, fn, userdata, ret);
}

int reclaim_start_scope(struct manager *m, struct itemlimit_place at, uint64_t bytes,
	enum drain_scope scope, reclaim_done_fn fn, void *userdata, struct reclaim_wait **ret)
{
	struct round *r = find(m->reclaims, at);
	struct reclaim_wait *w;
	int error = 0;

	if (bytes == 0 || at.pool->n_reclaimers_below == 0)
		return -EAGAIN;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	*w = (struct reclaim_wait){.bytes = bytes, .scope = scope, .fn = fn, .userdata = userdata};
	if (r)
		TAILQ_INSERT_TAIL(&r->next, w, entry);
	else
		error = begin(m->reclaims, at, w);
	if (error < 0) {
		free(w);
		return error;
	}
	*ret = w;
	return 0;
}

struct reclaim_wait *reclaim_cancel(struct reclaim_wait *w)
{
	if (w)
		w->fn = NULL;
	return NULL;
}

/* ------------------------------------------------------------------ building */

int reclaims_new(struct manager *m, struct reclaims **ret)
{
	struct reclaims *all = calloc(1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	all->manager = m;
	TAILQ_INIT(&all->rounds);
	uv_timer_init(m->loop, &all->timer);
	all->timer.data = all;
	*ret = all;
	return 0;
}

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

struct reclaims *reclaims_free(struct reclaims *all)
{
	struct round *r;

	if (!all)
		return NULL;
	while ((r = TAILQ_FIRST(&all->rounds))) {
		drain_cancel(r->drain);
		leave_clients(r);
		free_round(r);
	}
	uv_close((uv_handle_t *)&all->timer, on_closed);
	return NULL;
}
