/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Which refusal was the last one of each thread, for tally_last_refusal(). Charge paths have no
 * thread-local storage, so it is a small table in struct tally: a word a thread, which names the thread
 * and the record's number. Where more threads are refused than it has room for, the others' are lost.
 */

#include <stdatomic.h>
#include <stdint.h>

struct tally;

#define REFUSED_WORDS 256

struct refused {
	_Atomic uint64_t words[REFUSED_WORDS];
};

/* The calling thread was refused, and this is the number of the record (0: there is none).
 * Async-signal-safe. */
void refused_note(struct tally *t, uint64_t number);
