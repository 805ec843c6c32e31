/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The ledger: the daemon's own record of what each session was granted from each pool, the only
 * truth; counters are sums of its rows, and clients cannot touch it. It is a file in the runtime
 * directory, mapped, so that it outlives the daemon.
 *
 * A row is two copies and one flip: a change is prepared in the copy that does not count, and one
 * store makes it count. Whatever must change together (granted, seq, last, the closed intent, what
 * of the cumulative words has been folded in) is in the copy. The ledger has one writer, the loop;
 * the order of changes is the business of row.c, and is written there.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/segment.h"

#define LEDGER_VERSION 1
#define LEDGER_CHUNK_ROWS 2048 /* the file grows by so many rows */

enum ledger_state {
	LEDGER_FREE,
	LEDGER_LIVE,
	LEDGER_REMOVED, /* live, but its pool was removed and it is the parent's: it only gives back */
	LEDGER_DYING, /* given back; the key may still stand in words and registers */
};

/* Which word an intent is about. */
enum ledger_word {
	LEDGER_NO_INTENT,
	LEDGER_RESERVE,
	LEDGER_SLOT,
	LEDGER_DEPOSIT, /* the reserve, and what goes into it */
};

/* In `last`: what was granted went into the reserve, and not with the answer. */
#define LEDGER_DEPOSITED UINT64_MAX

struct ledger_copy {
	uint64_t session;             /* number of the session */
	uint64_t attachment;          /* number within the session, never used again there */
	uint64_t pool;                /* id of the pool */
	uint64_t granted;             /* bytes */
	uint64_t seq[SEGMENT_LANES];  /* the last request that was answered finally, a lane */
	uint64_t last[SEGMENT_LANES]; /* what its answer carries; 0: refused; or LEDGER_DEPOSITED */
	uint64_t previous_force;      /* how much of the key's force word is in `granted` */
	uint64_t previous_debt;
	uint64_t intent_bytes; /* about to be taken out of the word, or put into it */
	/* Of an operation on two rows, decided by this one: the other one's number (0: none is open), and
	 * what its seq (of lane 0) and its granted are to become. */
	uint64_t other_row, other_seq, other_granted;
	uint32_t key;
	uint32_t item;
	uint32_t state;                   /* enum ledger_state */
	uint32_t intent;                  /* enum ledger_word */
	uint32_t intent_cpu, intent_slot; /* of a slot */
	uint32_t intent_parity;           /* the word's, if it has been changed */
	uint32_t reserved;
};

struct ledger_row {
	_Atomic uint32_t flip; /* which copy counts */
	uint32_t reserved[15];
	struct ledger_copy copy[2];
};

static_assert(sizeof(struct ledger_row) == 384, "rows have a fixed size in the file");

struct ledger;

/*
 * Opens the ledger `name` in the directory, made anew and empty: `*ret_cleared` tells how many live
 * rows of an earlier daemon are lost by that. Errors as of open(), posix_fallocate(), mmap().
 */
int ledger_open(int dir_fd, const char *name, uint64_t generation, struct ledger **ret,
	uint64_t *ret_cleared);
/* Unmaps it; the file stays. Returns NULL. */
struct ledger *ledger_close(struct ledger *l);

/* A free row; its address stays while the ledger is open. -ENOSPC, -ENOMEM, … when it cannot grow.
 */
int ledger_take(struct ledger *l, struct ledger_row **ret);
/* Frees a row: the copy that counts becomes zeroes. NULL is fine. Returns NULL. */
struct ledger_row *ledger_free(struct ledger *l, struct ledger_row *row);

uint64_t ledger_used(const struct ledger *l); /* rows taken */

/* The row's place in the file; the first one is 1. */
uint64_t ledger_number(const struct ledger *l, const struct ledger_row *row);

/* Whether something may be granted by it. */
static inline bool ledger_is_live(const struct ledger_copy *c)
{
	return c->state == LEDGER_LIVE || c->state == LEDGER_REMOVED;
}

/* What counts now. */
static inline const struct ledger_copy *ledger_read(const struct ledger_row *row)
{
	return &row->copy[atomic_load_explicit(&row->flip, memory_order_relaxed) & 1];
}

/* The other copy, made equal to the one that counts, to be changed … */
static inline struct ledger_copy *ledger_edit(struct ledger_row *row)
{
	uint32_t flip = atomic_load_explicit(&row->flip, memory_order_relaxed) & 1;

	row->copy[!flip] = row->copy[flip];
	return &row->copy[!flip];
}

/* … and made to count, in one store. */
static inline void ledger_flip(struct ledger_row *row)
{
	atomic_store_explicit(&row->flip,
		!(atomic_load_explicit(&row->flip, memory_order_relaxed) & 1),
		memory_order_release);
}
