/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * How much a key is given beyond its need: more and more while it keeps missing, so that a growing
 * program makes few trips, and less again when it has come to rest, so that little lies idle.
 */

#include <stdint.h>

/* Misses that follow each other faster than this double the batch … */
#define BATCH_FAST_USEC UINT64_C(100000)
/* … and each time that passes without one halves it. */
#define BATCH_REST_USEC UINT64_C(1000000)

struct batch {
	uint64_t bytes; /* 0: there was no miss yet */
	uint64_t last_usec;
};

/* The batch of a miss at `now_usec` (CLOCK_MONOTONIC), between `least` and `most` bytes. */
uint64_t batch_next(struct batch *b, uint64_t now_usec, uint64_t least, uint64_t most);

/* What it is at that time without a miss. */
uint64_t batch_now(const struct batch *b, uint64_t now_usec, uint64_t least, uint64_t most);
