/* SPDX-License-Identifier: MIT */

#include "request.h"

#include <errno.h>

#include "core/high.h"
#include "core/limit.h"
#include "core/pressure.h"
#include "drain.h"
#include "line.h"
#include "packet.h"
#include "queue.h"
#include "reclaim.h"
#include "refuse.h"
#include "row.h"
#include "throttle.h"
#include "turn.h"
#include "watch.h"

/* Drains for one request beyond one a level, as long as each brings something: others may take it
 * before the request is tried. */
#define EXTRA_DRAINS 16

/* It was not decided at once. */
static void begin_stall(struct request *r)
{
	struct attachment *a = r->key->attachment;

	if (r->stalled || r->nowait)
		return;
	r->stalled = true;
	pressure_prepare(a->pool);
	pressure_begin(a->pool, &a->member);
}

void request_settle(struct request *r)
{
	if (r->stalled)
		pressure_end(r->key->attachment->pool, &r->key->attachment->member);
	r->stalled = false;
	queue_leave(r);
	r->wait = drain_cancel(r->wait);
	r->reclaim = reclaim_cancel(r->reclaim);
}

static void free_request(struct request *r)
{
	request_settle(r);
	r->key->request[r->lane] = NULL;
	free(r);
}

/* ------------------------------------------------------------------ answers */

static void send_answer(struct key *k, unsigned lane, uint64_t seq, uint64_t amount, int status,
	uint64_t delay, uint64_t refusal)
{
	struct wire_grant answer = {.h = WIRE_HEADER(WIRE_GRANT, struct wire_grant, 0),
		.attachment = k->attachment->number,
		.key = k->number,
		.lane = lane,
		.seq = seq,
		.amount = amount,
		.status = status,
		.delay_usec = (uint32_t)delay,
		.refusal = refusal};

	packet_send(k->attachment->session, &answer, sizeof(answer), NULL, 0);
}

/* It was charged: what memory.high says to that. Nobody sleeps for what is put into a reserve, or past
 * a deadline. */
static uint64_t delay_of(const struct request *r)
{
	struct attachment *a = r->key->attachment;
	uint64_t now = manager_now();
	uint64_t delay = high_charged(a->pool, r->need, throttle_on_high, a->session->manager);

	if (r->nowait || r->is_turn)
		return 0;
	if (r->may_queue && delay > 0) {
		uint64_t left = r->deadline_usec > now ? r->deadline_usec - now : 0;

		delay = delay < left ? delay : left;
	}
	if (delay > 0)
		throttle_begin(a, now + delay);
	return delay;
}

/* The counters are charged; the row is flipped, and then the answer goes. */
static void grant(struct request *r, uint64_t amount)
{
	struct key *k = r->key;
	unsigned lane = r->lane;
	uint64_t seq = r->seq, delay = delay_of(r);
	bool done = true, nowait;

	limit_count_passed(k->attachment->pool, k->item);
	if (r->is_turn) {
		turn_set_aside(r);
		return;
	}
	k->attachment->session->manager->stats.grants++;
	/* More than the need was to be had: let it ask ahead again. */
	if (amount > r->need)
		atomic_store(&key_words(k)->ahead, 0);
	if (r->nowait)
		k->deposited_usec = manager_now();
	/* The drainer may be at a word of this key, and one intent a row is all there may be: then
	 * it is granted by the answer, as to one who waits. */
	if (r->nowait && row_is_settled(k)) {
		done = row_deposit(k, lane, seq, amount);
		amount = 0;
	} else
		row_answer(k, lane, seq, amount);
	if (!done)
		queue_kick(k->attachment->session->manager);
	nowait = r->nowait;
	free_request(r);
	send_answer(k, lane, seq, amount, done ? 0 : -EAGAIN, delay, 0);
	if (nowait)
		watches_credit(k->attachment->session, k->attachment->pool);
}

void request_refuse(struct request *r, struct itemlimit_place at, int status)
{
	struct key *k = r->key;
	unsigned lane = r->lane;
	uint64_t seq = r->seq, refusal;
	bool nowait;

	k->attachment->session->manager->stats.refusals++;
	k->attachment->session->refused++;
	k->attachment->refused++;
	pool_count_event(at.pool, POOL_OOM);
	refusal = refuse_record(r, at);
	if (r->is_turn) {
		turn_end(r, status);
		return;
	}
	row_answer(k, lane, seq, 0);
	nowait = r->nowait;
	free_request(r);
	send_answer(k, lane, seq, 0, status, 0, refusal);
	if (nowait)
		watches_credit(k->attachment->session, k->attachment->pool);
}

/* ------------------------------------------------------------------ deciding */

/*
 * What may be given beyond the need: near a limit, memory.high too, no more than each attachment
 * below it could get alike, and nothing while others wait.
 */
