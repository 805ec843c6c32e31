/* SPDX-License-Identifier: MIT */

#include "idle.h"

#include <string.h>

#include "core/itemlimit.h"
#include "credit.h"

/* ------------------------------------------------------------------ slots */

/* What is done to a slot that holds `w`; the sum of what it returns is what the walk returns. */
typedef uint64_t (*slot_fn)(
	struct embedded *e, unsigned cpu, percpu_word *slot, word w, const struct pool *pool);

/* Of touched CPUs alone: reading the page of another would make one. */
static uint64_t each_slot(struct embedded *e, slot_fn fn, const struct pool *pool)
{
	struct segment_header *h = segment_header(&e->segment);
	uint64_t sum = 0;

	for (uint32_t cpu = 0; cpu < e->n_cpus; cpu++) {
		if (!atomic_load_explicit(&h->touched[cpu], memory_order_acquire))
			continue;
		for (unsigned i = 0; i < STOCK_SLOTS; i++) {
			percpu_word *slot = &e->stocks.pages[cpu].stock.slot[i];

			sum += fn(e, cpu, slot, percpu_load(slot), pool);
		}
	}
	return sum;
}

/* Changes slots by `fn` where `counts` finds any to change, behind the gate if need be. */
static uint64_t change_slots(
	struct embedded *e, slot_fn counts, slot_fn fn, const struct pool *pool)
{
	uint64_t sum;

	if (e->segment.kind == PERCPU_ATOMIC)
		return each_slot(e, fn, pool);
	if (each_slot(e, counts, pool) == 0)
		return 0;
	e->owner.gate(e->owner.userdata, false);
	sum = each_slot(e, fn, pool);
	e->owner.gate(e->owner.userdata, true);
	return sum;
}

/* ------------------------------------------------------------------ looking */

uint64_t idle_excess(struct engine_attachment *a, uint64_t dropped)
{
	uint64_t idle = dropped, granted = 0;
	struct engine_key *k;

	rstat_scan(&a->engine->rstat);
	TAILQ_FOREACH (k, &a->keys, entry) {
		if (idle <= WORD_BYTES_MAX)
			idle += rstat_key_in_words(&k->stat);
		/* After the words were looked at: some of it may have been charged by force. */
		credit_fold(k);
		granted += k->granted;
	}
	return idle > granted ? idle - granted : 0;
}

/* ------------------------------------------------------------------ draining */

/* The key of the subtree whose credit lies in the word; NULL: none. */
static struct engine_key *find_key(struct embedded *e, word w, const struct pool *pool)
{
	struct engine_key *k = word_bytes(w) > 0 ? engine_key(e, word_key(w)) : NULL;

	if (!k || k->attachment->state != ENGINE_LIVE || !pool_counts_in(k->attachment->pool, pool))
		return NULL;
	return k;
}

static uint64_t count_idle(
	struct embedded *e, unsigned cpu, percpu_word *slot, word w, const struct pool *pool)
{
	(void)cpu;
	(void)slot;
	return find_key(e, w, pool) != NULL;
}

static uint64_t change_of_slot(
	const struct embedded *e, unsigned cpu, const percpu_word *slot, word w)
{
	return segment_change(cpu, (unsigned)(slot - e->stocks.pages[cpu].stock.slot),
		word_bytes(w), !word_parity(w));
}

static uint64_t take_slot(
	struct embedded *e, unsigned cpu, percpu_word *slot, word w, const struct pool *pool)
{
	for (unsigned try = 0; try < PERCPU_TRIES; try++, w = percpu_load(slot)) {
		struct engine_key *k = find_key(e, w, pool);

		if (!k)
			break;
		credit_intend(k, change_of_slot(e, cpu, slot, w));
		if (e->segment.kind == PERCPU_RSEQ)
			return credit_return(k, stock_seize(slot, k->number));
		if (stock_take(&e->stocks, slot, cpu, k->number, word_bytes(w), word_parity(w)) ==
			0)
			return credit_return(k, word_bytes(w));
		credit_intend(k, 0);
	}
	return 0;
}

