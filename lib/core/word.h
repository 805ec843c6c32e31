/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The word that carries credit in shared memory: whose (key), how much (bytes), and a parity bit.
 * All three change in one compare-and-store, so that credit is never seen half moved, and after a
 * crash of the daemon the parity tells whether its last change happened: every change by the daemon
 * flips it, clients preserve it.
 *
 *     63        44 43                         1      0
 *     | key : 20  | bytes : 43                | parity |
 *
 * Key 0 is "empty". WORD_KEY_VOID never stands in a word: it is what a closed handle carries, so
 * that its charges miss without a test of their own.
 */

#include <stdbool.h>
#include <stdint.h>

#define WORD_KEY_SHIFT 44
#define WORD_KEY_VOID UINT32_C(0xfffff)
#define WORD_BYTES_MAX ((UINT64_C(1) << 43) - 1)

/* Slots of a stock hold less than this, and so do charges that may hit one: then one subtraction
 * tests key and bytes together, see word_covers(). */
#define WORD_HIT_MAX (UINT64_C(1) << 42)

typedef uint64_t word;

static inline word word_make(uint32_t key, uint64_t bytes, unsigned parity)
{
	return (uint64_t)key << WORD_KEY_SHIFT | bytes << 1 | parity;
}

static inline uint32_t word_key(word w)
{
	return (uint32_t)(w >> WORD_KEY_SHIFT);
}

static inline uint64_t word_bytes(word w)
{
	return w >> 1 & WORD_BYTES_MAX;
}

static inline unsigned word_parity(word w)
{
	return w & 1;
}

/*
 * Whether w is a word of this key with at least `bytes` (below WORD_HIT_MAX). Another key leaves
 * bits above the bytes set, which no subtraction below 2^43 brings under 2^43; too few bytes wrap.
 */
static inline bool word_covers(word w, uint32_t key, uint64_t bytes)
{
	return (w ^ (uint64_t)key << WORD_KEY_SHIFT) - (bytes << 1) < WORD_HIT_MAX << 1;
}