static uint64_t spare(const struct key *k, uint64_t need)
{
	struct itemlimit_place at = itemlimit_first(k->attachment->pool, k->item);
	uint64_t most = UINT64_MAX;

	for (; at.pool; at = itemlimit_next(at, k->item)) {
		uint64_t max = itemlimit_read(at.pool, at.item), usage, share;

		if (queue_is_at(at))
			return 0;
		if (at.item == 0 && at.pool->high < max)
			max = at.pool->high;
		if (max == COUNTER_MAX)
			continue;
		usage = counter_read(itemlimit_counter(at)) + need;
		share = usage < max ? (max - usage) / (at.pool->n_members_below + 1) : 0;
		most = share < most ? share : most;
	}
	return most;
}

/* What is tried beyond the need of a miss, at most `room`: what the reserve lacks of a batch. */
static uint64_t extra_for(struct key *k, uint64_t need, uint64_t room)
{
	const struct conf *c = k->attachment->session->manager->conf;
	uint64_t batch = batch_next(&k->batch, manager_now(), c->batch, c->batch_max);
	uint64_t there = word_bytes(atomic_load(&key_words(k)->reserve));
	uint64_t extra = batch > there ? batch - there : 0;
	uint64_t most = spare(k, need);

	if (extra > most)
		extra = most;
	return extra < room ? extra : room;
}

/* Nothing is charged with such a key. */
static bool is_event(const struct key *k)
{
	return item_is_event(&k->attachment->session->manager->items, k->item);
}

void request_ahead(struct session *s, const struct wire_ahead *m)
{
	struct key *k = key_find(s, m->key, m->attachment);
	uint64_t room, extra;

	if (!k || k->attachment->removed_from || is_event(k) || !row_is_settled(k))
		return;
	room = row_room(k);
	extra = extra_for(k, 0, room);
	/* Less is not worth a trip; until a request brings more, it need not ask again. */
	if (extra < s->manager->conf->batch / 2 || key_try_charge(k, extra, NULL) < 0)
		return;
	s->manager->stats.grants++;
	atomic_store(&key_words(k)->ahead, 0);
	row_deposit(k, 0, 0, extra);
}

/* The first place at which it would take what others wait for; pool NULL: none. */
static struct itemlimit_place held_up_at(const struct request *r)
{
	const struct key *k = r->key;
	struct itemlimit_place at = itemlimit_first(k->attachment->pool, k->item);

	while (at.pool && !r->may_queue && queue_lets_pass(at, r->need))
		at = itemlimit_next(at, k->item);
	return r->may_queue ? (struct itemlimit_place){NULL, 0} : at;
}

bool request_try(struct request *r, struct itemlimit_place *ret_failed)
{
	const struct key *k = r->key;
	uint64_t room = row_room(k), extra = 0;
	struct itemlimit_place at;

	if (r->need > room) {
		*ret_failed = (struct itemlimit_place){r->key->attachment->pool, 0};
		return false;
	}
	at = held_up_at(r);
	if (at.pool) {
		*ret_failed = at;
		return false;
	}
	if (!r->may_queue)
		extra = extra_for(r->key, r->need, room - r->need);
	if (extra > 0 && key_try_charge(r->key, r->need + extra, NULL) == 0) {
		grant(r, r->need + extra);
		return true;
	}
	if (key_try_charge(r->key, r->need, ret_failed) == 0) {
		grant(r, r->need);
		return true;
	}
	return false;
}

static void on_drained(void *userdata, uint64_t bytes);
static void on_reclaimed(void *userdata, const struct reclaim_result *result);

/* Asks clients for what is missing at `failed`: a round, unless the last one brought nothing. */
static bool start_reclaim(struct request *r, struct itemlimit_place failed)
{
	struct manager *m = r->key->attachment->session->manager;
	uint64_t bytes = itemlimit_deficit(failed, r->need);

	if (r->rounds >= RECLAIM_ROUNDS || (r->rounds > 0 && !r->reclaimed_some) ||
		manager_now() - r->since_usec >= RECLAIM_USEC ||
		itemlimit_read(failed.pool, failed.item) == COUNTER_MAX)
		return false;
	/* It fits, but for others who have waited for it. */
	if (bytes == 0)
		bytes = r->need;
	if (reclaim_start(m, failed, bytes, on_reclaimed, r, &r->reclaim) < 0)
		return false;
	if (r->rounds++ == 0)
		pool_count_event(failed.pool, POOL_RECLAIM);
	return true;
}

/* In this order, at each limit that it does not fit below: idle credit, clients, and the end. */
static void decide(struct request *r, bool drained_some)
{
	struct drain *d = r->key->attachment->session->manager->drain;
	struct itemlimit_place failed;
	bool again;

	if (request_try(r, &failed))
		return;
	if (!r->counted_max) {
		pool_count_event(failed.pool, POOL_MAX);
		r->counted_max = true;
	}
	begin_stall(r);
	/* It has its place from now on; idle credit is taken back for the head. */
	if (r->may_queue && queue_join(r, failed) == 0)
		return;
	again = itemlimit_is_same(failed, r->drained);
	if (again && (!drained_some || r->drains > EXTRA_DRAINS)) {
		if (!start_reclaim(r, failed))
			request_refuse(r, failed, -ENOMEM);
		return;
	}
	r->drains = again ? r->drains + 1 : 1;
	r->drained = failed;
	if (drain_start(d, failed, on_drained, r, &r->wait) < 0)
		request_refuse(r, failed, -ENOMEM);
}

