/* SPDX-License-Identifier: MIT */

#include "watch.h"

#define BIT(kind) (UINT32_C(1) << (kind))
#define AT_ONCE (BIT(WIRE_EVENT_REMOVED) | BIT(WIRE_EVENT_CREDIT))

/* A kind of event that nobody is told of: WIRE_EVENT_KINDS. */
static const uint8_t kinds[POOL_EVENTS] = {
	[POOL_LOW] = WIRE_EVENT_LOW,
	[POOL_HIGH] = WIRE_EVENT_HIGH,
	[POOL_MAX] = WIRE_EVENT_MAX,
	[POOL_OOM] = WIRE_EVENT_OOM,
	[POOL_OOM_KILL] = WIRE_EVENT_KINDS,
	[POOL_RECLAIM] = WIRE_EVENT_RECLAIM,
	[POOL_FORCE] = WIRE_EVENT_FORCE,
	[POOL_WOULD_REFUSE] = WIRE_EVENT_KINDS,
};

void watch_host_init(struct watch_host *h, void (*on_marked)(struct watch *w))
{
	TAILQ_INIT(&h->cooling);
	h->on_marked = on_marked;
}

void watch_begin(struct watch *w, struct watch_host *h, struct pool *p, uint64_t number)
{
	w->host = h;
	w->pool = pool_ref(p);
	w->number = number;
	LIST_INSERT_HEAD(&p->watches, w, at_pool);
	p->watches_marked = 0;
}

static void stop_cooling(struct watch *w)
{
	if (w->cooling)
		TAILQ_REMOVE(&w->host->cooling, w, entry);
	w->cooling = false;
}

void watch_end(struct watch *w)
{
	stop_cooling(w);
	if (!w->removed)
		LIST_REMOVE(w, at_pool);
	w->pool = pool_unref(w->pool);
}

static void mark(struct watch *w, uint32_t bit)
{
	bool known = w->mask & bit;

	w->mask |= bit;
	if (!known)
		w->host->on_marked(w);
}

void watch_event(struct pool *p, enum pool_event e)
{
	struct watch *w;

	if (kinds[e] == WIRE_EVENT_KINDS)
		return;
	for (; p; p = p->parent) {
		if (p->watches_marked & BIT(kinds[e]))
			continue;
		LIST_FOREACH (w, &p->watches, at_pool)
			mark(w, BIT(kinds[e]));
		p->watches_marked |= BIT(kinds[e]);
	}
}

void watch_removed(struct pool *p)
{
	struct watch *w;

	while ((w = LIST_FIRST(&p->watches))) {
		LIST_REMOVE(w, at_pool);
		w->removed = true;
		mark(w, BIT(WIRE_EVENT_REMOVED));
	}
}

void watch_credit(struct watch *w)
{
	w->credits++;
	mark(w, BIT(WIRE_EVENT_CREDIT));
}

/* With its removal goes all that is left. */
uint32_t watch_telling(const struct watch *w)
{
	return w->cooling && !w->removed ? w->mask & AT_ONCE : w->mask;
}

void watch_pack(const struct watch *w, struct wire_event *ret)
{
	*ret = (struct wire_event){.h = WIRE_HEADER(WIRE_EVENT, struct wire_event, 0),
		.watch = w->number,
		.mask = watch_telling(w)};
	for (enum pool_event e = 0; e < POOL_EVENTS; e++)
		if (kinds[e] != WIRE_EVENT_KINDS)
			ret->counts[kinds[e]] = w->pool->events[e];
	ret->counts[WIRE_EVENT_REMOVED] = w->removed;
	ret->counts[WIRE_EVENT_CREDIT] = w->credits;
}

void watch_told(struct watch *w, uint64_t now_usec)
{
	uint32_t told = watch_telling(w);

	w->mask &= ~told;
	w->pool->watches_marked &= ~told;
	if (!(told & ~AT_ONCE) || w->cooling)
		return;
	w->cooling = true;
	w->cool_usec = now_usec + WATCH_COOL_USEC;
	TAILQ_INSERT_TAIL(&w->host->cooling, w, entry);
}

void watch_cool(struct watch_host *h, uint64_t now_usec)
{
	struct watch *w;

	while ((w = TAILQ_FIRST(&h->cooling)) && w->cool_usec <= now_usec) {
		stop_cooling(w);
		if (w->mask)
			h->on_marked(w);
	}
}

uint64_t watch_next_cool(const struct watch_host *h)
{
	const struct watch *w;

	TAILQ_FOREACH (w, &h->cooling, entry)
		if (w->mask)
			return w->cool_usec;
	return UINT64_MAX;
}
