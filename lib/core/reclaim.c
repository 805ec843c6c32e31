/* SPDX-License-Identifier: MIT */

/*
 * Planned in slices, each with the usage that is left by those before it: what a pool is protected by
 * depends on what it and its siblings use, so a big request that was shared out at once would end
 * elsewhere than many small ones. Nothing is allocated: what is planned stands in the pools and their
 * members.
 */

#include "reclaim.h"

#include "protection.h"

#define SLICES 32
/* Looks at members for one plan, about; where there are more of them there are fewer slices. */
#define LOOKS 200000

struct plan {
	struct itemlimit_place at;
	uint64_t bytes, planned;
	bool break_low;
};

/* ------------------------------------------------------------------ walking */

/* The next pool that counts at the root of the walk and has members that give back below. */
static struct pool *next_pool(struct pool *p, const struct pool *root)
{
	do
		p = pool_next_counted(p, root);
	while (p && p->n_reclaimers_below == 0);
	return p;
}

bool reclaim_next(struct reclaim_cursor *c)
{
	if (c->top->n_reclaimers_below == 0)
		return false;
	if (!c->pool)
		c->pool = c->top;
	c->member = c->member ? TAILQ_NEXT(c->member, entry) : TAILQ_FIRST(&c->pool->members);
	while (!c->member || !c->member->reclaims) {
		if (c->member) {
			c->member = TAILQ_NEXT(c->member, entry);
			continue;
		}
		c->pool = next_pool(c->pool, c->top);
		if (!c->pool)
			return false;
		c->member = TAILQ_FIRST(&c->pool->members);
	}
	return true;
}

/* ------------------------------------------------------------------ one slice */

/* What the pool has beyond what is kept from this plan, when all that is planned has come. */
static uint64_t overage(const struct plan *plan, const struct pool *p)
{
	uint64_t usage = protection_usage(p), kept = 0;

	if (p != plan->at.pool)
		kept = plan->break_low || p->emin > p->elow ? p->emin : p->elow;
	return usage > kept ? usage - kept : 0;
}

/* How much of the next bytes is the member's part. */
static uint64_t weight(const struct plan *plan, const struct reclaim_cursor *c)
{
	uint64_t usage = protection_usage(c->pool), rest = c->member->own - c->member->want;

	if (usage == 0)
		return 0;
	return (uint64_t)((unsigned __int128)rest * overage(plan, c->pool) / usage);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Of the bytes, what the member can give. */
static uint64_t take(struct plan *plan, const struct reclaim_cursor *c, uint64_t bytes)
{
	struct pool_member *m = c->member;

	bytes = least(bytes, plan->bytes - plan->planned);
	bytes = least(bytes, m->own - m->want);
	bytes = least(bytes, overage(plan, c->pool));
	m->want += bytes;
	plan->planned += bytes;
	for (struct pool *p = c->pool; p; p = p == plan->at.pool ? NULL : pool_above(p))
		p->planned += bytes;
	return bytes;
}

/* The slice is shared out by weight; one that is too small for that goes to the heaviest alone. Returns
 * what came of it; 0: nobody has anything to give. */
static uint64_t take_slice(struct plan *plan, uint64_t slice)
{
	struct reclaim_cursor c = {.top = plan->at.pool}, heaviest = c;
	uint64_t weights = 0, most = 0, n = 0, taken = 0;

	protection_set(plan->at.pool);
	while (reclaim_next(&c)) {
		uint64_t w = weight(plan, &c);

		n += w > 0;
		if (w > most) {
			most = w;
			heaviest = c;
		}
		if (__builtin_add_overflow(weights, w, &weights))
			weights = UINT64_MAX;
	}
	if (most == 0)
		return 0;
	if (slice / n < RECLAIM_LEAST / SLICES)
		return take(plan, &heaviest, slice);
	for (c = (struct reclaim_cursor){.top = plan->at.pool}; reclaim_next(&c);) {
		/* Rounded up, so that no rest remains that is nobody's. */
		unsigned __int128 part = (unsigned __int128)slice * weight(plan, &c) + weights - 1;

		taken += take(plan, &c, (uint64_t)(part / weights));
	}
	return taken;
}

/* ------------------------------------------------------------------ the plan */

/* What is planned in pools is of this plan alone: nothing before and after it. */
static void clear(struct plan *plan)
{
	struct pool *root = plan->at.pool;

	for (struct pool *p = root; p; p = next_pool(p, root))
		p->planned = 0;
}

static uint64_t prepare(struct plan *plan, reclaim_own_fn own)
{
	struct reclaim_cursor c = {.top = plan->at.pool};
	uint64_t n = 0;

	clear(plan);
	while (reclaim_next(&c)) {
		c.member->want = 0;
		c.member->own = own(c.member, plan->at.item);
		n++;
	}
	return n;
}

static void take_all(struct plan *plan, unsigned slices)
{
	uint64_t slice = plan->bytes / slices;

	slice = slice > RECLAIM_LEAST ? slice : RECLAIM_LEAST;
	/* Where little is left above protections, slices come to less than they should. */
	for (unsigned i = 0; i < 2 * slices && plan->planned < plan->bytes; i++)
		if (take_slice(plan, slice) == 0)
			break;
}

/* Each pool once, from which something is asked although it has no more than its memory.low; not for
 * the crumbs that shares of protection may come to. */
static void count_low_events(const struct plan *plan)
{
	struct reclaim_cursor c = {.top = plan->at.pool};
	struct pool *counted = NULL;

	while (reclaim_next(&c))
		if (c.member->want >= RECLAIM_LEAST && c.pool != counted &&
			c.pool != plan->at.pool) {
			counted = c.pool;
			pool_count_event(c.pool, POOL_LOW);
		}
}

uint64_t reclaim_plan(struct itemlimit_place at, uint64_t bytes, reclaim_own_fn own)
{
	struct plan plan = {.at = at, .bytes = bytes};
	uint64_t n;
	unsigned slices = SLICES;

	if (at.pool->n_reclaimers_below == 0 || bytes == 0)
		return 0;
	n = prepare(&plan, own);
	while (slices > 1 && slices * n > LOOKS)
		slices /= 2;
	take_all(&plan, slices);
	if (plan.planned == 0) {
		plan.break_low = true;
		take_all(&plan, slices);
		count_low_events(&plan);
	}
	clear(&plan);
	return plan.planned;
}
