/* SPDX-License-Identifier: MIT */

/*
 * Why two words and no lock: `usage` is what limits are held against, `decided` the part of it that
 * stays. A try-charge raises usage from the leaf to the root and decided only when every level took
 * it. So a refusal rests on one word that holds nothing speculative, and the peak is simply the
 * highest value that word ever had: what was rolled back was never in it, and no charge is missed.
 *
 * An uncharge lowers decided at every level before it lowers usage at any: decided never exceeds
 * usage, and whoever gets the room that became free finds it free everywhere, or the peaks above a
 * limit would show both.
 *
 * Whoever waits at a level has raised usage below it only, and those it waits for have passed it:
 * the highest one waits for nobody. That holds for two paths too, where the second one begins above
 * the root of the first. Uncharging never waits.
 */

#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <time.h>

#include "counter.h"

#define SPIN_ROUNDS 64    /* a decision takes well under a microsecond ... */
#define YIELD_ROUNDS 1024 /* ... unless its thread lost the CPU */
#define SLEEP_NSEC 50000  /* or has a lower real-time priority, which yielding does not help */

static void relax(unsigned round)
{
	if (round < SPIN_ROUNDS) {
#if defined(__x86_64__) || defined(__i386__)
		__builtin_ia32_pause();
#elif defined(__aarch64__)
		__asm__ volatile("yield" ::: "memory");
#endif
	} else if (round < YIELD_ROUNDS) {
		sched_yield();
	} else {
		nanosleep(&(struct timespec){.tv_nsec = SLEEP_NSEC}, NULL);
	}
}

static bool fits(uint64_t used, uint64_t n, uint64_t max)
{
	return used <= max && n <= max - used;
}

/* Whether n does not fit even if everything undecided is rolled back. The limit is read on both
 * sides, so that a limit from before a raise never meets a usage from after it. */
static bool refuses(struct counter *c, uint64_t n)
{
	for (;;) {
		uint64_t max = atomic_load(&c->max);
		bool no = !fits(atomic_load(&c->decided), n, max);

		if (atomic_load(&c->max) == max)
			return no;
	}
}

/* Raises the usage of one level, if need be after the decisions of those before it. */
static bool enter(struct counter *c, uint64_t n)
{
	for (unsigned round = 0;; round++) {
		uint64_t usage = atomic_load(&c->usage);

		while (fits(usage, n, atomic_load(&c->max)))
			if (atomic_compare_exchange_weak(&c->usage, &usage, usage + n))
				return true;
		if (refuses(c, n))
			return false;
		relax(round);
	}
}

static void raise_peak(struct counter *c, uint64_t value)
{
	uint64_t peak = atomic_load(&c->peak);

	while (value > peak && !atomic_compare_exchange_weak(&c->peak, &peak, value))
		;
}

static void decide(struct counter *c, uint64_t n)
{
	raise_peak(c, atomic_fetch_add(&c->decided, n) + n);
}

/* The level that certainly refuses, without touching any: the usual refusal costs no rollback. */
static struct counter *find_refusing(struct counter_path p, uint64_t n)
{
	while (p.from != p.end && !refuses(p.from, n))
		p.from = p.from->parent;
	return p.from != p.end ? p.from : NULL;
}

static void lower_usage(struct counter *from, const struct counter *end, uint64_t n)
{
	for (; from != end; from = from->parent)
		atomic_fetch_sub(&from->usage, n);
}

/* Raises the usage of all levels, or of none and returns the one that refused. */
static struct counter *enter_all(struct counter_path p, uint64_t n)
{
	struct counter *level = p.from;

	while (level != p.end && enter(level, n))
		level = level->parent;
	if (level == p.end)
		return NULL;
	lower_usage(p.from, level, n);
	return level;
}

static struct counter *enter_both(struct counter_path first, struct counter_path second, uint64_t n)
{
	struct counter *failed = enter_all(first, n);

	if (failed)
		return failed;
	failed = enter_all(second, n);
	if (failed)
		lower_usage(first.from, first.end, n);
	return failed;
}

static void decide_all(struct counter_path p, uint64_t n)
{
	for (; p.from != p.end; p.from = p.from->parent)
		decide(p.from, n);
}

/* Lowers decided by n, or by all there is; returns by how much. */
static uint64_t take_decided(struct counter *c, uint64_t n)
{
	uint64_t decided = atomic_load(&c->decided), take;

	do
		take = n < decided ? n : decided;
	while (!atomic_compare_exchange_weak(&c->decided, &decided, decided - take));
	return take;
}

