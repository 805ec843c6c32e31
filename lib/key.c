/* SPDX-License-Identifier: MIT */

#include "key.h"

#include <errno.h>

#include "client.h"
#include "core/batch.h"

/* The doorbell rings at most so often; the daemon's periodic flush looks anyway. */
#define RING_USEC 1000

/* The daemon says itself that a deadline has passed, and why the charge was refused. So much later
 * that is no longer waited for. */
#define ANSWER_USEC 100000

/* What a session is told of a larger unit is nonsense. */
#define KEY_SHIFT_MAX 32

static uint64_t make_record(uint64_t seq, enum key_state state)
{
	return seq << 2 | state;
}

static enum key_state state_of(uint64_t record)
{
	return record & 3;
}

static const struct segment_info *info_of(const struct client_key *k)
{
	return segment_info(&k->tally->segment);
}

/* ------------------------------------------------------------------ moving credit */

void key_touch(struct tally *t, uint32_t cpu)
{
	_Atomic uint8_t *touched = segment_header(&t->segment)->touched;

	/* Set once and for all; the bytes of several CPUs share a cache line. */
	if (cpu <= t->segment.n_cpus &&
		!atomic_load_explicit(&touched[cpu], memory_order_relaxed)) {
		TALLY_STEP();
		atomic_store_explicit(&touched[cpu], 1, memory_order_release);
		TALLY_STEP();
	}
}

/* The key's reserve, or a cumulative word of it, has changed. On which CPU that is marked is all the
 * same; on this one it costs least. */
static inline void mark(struct client_key *k, uint32_t cpu)
{
	struct tally *t = k->tally;

	cpu = cpu < t->segment.n_cpus ? cpu : t->segment.n_cpus;
	segment_mark(&k->spot, k->spot.cell + cpu * k->spot.stride, t->live->stocks.pages + cpu,
		SEGMENT_CREDIT);
	key_touch(t, cpu);
}

static uint32_t this_cpu(const struct client_key *k)
{
	return percpu_cpu(&k->tally->live->stocks);
}

/* The CPU is marked first: the daemon looks for movers on touched CPUs alone. */
static _Atomic uint32_t *begin_move(struct tally *t)
{
	uint32_t cpu = percpu_cpu(&t->live->stocks);

	cpu = cpu < t->segment.n_cpus ? cpu : 0;
	key_touch(t, cpu);
	return stock_move_begin(&t->live->stocks, cpu);
}

static void ring(struct client_key *k)
{
	struct wire_ring r = {.h = WIRE_HEADER(WIRE_RING, struct wire_ring, 0),
		.attachment = atomic_load(&k->attachment),
		.key = k->number};
	uint64_t now = link_now(), last = atomic_load(&k->tally->last_ring_usec);

	if (now - last < RING_USEC ||
		!atomic_compare_exchange_strong(&k->tally->last_ring_usec, &last, now))
		return;
	TALLY_STEP();
	if (atomic_exchange(&k->words->ring, 1) == 0 &&
		link_send_nowait(&k->tally->link, &r, sizeof(r)) < 0) {
		TALLY_STEP();
		atomic_store(&k->words->ring, 0);
	}
	TALLY_STEP();
}

static uint64_t batch_of(const struct client_key *k)
{
	return atomic_load_explicit(&k->figures->batch, memory_order_relaxed);
}

/* The next batch is to be there before it is needed. */
static void ask_ahead(struct client_key *k)
{
	struct wire_ahead m = {.h = WIRE_HEADER(WIRE_AHEAD, struct wire_ahead, 0),
		.attachment = atomic_load(&k->attachment),
		.key = k->number};

	TALLY_STEP();
	if (atomic_load_explicit(&k->words->ahead, memory_order_relaxed) == 0 &&
		atomic_exchange(&k->words->ahead, 1) == 0 &&
		link_send_nowait(&k->tally->link, &m, sizeof(m)) < 0) {
		TALLY_STEP();
		atomic_store(&k->words->ahead, 0);
	}
	TALLY_STEP();
}

