/* SPDX-License-Identifier: MIT */

#include "row.h"

#include <stdatomic.h>

static uint64_t change_of(const struct ledger_copy *c)
{
	unsigned slot = c->intent_slot;

	if (c->intent == LEDGER_NO_INTENT)
		return 0;
	if (c->intent != LEDGER_SLOT)
		slot = c->intent == LEDGER_DEPOSIT ? SEGMENT_CHANGE_DEPOSIT
						   : SEGMENT_CHANGE_RESERVE;
	return segment_change(c->intent_cpu, slot, c->intent_bytes, c->intent_parity);
}

/* Shows the client what counts now. */
static void publish(const struct key *k)
{
	struct segment_figures *f = segment_figures(&k->attachment->session->segment, k->number);
	const struct ledger_copy *c = ledger_read(k->row);

	segment_figures_begin(f);
	for (unsigned lane = 0; lane < SEGMENT_LANES; lane++) {
		uint64_t amount = c->last[lane] == LEDGER_DEPOSITED ? 0 : c->last[lane];

		atomic_store_explicit(&f->answer[lane], segment_answer(amount, c->seq[lane]),
			memory_order_relaxed);
	}
	atomic_store_explicit(
		&f->folded, c->previous_force + c->previous_debt, memory_order_relaxed);
	atomic_store_explicit(&f->granted, c->granted, memory_order_relaxed);
	atomic_store_explicit(&f->batch, c->state == LEDGER_LIVE ? (uint32_t)key_batch(k) : 0,
		memory_order_relaxed);
	/* A client whose session has ended finds its socket closed, not its pool removed. */
	atomic_store_explicit(&f->attachment,
		c->state == LEDGER_LIVE || c->state == LEDGER_FREE ? c->attachment : 0,
		memory_order_release);
	atomic_store_explicit(&f->change, change_of(c), memory_order_relaxed);
	segment_figures_end(f);
}

static void flip(struct key *k)
{
	ledger_flip(k->row);
	publish(k);
	rstat_touch(&k->stat);
}

/* The counters have changed: the client sees it, and a peak may be another. */
static void show_grant(const struct key *k)
{
	place_publish(k->attachment->place);
	pool_change_up(k->attachment->pool);
}

static void close_intent(struct ledger_copy *c)
{
	c->intent = LEDGER_NO_INTENT;
	c->intent_cpu = c->intent_slot = c->intent_parity = 0;
	c->intent_bytes = 0;
}

void row_open(struct key *k)
{
	const struct attachment *a = k->attachment;
	struct segment_key *words = key_words(k);

	rstat_key_open(&k->stat, &a->session->rstat, a->pool, k->number, k->item);
	*ledger_edit(k->row) = (struct ledger_copy){.session = a->session->number,
		.attachment = a->number,
		.pool = a->pool->id,
		.previous_force = atomic_load(&words->force),
		.previous_debt = atomic_load(&words->debt),
		.key = k->number,
		.item = k->item,
		.state = LEDGER_LIVE};
	flip(k);
}

void row_answer(struct key *k, unsigned lane, uint64_t seq, uint64_t bytes)
{
	struct ledger_copy *c = ledger_edit(k->row);

	c->granted += bytes;
	c->seq[lane] = seq;
	c->last[lane] = bytes;
	if (bytes > 0)
		k->answered_usec = manager_now();
	flip(k);
	show_grant(k);
}

bool row_deposit(struct key *k, unsigned lane, uint64_t seq, uint64_t bytes)
{
	struct segment_key *words = key_words(k);
	unsigned parity = word_parity(atomic_load(&words->reserve));
	struct ledger_copy *c = ledger_edit(k->row);
	bool done;

	c->granted += bytes;
	if (seq != 0) {
		c->seq[lane] = seq;
		c->last[lane] = LEDGER_DEPOSITED;
	}
	c->intent = LEDGER_DEPOSIT;
	c->intent_bytes = bytes;
	c->intent_parity = !parity;
	flip(k);

	done = segment_reserve_give(words, k->number, bytes, parity) == 0;

	c = ledger_edit(k->row);
	if (!done)
		c->granted -= bytes;
	close_intent(c);
	flip(k);
	if (!done)
		key_uncharge(k, bytes);
	show_grant(k);
	return done;
}

static uint64_t room_beyond(const struct key *k, const struct ledger_copy *c)
{
	return WORD_BYTES_MAX - c->granted - k->set_aside;
}

uint64_t row_room(const struct key *k)
{
	return room_beyond(k, ledger_read(k->row));
}

/* Into the copy: the counters are charged before it is flipped. */
static void fold(struct key *k, struct ledger_copy *c)
{
	struct segment_key *words = key_words(k);
	uint64_t forced = segment_growth(&words->force, &c->previous_force, room_beyond(k, c));
	uint64_t owed;

	c->granted += forced;
	owed = segment_growth(&words->debt, &c->previous_debt, room_beyond(k, c));
	c->granted += owed;
	if (forced + owed == 0)
		return;
	key_charge(k, forced + owed);
	pool_count_event(k->attachment->pool, POOL_FORCE);
}