static uint64_t take_reserves(struct pool *root)
{
	uint64_t bytes = 0;
	struct pool *p;

	for (p = root; p; p = pool_next_counted(p, root)) {
		struct pool_member *m;

		TAILQ_FOREACH (m, &p->members, entry) {
			struct engine_attachment *a =
				container_of(m, struct engine_attachment, member);
			struct engine_key *k;

			TAILQ_FOREACH (k, &a->keys, entry)
				bytes += credit_take_reserve(k, 0);
		}
	}
	return bytes;
}

uint64_t idle_drain(struct embedded *e, struct pool *pool)
{
	uint64_t bytes = take_reserves(pool);

	bytes += change_slots(e, count_idle, take_slot, pool);
	/* What was put there out of slots meanwhile. */
	bytes += take_reserves(pool);
	if (bytes > 0)
		engine_kick(e);
	return bytes;
}

/* The key whose credit may lie in the slot, and whose pool was removed by force; NULL: none. */
static struct engine_key *find_removed(struct embedded *e, word w)
{
	struct engine_key *k = engine_key(e, word_key(w));

	return k && k->attachment->state == ENGINE_LIVE && k->attachment->removed_from ? k : NULL;
}

static uint64_t count_removed(
	struct embedded *e, unsigned cpu, percpu_word *slot, word w, const struct pool *pool)
{
	(void)cpu;
	(void)slot;
	(void)pool;
	return find_removed(e, w) != NULL;
}

static uint64_t expel_slot(
	struct embedded *e, unsigned cpu, percpu_word *slot, word w, const struct pool *pool)
{
	(void)pool;
	for (unsigned try = 0; try < PERCPU_TRIES; try++, w = percpu_load(slot)) {
		struct engine_key *k = find_removed(e, w);

		if (!k)
			break;
		credit_intend(k, change_of_slot(e, cpu, slot, w));
		if (e->segment.kind == PERCPU_RSEQ) {
			atomic_store_explicit(
				slot, word_make(0, 0, !word_parity(w)), memory_order_relaxed);
			return credit_return(k, word_bytes(w));
		}
		if (stock_expel(&e->stocks, slot, cpu, k->number, word_bytes(w), word_parity(w)) ==
			0)
			return credit_return(k, word_bytes(w));
		credit_intend(k, 0);
	}
	return 0;
}

void idle_expel(struct embedded *e)
{
	change_slots(e, count_removed, expel_slot, NULL);
}

void idle_drain_above_limit(struct embedded *e, struct pool *pool)
{
	bool above = !pool->observe && counter_read(&pool->counter) > pool->high;

	for (uint32_t item = 0; item <= e->items.n && !above; item++) {
		const struct counter *c = itemlimit_counter((struct itemlimit_place){pool, item});

		above = c && counter_read(c) > atomic_load(&c->max);
	}
	if (above)
		idle_drain(e, pool);
}

void idle_trim(struct engine_attachment *a)
{
	uint64_t taken = 0;
	struct engine_key *k;

	TAILQ_FOREACH (k, &a->keys, entry) {
		struct segment_key *words = engine_words(k);
		uint64_t batch = credit_batch(k);

		/* The bell first: who puts more there from now on rings again. */
		atomic_store(&words->ring, 0);
		if (word_bytes(atomic_load(&words->reserve)) > SEGMENT_MARK(batch))
			taken += credit_take_reserve(k, batch);
	}
	if (taken > 0)
		engine_kick(a->engine);
}

void idle_trim_listed(struct embedded *e)
{
	struct rstat_key *k;

	e->tidied_usec = engine_now();
	TAILQ_FOREACH (k, &e->rstats.idle, idle_entry)
		idle_trim(container_of(k, struct engine_key, stat)->attachment);
}

