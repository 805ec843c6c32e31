/* SPDX-License-Identifier: MIT */

#include "watch.h"

#include <errno.h>
#include <search.h>
#include <string.h>

#include "channel.h"
#include "core/watch.h"
#include "user.h"

struct session_watch {
	struct watch watch;
	struct notice notice;
	struct session *session;
	TAILQ_ENTRY(session_watch) entry;
	bool credited; /* there is a CREDIT to tell, behind an answer that waits */
};

struct watches {
	struct watch_host host;
	uv_timer_t timer;
};

static int by_number(const void *a, const void *b)
{
	uint64_t x = ((const struct session_watch *)a)->watch.number;
	uint64_t y = ((const struct session_watch *)b)->watch.number;

	return x < y ? -1 : x > y;
}

static struct session_watch *find(struct session *s, uint64_t number)
{
	struct session_watch wanted = {.watch.number = number};
	void *found = tfind(&wanted, &s->watch_index, by_number);

	return found ? *(struct session_watch **)found : NULL;
}

static struct watches *all_of(const struct session_watch *w)
{
	return w->session->manager->watches;
}

/* ------------------------------------------------------------------ telling */

static size_t pack(const struct notice *n, void *buf)
{
	const struct session_watch *w = container_of(n, struct session_watch, notice);
	struct wire_event m;

	if (!watch_telling(&w->watch))
		return 0;
	watch_pack(&w->watch, &m);
	memcpy(buf, &m, sizeof(m));
	return sizeof(m);
}

static void on_cool(uv_timer_t *t);

/* It runs as long as any of them cools, so that nobody looks for one that has something to tell. */
static void set_timer(struct watches *all)
{
	const struct watch *first = TAILQ_FIRST(&all->host.cooling);
	uint64_t now = manager_now(), left;

	if (!first || uv_is_active((uv_handle_t *)&all->timer))
		return;
	left = first->cool_usec > now ? first->cool_usec - now : 0;
	uv_timer_start(&all->timer, on_cool, (left + 999) / 1000, 0);
}

static void on_cool(uv_timer_t *t)
{
	struct watches *all = t->data;

	watch_cool(&all->host, manager_now());
	set_timer(all);
}

static void on_sent(struct notice *n)
{
	struct session_watch *w = container_of(n, struct session_watch, notice);

	watch_told(&w->watch, manager_now());
	set_timer(all_of(w));
}

static void on_marked(struct watch *watch)
{
	struct session_watch *w = container_of(watch, struct session_watch, watch);

	if (watch_telling(watch))
		channel_post(w->session->channel, &w->notice);
}

void watches_credit(struct session *s, struct pool *p)
{
	struct session_watch *w;

	TAILQ_FOREACH (w, &s->watches, entry) {
		if (w->watch.pool != p || w->watch.removed)
			continue;
		if (STAILQ_EMPTY(&s->packets))
			watch_credit(&w->watch);
		else
			w->credited = true;
	}
}

void watches_answers_sent(struct session *s)
{
	struct session_watch *w;

	TAILQ_FOREACH (w, &s->watches, entry) {
		if (w->credited)
			watch_credit(&w->watch);
		w->credited = false;
	}
}

/* ------------------------------------------------------------------ coming and going */

int watches_add(struct session *s, uint64_t number, struct pool *p)
{
	struct session_watch *w;
	int r;

	if (find(s, number))
		return -EEXIST;
	r = user_take(s->user, USER_QUEUED, 1);
	if (r < 0)
		return r;
	w = calloc(1, sizeof(*w));
	if (!w) {
		user_give(s->user, USER_QUEUED, 1);
		return -ENOMEM;
	}
	w->session = s;
	w->notice.pack = pack;
	w->notice.sent = on_sent;
	w->watch.number = number;
	if (!tsearch(w, &s->watch_index, by_number)) {
		user_give(s->user, USER_QUEUED, 1);
		free(w);
		return -ENOMEM;
	}
	watch_begin(&w->watch, &s->manager->watches->host, p, number);
	TAILQ_INSERT_TAIL(&s->watches, w, entry);
	return 0;
}

static void drop(struct session_watch *w)
{
	struct session *s = w->session;

	channel_forget(&w->notice);
	watch_end(&w->watch);
	tdelete(w, &s->watch_index, by_number);
	TAILQ_REMOVE(&s->watches, w, entry);
	user_give(s->user, USER_QUEUED, 1);
	free(w);
}

void watches_remove(struct session *s, uint64_t number)
{
	struct session_watch *w = find(s, number);

	if (w)
		drop(w);
}

void watches_remove_all(struct session *s)
{
	while (!TAILQ_EMPTY(&s->watches))
		drop(TAILQ_FIRST(&s->watches));
}

/* ------------------------------------------------------------------ from the start to the end */

int watches_new(struct manager *m, struct watches **ret)
{
	struct watches *all = calloc(1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	watch_host_init(&all->host, on_marked);
	uv_timer_init(m->loop, &all->timer);
	all->timer.data = all;
	*ret = all;
	return 0;
}

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

struct watches *watches_free(struct watches *all)
{
	if (all)
		uv_close((uv_handle_t *)&all->timer, on_closed);
	return NULL;
}
