/* SPDX-License-Identifier: MIT */

#include "queue.h"

#include <errno.h>

#include "core/fairness.h"
#include "drain.h"
#include "reclaim.h"
#include "request.h"

#define TICK_MS 5
/* So many ticks are between two drains for a head. One that has waited for a while is drained for at
 * every tick: who charges and uncharges all the time has little idle at any one moment. */
#define TICKS_OF_DRAIN 4
#define RECLAIM_AGAIN_USEC 500000 /* after a round that brought nothing */

struct queue {
	TAILQ_ENTRY(queue) entry;
	struct queue *next; /* at the same pool, under another limit */
	struct queues *queues;
	struct itemlimit_place at;
	struct drain_wait *wait;
	struct reclaim_wait *reclaim;
	uint64_t next_reclaim_usec; /* not before */
	TAILQ_HEAD(, request) requests;
	uint64_t bytes;             /* that they need */
	const struct request *head; /* only compared */
	uint64_t head_since_usec;
};

struct queues {
	struct manager *manager;
	TAILQ_HEAD(, queue) list;
	uv_timer_t tick;
	uv_idle_t kick;
	unsigned handles;
	unsigned ticks;
};

static void on_tick(uv_timer_t *t);

static struct queue *find(struct itemlimit_place at)
{
	struct queue *q = at.pool->queue;

	while (q && q->at.item != at.item)
		q = q->next;
	return q;
}

/* Takes it off the pool's list. */
static void unlink_queue(struct queue *q)
{
	struct queue *before = q->at.pool->queue;

	if (before == q) {
		q->at.pool->queue = q->next;
		return;
	}
	while (before->next != q)
		before = before->next;
	before->next = q->next;
}

static void free_queue(struct queue *q)
{
	struct queues *all = q->queues;

	drain_cancel(q->wait);
	reclaim_cancel(q->reclaim);
	TAILQ_REMOVE(&all->list, q, entry);
	unlink_queue(q);
	pool_unref(q->at.pool);
	free(q);
	if (TAILQ_EMPTY(&all->list))
		uv_timer_stop(&all->tick);
}

static struct queue *find_or_make(struct queues *all, struct itemlimit_place at)
{
	struct queue *q = find(at);

	if (q)
		return q;
	q = calloc(1, sizeof(*q));
	if (!q)
		return NULL;
	q->queues = all;
	q->at = at;
	TAILQ_INIT(&q->requests);
	q->next = pool_ref(at.pool)->queue;
	at.pool->queue = q;
	if (TAILQ_EMPTY(&all->list))
		uv_timer_start(&all->tick, on_tick, TICK_MS, TICK_MS);
	TAILQ_INSERT_TAIL(&all->list, q, entry);
	return q;
}

bool queue_is_at(struct itemlimit_place at)
{
	return find(at);
}

struct itemlimit_place queue_above(struct itemlimit_place at, uint32_t item)
{
	while (at.pool && !find(at))
		at = itemlimit_next(at, item);
	return at;
}

/* After every change of who waits. */
static void note_head(struct queue *q)
{
	const struct request *head = TAILQ_FIRST(&q->requests);

	if (head != q->head)
		q->head_since_usec = manager_now();
	q->head = head;
}

bool queue_lets_pass(struct itemlimit_place at, uint64_t need)
{
	const struct queue *q = find(at);
	const struct counter *c = q ? itemlimit_counter(at) : NULL;

	return !c || fairness_allows(c, need, q->head->need, manager_now() - q->head_since_usec);
}

static int insert(struct request *r, struct itemlimit_place at, bool first)
{
	struct queue *q = find_or_make(r->key->attachment->session->manager->queues, at);

	if (!q)
		return -ENOMEM;
	r->queue = q;
	if (first)
		TAILQ_INSERT_HEAD(&q->requests, r, entry);
	else
		TAILQ_INSERT_TAIL(&q->requests, r, entry);
	q->bytes += r->need;
	note_head(q);
	return 0;
}