/* What the levels of a path from `from` on are yet to lower their usage by. */
struct taken {
	struct counter_path path;
	uint64_t bytes;
};

/* Lowers decided at every level; returns the largest excess. */
static uint64_t take_decided_all(struct taken *t, uint64_t n)
{
	uint64_t excess = 0;

	for (struct counter *c = t->path.from; c != t->path.end; c = c->parent) {
		uint64_t take = take_decided(c, n);

		if (take != t->bytes) {
			lower_usage(t->path.from, c, t->bytes);
			t->path.from = c;
			t->bytes = take;
		}
		if (n - take > excess)
			excess = n - take;
	}
	return excess;
}

void counter_init(struct counter *c, struct counter *parent)
{
	c->parent = parent;
	atomic_init(&c->usage, 0);
	atomic_init(&c->decided, 0);
	atomic_init(&c->max, COUNTER_MAX);
	atomic_init(&c->peak, 0);
	atomic_init(&c->failcnt, 0);
	c->limit = COUNTER_MAX;
	c->observed = false;
}

uint64_t counter_read(const struct counter *c)
{
	return atomic_load(&c->decided);
}

int counter_try_charge(struct counter *c, uint64_t n, struct counter **ret_failed)
{
	return counter_try_charge_both(c, NULL, n, ret_failed);
}

int counter_try_charge_both(
	struct counter *first, struct counter *second, uint64_t n, struct counter **ret_failed)
{
	return counter_try_charge_paths((struct counter_path){first, NULL},
		(struct counter_path){second, NULL}, n, ret_failed);
}

int counter_try_charge_paths(struct counter_path first, struct counter_path second, uint64_t n,
	struct counter **ret_failed)
{
	struct counter *failed;

	if (n == 0)
		return 0;

	failed = find_refusing(first, n);
	if (!failed)
		failed = find_refusing(second, n);
	if (!failed)
		failed = enter_both(first, second, n);
	if (failed) {
		atomic_fetch_add(&failed->failcnt, 1);
		if (ret_failed)
			*ret_failed = failed;
		return -ENOMEM;
	}

	decide_all(first, n);
	decide_all(second, n);
	return 0;
}

void counter_charge(struct counter *c, uint64_t n)
{
	for (; c; c = c->parent) {
		uint64_t usage = atomic_load(&c->usage), add;

		do
			add = n < UINT64_MAX - usage ? n : UINT64_MAX - usage;
		while (!atomic_compare_exchange_weak(&c->usage, &usage, usage + add));
		decide(c, add);
	}
}

uint64_t counter_uncharge(struct counter *c, uint64_t n)
{
	return counter_uncharge_both(c, NULL, n);
}

uint64_t counter_uncharge_both(struct counter *first, struct counter *second, uint64_t n)
{
	return counter_uncharge_paths(
		(struct counter_path){first, NULL}, (struct counter_path){second, NULL}, n);
}

uint64_t counter_uncharge_paths(struct counter_path first, struct counter_path second, uint64_t n)
{
	struct taken a = {first, n}, b = {second, n};
	uint64_t excess = take_decided_all(&a, n), other = take_decided_all(&b, n);

	lower_usage(a.path.from, a.path.end, a.bytes);
	lower_usage(b.path.from, b.path.end, b.bytes);
	return excess > other ? excess : other;
}

uint64_t counter_room(const struct counter *c)
{
	uint64_t max = atomic_load(&c->max), usage;

	if (max == COUNTER_MAX)
		return COUNTER_MAX;
	usage = atomic_load(&c->usage);
	return usage < max ? max - usage : 0;
}

uint64_t counter_headroom(const struct counter *c)
{
	uint64_t least = COUNTER_MAX;

	for (; c; c = c->parent) {
		uint64_t room = counter_room(c);

		least = room < least ? room : least;
	}
	return least;
}

void counter_set_max(struct counter *c, uint64_t max)
{
	c->limit = max;
	atomic_store(&c->max, c->observed ? COUNTER_MAX : max);
}

void counter_observe(struct counter *c, bool on)
{
	c->observed = on;
	counter_set_max(c, c->limit);
}

void counter_reset_peak(struct counter *c)
{
	atomic_store(&c->peak, atomic_load(&c->decided));
	/* A charge that was decided before the store may have compared itself with the old peak. */
	raise_peak(c, atomic_load(&c->decided));
}
