/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Changing a word of this CPU's part of a segment. All that the rest of the engine knows of it is:
 * on which CPU am I, and "store this, if nothing has happened since I looked". The kind of
 * operation is the session's, written in its segment, and never mixed on a word.
 *
 * PERCPU_ATOMIC: a compare-and-swap; right on every CPU and from every process, also when the
 * thread has been moved since it asked for its CPU.
 */

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

#include "word.h"

enum percpu_kind {
	PERCPU_ATOMIC = 1,
};

typedef _Atomic uint64_t percpu_word;

/* The number of the CPU that the thread runs on, or was a moment ago. Async-signal-safe. */
static inline unsigned percpu_cpu(void)
{
	int cpu = sched_getcpu();

	return cpu < 0 ? 0 : (unsigned)cpu;
}

static inline word percpu_load(const percpu_word *w)
{
	return atomic_load_explicit(w, memory_order_relaxed);
}

/* Stores `new` where `old` was read on CPU `cpu`: 0, or -EAGAIN when the word has changed since. */
static inline int percpu_store(percpu_word *w, unsigned cpu, word old, word new)
{
	(void)cpu;
	return atomic_compare_exchange_strong_explicit(
		       w, &old, new, memory_order_acq_rel, memory_order_relaxed)
		? 0
		: -EAGAIN;
}
