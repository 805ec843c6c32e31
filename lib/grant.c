/* SPDX-License-Identifier: MIT */

#include "grant.h"

#include <errno.h>

#include "answer.h"
#include "core/fairness.h"
#include "core/high.h"
#include "core/itemlimit.h"
#include "core/limit.h"
#include "core/pressure.h"
#include "credit.h"
#include "idle.h"
#include "recall.h"
#include "record.h"

/* Drains for one request beyond one a level: others may take what was drained before it is tried.
 */
#define EXTRA_DRAINS 2
#define LOOK_USEC 10000          /* of the head of a queue */
#define RECALL_AGAIN_USEC 500000 /* after a round for it that brought nothing */
/* One whose client has not come for so long lets others pass. */
#define ASLEEP_USEC 1000000

/* ------------------------------------------------------------------ queues */

/* All that wait are in one list, in their order; the queue of a pool is those of them that wait
 * there, and the pool knows its head. */
static void set_head(struct pool *at, struct grant_request *r)
{
	at->queue = r;
	if (r)
		r->head_since_usec = engine_now();
}

static void enter(struct grant_request *r, struct pool *at)
{
	r->at = at;
	if (!r->is_turn)
		r->key->waiting[r->lane] = r;
	TAILQ_INSERT_TAIL(&r->engine->waiting, r, entry);
	if (!at->queue)
		set_head(at, r);
}

static bool is_asleep(const struct grant_request *r)
{
	return r->is_turn && engine_now() - r->looked_usec > ASLEEP_USEC;
}

/* The first one there that does not let others pass; NULL: none. */
static struct grant_request *head_of(const struct pool *at)
{
	struct grant_request *r = at->queue;

	while (r && (r->at != at || is_asleep(r)))
		r = TAILQ_NEXT(r, entry);
	return r;
}

static bool is_head(const struct grant_request *r)
{
	return head_of(r->at) == r;
}

static void leave(struct grant_request *r)
{
	struct grant_request *next = r;

	if (!r->at)
		return;
	if (r->at->queue == r) {
		do
			next = TAILQ_NEXT(next, entry);
		while (next && next->at != r->at);
		set_head(r->at, next);
	}
	/* While it is among them: it may be the one to wake, dropped by another thread. */
	engine_kick(r->engine);
	TAILQ_REMOVE(&r->engine->waiting, r, entry);
	if (!r->is_turn)
		r->key->waiting[r->lane] = NULL;
	r->at = NULL;
}

/* To the end of another pool's queue. */
static void move(struct grant_request *r, struct pool *to)
{
	leave(r);
	enter(r, to);
}

/* The nearest pool above p (or p itself) at which requests wait; NULL: none. */
static struct pool *queue_above(struct pool *p)
{
	while (p && !p->queue)
		p = pool_above(p);
	return p;
}

static void begin_stall(struct grant_request *r)
{
	struct engine_attachment *a = r->key->attachment;

	if (!r->stalled)
		pressure_begin(a->pool, &a->member);
	r->stalled = true;
}

static void end_stall(struct grant_request *r)
{
	struct engine_attachment *a = r->key->attachment;

	if (r->stalled)
		pressure_end(a->pool, &a->member);
	r->stalled = false;
}

/* Others give back for it: meanwhile the mutex is not held, and it may be dropped. */
static void enter_short(struct grant_request *r)
{
	r->is_short = true;
	r->key->waiting[r->lane] = r;
	TAILQ_INSERT_TAIL(&r->engine->short_ones, r, entry);
}

static void leave_short(struct grant_request *r)
{
	if (!r->is_short)
		return;
	r->is_short = false;
	r->key->waiting[r->lane] = NULL;
	TAILQ_REMOVE(&r->engine->short_ones, r, entry);
}

static void drop(struct grant_request *r)
{
	end_stall(r);
	leave_short(r);
	leave(r);
	r->key = NULL;
}