/* To the end of another queue. */
static int move(struct request *r, struct itemlimit_place to)
{
	/* Before it leaves: afterwards nothing may fail. */
	if (!find_or_make(r->queue->queues, to))
		return -ENOMEM;
	queue_leave(r);
	return insert(r, to, false);
}

void queue_leave(struct request *r)
{
	struct queue *q = r->queue;

	if (!q)
		return;
	r->queue = NULL;
	TAILQ_REMOVE(&q->requests, r, entry);
	q->bytes -= r->need;
	if (TAILQ_EMPTY(&q->requests))
		free_queue(q);
	else
		note_head(q);
}

/* The head is refused only after a drain that began when its time was over: what was uncharged just
 * before is known then. */
static void expire(struct queue *q)
{
	struct itemlimit_place at = q->at;
	uint64_t now = manager_now();
	struct request *r, *next;

	for (r = TAILQ_FIRST(&q->requests); r; r = next) {
		bool is_head = r == TAILQ_FIRST(&q->requests);

		next = TAILQ_NEXT(r, entry);
		if (r->deadline_usec <= now && (!is_head || r->last_drain == REQUEST_DRAINED))
			request_refuse(r, at, -ETIMEDOUT);
	}
}

static bool is_blocked(const struct request *r, struct itemlimit_place at)
{
	const struct counter *c = itemlimit_counter(at);

	return c && counter_room(c) < r->need;
}

uint64_t queue_ahead(const struct request *r, struct itemlimit_place at)
{
	const struct queue *q = find(at);

	if (!q || is_blocked(r, at))
		return 0;
	return r->queue == q ? q->bytes - r->need : q->bytes;
}

/* The first of the request's places, up to `last`, at which it does not fit; pool NULL: none. */
static struct itemlimit_place blocked_at(const struct request *r, struct itemlimit_place last)
{
	uint32_t item = r->key->item;
	struct itemlimit_place at = itemlimit_first(r->key->attachment->pool, item);

	while (!is_blocked(r, at)) {
		if (itemlimit_is_same(at, last))
			return (struct itemlimit_place){NULL, 0};
		at = itemlimit_next(at, item);
	}
	return at;
}

/* The first place behind this one at which the request would meet others that wait. */
static struct itemlimit_place next_queue(const struct request *r, struct itemlimit_place at)
{
	return queue_above(itemlimit_next(at, r->key->item), r->key->item);
}

/*
 * Only the head is served: who comes behind it waits, however little it needs. But a head that
 * another limit holds up waits there, and one that meets a queue further up stands behind that.
 * Returns the place at which the head does not fit, pool NULL when the queue is gone.
 */
static struct itemlimit_place serve(struct queue *q)
{
	struct itemlimit_place at = q->at, to = {NULL, 0};
	struct pool *held = pool_ref(at.pool);

	expire(q);
	while ((q = find(at))) {
		struct request *r = TAILQ_FIRST(&q->requests);

		to = blocked_at(r, at);
		if (itemlimit_is_same(to, at))
			break;
		if (!to.pool)
			to = next_queue(r, at);
		if (!to.pool && request_try(r, &to))
			continue;
		if (itemlimit_is_same(to, at) || move(r, to) < 0)
			break;
		to.pool = NULL;
	}
	pool_unref(held);
	return to;
}

static void serve_all(
	struct queues *all, void (*then)(struct queue *q, struct itemlimit_place failed))
{
	struct queue *q, *next;

	for (q = TAILQ_FIRST(&all->list); q; q = next) {
		struct itemlimit_place failed;

		next = TAILQ_NEXT(q, entry);
		failed = serve(q);
		if (failed.pool && then)
			then(q, failed);
	}
}

static void on_kick(uv_idle_t *idle)
{
	uv_idle_stop(idle);
	serve_all(idle->data, NULL);
}

