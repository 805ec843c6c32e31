/* SPDX-License-Identifier: MIT */

#include "turn.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>

#include "channel.h"
#include "line.h"
#include "packet.h"
#include "queue.h"
#include "row.h"
#include "user.h"

#define SET_ASIDE_USEC UINT64_C(1000000)
#define TICK_MS 100

enum turn_state {
	TURN_WAITS, /* in a queue, or while its request is being decided */
	TURN_SET_ASIDE,
	TURN_ASLEEP, /* it was set aside, and its client has not come: no longer in any queue */
	TURN_OVER,   /* its client is to be told */
};

struct turn {
	struct request request;
	struct line *line;
	uint64_t id; /* the client's, in the line */
	enum turn_state state;
	int status; /* TURN_OVER: why */
	uint64_t lapse_usec;
	struct notice notice;
	TAILQ_ENTRY(turn) in_line;
	TAILQ_ENTRY(turn) in_key;   /* but TURN_OVER */
	TAILQ_ENTRY(turn) in_turns; /* TURN_SET_ASIDE, and TURN_ASLEEP */
};

struct turns {
	struct manager *manager;
	TAILQ_HEAD(, turn) set_aside; /* in the order in which they lapse */
	TAILQ_HEAD(, turn) asleep;
	uv_timer_t tick;
};

static void on_tick(uv_timer_t *timer);

static struct turn *turn_of(struct request *r)
{
	return container_of(r, struct turn, request);
}

static struct turns *turns_of(const struct turn *t)
{
	return t->line->session->manager->turns;
}

static int by_id(const void *a, const void *b)
{
	uint64_t x = ((const struct turn *)a)->id, y = ((const struct turn *)b)->id;

	return x < y ? -1 : x > y;
}

static struct turn *find(const struct line *l, uint64_t id)
{
	struct turn wanted = {.id = id};
	void *found = tfind(&wanted, &l->index, by_id);

	return found ? *(struct turn **)found : NULL;
}

/* ------------------------------------------------------------------ states */

/* Out of wherever its state has put it; what was set aside stays charged. */
static void leave(struct turn *t)
{
	struct turns *all = turns_of(t);

	request_settle(&t->request);
	if (t->state == TURN_SET_ASIDE)
		TAILQ_REMOVE(&all->set_aside, t, in_turns);
	if (t->state == TURN_ASLEEP)
		TAILQ_REMOVE(&all->asleep, t, in_turns);
	if (t->state == TURN_SET_ASIDE)
		t->request.key->set_aside -= t->request.need;
	if (TAILQ_EMPTY(&all->set_aside) && TAILQ_EMPTY(&all->asleep))
		uv_timer_stop(&all->tick);
	t->state = TURN_WAITS;
}

static void enter(struct turn *t, enum turn_state state)
{
	struct turns *all = turns_of(t);

	t->state = state;
	if (state == TURN_SET_ASIDE)
		TAILQ_INSERT_TAIL(&all->set_aside, t, in_turns);
	else
		TAILQ_INSERT_TAIL(&all->asleep, t, in_turns);
	if (!uv_is_active((uv_handle_t *)&all->tick))
		uv_timer_start(&all->tick, on_tick, TICK_MS, TICK_MS);
}

/* Out of wherever it is, with nothing left to it. */
static void take_back(struct turn *t)
{
	bool charged = t->state == TURN_SET_ASIDE;

	leave(t);
	if (!charged)
		return;
	key_uncharge(t->request.key, t->request.need);
	queue_kick(turns_of(t)->manager);
}

static void detach(struct turn *t)
{
	if (t->state == TURN_OVER)
		return;
	take_back(t);
	TAILQ_REMOVE(&t->request.key->turns, t, in_key);
}

static void free_turn(struct turn *t)
{
	struct line *l = t->line;

	detach(t);
	channel_forget(&t->notice);
	tdelete(t, &l->index, by_id);
	TAILQ_REMOVE(&l->turns, t, in_line);
	user_give(l->session->user, USER_QUEUED, 1);
	free(t);
}