void idle_tidy(struct embedded *e)
{
	uint64_t now = engine_now();
	struct engine_attachment *a;
	struct engine_key *k;

	if (now - e->tidied_usec < e->conf->flush_interval_usec)
		return;
	e->tidied_usec = now;
	TAILQ_FOREACH (a, &e->attachments, entry) {
		if (a->state != ENGINE_LIVE)
			continue;
		idle_trim(a);
		TAILQ_FOREACH (k, &a->keys, entry)
			credit_fold(k);
	}
}

/* ------------------------------------------------------------------ collecting keys */

/*
 * A key whose attachment is gone may still stand in slots, and in the registers of threads that
 * carry credit from one word to another; used again too early, such credit would become the new
 * owner's. So every CPU's `moving` is seen 0, the slots are cleared, and every CPU's `moving` is
 * seen 0 once more. Whoever is seen moving is not waited for: the next call goes on from there.
 */

/* Fewer free keys than a quarter, and as many that wait, begin a collection. */
static uint32_t many_keys(const struct embedded *e)
{
	return e->segment.n_keys / 4;
}

static bool all_quiet(struct embedded *e)
{
	struct segment_header *h = segment_header(&e->segment);
	bool all = true;

	for (uint32_t cpu = 0; cpu < e->n_cpus; cpu++) {
		if (e->quiet[cpu] || !atomic_load(&h->touched[cpu]))
			continue;
		e->quiet[cpu] = atomic_load(&e->stocks.pages[cpu].moving) == 0;
		all = all && e->quiet[cpu];
	}
	return all;
}

static bool is_collected(struct embedded *e, word w)
{
	struct engine_key *k = engine_key(e, word_key(w));

	return k && k->attachment->state == ENGINE_COLLECTING;
}

static uint64_t count_collected(
	struct embedded *e, unsigned cpu, percpu_word *slot, word w, const struct pool *pool)
{
	(void)cpu;
	(void)slot;
	(void)pool;
	return is_collected(e, w);
}

/* Returns 1 for a slot that could not be cleared. */
static uint64_t clear_slot(
	struct embedded *e, unsigned cpu, percpu_word *slot, word w, const struct pool *pool)
{
	(void)pool;
	if (!is_collected(e, w))
		return 0;
	if (e->segment.kind == PERCPU_ATOMIC)
		return stock_clear(&e->stocks, slot, cpu, word_key(w)) < 0;
	atomic_store_explicit(slot, word_make(0, 0, !word_parity(w)), memory_order_relaxed);
	return 0;
}

static void begin(struct embedded *e)
{
	struct engine_attachment *a;

	if (e->n_free_keys >= many_keys(e) || e->n_forgotten_keys < many_keys(e))
		return;
	TAILQ_FOREACH (a, &e->attachments, entry)
		if (a->state == ENGINE_FORGOTTEN)
			a->state = ENGINE_COLLECTING;
	memset(e->quiet, 0, e->n_cpus);
	e->collecting = true;
	e->cleared = false;
}

static void finish(struct embedded *e)
{
	struct engine_attachment *a, *next;
	struct engine_key *k;

	for (a = TAILQ_FIRST(&e->attachments); a; a = next) {
		next = TAILQ_NEXT(a, entry);
		if (a->state != ENGINE_COLLECTING)
			continue;
		TAILQ_FOREACH (k, &a->keys, entry)
			e->n_forgotten_keys--;
		engine_drop(a);
	}
	e->collecting = false;
}

void idle_collect(struct embedded *e)
{
	if (!e->collecting)
		begin(e);
	if (!e->collecting || !all_quiet(e))
		return;
	if (!e->cleared) {
		uint64_t missed = change_slots(e, count_collected, clear_slot, NULL);

		memset(e->quiet, 0, e->n_cpus);
		e->cleared = missed == 0;
		if (!e->cleared || !all_quiet(e))
			return;
	}
	finish(e);
}