/* Into the reserve of the key, if it is still its. */
static void put_reserve(struct client_key *k, uint64_t bytes, uint32_t cpu)
{
	uint64_t total;

	if (!segment_reserve_add(k->words, k->number, bytes, &total))
		return;
	mark(k, cpu);
	if (total > SEGMENT_MARK(batch_of(k)))
		ring(k);
}

/* Puts credit down that was carried out of a word. */
static void deposit(struct tally *t, uint32_t number, uint64_t bytes)
{
	struct client_key *k = client_key(t, number);

	if (bytes > 0 && k)
		put_reserve(k, bytes, this_cpu(k));
}

struct marks {
	uint64_t high, low;
};

/* The marks for a charge of so many bytes that the stock did not serve. Hits of all CPUs read HIGH, so
 * it is written only when it changes. */
static struct marks adapt_marks(struct tally *t, uint64_t bytes)
{
	uint64_t least =
		atomic_load_explicit(&segment_info(&t->segment)->high, memory_order_relaxed);
	uint64_t high = atomic_load_explicit(&t->live->high, memory_order_relaxed);
	uint64_t now = batch_high(high, bytes, least);

	if (now != high)
		atomic_store_explicit(&t->live->high, now, memory_order_relaxed);
	return (struct marks){.high = now, .low = now / 2};
}

/*
 * Into this CPU's stock; what leaves it, into the reserves. Of the key alone nobody need know that it
 * is on its way: the caller is inside a call, and so has a handle of it. Another's, which is evicted,
 * might be used again meanwhile: it is counted as moving.
 */
static void put(struct client_key *k, uint64_t bytes, struct marks m, bool evict)
{
	struct tally *t = k->tally;
	struct stock_carry carry[2];
	_Atomic uint32_t *moving;
	uint32_t cpu;
	unsigned n;

	if (!evict) {
		bytes = stock_place(&t->live->stocks, k->number, bytes, m.high, m.low, &cpu);
		key_touch(t, cpu);
		if (bytes > 0)
			put_reserve(k, bytes, this_cpu(k));
		return;
	}
	moving = begin_move(t);
	n = stock_put(&t->live->stocks, k->number, bytes, m.high, m.low, carry, &cpu);
	key_touch(t, cpu);
	for (unsigned i = 0; i < n; i++)
		deposit(t, carry[i].key, carry[i].bytes);
	stock_move_end(moving);
}

void key_put(struct client_key *k, uint64_t bytes)
{
	uint32_t cpu;
	enum stock_room room = stock_room(&k->tally->live->stocks, k->number, &cpu);

	if (room == STOCK_FULL || key_is_lost(k))
		put_reserve(k, bytes, cpu);
	else
		put(k, bytes, adapt_marks(k->tally, bytes), room == STOCK_EVICT);
}

void key_force(struct client_key *k, uint64_t bytes)
{
	TALLY_STEP();
	atomic_fetch_add(&k->words->force, bytes);
	mark(k, this_cpu(k));
}

bool key_force_known(struct tally *t, struct client_key *const _Atomic *known, uint64_t bytes)
{
	_Atomic uint32_t *moving = begin_move(t);
	struct client_key *k = atomic_load(known);

	if (k)
		key_force(k, bytes);
	stock_move_end(moving);
	return k;
}

/* A slot is refilled to LOW; of a key that grows, to HIGH. */
static uint64_t refill_of(const struct client_key *k, struct marks m, uint64_t batch)
{
	const struct segment_info *info = info_of(k);

	return batch > atomic_load_explicit(&info->batch, memory_order_relaxed) ? m.high : m.low;
}

