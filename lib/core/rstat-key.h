/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What rstat.c and rstat-key.c have between them, for them alone: sessions, and one key each.
 */

#include "rstat.h"

/* CPUs of the session, and the one beyond them. */
static inline uint32_t rstat_n_cpus(const struct rstat *r)
{
	return r->segment->n_cpus + 1;
}

static inline bool rstat_is_touched(const struct rstat *r, uint32_t cpu)
{
	return atomic_load_explicit(
		&segment_header(r->segment)->touched[cpu], memory_order_acquire);
}

static inline bool rstat_is_marked(const _Atomic uint8_t *mark)
{
	return atomic_load_explicit(mark, memory_order_relaxed);
}

/* The first mark from i on that is set; `end`: none is. Eight at a time, where they lie so: most are
 * not. */
static inline uint32_t rstat_next_mark(const _Atomic uint8_t *marks, uint32_t i, uint32_t end)
{
	typedef const uint64_t __attribute__((may_alias)) eight;

	while (i < end && !rstat_is_marked(&marks[i])) {
		const void *at = &marks[i];

		if ((uintptr_t)at % sizeof(eight) == 0 && end - i >= sizeof(eight) &&
			__atomic_load_n((eight *)at, __ATOMIC_RELAXED) == 0)
			i += sizeof(eight);
		else
			i++;
	}
	return i;
}

/* Before it looks at what is below: the fence keeps both in that order, as the client's stores are. */
static inline bool rstat_clear_mark(_Atomic uint8_t *mark)
{
	if (!rstat_is_marked(mark))
		return false;
	atomic_store_explicit(mark, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	return true;
}

static inline void rstat_set_mark(_Atomic uint8_t *mark)
{
	atomic_store_explicit(mark, 1, memory_order_relaxed);
}

/* Brings what is charged with the key into the figures, as it is now. -ENOMEM: not, and it stays
 * touched if it was. */
int rstat_key_settle(struct rstat_key *k);

/* The key's mark on that CPU has been cleared: what it tells of comes into the figures. -ENOMEM: not,
 * and the mark is set again. */
int rstat_key_look_marked(
	struct rstat_key *k, const struct segment_cells *c, uint32_t cpu, enum segment_mark which);