void grant_drop(struct engine_attachment *a)
{
	struct grant_request *r, *next;

	for (r = TAILQ_FIRST(&a->engine->waiting); r; r = next) {
		next = TAILQ_NEXT(r, entry);
		if (r->key->attachment == a)
			drop(r);
	}
	for (r = TAILQ_FIRST(&a->engine->short_ones); r; r = next) {
		next = TAILQ_NEXT(r, entry);
		if (r->key->attachment == a)
			drop(r);
	}
}

void grant_drop_all(struct embedded *e)
{
	while (!TAILQ_EMPTY(&e->waiting))
		drop(TAILQ_FIRST(&e->waiting));
	while (!TAILQ_EMPTY(&e->short_ones))
		drop(TAILQ_FIRST(&e->short_ones));
}

/* ------------------------------------------------------------------ answers */

static void send_answer(struct engine_key *k, unsigned lane, uint64_t delay, uint64_t refusal)
{
	struct embedded *e = k->attachment->engine;
	const struct engine_answer *a = &k->answer[lane];
	struct wire_grant g = {.h = WIRE_HEADER(WIRE_GRANT, struct wire_grant, 0),
		.attachment = k->attachment->number,
		.key = k->number,
		.lane = lane,
		.seq = a->seq,
		.amount = a->amount,
		.status = a->status,
		.delay_usec = (uint32_t)delay,
		.refusal = refusal};

	answer_send(e, &g, sizeof(g));
}

/* The request is over. */
static void finish(
	struct grant_request *r, uint64_t amount, int status, uint64_t delay, uint64_t refusal)
{
	const struct engine_answer a = {.seq = r->seq, .amount = amount, .status = status};
	struct engine_key *k = r->key;

	end_stall(r);
	leave(r);
	credit_answer(k, r->lane, &a);
	if (!r->is_turn)
		send_answer(k, r->lane, delay, refusal);
	/* Nobody waits for it. */
	if (r->flags & WIRE_CHARGE_NOWAIT)
		teller_credit(r->engine, k->attachment->pool);
}

/* Idle credit goes back; attachments are asked when the charge is done, by who may wait. */
static void on_high(void *userdata, struct pool *p, uint64_t bytes)
{
	struct grant_request *r = userdata;

	idle_drain(r->engine, p);
	if (r->high || r->is_turn || (r->flags & WIRE_CHARGE_NOWAIT) || p->n_reclaimers_below == 0)
		return;
	r->high = pool_ref(p);
	r->high_bytes = bytes;
}

/* The counters are charged. */
static void grant(struct grant_request *r, uint64_t amount)
{
	uint64_t delay = high_charged(r->key->attachment->pool, r->need, on_high, r);

	limit_count_passed(r->key->attachment->pool, r->key->item);
	/* More than the need was to be had: let it ask ahead again. */
	if (amount > r->need)
		atomic_store(&engine_words(r->key)->ahead, 0);
	if (!(r->flags & WIRE_CHARGE_NOWAIT))
		finish(r, amount, 0, delay, 0);
	else
		finish(r, 0, credit_deposit(r->key, amount) ? 0 : -EAGAIN, 0, 0);
}

/* As the daemon's queue_ahead(). */
static uint64_t bytes_ahead(const struct grant_request *r, struct itemlimit_place at)
{
	const struct counter *c = itemlimit_counter(at);
	const struct grant_request *other;
	uint64_t bytes = 0;

	if (!c || counter_room(c) < r->need)
		return 0;
	for (other = head_of(at.pool); other; other = TAILQ_NEXT(other, entry))
		if (other != r && other->at == at.pool &&
			(at.item == 0 || other->key->item == at.item))
			bytes += other->need;
	return bytes;
}

/* By the limit at which it failed last. */
static void refuse(struct grant_request *r, int status)
{
	const struct record_request record = {.key = r->key,
		.wanted = r->need,
		.since_usec = r->since_usec,
		.drained = r->tried.drained,
		.asked = r->tried.asked,
		.reclaimed = r->tried.reclaimed,
		.ahead = bytes_ahead(r, r->failed)};

	pool_count_event(r->failed.pool, POOL_OOM);
	finish(r, 0, status, 0, record_refusal(&record, r->failed));
}

/* ------------------------------------------------------------------ deciding */

