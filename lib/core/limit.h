/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The limits and protections of a pool that people set, each a file of its own: one table of them
 * for files, configuration and reload. A new one is a line here.
 */

#include <stdint.h>

#include "pool.h"
#include "value.h"

/* In the order of the configuration's manual page. */
enum limit {
	LIMIT_MAX,
	LIMIT_HIGH,
	LIMIT_LOW,
	LIMIT_MIN,
	LIMIT_DEPTH,
	LIMIT_DESCENDANTS,
	LIMITS,
};

struct limit_kind {
	const char *file;
	uint64_t by_default; /* VALUE_MAX: none */
	int (*parse)(const char *text, uint64_t *ret);
};

extern const struct limit_kind limit_kinds[LIMITS];

/* Its bit in pool.set_at_run. */
static inline uint32_t limit_bit(enum limit l)
{
	return UINT32_C(1) << l;
}

uint64_t limit_read(const struct pool *p, enum limit l);

/* Any value, also beyond what is there: it holds for what comes. */
void limit_set(struct pool *p, enum limit l, uint64_t value);

/* Whether the pool only observes: its own limits, those of items too, are shown and refuse nobody. */
void limit_observe(struct pool *p, bool on);

/* A request to p, with the item or 0, was granted: counts would_refuse at each pool, p and above, that
 * only observes and has a limit which that has passed. */
void limit_count_passed(struct pool *p, uint32_t item);