void turn_set_aside(struct request *r)
{
	struct turn *t = turn_of(r);

	leave(t);
	r->key->set_aside += r->need;
	t->lapse_usec = manager_now() + SET_ASIDE_USEC;
	enter(t, TURN_SET_ASIDE);
	pool_change_up(r->key->attachment->pool);
	channel_post(t->line->channel, &t->notice);
}

void turn_end(struct request *r, int status)
{
	struct turn *t = turn_of(r);

	detach(t);
	r->key = NULL;
	t->state = TURN_OVER;
	t->status = status;
	channel_post(t->line->channel, &t->notice);
}

/* Its client has not come in time. */
static void lapse(struct turn *t)
{
	bool late = t->request.deadline_usec <= manager_now();

	channel_forget(&t->notice);
	take_back(t);
	if (late) {
		turn_end(&t->request, -ETIMEDOUT);
		return;
	}
	enter(t, TURN_ASLEEP);
	/* It may yet read this, and come. */
	channel_post(t->line->channel, &t->notice);
}

static void on_tick(uv_timer_t *timer)
{
	struct turns *all = timer->data;
	uint64_t now = manager_now();
	struct turn *t, *next;

	while ((t = TAILQ_FIRST(&all->set_aside)) && t->lapse_usec <= now)
		lapse(t);
	for (t = TAILQ_FIRST(&all->asleep); t; t = next) {
		next = TAILQ_NEXT(t, in_turns);
		if (t->request.deadline_usec <= now)
			turn_end(&t->request, -ETIMEDOUT);
	}
}

/* ------------------------------------------------------------------ what its client is told */

static size_t pack(const struct notice *n, void *buf)
{
	const struct turn *t = container_of(n, struct turn, notice);
	struct wire_turn *m = buf;

	*m = (struct wire_turn){.h = WIRE_HEADER(WIRE_TURN, struct wire_turn, 0),
		.queue = t->line->number,
		.id = t->id,
		.status = t->status};
	return sizeof(*m);
}

static void on_sent(struct notice *n)
{
	struct turn *t = container_of(n, struct turn, notice);

	if (t->state == TURN_OVER)
		free_turn(t);
}

/* The answer to a REQUEST that has got no place, and to a FETCH. */
static void answer(struct session *s, const struct wire_fetched *like, uint64_t amount, int status)
{
	struct wire_fetched m = *like;

	m.h = WIRE_HEADER(WIRE_FETCHED, struct wire_fetched, 0);
	m.amount = amount;
	m.status = status;
	packet_send(s, &m, sizeof(m), NULL, 0);
}

/* ------------------------------------------------------------------ what it says */

static int new_turn(struct line *l, struct key *k, const struct wire_request *m)
{
	_cleanup_(freep) struct turn *t = NULL;
	int r = user_take(l->session->user, USER_QUEUED, 1);

	if (r < 0)
		return r;
	t = calloc(1, sizeof(*t));
	if (t)
		t->id = m->id;
	if (!t || !tsearch(t, &l->index, by_id)) {
		user_give(l->session->user, USER_QUEUED, 1);
		return -ENOMEM;
	}
	t->line = l;
	t->notice.pack = pack;
	t->notice.sent = on_sent;
	t->request = (struct request){.key = k,
		.need = m->need,
		.since_usec = manager_now(),
		.deadline_usec = m->deadline_usec,
		.may_queue = true,
		.is_turn = true};
	TAILQ_INSERT_TAIL(&l->turns, t, in_line);
	TAILQ_INSERT_TAIL(&k->turns, t, in_key);
	request_start(&take_ptr(t)->request);
	return 0;
}