static void on_drained(void *userdata, uint64_t bytes)
{
	struct request *r = userdata;

	r->wait = NULL;
	r->drained_bytes += bytes;
	decide(r, bytes > 0);
}

static void on_reclaimed(void *userdata, const struct reclaim_result *result)
{
	struct request *r = userdata;

	r->reclaim = NULL;
	r->drained_bytes += result->drained;
	r->asked_bytes += result->asked;
	r->reclaimed_bytes += result->reclaimed;
	r->reclaimed_some = result->came > 0;
	/* What came went to whoever was tried first: what those have left is looked for once more. */
	r->drained.pool = NULL;
	decide(r, false);
}

/* The error of one that is answered without having been decided, or once more. */
static int without(const struct key *k)
{
	return k->attachment->removed_from ? -ENODEV : -ENOMEM;
}

/* The same request once more: the same answer. */
static void answer_again(struct key *k, unsigned lane, uint64_t seq, uint64_t last)
{
	uint64_t amount = last == LEDGER_DEPOSITED ? 0 : last;

	send_answer(k, lane, seq, amount, last > 0 ? 0 : without(k), 0, 0);
}

void request_start(struct request *r)
{
	const struct key *k = r->key;
	struct itemlimit_place behind = {NULL, 0};

	if (r->may_queue)
		behind = queue_above(itemlimit_first(k->attachment->pool, k->item), k->item);
	if (!behind.pool || queue_join(r, behind) < 0)
		decide(r, false);
	else {
		begin_stall(r);
		queue_kick(k->attachment->session->manager);
	}
}

bool request_handle(struct session *s, const struct wire_charge *m)
{
	struct key *k;
	const struct ledger_copy *c;
	struct request *r;

	if (m->lane >= SEGMENT_FETCH || m->need == 0 || m->need > WORD_BYTES_MAX ||
		(m->flags & ~(WIRE_CHARGE_QUEUE | WIRE_CHARGE_NOWAIT)) || m->seq == 0 ||
		(m->flags & (m->flags - 1)))
		return false;
	k = key_find(s, m->key, m->attachment);
	if (!k)
		return true; /* detached meanwhile: the client's record of it is gone too */
	if (is_event(k))
		return false;
	c = ledger_read(k->row);
	if (m->seq == c->seq[m->lane]) {
		answer_again(k, m->lane, m->seq, c->last[m->lane]);
		return true;
	}
	if (m->seq < c->seq[m->lane])
		return true;
	if (k->request[m->lane])
		return k->request[m->lane]->seq == m->seq;

	r = k->attachment->removed_from ? NULL : calloc(1, sizeof(*r));
	if (!r) {
		row_answer(k, m->lane, m->seq, 0);
		send_answer(k, m->lane, m->seq, 0, without(k), 0, 0);
		return true;
	}
	*r = (struct request){.key = k,
		.lane = m->lane,
		.seq = m->seq,
		.need = m->need,
		.since_usec = manager_now(),
		.deadline_usec = m->deadline_usec,
		.may_queue = m->flags & WIRE_CHARGE_QUEUE,
		.nowait = m->flags & WIRE_CHARGE_NOWAIT};
	k->request[m->lane] = r;
	request_start(r);
	return true;
}

void request_drop_key(struct key *k)
{
	for (unsigned lane = 0; lane < SEGMENT_LANES; lane++)
		if (k->request[lane])
			free_request(k->request[lane]);
	turn_drop_key(k);
}

static void end_key(struct key *k, int status)
{
	for (unsigned lane = 0; lane < SEGMENT_LANES; lane++) {
		struct request *r = k->request[lane];
		uint64_t seq = r ? r->seq : 0;

		if (!r)
			continue;
		row_answer(k, lane, seq, 0);
		free_request(r);
		send_answer(k, lane, seq, 0, status, 0, 0);
	}
	turn_drop_key(k);
}

void request_end(struct attachment *a, int status)
{
	struct key *k;

	TAILQ_FOREACH (k, &a->keys, entry)
		end_key(k, status);
}

void request_drop_session(struct session *s)
{
	struct attachment *a;
	struct key *k;

	line_free_all(s);
	TAILQ_FOREACH (a, &s->attachments, entry)
		TAILQ_FOREACH (k, &a->keys, entry)
			request_drop_key(k);
}

unsigned request_count(const struct attachment *a)
{
	const struct key *k;
	unsigned n = 0;

	TAILQ_FOREACH (k, &a->keys, entry) {
		for (unsigned lane = 0; lane < SEGMENT_LANES; lane++)
			n += k->request[lane] != NULL;
		n += turn_count(k);
	}
	return n;
}
