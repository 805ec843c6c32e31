/* SPDX-License-Identifier: MIT */

/*
 * A protection counts as far as it is used: who has less than its memory.low leaves the rest to its
 * siblings. If siblings together claim and use more than their parent is protected by, each gets in
 * proportion to what it uses of its claim; if they claim less, what is left over is shared by their
 * usage beyond their claims, so that a protected pool keeps it whichever of its children needs it.
 */

#include "protection.h"

#include <stdbool.h>

/* What the children of a pool use of their protection together. */
struct claims {
	uint64_t min, low;
};

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t add(uint64_t a, uint64_t b)
{
	return a < UINT64_MAX - b ? a + b : UINT64_MAX;
}

/* a * b / c, for a result that 64 bits hold; c is not 0. */
static uint64_t share(uint64_t a, uint64_t b, uint64_t c)
{
	return (uint64_t)((unsigned __int128)a * b / c);
}

static struct claims claims_below(const struct pool *parent)
{
	struct claims sum = {0};
	const struct pool *p;

	TAILQ_FOREACH (p, &parent->children, sibling) {
		uint64_t usage = pool_above(p) ? protection_usage(p) : 0;

		sum.min = add(sum.min, least(usage, p->min));
		sum.low = add(sum.low, least(usage, p->low));
	}
	return sum;
}

/* Of one pool, whose parent is protected by `afforded` and whose siblings (itself included) claim
 * and use `claimed`. */
static uint64_t effective(uint64_t setting, uint64_t usage, uint64_t parent_usage,
	uint64_t afforded, uint64_t claimed)
{
	uint64_t own = least(usage, setting);

	if (claimed > afforded)
		return share(own, afforded, claimed);
	/* Usages move while they are read: none of them is taken to be the sum of others. */
	if (claimed == afforded || parent_usage <= claimed || usage <= own)
		return own;
	return add(own,
		least(share(afforded - claimed, usage - own, parent_usage - claimed),
			afforded - claimed));
}

static void set_children(struct pool *parent, bool is_top)
{
	uint64_t parent_usage = protection_usage(parent);
	struct claims claimed = {0};
	struct pool *p;

	if (!is_top)
		claimed = claims_below(parent);

	TAILQ_FOREACH (p, &parent->children, sibling) {
		uint64_t usage = protection_usage(p);

		/* What a standalone pool has, no reclaim above it is after. */
		p->emin = p->min;
		p->elow = p->low;
		if (is_top || !pool_above(p))
			continue;
		p->emin = effective(p->min, usage, parent_usage, parent->emin, claimed.min);
		p->elow = effective(p->low, usage, parent_usage, parent->elow, claimed.low);
	}
}

/* The next pool of the subtree in preorder, without those below p if nobody there gives back. */
static struct pool *next(struct pool *p, const struct pool *root)
{
	if (p->n_reclaimers_below > 0)
		return pool_next_preorder(p, root);
	for (; p != root; p = p->parent)
		if (TAILQ_NEXT(p, sibling))
			return TAILQ_NEXT(p, sibling);
	return NULL;
}

void protection_set(struct pool *top)
{
	for (struct pool *p = top; p; p = next(p, top))
		if (p->n_reclaimers_below > 0)
			set_children(p, p == top);
}
