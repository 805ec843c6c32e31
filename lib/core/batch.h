/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * How much a key is given beyond its need: more and more while it keeps missing, so that a growing
 * program makes few trips, and less again when it has come to rest, so that little lies idle. And how
 * much of it a slot keeps: the more, the bigger the charges are that it is to serve.
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

/* A slot is to hold so many of the charges that come past it … */
#define BATCH_HIGH_CHARGES 32
/* … within so many times the mark that it has for small ones. */
#define BATCH_HIGH_TIMES 16

/*
 * A slot's HIGH after a charge or uncharge of `bytes` that it did not serve, where it was `high`
 * until then and is `least` for small charges (below WORD_HIT_MAX). Each moves it a quarter of the
 * way, so that a single big one changes little, and small ones bring it back.
 */
uint64_t batch_high(uint64_t high, uint64_t bytes, uint64_t least);
