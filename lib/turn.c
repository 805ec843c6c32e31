/* SPDX-License-Identifier: MIT */

#include "turn.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>

#include "answer.h"
#include "core/util.h"
#include "credit.h"
#include "grant.h"

struct turn {
	struct grant_request request;
	uint64_t queue, id;
};

static int by_id(const void *a, const void *b)
{
	const struct turn *x = a, *y = b;

	if (x->queue != y->queue)
		return x->queue < y->queue ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static struct turn *find(struct embedded *e, uint64_t queue, uint64_t id)
{
	struct turn wanted = {.queue = queue, .id = id};
	void *found = tfind(&wanted, &e->turns, by_id);

	return found ? *(struct turn **)found : NULL;
}

static void free_turn(struct turn *t)
{
	struct embedded *e = t->request.engine;

	grant_leave(&t->request);
	tdelete(t, &e->turns, by_id);
	free(t);
}

static void answer(struct embedded *e, const struct wire_fetched *like, uint64_t amount, int status)
{
	struct wire_fetched m = *like;

	m.h = WIRE_HEADER(WIRE_FETCHED, struct wire_fetched, 0);
	m.amount = amount;
	m.status = status;
	answer_send(e, &m, sizeof(m));
}

static int new_turn(struct embedded *e, struct engine_key *k, const struct wire_request *m)
{
	_cleanup_(freep) struct turn *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	*t = (struct turn){.queue = m->queue,
		.id = m->id,
		.request = {.engine = e,
			.key = k,
			.lane = SEGMENT_FETCH,
			.need = m->need,
			.since_usec = engine_now(),
			.deadline_usec = m->deadline_usec,
			.flags = WIRE_CHARGE_QUEUE,
			.is_turn = true}};
	if (!tsearch(t, &e->turns, by_id))
		return -ENOMEM;
	grant_stand(&take_ptr(t)->request);
	return 0;
}

int turn_request(struct embedded *e, const struct wire_request *m)
{
	struct engine_key *k = engine_find_key(e, m->key, m->attachment);
	int r = -ENODEV;

	if (m->id == 0 || m->need == 0 || m->need > WORD_BYTES_MAX || find(e, m->queue, m->id) ||
		(k && item_is_event(&e->items, k->item)))
		return -EPROTO;
	if (k && !k->attachment->removed_from)
		r = new_turn(e, k, m);
	if (r < 0)
		answer(e, &(struct wire_fetched){.queue = m->queue, .id = m->id}, 0, r);
	return 0;
}

int turn_cancel(struct embedded *e, const struct wire_cancel *m)
{
	struct turn *t = find(e, m->queue, m->id);

	if (t)
		free_turn(t);
	return 0;
}

/* What has become of it: 0, it is granted; -EAGAIN: it stands in line. */
static int look(struct turn *t)
{
	struct grant_request *r = &t->request;

	if (!r->key)
		return -ENODEV;
	if (grant_serve(r))
		return 0;
	if (engine_now() < r->deadline_usec)
		return -EAGAIN;
	grant_refuse_late(r);
	return -ETIMEDOUT;
}

int turn_fetch(struct embedded *e, const struct wire_fetch *m)
{
	const struct wire_fetched like = {.queue = m->queue,
		.id = m->id,
		.attachment = m->attachment,
		.seq = m->seq,
		.key = m->key};
	struct engine_key *k = engine_find_key(e, m->key, m->attachment);
	struct turn *t = find(e, m->queue, m->id);
	uint64_t need = t ? t->request.need : 0;
	int status = -ENOENT;

	if (m->id == 0 || m->seq == 0 || (k && t && t->request.key && t->request.key != k))
		return -EPROTO;
	if (k && m->seq <= k->answer[SEGMENT_FETCH].seq)
		return 0;
	if (t) {
		t->request.seq = m->seq;
		status = look(t);
	}
	if (k && k->answer[SEGMENT_FETCH].seq != m->seq) {
		const struct engine_answer none = {.seq = m->seq, .status = status};

		credit_answer(k, SEGMENT_FETCH, &none);
	}
	answer(e, &like, status == 0 ? need : 0, k ? status : -ENODEV);
	if (t && status != -EAGAIN)
		free_turn(t);
	return 0;
}

void turn_free_all(struct embedded *e)
{
	tdestroy(e->turns, free);
	e->turns = NULL;
}
