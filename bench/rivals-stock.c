/* SPDX-License-Identifier: MIT */

/*
 * The kernel's stock with a lock a CPU. All that differs between its three ways is where the excess
 * goes to the counter and where the statistic is counted.
 */

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/util.h"
#include "rivals.h"

#define SLOTS 7
#define BATCH (INT64_C(256) << 10) /* 64 pages */
#define HIGH BATCH
#define LOW (BATCH / 2)
#define UPDATES_MAX 64 /* of a pool's statistic on a CPU, before its readers are told */

/* The statistic of a pool on a CPU, in two lines: the value, and how much readers are behind. */
struct stat_line {
	alignas(64) int64_t bytes;
	alignas(64) uint32_t updates;
};

struct pool {
	struct rival_counter counter;
	alignas(64) _Atomic uint64_t updates; /* what the CPUs told */
	struct stat_line *stats;              /* by CPU */
};

struct slot {
	struct pool *pool; /* NULL: empty */
	int64_t bytes;
	int64_t stat; /* not yet in the pool's statistic */
};

struct cpu {
	alignas(64) _Atomic uint32_t held;
	uint32_t cursor;
	struct slot slots[SLOTS];
};

struct rival_stocks {
	enum rival_stock_way way;
	unsigned n_cpus, n_pools;
	struct rival_counter above[RIVAL_DEPTH - 1];
	struct pool *pools;
	struct cpu *cpus;
};

/* What leaves the stock: credit of a pool, and what was counted beside it. */
struct carry {
	struct pool *pool;
	int64_t bytes, stat;
};

static bool try_lock(struct cpu *c)
{
	return atomic_exchange_explicit(&c->held, 1, memory_order_acquire) == 0;
}

static void unlock(struct cpu *c)
{
	atomic_store_explicit(&c->held, 0, memory_order_release);
}

/* A signal between load and store loses an update, which costs no less. */
static void count(struct pool *p, unsigned cpu, int64_t bytes)
{
	struct stat_line *line = &p->stats[cpu];

	__atomic_store_n(&line->bytes, __atomic_load_n(&line->bytes, __ATOMIC_RELAXED) + bytes,
		__ATOMIC_RELAXED);
	__atomic_store_n(&line->updates, __atomic_load_n(&line->updates, __ATOMIC_RELAXED) + 1,
		__ATOMIC_RELAXED);
	if (unlikely(__atomic_load_n(&line->updates, __ATOMIC_RELAXED) >= UPDATES_MAX)) {
		__atomic_store_n(&line->updates, 0, __ATOMIC_RELAXED);
		atomic_fetch_add(&p->updates, UPDATES_MAX);
	}
}

static void settle(unsigned cpu, const struct carry *c)
{
	if (c->bytes != 0)
		rival_counter_uncharge(&c->pool->counter, (uint64_t)c->bytes);
	if (c->stat != 0)
		count(c->pool, cpu, c->stat);
}

static struct slot *find(struct cpu *c, const struct pool *p)
{
	for (unsigned i = 0; i < SLOTS; i++)
		if (c->slots[i].pool == p)
			return &c->slots[i];
	return NULL;
}

/* Makes a slot the pool's: an empty one, else another's in turn, whose content is carried away. */
static struct slot *take_slot(struct cpu *c, struct pool *p, struct carry *ret)
{
	struct slot *s = find(c, NULL);

	if (!s) {
		s = &c->slots[c->cursor++ % SLOTS];
		*ret = (struct carry){.pool = s->pool, .bytes = s->bytes, .stat = s->stat};
	}
	*s = (struct slot){.pool = p};
	return s;
}

/* Puts bytes into the stock, and counts `stat` with them. */
static void refill(struct rival_stocks *s, unsigned cpu, struct pool *p, int64_t bytes,
	int64_t stat, uint64_t *fallbacks)
{
	struct carry evicted = {.pool = p}, excess = {.pool = p};
	struct cpu *c = &s->cpus[cpu];
	struct slot *slot;

	if (unlikely(!try_lock(c))) {
		++*fallbacks;
		settle(cpu, &(struct carry){.pool = p, .bytes = bytes, .stat = stat});
		return;
	}
	slot = find(c, p);
	if (!slot)
		slot = take_slot(c, p, &evicted);
	slot->bytes += bytes;
	if (slot->bytes > HIGH) {
		excess.bytes = slot->bytes - LOW;
		slot->bytes = LOW;
	}
	if (s->way == RIVAL_BATCHED)
		slot->stat += stat;
	if (s->way == RIVAL_UNDER_LOCK) {
		settle(cpu, &excess);
		settle(cpu, &evicted);
	}
	unlock(c);
	if (s->way != RIVAL_UNDER_LOCK) {
		settle(cpu, &excess);
		settle(cpu, &evicted);
	}
	if (s->way != RIVAL_BATCHED && stat != 0)
		count(p, cpu, stat);
}

