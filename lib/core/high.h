/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * memory.high: a charge that leaves a pool above it succeeds, but who charges is slowed, the more
 * the further the pool is above, and somebody is asked to give back. As the kernel does it, with
 * its numbers.
 */

#include <stdint.h>

#include "pool.h"

#define HIGH_DELAY_MAX_USEC UINT64_C(2000000) /* more than this nobody is slowed at once … */
#define HIGH_DELAY_MIN_USEC UINT64_C(10000)   /* … and less is not worth it */
/* Somebody is asked at a pool at most so often. */
#define HIGH_ASK_USEC UINT64_C(10000)

/* The delay of a charge of `bytes` that leaves a pool at `usage`; 0: none. */
uint64_t high_delay(uint64_t usage, uint64_t high, uint64_t bytes);

/* `bytes` are to come back to p. */
typedef void (*high_fn)(void *userdata, struct pool *p, uint64_t bytes);

/*
 * `bytes` were charged to p. At each pool, p and all above, that is above its memory.high now the
 * event is counted, and fn called, unless it was just now or the pool only observes. Returns how long
 * who charged is to sleep, in microseconds; what is furthest above decides.
 */
uint64_t high_charged(struct pool *p, uint64_t bytes, high_fn fn, void *userdata);