bool key_take(struct client_key *k, uint64_t bytes)
{
	uint32_t cpu;
	enum stock_room room = stock_room(&k->tally->live->stocks, k->number, &cpu);
	uint64_t batch = batch_of(k), want = bytes, left = 0, n;
	struct marks m = {0};

	if (room != STOCK_FULL) {
		m = adapt_marks(k->tally, bytes);
		want += refill_of(k, m, batch);
	}
	n = segment_reserve_take(k->words, k->number, bytes, want, &left);
	if (n > 0)
		mark(k, cpu);
	if (n > bytes)
		put(k, n - bytes, m, room == STOCK_EVICT);
	if (n > 0 && bytes > 0 && left < SEGMENT_AHEAD(batch))
		ask_ahead(k);
	return n > 0 || bytes == 0;
}

/* ------------------------------------------------------------------ records */

static void finish(
	struct client_key *k, struct key_asker *asker, int status, const struct wire_grant *g)
{
	asker->status = status;
	asker->delay_usec = g ? g->delay_usec : 0;
	asker->refusal = g ? g->refusal : 0;
	atomic_store(&asker->done, 1);
	link_wake(&k->tally->link, &asker->done);
}

void key_accept(struct client_key *k, const struct wire_grant *g)
{
	struct key_request *q = &k->lane[g->lane];
	_Atomic uint32_t *moving = begin_move(k->tally);
	uint64_t record = atomic_load(&q->record);

	while (atomic_load(&k->attachment) == g->attachment && record >> 2 == g->seq &&
		(state_of(record) == KEY_ASKED || state_of(record) == KEY_LEFT)) {
		struct key_asker *asker = atomic_load(&q->asker);
		uint64_t need = atomic_load(&q->need), rest = g->amount;
		bool waits = state_of(record) == KEY_ASKED;

		if (!atomic_compare_exchange_strong(
			    &q->record, &record, make_record(g->seq, KEY_IDLE)))
			continue;
		if (waits && g->amount >= need)
			rest -= need;
		deposit(k->tally, k->number, rest);
		TALLY_STEP();
		atomic_store(&k->words->accepted[g->lane], g->seq);
		mark(k, this_cpu(k));
		if (waits)
			finish(k, asker,
				g->amount >= need       ? 0
					: g->status < 0 ? g->status
							: -ENOMEM,
				g);
		else if (g->status == -ENOMEM) {
			atomic_store(&k->refusal, g->refusal);
			atomic_store(&k->refused, need);
		}
		link_wake(&k->tally->link, &q->record);
		break;
	}
	stock_move_end(moving);
}

void key_open(struct client_key *k, uint64_t attachment)
{
	/* Once: whoever evicts the key of an attachment before this one may be reading them. */
	if (!k->words) {
		k->figures = segment_figures(&k->tally->segment, k->number);
		k->spot = segment_spot(&k->tally->segment, k->number);
		k->words = segment_key(&k->tally->segment, k->number);
	}
	for (unsigned lane = 0; lane < SEGMENT_LANES; lane++) {
		atomic_store(&k->lane[lane].record, make_record(0, KEY_IDLE));
		TALLY_STEP();
		atomic_store(&k->words->accepted[lane], 0);
		TALLY_STEP();
	}
	atomic_store(&k->refused, 0);
	segment_reserve_open(k->words, k->number);
	atomic_store(&k->attachment, attachment);
}

/* Drops an open record; who waits for it is told. */
static void drop_record(struct client_key *k, struct key_request *q)
{
	uint64_t record = atomic_load(&q->record);

	while (state_of(record) != KEY_IDLE) {
		struct key_asker *asker = atomic_load(&q->asker);

		if (!atomic_compare_exchange_strong(
			    &q->record, &record, make_record(record >> 2, KEY_IDLE)))
			continue;
		if (state_of(record) == KEY_ASKED)
			finish(k, asker, -ENODEV, NULL);
		link_wake(&k->tally->link, &q->record);
		break;
	}
}

uint64_t key_close(struct client_key *k)
{
	atomic_store(&k->attachment, 0);
	for (unsigned lane = 0; lane < SEGMENT_LANES; lane++)
		drop_record(k, &k->lane[lane]);
	return segment_reserve_close(k->words);
}

/* ------------------------------------------------------------------ asking */

