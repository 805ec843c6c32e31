/* SPDX-License-Identifier: MIT */

/*
 * Which kind of operation this thread and this kernel can do; and the part of the hit that is not the
 * sequence: trying again, and the same by atomics.
 */

#include "percpu.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "stock.h"

#if PERCPU_HAS_RSEQ
#include <sys/rseq.h>
#endif

/* A registration reaches at least to the end of cpu_id, rseq_cs and flags. */
#define RSEQ_SIZE_MIN 20

ptrdiff_t percpu_rseq_offset;

bool percpu_has_rseq(void)
{
#if PERCPU_HAS_RSEQ
	percpu_rseq_offset = __rseq_offset;
	return __rseq_size >= RSEQ_SIZE_MIN && (int32_t)percpu_rseq_cpu() >= 0;
#else
	return false;
#endif
}

int percpu_parse_kind(const char *text, uint32_t *ret_wanted)
{
	if (!text || text[0] == '\0')
		*ret_wanted = 0;
	else if (strcmp(text, "atomic") == 0)
		*ret_wanted = PERCPU_ATOMIC;
	else if (strcmp(text, "rseq") == 0)
		*ret_wanted = PERCPU_RSEQ;
	else
		return -EINVAL;
	return 0;
}

bool percpu_kernel_is_sound(void)
{
	struct utsname u;
	unsigned major = 0, minor = 0, patch = 0, version;

	if (uname(&u) < 0)
		return false;
	if (strcmp(u.machine, "aarch64") != 0)
		return true;
	if (sscanf(u.release, "%u.%u.%u", &major, &minor, &patch) < 2)
		return false;
	version = major * 1000000 + minor * 1000 + (patch < 1000 ? patch : 999);
	return version < 6019000 || version > 7000013;
}

struct percpu_area percpu_area_make(
	struct stock_page *pages, uint32_t n_cpus, enum percpu_kind kind)
{
#if PERCPU_HAS_RSEQ
	percpu_rseq_offset = __rseq_offset;
#endif
	return (struct percpu_area){.pages = pages,
		.n_open = kind == PERCPU_RSEQ ? n_cpus : 0,
		.n_cpus = n_cpus,
		.kind = kind,
		.n_adding = kind == PERCPU_RSEQ ? n_cpus : 0};
}

/* ------------------------------------------------------------------ the hit, slowly */

static int change_word(const struct percpu_area *a, percpu_word *slot, uint32_t cpu, uint64_t add,
	uint64_t most, uint64_t key)
{
	int r = -EAGAIN;

	for (unsigned try = 0; r == -EAGAIN && try < PERCPU_TRIES; try++) {
		word w = percpu_load(slot);

		if (!word_allows(w, add, most, key))
			return -ENOENT;
		TALLY_STEP();
		r = percpu_store(a, slot, cpu, w, w + add);
		TALLY_STEP();
	}
	return r;
}

static int change_by_atomics(const struct percpu_area *a, uint64_t add, uint64_t most, uint64_t key)
{
	uint32_t cpu = percpu_cpu(a);
	int r = -ENOENT;

	if (cpu >= atomic_load_explicit(&a->n_cpus, memory_order_relaxed))
		return -EXDEV;
	for (unsigned i = 0; i < PERCPU_WORDS && r < 0; i++)
		r = change_word(a, &a->pages[cpu].stock.slot[i], cpu, add, most, key);
	return r;
}

int percpu_change(const struct percpu_area *a, uint64_t add, uint64_t most, uint64_t key)
{
	int r = -EAGAIN;

	if (a->kind == PERCPU_ATOMIC)
		return change_by_atomics(a, add, most, key);
	for (unsigned try = 0; r == -EAGAIN && try < PERCPU_TRIES; try++) {
		TALLY_STEP();
		r = percpu_rseq_change(a, add, most, key);
		TALLY_STEP();
	}
	return r;
}

/* ------------------------------------------------------------------ sums */

static uint32_t add_by_sequence(
	const struct percpu_area *a, char *first, size_t stride, int64_t delta, char **ret_word)
{
	uint32_t cpu = UINT32_MAX;

	for (unsigned try = 0; cpu == UINT32_MAX && try < PERCPU_TRIES; try++)
		cpu = percpu_try_add(a, first, stride, delta, ret_word);
	return cpu;
}

uint32_t percpu_add(
	const struct percpu_area *a, char *first, size_t stride, int64_t delta, char **ret_word)
{
	uint32_t n_cpus = atomic_load_explicit(&a->n_cpus, memory_order_relaxed), cpu;

	if (n_cpus == 0)
		return UINT32_MAX;
	if (a->kind == PERCPU_ATOMIC)
		cpu = percpu_cpu(a);
	else {
		cpu = add_by_sequence(a, first, stride, delta, ret_word);
		if (cpu != UINT32_MAX)
			return cpu;
	}
	cpu = cpu < n_cpus ? cpu : n_cpus;
	*ret_word = first + cpu * stride;
	TALLY_STEP();
	atomic_fetch_add_explicit(
		(_Atomic int64_t *)(void *)*ret_word, delta, memory_order_relaxed);
	TALLY_STEP();
	return cpu;
}
