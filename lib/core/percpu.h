/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Changing a word of this CPU's page of a segment. All that the rest of the engine knows of it is:
 * on which CPU am I, "store this, if nothing has happened since I looked", and the hit of a charge,
 * which is both in one. The kind of operation is the session's, written in its segment, and never
 * mixed on a word.
 *
 * PERCPU_ATOMIC: a compare-and-swap; right on every CPU and from every process, also when the
 * thread has been moved since it asked for its CPU.
 *
 * PERCPU_RSEQ: a restartable sequence of the kernel. A thread that is switched out, moved or
 * interrupted by a signal between the first instruction and the store begins again, whichever
 * process it was that took the CPU; so the store needs no lock prefix. It is sound between
 * processes because all of them go by cpu_id, and because the CPU is checked *inside* the sequence.
 *
 * All of it may be called from signal handlers; none of it changes errno.
 */

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "step.h"
#include "util.h"
#include "word.h"

#define PERCPU_WORDS 7       /* words of a CPU's page that the hit looks through */
#define PERCPU_PAGE_SHIFT 12 /* a page a CPU */

/* glibc, since 2.35, has a struct rseq for every thread, whether the kernel knows of it or not: what
 * a hit reads and writes there is always memory. Other C libraries have no such promise.
 * ThreadSanitizer does not see what a sequence does: its build has atomics alone. */
#if defined(__GLIBC_PREREQ) && (defined(__x86_64__) || defined(__aarch64__)) &&                    \
	!defined(__SANITIZE_THREAD__)
#define PERCPU_HAS_RSEQ __GLIBC_PREREQ(2, 35)
#else
#define PERCPU_HAS_RSEQ 0
#endif

enum percpu_kind {
	PERCPU_ATOMIC = 1,
	PERCPU_RSEQ = 2,
};

/* After so many lost races or aborts an operation takes its slow way instead: a debugger that steps
 * through a sequence aborts it every time. */
#define PERCPU_TRIES 16

typedef _Atomic uint64_t percpu_word;

struct stock_page;

/*
 * The pages of a session as an operation sees them. A client keeps this on a memory page that is
 * wiped in a forked child: all zero it has no CPU, and every operation misses.
 */
struct percpu_area {
	struct stock_page *pages; /* by CPU number */
	/*
	 * The gate: CPUs whose pages a sequence may change, read inside it. Below it are neither
	 * the numbers of a thread without registration (negative) nor, while it is 0, any. One
	 * compare so tells all of: another CPU number, not registered, forked, closed, atomics.
	 */
	_Atomic uint32_t n_open;
	_Atomic uint32_t n_cpus; /* CPUs that have a page */
	uint32_t kind;           /* enum percpu_kind */
	/* The same for percpu_add(), which nobody has to shut out: it is not closed with the gate. */
	_Atomic uint32_t n_adding;
};

/* Whether this thread has sequences: glibc (2.35 or later) has registered it with the kernel. */
bool percpu_has_rseq(void);

/* From $TALLY_PERCPU: *ret_wanted is 0 (either), PERCPU_ATOMIC or PERCPU_RSEQ. -EINVAL: neither
 * "atomic" nor "rseq". */
int percpu_parse_kind(const char *text, uint32_t *ret_wanted);

/* Whether this kernel is known to abort a sequence on every preemption, going by its version alone:
 * some for arm64 do so only when the thread is moved. */
bool percpu_kernel_is_sound(void);

/* From the thread pointer to the thread's struct rseq; a copy of our own, so that it is one load away.
 * Set by percpu_area_make(). */
extern __attribute__((visibility("hidden"))) ptrdiff_t percpu_rseq_offset;

/* The area of n_cpus pages, its gate open. */
struct percpu_area percpu_area_make(
	struct stock_page *pages, uint32_t n_cpus, enum percpu_kind kind);

