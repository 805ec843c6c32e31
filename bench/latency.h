/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Durations in a histogram, 64 steps for each power of two: within 1.6 %, at the cost of a few
 * instructions, whatever their number.
 */

#include <stdint.h>

#define LATENCY_STEPS 64
#define LATENCY_BUCKETS (LATENCY_STEPS * 40)

struct latency {
	uint64_t n, sum;
	uint32_t buckets[LATENCY_BUCKETS];
};

static inline void latency_add(struct latency *l, uint64_t value)
{
	unsigned shift = value < LATENCY_STEPS ? 0 : 57 - (unsigned)__builtin_clzll(value);
	uint64_t bucket = shift * LATENCY_STEPS + (value >> shift);

	l->buckets[bucket < LATENCY_BUCKETS ? bucket : LATENCY_BUCKETS - 1]++;
	l->n++;
	l->sum += value;
}

static inline void latency_merge(struct latency *l, const struct latency *other)
{
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
		l->buckets[i] += other->buckets[i];
	l->n += other->n;
	l->sum += other->sum;
}

/* How many are above a value, as nearly as the steps tell. */
static inline uint64_t latency_over(const struct latency *l, uint64_t value)
{
	unsigned shift = value < LATENCY_STEPS ? 0 : 57 - (unsigned)__builtin_clzll(value);
	uint64_t n = 0;

	for (uint64_t i = shift * LATENCY_STEPS + (value >> shift) + 1; i < LATENCY_BUCKETS; i++)
		n += l->buckets[i];
	return n;
}

/* The value below which the part `part` (0 to 1) of all lies. */
static inline double latency_quantile(const struct latency *l, double part)
{
	double rank = part * (double)l->n;
	uint64_t seen = 0;

	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		unsigned shift = i < 2 * LATENCY_STEPS ? 0 : i / LATENCY_STEPS - 1;
		uint64_t low = (uint64_t)(i - shift * LATENCY_STEPS) << shift;

		seen += l->buckets[i];
		if (l->buckets[i] > 0 && (double)seen >= rank)
			return (double)low + (double)(UINT64_C(1) << shift) / 2;
	}
	return 0;
}
