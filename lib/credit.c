/* SPDX-License-Identifier: MIT */

#include "credit.h"

#include "core/itemlimit.h"

static void uncharge(const struct engine_key *k, uint64_t bytes)
{
	itemlimit_uncharge(k->attachment->pool, k->item, bytes);
}

uint64_t credit_batch(const struct engine_key *k)
{
	const struct conf *c = k->attachment->engine->conf;

	if (k->attachment->removed_from)
		return 0;
	return batch_now(&k->batch, engine_now(), c->batch, c->batch_max);
}

static struct segment_figures *figures_of(const struct engine_key *k)
{
	return segment_figures(&k->attachment->engine->segment, k->number);
}

/* Shows the client what counts now. */
static void publish(const struct engine_key *k, uint64_t attachment, uint64_t change)
{
	struct segment_figures *f = figures_of(k);

	segment_figures_begin(f);
	for (unsigned lane = 0; lane < SEGMENT_LANES; lane++) {
		const struct engine_answer *a = &k->answer[lane];

		atomic_store_explicit(
			&f->answer[lane], segment_answer(a->amount, a->seq), memory_order_relaxed);
	}
	atomic_store_explicit(
		&f->folded, k->previous_force + k->previous_debt, memory_order_relaxed);
	atomic_store_explicit(&f->granted, k->granted, memory_order_relaxed);
	atomic_store_explicit(&f->batch, (uint32_t)credit_batch(k), memory_order_relaxed);
	atomic_store_explicit(&f->attachment, attachment, memory_order_release);
	atomic_store_explicit(&f->change, change, memory_order_relaxed);
	segment_figures_end(f);
}

void credit_intend(const struct engine_key *k, uint64_t change)
{
	struct segment_figures *f = figures_of(k);

	segment_figures_begin(f);
	atomic_store_explicit(&f->change, change, memory_order_relaxed);
	segment_figures_end(f);
}

static void set_granted(struct engine_key *k, uint64_t granted)
{
	k->granted = granted;
	publish(k, k->attachment->removed_from ? 0 : k->attachment->number, 0);
	rstat_touch(&k->stat);
}

/* The counters have changed. */
static void show_counters(const struct engine_key *k)
{
	place_publish(k->attachment->place);
	pool_change_up(k->attachment->pool);
}

void credit_open(struct engine_key *k)
{
	struct segment_key *words = engine_words(k);

	k->previous_force = atomic_load(&words->force);
	k->previous_debt = atomic_load(&words->debt);
	rstat_key_open(
		&k->stat, &k->attachment->engine->rstat, k->attachment->pool, k->number, k->item);
	set_granted(k, 0);
}

void credit_answer(struct engine_key *k, unsigned lane, const struct engine_answer *a)
{
	k->answer[lane] = *a;
	set_granted(k, k->granted + a->amount);
	show_counters(k);
}

bool credit_deposit(struct engine_key *k, uint64_t bytes)
{
	struct segment_key *words = engine_words(k);
	unsigned parity = word_parity(atomic_load(&words->reserve));
	bool done;

	k->granted += bytes;
	publish(k, k->attachment->number,
		segment_change(0, SEGMENT_CHANGE_DEPOSIT, bytes, !parity));
	done = segment_reserve_give(words, k->number, bytes, parity) == 0;
	set_granted(k, done ? k->granted : k->granted - bytes);
	if (!done)
		uncharge(k, bytes);
	show_counters(k);
	return done;
}

uint64_t credit_room(const struct engine_key *k)
{
	return WORD_BYTES_MAX - k->granted;
}

static bool fold(struct engine_key *k)
{
	struct segment_key *words = engine_words(k);
	uint64_t bytes = segment_growth(&words->force, &k->previous_force, credit_room(k));

	bytes += segment_growth(&words->debt, &k->previous_debt, credit_room(k) - bytes);
	if (bytes == 0)
		return false;
	itemlimit_charge(k->attachment->pool, k->item, bytes);
	pool_count_event(k->attachment->pool, POOL_FORCE);
	k->granted += bytes;
	return true;
}

void credit_fold(struct engine_key *k)
{
	if (fold(k))
		set_granted(k, k->granted);
}

uint64_t credit_return(struct engine_key *k, uint64_t bytes)
{
	uint64_t back;

	/* After the bytes were taken: some of them may have been charged by force. */
	fold(k);
	back = bytes < k->granted ? bytes : k->granted;
	set_granted(k, k->granted - back);
	uncharge(k, back);
	show_counters(k);
	pool_count_overdraft(k->attachment->pool, bytes - back);
	return back;
}

uint64_t credit_take_reserve(struct engine_key *k, uint64_t leave)
{
	struct segment_key *words = engine_words(k);

	for (unsigned try = 0; try < PERCPU_TRIES; try++) {
		word w = atomic_load(&words->reserve);
		uint64_t bytes = word_bytes(w);

		if (word_key(w) != k->number || bytes <= leave)
			break;
		bytes -= leave;
		credit_intend(k, segment_change(0, SEGMENT_CHANGE_RESERVE, bytes, !word_parity(w)));
		if (segment_reserve_steal(words, k->number, bytes, word_parity(w)) == 0)
			return credit_return(k, bytes);
		credit_intend(k, 0);
	}
	return 0;
}

void credit_transfer(
	struct engine_key *from, struct engine_key *to, uint64_t bytes, struct pool *common)
{
	set_granted(from, from->granted - bytes);
	set_granted(to, to->granted + bytes);
	itemlimit_uncharge_below(from->attachment->pool, common, from->item, bytes);
	show_counters(from);
	show_counters(to);
	rstat_look_pair(&from->stat, &to->stat);
}

void credit_move(struct engine_key *k)
{
	rstat_key_move(&k->stat, k->attachment->pool);
	set_granted(k, k->granted);
}

void credit_give_back(struct engine_key *k)
{
	uint64_t granted = k->granted;

	for (unsigned lane = 0; lane < SEGMENT_LANES; lane++)
		k->answer[lane].amount = 0;
	k->granted = 0;
	rstat_key_close(&k->stat);
	publish(k, 0, 0);
	uncharge(k, granted);
	show_counters(k);
}

void credit_read(struct rstat_key *stat, uint64_t *ret_granted, uint64_t *ret_unaccepted)
{
	struct engine_key *k = container_of(stat, struct engine_key, stat);
	struct segment_key *words = engine_words(k);
	uint64_t unaccepted = 0;

	credit_fold(k);
	for (unsigned lane = 0; lane < SEGMENT_LANES; lane++)
		if (atomic_load(&words->accepted[lane]) != k->answer[lane].seq)
			unaccepted += k->answer[lane].amount;
	*ret_granted = k->granted;
	*ret_unaccepted = unaccepted;
}
