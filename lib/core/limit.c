/* SPDX-License-Identifier: MIT */

/*
 * memory.max alone lies in the counter, where charges of several threads meet it; all others are
 * read by whoever serves the tree.
 */

#include "limit.h"

#include <stddef.h>

#include "itemlimit.h"

const struct limit_kind limit_kinds[LIMITS] = {
	[LIMIT_MAX] = {"memory.max", VALUE_MAX, value_parse_limit},
	[LIMIT_HIGH] = {"memory.high", VALUE_MAX, value_parse_limit},
	[LIMIT_LOW] = {"memory.low", 0, value_parse_limit},
	[LIMIT_MIN] = {"memory.min", 0, value_parse_limit},
	[LIMIT_DEPTH] = {"cgroup.max.depth", VALUE_MAX, value_parse_count},
	[LIMIT_DESCENDANTS] = {"cgroup.max.descendants", VALUE_MAX, value_parse_count},
};

static const size_t offsets[LIMITS] = {
	[LIMIT_HIGH] = offsetof(struct pool, high),
	[LIMIT_LOW] = offsetof(struct pool, low),
	[LIMIT_MIN] = offsetof(struct pool, min),
	[LIMIT_DEPTH] = offsetof(struct pool, max_depth),
	[LIMIT_DESCENDANTS] = offsetof(struct pool, max_descendants),
};

uint64_t limit_read(const struct pool *p, enum limit l)
{
	if (l == LIMIT_MAX)
		return counter_limit(&p->counter);
	return *(const uint64_t *)(const void *)((const char *)p + offsets[l]);
}

void limit_set(struct pool *p, enum limit l, uint64_t value)
{
	if (l == LIMIT_MAX)
		counter_set_max(&p->counter, value);
	else
		*(uint64_t *)(void *)((char *)p + offsets[l]) = value;
}

void limit_observe(struct pool *p, bool on)
{
	p->observe = on;
	counter_observe(&p->counter, on);
	for (struct itemlimit *l = p->itemlimits; l; l = l->next)
		counter_observe(&l->counter, on);
}

static bool is_passed(struct itemlimit_place at)
{
	const struct counter *c = itemlimit_counter(at);

	return c && counter_read(c) > counter_limit(c);
}

void limit_count_passed(struct pool *p, uint32_t item)
{
	for (; p; p = pool_above(p))
		if (p->observe &&
			(is_passed((struct itemlimit_place){p, 0}) ||
				(item != 0 && is_passed((struct itemlimit_place){p, item}))))
			pool_count_event(p, POOL_WOULD_REFUSE);
}
