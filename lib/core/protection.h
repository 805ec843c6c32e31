/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * How much of a pool's memory.min and memory.low holds against a reclaim: what the pools above it
 * afford, shared out among those that claim it, as the kernel does.
 */

#include "pool.h"

/*
 * Computes emin and elow of the pools below `top`, for a reclaim at `top`: its children have all of
 * their own, and so on down. Only below pools that have attachments which give back
 * (n_reclaimers_below); the others keep what an earlier call found.
 */
void protection_set(struct pool *top);

/* What the pool uses, without what a plan is to take from it. */
static inline uint64_t protection_usage(const struct pool *p)
{
	uint64_t usage = counter_read(&p->counter);

	return usage > p->planned ? usage - p->planned : 0;
}