void row_fold(struct key *k)
{
	const struct ledger_copy *now = ledger_read(k->row);
	struct segment_key *words = key_words(k);

	if (now->previous_force == atomic_load_explicit(&words->force, memory_order_relaxed) &&
		now->previous_debt == atomic_load_explicit(&words->debt, memory_order_relaxed))
		return;
	fold(k, ledger_edit(k->row));
	flip(k);
}

bool row_is_settled(const struct key *k)
{
	const struct ledger_copy *c = ledger_read(k->row);

	return ledger_is_live(c) && c->intent == LEDGER_NO_INTENT;
}

static void intend(struct key *k, enum ledger_word which, uint32_t cpu, uint32_t slot, word w)
{
	struct ledger_copy *c = ledger_edit(k->row);

	c->intent = which;
	c->intent_cpu = cpu;
	c->intent_slot = slot;
	c->intent_bytes = word_bytes(w);
	c->intent_parity = !word_parity(w);
	flip(k);
}

void row_intend_reserve(struct key *k, word w)
{
	intend(k, LEDGER_RESERVE, 0, 0, w);
}

void row_intend_slot(struct key *k, uint32_t cpu, uint32_t slot, word w)
{
	intend(k, LEDGER_SLOT, cpu, slot, w);
}

uint64_t row_settle(struct key *k, bool taken)
{
	struct ledger_copy *c = ledger_edit(k->row);
	uint64_t bytes = 0, excess = 0;

	fold(k, c);
	if (taken) {
		bytes = c->intent_bytes < c->granted ? c->intent_bytes : c->granted;
		excess = c->intent_bytes - bytes;
		c->granted -= bytes;
	}
	close_intent(c);
	flip(k);
	key_uncharge(k, bytes);
	show_grant(k);
	attachment_count_overdraft(k->attachment, excess);
	return bytes;
}

uint64_t row_take_reserve(struct key *k, uint64_t leave)
{
	struct segment_key *words = key_words(k);
	word w = atomic_load(&words->reserve);

	if (!row_is_settled(k) || word_key(w) != k->number || word_bytes(w) <= leave)
		return 0;
	w -= leave << 1;
	row_intend_reserve(k, w);
	return row_settle(
		k, segment_reserve_steal(words, k->number, word_bytes(w), word_parity(w)) == 0);
}

void row_give_back(struct key *k, enum ledger_state state)
{
	struct ledger_copy *c = ledger_edit(k->row);
	uint64_t granted = c->granted;

	rstat_key_close(&k->stat);
	c->granted = 0;
	for (unsigned lane = 0; lane < SEGMENT_LANES; lane++)
		c->last[lane] = 0;
	c->state = state;
	flip(k);
	key_uncharge(k, granted);
}

void row_transfer(struct key *from, struct key *to, uint64_t bytes, struct pool *common)
{
	const struct ledger_copy *other = ledger_read(to->row);
	struct ledger_copy *c = ledger_edit(from->row);

	c->granted -= bytes;
	c->other_row = ledger_number(from->attachment->session->manager->ledger, to->row);
	c->other_seq = other->seq[0];
	c->other_granted = other->granted + bytes;
	flip(from);

	ledger_edit(to->row)->granted = ledger_read(from->row)->other_granted;
	flip(to);

	c = ledger_edit(from->row);
	c->other_row = c->other_seq = c->other_granted = 0;
	flip(from);
	itemlimit_uncharge_below(from->attachment->pool, common, from->item, bytes);
	show_grant(from);
	show_grant(to);
}

void row_remove(struct key *k)
{
	struct ledger_copy *c = ledger_edit(k->row);

	rstat_key_move(&k->stat, k->attachment->pool);
	c->pool = k->attachment->pool->id;
	c->state = LEDGER_REMOVED;
	flip(k);
}

/* What the answer of a lane brings, if nobody has accepted it yet. */
static uint64_t unaccepted(const struct key *k, unsigned lane)
{
	const struct ledger_copy *c = ledger_read(k->row);

	if (atomic_load(&key_words(k)->accepted[lane]) == c->seq[lane] ||
		c->last[lane] == LEDGER_DEPOSITED)
		return 0;
	return c->last[lane];
}

bool row_is_in_flight(const struct key *k)
{
	for (unsigned lane = 0; lane < SEGMENT_LANES; lane++)
		if (unaccepted(k, lane) > 0)
			return true;
	return false;
}

void row_read(struct rstat_key *stat, uint64_t *ret_granted, uint64_t *ret_unaccepted)
{
	struct key *k = container_of(stat, struct key, stat);
	uint64_t sum = 0;

	row_fold(k);
	for (unsigned lane = 0; lane < SEGMENT_LANES; lane++)
		sum += unaccepted(k, lane);
	*ret_granted = ledger_read(k->row)->granted;
	*ret_unaccepted = sum;
}