static void on_drained(void *userdata, uint64_t bytes)
{
	struct queue *q = userdata;
	struct itemlimit_place at = q->at;
	struct pool *held = pool_ref(at.pool);

	(void)bytes;
	q->wait = NULL;
	serve(q);
	q = find(at);
	if (q && TAILQ_FIRST(&q->requests)->last_drain == REQUEST_DRAINS) {
		TAILQ_FIRST(&q->requests)->last_drain = REQUEST_DRAINED;
		expire(q);
	}
	pool_unref(held);
}

static void on_reclaimed(void *userdata, const struct reclaim_result *result)
{
	struct queue *q = userdata;
	struct request *r = TAILQ_FIRST(&q->requests);

	q->reclaim = NULL;
	r->drained_bytes += result->drained;
	r->asked_bytes += result->asked;
	r->reclaimed_bytes += result->reclaimed;
	q->next_reclaim_usec = manager_now() + (result->came > 0 ? 0 : RECLAIM_AGAIN_USEC);
	serve(q);
}

/* For the head; for as long as that brings something, and else now and then. */
static void reclaim_for(struct queue *q, struct itemlimit_place failed)
{
	const struct request *r = TAILQ_FIRST(&q->requests);
	struct manager *m = q->queues->manager;
	uint64_t bytes = itemlimit_deficit(failed, r->need);

	if (q->reclaim || bytes == 0 || manager_now() < q->next_reclaim_usec)
		return;
	if (reclaim_start(m, failed, bytes, on_reclaimed, q, &q->reclaim) == 0)
		pool_count_event(failed.pool, POOL_RECLAIM);
	else
		q->next_reclaim_usec = manager_now() + RECLAIM_AGAIN_USEC;
}

static void drain_for(struct queue *q, struct itemlimit_place failed)
{
	if (!q->wait)
		drain_start(q->queues->manager->drain, failed, on_drained, q, &q->wait);
}

static void work_for(struct queue *q, struct itemlimit_place failed)
{
	bool waits_long = manager_now() - q->head_since_usec >= FAIRNESS_USEC;
	struct request *head = TAILQ_FIRST(&q->requests);

	if (head->deadline_usec <= manager_now() && !q->wait) {
		drain_for(q, failed);
		head->last_drain = q->wait ? REQUEST_DRAINS : REQUEST_DRAINED;
		return;
	}
	if (!waits_long && q->queues->ticks % TICKS_OF_DRAIN != 0)
		return;
	reclaim_for(q, failed);
	drain_for(q, failed);
}

int queue_join(struct request *r, struct itemlimit_place at)
{
	int error = insert(r, at, false);

	if (error == 0)
		drain_for(r->queue, at);
	return error;
}

int queue_join_head(struct request *r, struct itemlimit_place at)
{
	return insert(r, at, true);
}

static void on_tick(uv_timer_t *t)
{
	struct queues *all = t->data;

	all->ticks++;
	serve_all(all, work_for);
}

void queue_kick(struct manager *m)
{
	if (m->queues && !TAILQ_EMPTY(&m->queues->list))
		uv_idle_start(&m->queues->kick, on_kick);
}

int queues_new(struct manager *m, struct queues **ret)
{
	struct queues *all = calloc(1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	all->manager = m;
	TAILQ_INIT(&all->list);
	uv_timer_init(m->loop, &all->tick);
	uv_idle_init(m->loop, &all->kick);
	all->tick.data = all->kick.data = all;
	all->handles = 2;
	*ret = all;
	return 0;
}

static void on_closed(uv_handle_t *h)
{
	struct queues *all = h->data;

	if (--all->handles == 0)
		free(all);
}

struct queues *queues_free(struct queues *all)
{
	if (!all)
		return NULL;
	uv_close((uv_handle_t *)&all->tick, on_closed);
	uv_close((uv_handle_t *)&all->kick, on_closed);
	return NULL;
}
