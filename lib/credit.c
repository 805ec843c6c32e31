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

	return batch_now(&k->batch, engine_now(), c->batch, c->batch_max);
}

/* Shows the client what counts now. */
static void publish(const struct engine_key *k, uint64_t attachment)
{
	struct segment_figures *f = segment_figures(&k->attachment->engine->segment, k->number);

	atomic_store_explicit(&f->granted, k->granted, memory_order_relaxed);
	atomic_store_explicit(&f->batch, credit_batch(k), memory_order_relaxed);
	atomic_store_explicit(&f->attachment, attachment, memory_order_release);
}

static void set_granted(struct engine_key *k, uint64_t granted)
{
	k->granted = granted;
	publish(k, k->attachment->number);
}

void credit_open(struct engine_key *k)
{
	struct segment_key *words = engine_words(k);

	k->previous_force = atomic_load(&words->force);
	k->previous_debt = atomic_load(&words->debt);
	set_granted(k, 0);
}

void credit_grant(struct engine_key *k, uint64_t bytes)
{
	set_granted(k, k->granted + bytes);
}

bool credit_deposit(struct engine_key *k, uint64_t bytes)
{
	struct segment_key *words = engine_words(k);
	unsigned parity = word_parity(atomic_load(&words->reserve));

	credit_grant(k, bytes);
	if (segment_reserve_give(words, k->number, bytes, parity) == 0)
		return true;
	set_granted(k, k->granted - bytes);
	uncharge(k, bytes);
	return false;
}

uint64_t credit_room(const struct engine_key *k)
{
	return WORD_BYTES_MAX - k->granted;
}

void credit_fold(struct engine_key *k)
{
	struct segment_key *words = engine_words(k);
	uint64_t bytes = segment_growth(&words->force, &k->previous_force, credit_room(k));

	bytes += segment_growth(&words->debt, &k->previous_debt, credit_room(k) - bytes);
	if (bytes == 0)
		return;
	itemlimit_charge(k->attachment->pool, k->item, bytes);
	pool_count_event(k->attachment->pool, POOL_FORCE);
	credit_grant(k, bytes);
}

/* Sums stop at UINT64_MAX: what a client says that it dropped has no bound. */
void credit_count_overdraft(struct engine_attachment *a, uint64_t bytes)
{
	uint64_t *sum = &a->pool->own.overdraft;

	if (bytes == 0)
		return;
	if (__builtin_add_overflow(*sum, bytes, sum))
		*sum = UINT64_MAX;
	a->pool->version++;
}

uint64_t credit_return(struct engine_key *k, uint64_t bytes)
{
	uint64_t back;

	/* After the bytes were taken: some of them may have been charged by force. */
	credit_fold(k);
	back = bytes < k->granted ? bytes : k->granted;
	set_granted(k, k->granted - back);
	uncharge(k, back);
	credit_count_overdraft(k->attachment, bytes - back);
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
		if (segment_reserve_steal(words, k->number, bytes, word_parity(w)) == 0)
			return credit_return(k, bytes);
	}
	return 0;
}

void credit_give_back(struct engine_key *k)
{
	uint64_t granted = k->granted;

	for (unsigned lane = 0; lane < SEGMENT_LANES; lane++)
		k->answer[lane].amount = 0;
	k->granted = 0;
	publish(k, 0);
	uncharge(k, granted);
}