enum outcome {
	TAKEN,
	MISSED, /* the stock has not got it */
	LOCKED, /* it cannot be looked at */
};

static enum outcome consume(struct rival_stocks *s, struct cpu *c, struct pool *p, int64_t bytes)
{
	enum outcome outcome = MISSED;
	struct slot *slot;

	if (unlikely(!try_lock(c)))
		return LOCKED;
	slot = find(c, p);
	if (slot && slot->bytes >= bytes) {
		slot->bytes -= bytes;
		if (s->way == RIVAL_BATCHED)
			slot->stat += bytes;
		outcome = TAKEN;
	}
	unlock(c);
	return outcome;
}

int rival_stocks_charge(struct rival_stocks *s, unsigned pool, uint64_t bytes, uint64_t *fallbacks)
{
	unsigned cpu = (unsigned)sched_getcpu();
	struct pool *p = &s->pools[pool];
	int64_t n = (int64_t)bytes;

	switch (consume(s, &s->cpus[cpu], p, n)) {
	case TAKEN:
		if (s->way != RIVAL_BATCHED)
			count(p, cpu, n);
		return 0;
	case LOCKED:
		++*fallbacks;
		break;
	case MISSED:
		if (unlikely(rival_counter_charge(&p->counter, bytes + BATCH) < 0))
			break;
		refill(s, cpu, p, BATCH, n, fallbacks);
		return 0;
	}
	if (rival_counter_charge(&p->counter, bytes) < 0)
		return -ENOMEM;
	count(p, cpu, n);
	return 0;
}

void rival_stocks_uncharge(
	struct rival_stocks *s, unsigned pool, uint64_t bytes, uint64_t *fallbacks)
{
	refill(s, (unsigned)sched_getcpu(), &s->pools[pool], (int64_t)bytes, -(int64_t)bytes,
		fallbacks);
}

int64_t rival_stocks_drain(struct rival_stocks *s)
{
	for (unsigned cpu = 0; cpu < s->n_cpus; cpu++)
		for (unsigned i = 0; i < SLOTS; i++) {
			struct slot *slot = &s->cpus[cpu].slots[i];

			if (slot->pool)
				settle(cpu,
					&(struct carry){.pool = slot->pool,
						.bytes = slot->bytes,
						.stat = slot->stat});
			*slot = (struct slot){.pool = NULL};
		}
	return atomic_load(&s->above[RIVAL_DEPTH - 2].usage);
}

static void *allocate(size_t size)
{
	void *p = aligned_alloc(64, size);

	if (p)
		memset(p, 0, size);
	return p;
}

struct rival_stocks *rival_stocks_new(enum rival_stock_way way, unsigned n_cpus, unsigned n_pools)
{
	struct rival_stocks *s = allocate(sizeof(*s));

	if (!s)
		return NULL;
	*s = (struct rival_stocks){.way = way, .n_cpus = n_cpus, .n_pools = n_pools};
	s->cpus = allocate(n_cpus * sizeof(*s->cpus));
	s->pools = allocate(n_pools * sizeof(*s->pools));
	if (!s->cpus || !s->pools)
		return rival_stocks_free(s);
	for (unsigned i = 0; i < ELEMENTS(s->above); i++)
		rival_counter_init(
			&s->above[i], i + 1 < ELEMENTS(s->above) ? &s->above[i + 1] : NULL);
	for (unsigned i = 0; i < n_pools; i++) {
		rival_counter_init(&s->pools[i].counter, &s->above[0]);
		s->pools[i].stats = allocate(n_cpus * sizeof(struct stat_line));
		if (!s->pools[i].stats)
			return rival_stocks_free(s);
	}
	return s;
}

struct rival_stocks *rival_stocks_free(struct rival_stocks *s)
{
	if (!s)
		return NULL;
	for (unsigned i = 0; s->pools && i < s->n_pools; i++)
		free(s->pools[i].stats);
	free(s->pools);
	free(s->cpus);
	free(s);
	return NULL;
}