/*
 * What may be given beyond the need: what the reserve lacks of `batch`, near a limit, memory.high too, no more than each
 * attachment below it could get alike, and nothing while others wait.
 */
static uint64_t spare(const struct engine_key *k, uint64_t need, uint64_t batch)
{
	uint64_t there = word_bytes(atomic_load(&engine_words(k)->reserve));
	struct itemlimit_place at = itemlimit_first(k->attachment->pool, k->item);
	uint64_t most = credit_room(k);

	batch = batch > there ? batch - there : 0;
	most = need < most ? most - need : 0;
	for (; at.pool; at = itemlimit_next(at, k->item)) {
		uint64_t max = itemlimit_read(at.pool, at.item), usage, share;

		if (at.pool->queue)
			return 0;
		if (at.item == 0 && at.pool->high < max)
			max = at.pool->high;
		if (max == COUNTER_MAX)
			continue;
		usage = counter_read(itemlimit_counter(at)) + need;
		share = usage < max ? (max - usage) / (at.pool->n_members_below + 1) : 0;
		most = share < most ? share : most;
	}
	return batch < most ? batch : most;
}

/* The batch of a miss now: it grows while they come fast. */
static uint64_t next_batch(struct engine_key *k)
{
	const struct conf *c = k->attachment->engine->conf;

	return batch_next(&k->batch, engine_now(), c->batch, c->batch_max);
}

/* As the daemon's queue_lets_pass(), of a pool and all above it: where others have waited for what it
 * would take; pool NULL: nowhere. */
static struct itemlimit_place held_up_at(const struct grant_request *r)
{
	uint32_t item = r->key->item;
	struct itemlimit_place at = itemlimit_first(r->key->attachment->pool, item);

	for (; at.pool; at = itemlimit_next(at, item)) {
		const struct grant_request *head = head_of(at.pool);
		const struct counter *c = head ? itemlimit_counter(at) : NULL;

		if (c && (at.item == 0 || head->key->item == at.item) &&
			!fairness_allows(
				c, r->need, head->need, engine_now() - head->head_since_usec))
			break;
	}
	return at;
}

/* Grants it if it fits. Else the pool that refuses in *ret_failed. */
static bool try_grant(struct grant_request *r, struct pool **ret_failed)
{
	struct pool *pool = r->key->attachment->pool;
	uint64_t extra = spare(r->key, r->need, r->batch);

	if (r->need > credit_room(r->key)) {
		r->failed = (struct itemlimit_place){pool, 0};
		*ret_failed = pool;
		return false;
	}
	if (!(r->flags & WIRE_CHARGE_QUEUE)) {
		r->failed = held_up_at(r);
		*ret_failed = r->failed.pool;
		if (*ret_failed)
			return false;
	}
	if (extra > 0 && itemlimit_try_charge(pool, r->key->item, r->need + extra, NULL) == 0) {
		grant(r, r->need + extra);
		return true;
	}
	if (itemlimit_try_charge(pool, r->key->item, r->need, &r->failed) == 0) {
		grant(r, r->need);
		return true;
	}
	*ret_failed = r->failed.pool;
	return false;
}

/* The lowest pool from the request's up to where it waits at which it does not fit, under whichever
 * limit; NULL: none. */
static struct pool *blocked_at(struct grant_request *r)
{
	uint32_t item = r->key->item;
	struct itemlimit_place at = itemlimit_first(r->key->attachment->pool, item);

	for (; at.pool && at.pool != pool_above(r->at); at = itemlimit_next(at, item)) {
		const struct counter *c = itemlimit_counter(at);

		if (c && counter_room(c) < r->need) {
			r->failed = at;
			return at.pool;
		}
	}
	return NULL;
}

/*
 * The head's turn: true, it is granted. One that another pool's limit holds up waits there from now
 * on, and one that meets a queue further up stands behind that.
 */
static bool serve(struct grant_request *r)
{
	bool drained = false;

	while (is_head(r)) {
		struct pool *to = blocked_at(r);

		if (to == r->at) {
			if (drained)
				return false;
			r->tried.drained += idle_drain(r->engine, to);
			drained = true;
			continue;
		}
		if (!to)
			to = queue_above(pool_above(r->at));
		if (!to && try_grant(r, &to))
			return true;
		if (to == r->at)
			return false;
		move(r, to);
	}
	return false;
}

