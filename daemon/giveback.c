/* SPDX-License-Identifier: MIT */

#include "giveback.h"

#include <errno.h>

#include "drain.h"
#include "reclaim.h"

struct giveback {
	TAILQ_ENTRY(giveback) entry;
	struct givebacks *all;
	struct pool *pool;
	uint64_t goal, came, usage, until_usec;
	unsigned rounds;
	struct drain_wait *drain;
	struct reclaim_wait *wait;
	giveback_done_fn fn; /* NULL: in the background */
	void *userdata;
};

struct givebacks {
	struct manager *manager;
	TAILQ_HEAD(, giveback) list;
};

static struct giveback *free_giveback(struct giveback *g)
{
	drain_cancel(g->drain);
	reclaim_cancel(g->wait);
	TAILQ_REMOVE(&g->all->list, g, entry);
	pool_unref(g->pool);
	free(g);
	return NULL;
}

/*
 * Both are too little rather than too much: what sessions gave back by themselves is not in what came by
 * drains and rounds, and what others charged meanwhile hides what came.
 */
static uint64_t bytes_back(const struct giveback *g)
{
	uint64_t usage = counter_read(&g->pool->counter);
	uint64_t less = usage < g->usage ? g->usage - usage : 0;

	return less > g->came ? less : g->came;
}

/* memory.high takes nothing from under one who was told to try again: he would ask for ever. */
static enum drain_scope scope_of(const struct giveback *g)
{
	return g->fn ? DRAIN_COUNTED : DRAIN_SURPLUS;
}

static void on_round(void *userdata, const struct reclaim_result *result);

/* The next round, if it is worth one. */
static bool go_on(struct giveback *g, bool came)
{
	struct itemlimit_place at = {g->pool, 0};
	uint64_t back = bytes_back(g);

	if (back >= g->goal || !came || g->rounds >= RECLAIM_ROUNDS ||
		manager_now() >= g->until_usec)
		return false;
	if (reclaim_start_scope(
		    g->all->manager, at, g->goal - back, scope_of(g), on_round, g, &g->wait) < 0)
		return false;
	if (g->rounds++ == 0)
		pool_count_event(g->pool, POOL_RECLAIM);
	return true;
}

static void finish(struct giveback *g)
{
	giveback_done_fn fn = g->fn;
	void *userdata = g->userdata;
	bool reached = bytes_back(g) >= g->goal;

	free_giveback(g);
	if (fn)
		fn(userdata, reached);
}

static void on_round(void *userdata, const struct reclaim_result *result)
{
	struct giveback *g = userdata;

	g->wait = NULL;
	g->came += result->came;
	if (!go_on(g, result->came > 0))
		finish(g);
}

static void on_drained(void *userdata, uint64_t bytes)
{
	struct giveback *g = userdata;

	g->drain = NULL;
	g->came += bytes;
	if (!go_on(g, true))
		finish(g);
}

int giveback_start(
	struct manager *m, struct pool *p, uint64_t bytes, giveback_done_fn fn, void *userdata)
{
	struct giveback *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return -ENOMEM;
	*g = (struct giveback){.all = m->givebacks,
		.pool = pool_ref(p),
		.goal = bytes,
		.usage = counter_read(&p->counter),
		.until_usec = manager_now() + RECLAIM_USEC,
		.fn = fn,
		.userdata = userdata};
	TAILQ_INSERT_TAIL(&m->givebacks->list, g, entry);
	r = drain_start_scope(
		m->drain, (struct itemlimit_place){p, 0}, scope_of(g), on_drained, g, &g->drain);
	if (r < 0)
		free_giveback(g);
	return r;
}

void giveback_in_background(struct manager *m, struct pool *p, uint64_t bytes)
{
	const struct giveback *g;

	TAILQ_FOREACH (g, &m->givebacks->list, entry)
		if (g->pool == p && !g->fn)
			return;
	giveback_start(m, p, bytes, NULL, NULL);
}

int givebacks_new(struct manager *m, struct givebacks **ret)
{
	struct givebacks *all = calloc(1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	all->manager = m;
	TAILQ_INIT(&all->list);
	*ret = all;
	return 0;
}

struct givebacks *givebacks_free(struct givebacks *all)
{
	if (!all)
		return NULL;
	while (!TAILQ_EMPTY(&all->list))
		finish(TAILQ_FIRST(&all->list));
	free(all);
	return NULL;
}
