/* SPDX-License-Identifier: MIT */

/*
 * How others who account by tenant do it. What is modelled of each stands in rivals.h.
 */

#include <errno.h>
#include <stdbool.h>

#include "core/util.h"
#include "rivals.h"

/* ------------------------------------------------------------------ slack of a thread */

#define SLACK_MAX (INT64_C(4) << 20)

__thread int64_t rival_slack_gd __attribute__((tls_model("global-dynamic")));
__thread int64_t rival_slack_ie __attribute__((tls_model("initial-exec")));

static __attribute__((noinline)) int settle(struct rival_counter *leaf, int64_t *slack)
{
	int64_t bytes = *slack;

	if (bytes < 0)
		rival_counter_uncharge(leaf, (uint64_t)-bytes);
	else if (rival_counter_charge(leaf, (uint64_t)bytes) < 0)
		return -ENOMEM;
	*slack = 0;
	return 0;
}

static inline int slack_charge(struct rival_counter *leaf, int64_t *slack, uint64_t bytes)
{
	*slack += (int64_t)bytes;
	if (likely(*slack <= SLACK_MAX) || settle(leaf, slack) == 0)
		return 0;
	*slack -= (int64_t)bytes;
	return -ENOMEM;
}

static inline void slack_uncharge(struct rival_counter *leaf, int64_t *slack, uint64_t bytes)
{
	*slack -= (int64_t)bytes;
	if (unlikely(*slack < -SLACK_MAX))
		settle(leaf, slack);
}

int rival_slack_gd_charge(struct rival_counter *leaf, uint64_t bytes)
{
	return slack_charge(leaf, &rival_slack_gd, bytes);
}

void rival_slack_gd_uncharge(struct rival_counter *leaf, uint64_t bytes)
{
	slack_uncharge(leaf, &rival_slack_gd, bytes);
}

int rival_slack_ie_charge(struct rival_counter *leaf, uint64_t bytes)
{
	return slack_charge(leaf, &rival_slack_ie, bytes);
}

void rival_slack_ie_uncharge(struct rival_counter *leaf, uint64_t bytes)
{
	slack_uncharge(leaf, &rival_slack_ie, bytes);
}

/* ------------------------------------------------------------------ compare-and-swap a level */

static void raise_peak(struct rival_counter *c, int64_t usage)
{
	int64_t peak = atomic_load_explicit(&c->peak, memory_order_relaxed);

	while (usage > peak && !atomic_compare_exchange_weak(&c->peak, &peak, usage))
		;
}

static bool try_add(struct rival_counter *c, int64_t bytes)
{
	int64_t usage = atomic_load_explicit(&c->usage, memory_order_relaxed);

	do
		if (unlikely(usage > c->max - bytes))
			return false;
	while (!atomic_compare_exchange_weak(&c->usage, &usage, usage + bytes));
	raise_peak(c, usage + bytes);
	return true;
}

void rival_tracker_init(struct rival_tracker *t)
{
	rival_counter_init_chain(t->levels);
}

int rival_cas_charge(struct rival_tracker *t, uint64_t bytes)
{
	for (unsigned i = RIVAL_DEPTH; i-- > 0;) {
		if (likely(try_add(&t->levels[i], (int64_t)bytes)))
			continue;
		while (++i < RIVAL_DEPTH)
			atomic_fetch_sub(&t->levels[i].usage, (int64_t)bytes);
		return -ENOMEM;
	}
	return 0;
}

void rival_cas_uncharge(struct rival_tracker *t, uint64_t bytes)
{
	for (unsigned i = 0; i < RIVAL_DEPTH; i++)
		atomic_fetch_sub(&t->levels[i].usage, (int64_t)bytes);
}

/* ------------------------------------------------------------------ a mutex a level, in steps */

#define MIB (INT64_C(1) << 20)

static int64_t round_to_quantum(int64_t bytes)
{
	int64_t quantum = bytes < 16 * MIB ? MIB : bytes < 64 * MIB ? 4 * MIB : 8 * MIB;

	return (bytes + quantum - 1) / quantum * quantum;
}

void rival_quanta_init_chain(struct rival_quanta levels[static RIVAL_DEPTH])
{
	for (unsigned i = 0; i < RIVAL_DEPTH; i++) {
		levels[i] = (struct rival_quanta){
			.parent = i + 1 < RIVAL_DEPTH ? &levels[i + 1] : NULL,
			.max = RIVAL_NO_LIMIT,
		};
		pthread_mutex_init(&levels[i].mutex, NULL);
	}
}

/* The parents first: a level never has reserved what those above have not. */
static int grow(struct rival_quanta *q, int64_t bytes)
{
	bool fits;

	if (q->parent && grow(q->parent, bytes) < 0)
		return -ENOMEM;
	pthread_mutex_lock(&q->mutex);
	fits = q->parent || q->reserved <= q->max - bytes;
	if (fits) {
		q->reserved += bytes;
		q->peak = q->reserved > q->peak ? q->reserved : q->peak;
	}
	pthread_mutex_unlock(&q->mutex);
	return fits ? 0 : -ENOMEM;
}

static void shrink(struct rival_quanta *q, int64_t bytes)
{
	for (; q; q = q->parent) {
		pthread_mutex_lock(&q->mutex);
		q->reserved -= bytes;
		pthread_mutex_unlock(&q->mutex);
	}
}

int rival_quanta_charge(struct rival_quanta *leaf, uint64_t bytes)
{
	int64_t n = (int64_t)bytes;

	for (;;) {
		int64_t missing;

		pthread_mutex_lock(&leaf->mutex);
		missing = leaf->used + n - leaf->reserved;
		if (likely(missing <= 0))
			leaf->used += n;
		else
			missing = round_to_quantum(leaf->used + n) - leaf->reserved;
		pthread_mutex_unlock(&leaf->mutex);
		if (missing <= 0)
			return 0;
		if (grow(leaf, missing) < 0)
			return -ENOMEM;
	}
}

void rival_quanta_uncharge(struct rival_quanta *leaf, uint64_t bytes)
{
	int64_t freed;

	pthread_mutex_lock(&leaf->mutex);
	leaf->used -= (int64_t)bytes;
	freed = leaf->reserved - round_to_quantum(leaf->used);
	if (unlikely(freed > 0))
		leaf->reserved -= freed;
	pthread_mutex_unlock(&leaf->mutex);
	if (unlikely(freed > 0))
		shrink(leaf->parent, freed);
}