static void refuse_late(struct grant_request *r)
{
	if (r->failed.pool != r->at)
		r->failed = (struct itemlimit_place){r->at, 0};
	refuse(r, -ETIMEDOUT);
}

static bool waits_by_looking(const struct grant_request *r)
{
	const struct grant_request *first = r->at->queue;

	return first->is_turn || is_head(r);
}

/* Where it fits others have waited for it. */
static uint64_t deficit_of(const struct grant_request *r, struct itemlimit_place at)
{
	uint64_t bytes = itemlimit_deficit(at, r->need);

	return bytes > 0 ? bytes : r->need;
}

/* A round for what is missing where it failed, which is over when this returns; true: it is worth another
 * try. The request may be dropped. */
static bool recall(struct grant_request *r)
{
	uint64_t came = r->tried.drained + r->tried.reclaimed;
	struct pool *at = r->failed.pool;

	if ((r->flags & WIRE_CHARGE_NOWAIT) || r->rounds >= RECALL_ROUNDS ||
		engine_now() - r->since_usec >= RECALL_USEC ||
		itemlimit_read(at, r->failed.item) == COUNTER_MAX || at->n_reclaimers_below == 0)
		return false;
	begin_stall(r);
	enter_short(r);
	pool_ref(at);
	if (recall_run(r->engine, r->failed, deficit_of(r, r->failed), &r->tried) &&
		r->rounds++ == 0)
		pool_count_event(at, POOL_RECLAIM);
	pool_unref(at);
	if (!r->key)
		return false;
	leave_short(r);
	if (r->key->attachment->removed_from) {
		finish(r, 0, -ENODEV, 0, 0);
		r->key = NULL;
		return false;
	}
	return r->tried.drained + r->tried.reclaimed > came || r->engine->recalls;
}

/* The head of a queue asks now and then. It may be dropped. */
static void recall_for_head(struct grant_request *r)
{
	uint64_t now = engine_now(), came = r->tried.drained + r->tried.reclaimed;
	struct pool *at = r->failed.pool;

	if (at != r->at || now < r->next_recall_usec || at->n_reclaimers_below == 0 ||
		recall_is_inside(r->engine))
		return;
	pool_ref(at);
	if (recall_run(r->engine, r->failed, deficit_of(r, r->failed), &r->tried))
		pool_count_event(at, POOL_RECLAIM);
	pool_unref(at);
	if (r->tried.drained + r->tried.reclaimed == came)
		r->next_recall_usec = engine_now() + RECALL_AGAIN_USEC;
}

/* The mutex is not held while it sleeps. */
static int wait_in_line(struct grant_request *r)
{
	struct embedded *e = r->engine;

	while (r->key) {
		uint64_t now = engine_now(), until = r->deadline_usec;

		if (now >= r->deadline_usec) {
			refuse_late(r);
			return 0;
		}
		if (is_head(r)) {
			if (serve(r))
				return 0;
			recall_for_head(r);
			if (!r->key)
				break;
			if (is_head(r) && serve(r))
				return 0;
		}
		/* Uncharges tell nobody, and one that lets others pass does not either. */
		if (waits_by_looking(r) && until - now > LOOK_USEC)
			until = now + LOOK_USEC;
		engine_sleep(e, until);
	}
	return -ENODEV;
}

/* Grants it, if need be after draining; else the pool that refuses, which was drained in vain. */
static bool decide(struct grant_request *r, struct pool **ret_failed)
{
	struct pool *drained = NULL, *failed;
	uint64_t bytes = 0;
	unsigned drains = 0;

	while (!try_grant(r, &failed)) {
		if (!r->counted_max)
			pool_count_event(failed, POOL_MAX);
		r->counted_max = true;
		if (failed == drained && (bytes == 0 || drains > EXTRA_DRAINS)) {
			if (!(r->flags & WIRE_CHARGE_QUEUE) && recall(r))
				continue;
			*ret_failed = failed;
			return false;
		}
		drains = failed == drained ? drains + 1 : 1;
		drained = failed;
		bytes = idle_drain(r->engine, failed);
		r->tried.drained += bytes;
	}
	return true;
}