bool turn_request(struct session *s, const struct wire_request *m)
{
	struct line *l = line_find(s, m->queue);
	struct key *k = key_find(s, m->key, m->attachment);
	int r = -ENODEV;

	if (m->id == 0 || m->need == 0 || m->need > WORD_BYTES_MAX || (l && find(l, m->id)))
		return false;
	if (k && item_is_event(&s->manager->items, k->item))
		return false;
	if (!l)
		return true; /* it was freed meanwhile */
	if (k && !k->attachment->removed_from)
		r = new_turn(l, k, m);
	if (r < 0) {
		answer(s, &(struct wire_fetched){.queue = m->queue, .id = m->id}, 0, r);
		line_look(l);
	}
	return true;
}

bool turn_cancel(struct session *s, const struct wire_cancel *m)
{
	struct line *l = line_find(s, m->queue);
	struct turn *t = l ? find(l, m->id) : NULL;

	if (t)
		free_turn(t);
	return true;
}

/* It has been told that its turn was there, and comes late: it is tried before all others. */
static void wake(struct turn *t)
{
	struct itemlimit_place failed;

	leave(t);
	if (!request_try(&t->request, &failed) && queue_join_head(&t->request, failed) < 0)
		turn_end(&t->request, -ENOMEM);
}

/* What a FETCH is to bring: nothing, and why. */
static int fetch(struct turn *t)
{
	if (!t)
		return -ENOENT;
	if (t->state == TURN_ASLEEP)
		wake(t);
	switch (t->state) {
	case TURN_SET_ASIDE:
		return 0;
	case TURN_OVER:
		return t->status;
	default:
		return -EAGAIN;
	}
}

bool turn_fetch(struct session *s, const struct wire_fetch *m)
{
	const struct wire_fetched like = {.attachment = m->attachment,
		.key = m->key,
		.queue = m->queue,
		.id = m->id,
		.seq = m->seq};
	struct line *l = line_find(s, m->queue);
	struct turn *t = l ? find(l, m->id) : NULL;
	struct key *k = key_find(s, m->key, m->attachment);
	uint64_t need = 0, last;
	int status;

	if (m->id == 0 || m->seq == 0 || (k && t && t->state != TURN_OVER && t->request.key != k))
		return false;
	if (!k) {
		answer(s, &like, 0, -ENODEV);
		return true;
	}
	if (m->seq <= ledger_read(k->row)->seq[SEGMENT_FETCH]) {
		last = ledger_read(k->row)->last[SEGMENT_FETCH];
		if (m->seq == ledger_read(k->row)->seq[SEGMENT_FETCH])
			answer(s, &like, last, last > 0 ? 0 : -EAGAIN);
		return true;
	}
	status = fetch(t);
	if (status == 0) {
		need = t->request.need;
		/* The bytes stay charged: from here on they are the row's. */
		leave(t);
		s->manager->stats.grants++;
	}
	row_answer(k, SEGMENT_FETCH, m->seq, need);
	if (status != -EAGAIN && t)
		free_turn(t);
	answer(s, &like, need, status);
	return true;
}

/* ------------------------------------------------------------------ ends */

void turn_drop_key(struct key *k)
{
	while (!TAILQ_EMPTY(&k->turns))
		turn_end(&TAILQ_FIRST(&k->turns)->request, -ENODEV);
}

void turn_free_all(struct line *l)
{
	while (!TAILQ_EMPTY(&l->turns))
		free_turn(TAILQ_FIRST(&l->turns));
}

unsigned turn_count(const struct key *k)
{
	const struct turn *t;
	unsigned n = 0;

	TAILQ_FOREACH (t, &k->turns, in_key)
		n++;
	return n;
}

int turns_new(struct manager *m, struct turns **ret)
{
	struct turns *all = calloc(1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	all->manager = m;
	TAILQ_INIT(&all->set_aside);
	TAILQ_INIT(&all->asleep);
	uv_timer_init(m->loop, &all->tick);
	all->tick.data = all;
	*ret = all;
	return 0;
}

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

struct turns *turns_free(struct turns *all)
{
	if (all)
		uv_close((uv_handle_t *)&all->tick, on_closed);
	return NULL;
}
