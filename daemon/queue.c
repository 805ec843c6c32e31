/* SPDX-License-Identifier: MIT */

#include "queue.h"

#include <errno.h>

#include "drain.h"
#include "request.h"

#define TICK_MS 20

struct queue {
	TAILQ_ENTRY(queue) entry;
	struct queues *queues;
	struct pool *pool;
	struct drain_wait *wait;
	TAILQ_HEAD(, request) requests;
};

struct queues {
	struct manager *manager;
	TAILQ_HEAD(, queue) list;
	uv_timer_t tick;
	uv_idle_t kick;
	unsigned handles;
};

static void on_tick(uv_timer_t *t);

static void free_queue(struct queue *q)
{
	struct queues *all = q->queues;

	drain_cancel(q->wait);
	TAILQ_REMOVE(&all->list, q, entry);
	q->pool->queue = NULL;
	pool_unref(q->pool);
	free(q);
	if (TAILQ_EMPTY(&all->list))
		uv_timer_stop(&all->tick);
}

static struct queue *queue_at(struct queues *all, struct pool *p)
{
	struct queue *q = p->queue;

	if (q)
		return q;
	q = calloc(1, sizeof(*q));
	if (!q)
		return NULL;
	q->queues = all;
	q->pool = pool_ref(p);
	TAILQ_INIT(&q->requests);
	p->queue = q;
	if (TAILQ_EMPTY(&all->list))
		uv_timer_start(&all->tick, on_tick, TICK_MS, TICK_MS);
	TAILQ_INSERT_TAIL(&all->list, q, entry);
	return q;
}

struct pool *queue_above(struct pool *p)
{
	while (p && !p->queue)
		p = p->parent;
	return p;
}

static int append(struct request *r, struct pool *at)
{
	struct queue *q = queue_at(r->key->attachment->session->manager->queues, at);

	if (!q)
		return -ENOMEM;
	r->queue = q;
	TAILQ_INSERT_TAIL(&q->requests, r, entry);
	return 0;
}

/* To the end of another pool's queue. */
static int move(struct request *r, struct pool *to)
{
	/* Before it leaves: afterwards nothing may fail. */
	if (!queue_at(r->queue->queues, to))
		return -ENOMEM;
	queue_leave(r);
	return append(r, to);
}

void queue_leave(struct request *r)
{
	struct queue *q = r->queue;

	if (!q)
		return;
	r->queue = NULL;
	TAILQ_REMOVE(&q->requests, r, entry);
	if (TAILQ_EMPTY(&q->requests))
		free_queue(q);
}

static void expire(struct queue *q)
{
	struct pool *pool = q->pool;
	uint64_t now = manager_now();
	struct request *r, *next;

	for (r = TAILQ_FIRST(&q->requests); r; r = next) {
		next = TAILQ_NEXT(r, entry);
		if (r->deadline_usec <= now)
			request_refuse(r, pool, -ETIMEDOUT);
	}
}

/* The lowest pool from the request's up to `top` at which it does not fit; NULL: none. */
static struct pool *blocked_at(const struct request *r, const struct pool *top)
{
	struct pool *p = r->key->attachment->pool;

	for (; p; p = p == top ? NULL : p->parent) {
		uint64_t max = atomic_load(&p->counter.max), usage = counter_read(&p->counter);

		if (usage > max || r->need > max - usage)
			return p;
	}
	return NULL;
}

/*
 * Only the head is served: who comes behind it waits, however little it needs. But a head that
 * another pool's limit holds up waits there, and one that meets a queue further up stands behind
 * that. Returns the pool at which the head does not fit, NULL when the queue is gone.
 */
static struct pool *serve(struct queue *q)
{
	struct pool *pool = pool_ref(q->pool), *to = NULL;

	expire(q);
	while (pool->queue) {
		struct request *r = TAILQ_FIRST(&((struct queue *)pool->queue)->requests);

		to = blocked_at(r, pool);
		if (to == pool)
			break;
		if (!to && pool->parent)
			to = queue_above(pool->parent);
		if (!to && request_try(r, &to))
			continue;
		if (to == pool || move(r, to) < 0)
			break;
		to = NULL;
	}
	pool_unref(pool);
	return to;
}

static void serve_all(struct queues *all, void (*then)(struct queue *q, struct pool *failed))
{
	struct queue *q, *next;

	for (q = TAILQ_FIRST(&all->list); q; q = next) {
		struct pool *failed;

		next = TAILQ_NEXT(q, entry);
		failed = serve(q);
		if (failed && then)
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

	(void)bytes;
	q->wait = NULL;
	serve(q);
}

static void drain_for(struct queue *q, struct pool *failed)
{
	if (!q->wait)
		drain_start(q->queues->manager->drain, failed, on_drained, q, &q->wait);
}

int queue_join(struct request *r, struct pool *at)
{
	int error = append(r, at);

	if (error == 0)
		drain_for(r->queue, at);
	return error;
}

static void on_tick(uv_timer_t *t)
{
	serve_all(t->data, drain_for);
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
