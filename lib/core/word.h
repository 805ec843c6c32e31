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
 * tests key and bytes together, see word_allows(), against a number that fits in an instruction. */
#define WORD_HIT_MAX (UINT64_C(1) << 30)

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
 * Whether w may be changed by `add` (bytes as shifted in a word, negative ones wrap): it is a word of
 * `key` (shifted too), and what it holds afterwards, parity included, is at most `most`. Another key
 * leaves bits above the bytes set, or wraps, and so do too few bytes; both are then above `most`.
 *
 * Holds for most < 2^43 and for an `add` that neither takes 2^31 or more nor, with what a word of a
 * smaller key holds, reaches 2^44.
 */
static inline bool word_allows(word w, uint64_t add, uint64_t most, uint64_t key)
{
	return w + add - key <= most;
}

/* The numbers with which a word gives `bytes` (below WORD_HIT_MAX). */
#define WORD_TAKE_MOST ((WORD_HIT_MAX << 1) - 1)
static inline uint64_t word_take(uint64_t bytes)
{
	return 0 - (bytes << 1);
}