/* A request that was answered before gets the same answer; an older one is nobody's. */
static bool was_answered(struct engine_key *k, const struct wire_charge *m)
{
	if (m->seq == k->answer[m->lane].seq)
		send_answer(k, m->lane, 0, 0);
	return m->seq <= k->answer[m->lane].seq;
}

static int handle(struct grant_request *r)
{
	bool queue = r->flags & WIRE_CHARGE_QUEUE;
	struct pool *at = NULL;

	if (queue)
		at = queue_above(r->key->attachment->pool);
	if (!at && decide(r, &at))
		return 0;
	if (!r->key)
		return -ENODEV;
	if (!queue) {
		refuse(r, -ENOMEM);
		return 0;
	}
	enter(r, at);
	begin_stall(r);
	return wait_in_line(r);
}

/* What it has passed memory.high by is asked for before it returns: there is no background here. */
static void recall_high(struct grant_request *r)
{
	struct recall_result ignored = {0};

	if (!r->high)
		return;
	if (recall_run(r->engine, (struct itemlimit_place){r->high, 0}, r->high_bytes, &ignored))
		pool_count_event(r->high, POOL_RECLAIM);
	r->high = pool_unref(r->high);
}

int grant_handle(struct embedded *e, const struct wire_charge *m)
{
	bool queue = m->flags & WIRE_CHARGE_QUEUE;
	struct grant_request r;
	struct engine_key *k;
	int result;

	if (m->lane >= SEGMENT_FETCH || m->need == 0 || m->need > WORD_BYTES_MAX || m->seq == 0 ||
		(m->flags & ~(WIRE_CHARGE_QUEUE | WIRE_CHARGE_NOWAIT)) ||
		(m->flags & (m->flags - 1)))
		return -EPROTO;
	k = engine_find_key(e, m->key, m->attachment);
	if (!k || was_answered(k, m))
		return 0;
	if (item_is_event(&e->items, k->item))
		return -EPROTO;
	if (k->waiting[m->lane])
		return k->waiting[m->lane]->seq == m->seq ? 0 : -EPROTO;

	idle_tidy(e);
	r = (struct grant_request){.engine = e,
		.key = k,
		.lane = m->lane,
		.seq = m->seq,
		.need = m->need,
		.since_usec = engine_now(),
		.batch = queue ? 0 : next_batch(k),
		.deadline_usec = m->deadline_usec,
		.flags = m->flags};
	if (k->attachment->removed_from) {
		finish(&r, 0, -ENODEV, 0, 0);
		return 0;
	}
	result = handle(&r);
	recall_high(&r);
	return result;
}

void grant_stand(struct grant_request *r)
{
	struct pool *pool = r->key->attachment->pool, *at = queue_above(pool);

	r->looked_usec = engine_now();
	enter(r, at ? at : pool);
}

bool grant_serve(struct grant_request *r)
{
	r->looked_usec = engine_now();
	if (is_head(r) && serve(r))
		return true;
	if (is_head(r) && !r->counted_max) {
		pool_count_event(r->failed.pool, POOL_MAX);
		r->counted_max = true;
	}
	begin_stall(r);
	return false;
}

void grant_refuse_late(struct grant_request *r)
{
	refuse_late(r);
}

void grant_leave(struct grant_request *r)
{
	if (r->key)
		drop(r);
}

void grant_ahead(struct engine_key *k)
{
	uint64_t extra = k->attachment->removed_from ? 0 : spare(k, 0, next_batch(k));

	/* Less is not worth it; until a request brings more, it need not ask again. */
	if (extra < k->attachment->engine->conf->batch / 2 ||
		itemlimit_try_charge(k->attachment->pool, k->item, extra, NULL) < 0)
		return;
	atomic_store(&engine_words(k)->ahead, 0);
	credit_deposit(k, extra);
}