static unsigned lane_for(const struct client_key *k, uint64_t bytes, bool queue)
{
	return queue || bytes > batch_of(k);
}

/* A request that was not sent after all. */
static void release(struct client_key *k, struct key_request *q, uint64_t record)
{
	if (atomic_compare_exchange_strong(&q->record, &record, make_record(record >> 2, KEY_IDLE)))
		link_wake(&k->tally->link, &q->record);
}

/*
 * Claims the record and puts the request into it, in `state`. 0 with its seq; -EBUSY; -ENODEV: the
 * key was closed.
 */
static int claim(struct client_key *k, struct key_request *q, uint64_t record, uint64_t attachment,
	uint64_t bytes, struct key_asker *asker, uint64_t *ret_seq)
{
	uint64_t seq = (record >> 2) + 1, claimed = make_record(seq, KEY_CLAIMED);

	if (!atomic_compare_exchange_strong(&q->record, &record, claimed))
		return -EBUSY;
	atomic_store(&q->need, bytes);
	atomic_store(&q->asker, asker);
	if (atomic_load(&k->attachment) != attachment) {
		release(k, q, claimed);
		return -ENODEV;
	}
	if (!atomic_compare_exchange_strong(
		    &q->record, &claimed, make_record(seq, asker ? KEY_ASKED : KEY_LEFT)))
		return -ENODEV;
	*ret_seq = seq;
	return 0;
}

static struct wire_charge make_charge(struct client_key *k, uint64_t attachment, unsigned lane,
	uint64_t seq, uint64_t bytes, uint32_t flags, uint64_t deadline_usec)
{
	return (struct wire_charge){.h = WIRE_HEADER(WIRE_CHARGE, struct wire_charge, 0),
		.attachment = attachment,
		.key = k->number,
		.lane = lane,
		.seq = seq,
		.need = bytes,
		.deadline_usec = flags & WIRE_CHARGE_QUEUE ? deadline_usec : 0,
		.flags = flags};
}

/* Its time is over, or the daemon is gone: leaves the request, unless its answer came just now. */
static int leave(struct client_key *k, struct key_request *q, uint64_t seq, struct key_asker *asker,
	enum key_state to, int error)
{
	uint64_t record = make_record(seq, KEY_ASKED);

	if (atomic_compare_exchange_strong(&q->record, &record, make_record(seq, to))) {
		link_wake(&k->tally->link, &q->record);
		return error;
	}
	while (!atomic_load(&asker->done))
		sched_yield();
	return asker->status;
}

static uint64_t later(uint64_t deadline_usec, uint64_t usec)
{
	return usec < UINT64_MAX - deadline_usec ? deadline_usec + usec : UINT64_MAX;
}

int key_ask(struct client_key *k, uint64_t attachment, uint64_t bytes, bool queue,
	uint64_t deadline_usec, uint32_t *ret_delay_usec)
{
	unsigned lane = lane_for(k, bytes, queue);
	struct key_request *q = &k->lane[lane];
	uint64_t record = atomic_load(&q->record), seq;
	struct key_asker asker = {0};
	struct wire_charge charge;
	int r;

	if (state_of(record) != KEY_IDLE) {
		r = link_wait(&k->tally->link, &q->record, record, deadline_usec);
		return r < 0 ? r : -EBUSY;
	}
	r = claim(k, q, record, attachment, bytes, &asker, &seq);
	if (r < 0)
		return r;
	charge = make_charge(
		k, attachment, lane, seq, bytes, queue ? WIRE_CHARGE_QUEUE : 0, deadline_usec);
	r = link_send(&k->tally->link, &charge, sizeof(charge), deadline_usec);
	if (r < 0)
		return leave(k, q, seq, &asker, KEY_IDLE, r);
	r = link_wait(
		&k->tally->link, &asker.done, 0, later(deadline_usec, queue ? ANSWER_USEC : 0));
	r = r < 0 ? leave(k, q, seq, &asker, KEY_LEFT, r) : asker.status;
	if (r == 0)
		*ret_delay_usec = asker.delay_usec;
	refused_note(k->tally, asker.refusal);
	return r;
}

