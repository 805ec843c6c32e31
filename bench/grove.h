/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Many pools for the benchmarks of statistics: leaves in two levels below one pool, as many below each
 * of the first level as that has: 100 in 10, 50,000 in 224.
 */

#include "tally.h"

#define GROVE_PATH 32
#define GROVE_TOP_MAX 16 /* bytes of its path */

struct grove {
	unsigned n;                /* leaves */
	unsigned n_above;          /* the pools above them, but for `top` */
	const char *top;           /* the path of the pool that has all; "": the root */
	char (*paths)[GROVE_PATH]; /* of the leaves */
};

void grove_init(struct grove *g, const char *top, unsigned n);
void grove_free(struct grove *g);

/* Makes all of them, of which none is there, in a pool that is there; and removes them. */
void grove_create(const struct grove *g, struct tally *t);
void grove_remove(const struct grove *g, struct tally *t);

/* An attachment to each leaf, to be freed with grove_detach(). */
struct tally_pool **grove_attach(const struct grove *g, struct tally *t);
void grove_detach(const struct grove *g, struct tally_pool **pools);

/* The i-th in an order that visits every one of n before it comes back, and has no neighbours behind
 * each other. */
static inline unsigned grove_jump(uint64_t i, unsigned n)
{
	return (unsigned)(i * UINT64_C(2654435761) % n);
}
