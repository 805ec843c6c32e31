/* SPDX-License-Identifier: MIT */

/*
 * The plain ways: what a counter costs by a thread, by a CPU, shared, locked, and hierarchical.
 */

#include "rivals.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>

#include "core/util.h"

/* ------------------------------------------------------------------ floors */

int rival_empty_charge(void *unused, uint64_t bytes)
{
	(void)unused;
	(void)bytes;
	return 0;
}

void rival_empty_uncharge(void *unused, uint64_t bytes)
{
	(void)unused;
	(void)bytes;
}

/* Not static: a compiler may choose a cheaper way for what nobody else can see. */
__thread int64_t rival_left_gd __attribute__((tls_model("global-dynamic"))) = INT64_MAX / 2;
__thread int64_t rival_left_ie __attribute__((tls_model("initial-exec"))) = INT64_MAX / 2;

static inline int take(int64_t *left, uint64_t bytes)
{
	if (unlikely(*left < (int64_t)bytes))
		return -ENOMEM;
	*left -= (int64_t)bytes;
	return 0;
}

int rival_tls_gd_charge(void *unused, uint64_t bytes)
{
	(void)unused;
	return take(&rival_left_gd, bytes);
}

void rival_tls_gd_uncharge(void *unused, uint64_t bytes)
{
	(void)unused;
	rival_left_gd += (int64_t)bytes;
}

int rival_tls_ie_charge(void *unused, uint64_t bytes)
{
	(void)unused;
	return take(&rival_left_ie, bytes);
}

void rival_tls_ie_uncharge(void *unused, uint64_t bytes)
{
	(void)unused;
	rival_left_ie += (int64_t)bytes;
}

void rival_tls_gd_add(void *unused, int64_t delta)
{
	(void)unused;
	rival_left_gd += delta;
}

void rival_tls_ie_add(void *unused, int64_t delta)
{
	(void)unused;
	rival_left_ie += delta;
}

int rival_percpu_charge(struct rival_word *words, uint64_t bytes)
{
	_Atomic int64_t *word = &words[sched_getcpu()].left;
	int64_t left = atomic_load_explicit(word, memory_order_relaxed);

	do
		if (unlikely(left < (int64_t)bytes))
			return -ENOMEM;
	while (!atomic_compare_exchange_weak(word, &left, left - (int64_t)bytes));
	return 0;
}

void rival_percpu_uncharge(struct rival_word *words, uint64_t bytes)
{
	_Atomic int64_t *word = &words[sched_getcpu()].left;
	int64_t left = atomic_load_explicit(word, memory_order_relaxed);

	while (!atomic_compare_exchange_weak(word, &left, left + (int64_t)bytes))
		;
}

void rival_single_init(struct rival_single *s)
{
	atomic_init(&s->usage, 0);
	s->max = RIVAL_NO_LIMIT;
	s->locked_usage = 0;
	pthread_mutex_init(&s->mutex, NULL);
}

int rival_shared_charge(struct rival_single *s, uint64_t bytes)
{
	if (likely(atomic_fetch_add(&s->usage, (int64_t)bytes) <= s->max - (int64_t)bytes))
		return 0;
	atomic_fetch_sub(&s->usage, (int64_t)bytes);
	return -ENOMEM;
}

void rival_shared_uncharge(struct rival_single *s, uint64_t bytes)
{
	atomic_fetch_sub(&s->usage, (int64_t)bytes);
}

int rival_mutex_charge(struct rival_single *s, uint64_t bytes)
{
	bool fits;

	pthread_mutex_lock(&s->mutex);
	fits = s->locked_usage <= s->max - (int64_t)bytes;
	if (likely(fits))
		s->locked_usage += (int64_t)bytes;
	pthread_mutex_unlock(&s->mutex);
	return fits ? 0 : -ENOMEM;
}

void rival_mutex_uncharge(struct rival_single *s, uint64_t bytes)
{
	pthread_mutex_lock(&s->mutex);
	s->locked_usage -= (int64_t)bytes;
	pthread_mutex_unlock(&s->mutex);
}

/* ------------------------------------------------------------------ hierarchical counters */

void rival_counter_init(struct rival_counter *c, struct rival_counter *parent)
{
	atomic_init(&c->usage, 0);
	atomic_init(&c->peak, 0);
	c->parent = parent;
	c->max = RIVAL_NO_LIMIT;
}

void rival_counter_init_chain(struct rival_counter levels[static RIVAL_DEPTH])
{
	for (unsigned i = 0; i < RIVAL_DEPTH; i++)
		rival_counter_init(&levels[i], i + 1 < RIVAL_DEPTH ? &levels[i + 1] : NULL);
}

static void lower(struct rival_counter *from, const struct rival_counter *end, int64_t bytes)
{
	for (; from != end; from = from->parent)
		atomic_fetch_sub(&from->usage, bytes);
}

int rival_counter_charge(struct rival_counter *leaf, uint64_t bytes)
{
	int64_t n = (int64_t)bytes;

	for (struct rival_counter *c = leaf; c; c = c->parent) {
		int64_t usage = atomic_fetch_add(&c->usage, n) + n;

		if (unlikely(usage > c->max)) {
			lower(leaf, c->parent, n);
			return -ENOMEM;
		}
		/* Two that raise it at the same time may lose the higher, as in the kernel. */
		if (usage > atomic_load_explicit(&c->peak, memory_order_relaxed))
			atomic_store_explicit(&c->peak, usage, memory_order_relaxed);
	}
	return 0;
}

void rival_counter_uncharge(struct rival_counter *leaf, uint64_t bytes)
{
	lower(leaf, NULL, (int64_t)bytes);
}