int key_ask_nowait(struct client_key *k, uint64_t attachment, uint64_t bytes)
{
	unsigned lane = lane_for(k, bytes, false);
	struct key_request *q = &k->lane[lane];
	uint64_t record = atomic_load(&q->record), seq, refused = atomic_load(&k->refused);
	struct wire_charge charge;
	int r;

	if (refused != 0 && bytes >= refused &&
		atomic_compare_exchange_strong(&k->refused, &refused, 0)) {
		refused_note(k->tally, atomic_load(&k->refusal));
		return -ENOMEM;
	}
	if (state_of(record) != KEY_IDLE)
		return -EAGAIN;
	r = claim(k, q, record, attachment, bytes, NULL, &seq);
	if (r < 0)
		return r == -EBUSY ? -EAGAIN : r;
	charge = make_charge(k, attachment, lane, seq, bytes, WIRE_CHARGE_NOWAIT, 0);
	r = link_send_nowait(&k->tally->link, &charge, sizeof(charge));
	if (r < 0) {
		release(k, q, make_record(seq, KEY_LEFT));
		return r;
	}
	return -EAGAIN;
}

int key_fetch(struct client_key *k, uint64_t attachment, uint64_t queue, uint64_t id,
	uint64_t bytes, struct key_asker *asker)
{
	struct key_request *q = &k->lane[SEGMENT_FETCH];
	uint64_t record = atomic_load(&q->record), seq;
	struct wire_fetch m = {.h = WIRE_HEADER(WIRE_FETCH, struct wire_fetch, 0),
		.queue = queue,
		.id = id,
		.attachment = attachment,
		.key = k->number};
	int r;

	if (state_of(record) != KEY_IDLE)
		return -EBUSY;
	r = claim(k, q, record, attachment, bytes, asker, &seq);
	if (r < 0)
		return r;
	m.seq = seq;
	r = delivery_send_locked(k->tally, &m, sizeof(m));
	if (r < 0)
		release(k, q, make_record(seq, KEY_ASKED));
	return r;
}

bool key_is_fetching(const struct client_key *k)
{
	return state_of(atomic_load(&k->lane[SEGMENT_FETCH].record)) != KEY_IDLE;
}

void key_leave_fetch(struct client_key *k, const struct key_asker *asker)
{
	struct key_request *q = &k->lane[SEGMENT_FETCH];
	uint64_t record = atomic_load(&q->record);

	if (state_of(record) == KEY_ASKED && atomic_load(&q->asker) == asker)
		atomic_compare_exchange_strong(
			&q->record, &record, make_record(record >> 2, KEY_LEFT));
}

void key_accept_fetched(struct client_key *k, const struct wire_fetched *m)
{
	struct wire_grant g = {.attachment = m->attachment,
		.key = m->key,
		.lane = SEGMENT_FETCH,
		.seq = m->seq,
		.amount = m->amount,
		.status = m->status};

	key_accept(k, &g);
}

/* Cells of another unit may have been here. */
static void empty_cells(struct client_key *k)
{
	const struct segment *s = &k->tally->segment;
	const _Atomic uint8_t *touched = segment_header(s)->touched;

	for (uint32_t cpu = 0; cpu <= s->n_cpus; cpu++) {
		char *cell = k->spot.cell + cpu * k->spot.stride;

		if (!atomic_load_explicit(&touched[cpu], memory_order_acquire))
			continue;
		TALLY_STEP();
		atomic_store_explicit(
			&((struct segment_cell *)(void *)cell)->left, 0, memory_order_relaxed);
		TALLY_STEP();
	}
}

void key_set_moved(struct client_key *k, uint32_t shift, bool event)
{
	k->shift = shift < KEY_SHIFT_MAX ? shift : KEY_SHIFT_MAX;
	k->unit = UINT64_C(1) << k->shift;
	k->least = event ? 0 : INT64_MIN;
	empty_cells(k);
}