static inline word percpu_load(const percpu_word *w)
{
	return atomic_load_explicit(w, memory_order_relaxed);
}

#if PERCPU_HAS_RSEQ
#include "percpu-rseq.h"
#else
/* Never called: no area is of the kind. */
static inline uint32_t percpu_rseq_cpu(void)
{
	return UINT32_MAX;
}

static inline int percpu_rseq_store(const struct percpu_area *a _unused_, percpu_word *w _unused_,
	uint32_t cpu _unused_, word old _unused_, word new _unused_)
{
	return -EXDEV;
}

static inline int percpu_rseq_change(const struct percpu_area *a _unused_, uint64_t add _unused_,
	uint64_t most _unused_, uint64_t key _unused_)
{
	return -EXDEV;
}

static inline uint32_t percpu_rseq_add(const struct percpu_area *a _unused_, char *first _unused_,
	size_t stride _unused_, int64_t delta _unused_, char **ret_word _unused_)
{
	return UINT32_MAX;
}
#endif

/* The number of the CPU that the thread runs on, or was a moment ago; beyond all CPUs when the
 * thread can change no page. */
static inline uint32_t percpu_cpu(const struct percpu_area *a)
{
	int cpu;

	if (a->kind == PERCPU_RSEQ)
		return percpu_rseq_cpu();
	cpu = sched_getcpu();
	return cpu < 0 ? UINT32_MAX : (uint32_t)cpu;
}

/*
 * Stores `new` where `old` was read on CPU `cpu`. 0; -EAGAIN: the word has changed since, or the
 * thread was interrupted; -EXDEV: the thread is not on that CPU (any more), or the gate is closed.
 */
static inline int percpu_store(
	const struct percpu_area *a, percpu_word *w, uint32_t cpu, word old, word new)
{
	if (a->kind == PERCPU_RSEQ)
		return percpu_rseq_store(a, w, cpu, old, new);
	return atomic_compare_exchange_strong_explicit(
		       w, &old, new, memory_order_acq_rel, memory_order_relaxed)
		? 0
		: -EAGAIN;
}

/*
 * The hit: finds the first word w of this CPU's page with w + add - key <= most (all numbers as
 * shifted in a word, and wrapping), and stores w + add. 0; -ENOENT: there is no such word; -EAGAIN:
 * interrupted or outrun too often; -EXDEV: this thread can change no page now.
 *
 * percpu_try_change() is the first attempt alone, and no attempt at all by atomics: a caller that is
 * to stay small inlines it, and calls percpu_change() where it failed.
 */
static inline int percpu_try_change(
	const struct percpu_area *a, uint64_t add, uint64_t most, uint64_t key)
{
	int r;

	TALLY_STEP();
	r = percpu_rseq_change(a, add, most, key);
	TALLY_STEP();
	return r;
}

int percpu_change(const struct percpu_area *a, uint64_t add, uint64_t most, uint64_t key);

/*
 * Sums: a word of each CPU, and one more for threads that have no sequences in a session of sequences,
 * or whose sequences are aborted every time: that one is changed by atomics alone. Of CPU c it lies
 * `stride` times c bytes behind `first`, and the one more behind the last CPU's.
 *
 * Adds to this CPU's: its number, and where its word is. UINT32_MAX: the thread was interrupted, is
 * not registered, or may not. The first attempt alone, and none at all by atomics.
 */
static inline uint32_t percpu_try_add(
	const struct percpu_area *a, char *first, size_t stride, int64_t delta, char **ret_word)
{
	uint32_t cpu;

	TALLY_STEP();
	cpu = percpu_rseq_add(a, first, stride, delta, ret_word);
	TALLY_STEP();
	return cpu;
}

/* Adds to one of them; `n_cpus` is the number of the one beyond the CPUs. UINT32_MAX: closed, or
 * forked. */
uint32_t percpu_add(
	const struct percpu_area *a, char *first, size_t stride, int64_t delta, char **ret_word);
