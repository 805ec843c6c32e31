/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A key: (attachment, item or none), its number in the words of the segment, and its row of the
 * ledger. More keys than a session has places for mean another extent of its segment.
 */

#include "attachment.h"
#include "core/batch.h"
#include "core/itemlimit.h"
#include "core/rstat.h"

struct request;
struct turn;

struct key {
	uint32_t number, item;
	struct attachment *attachment;
	struct ledger_row *row;
	struct request *request[SEGMENT_LANES]; /* being decided, or waiting */
	uint64_t answered_usec;                 /* when an answer brought credit last */
	uint64_t deposited_usec;  /* the same for one that nobody waits for; 0: never */
	TAILQ_HEAD(, turn) turns; /* places in line that are not over */
	uint64_t set_aside;       /* bytes for some of those, in the counters alone */
	struct batch batch;       /* what its misses bring */
	struct rstat_key stat;
	TAILQ_ENTRY(key) entry; /* in the attachment */
	/* Of decay.c: what its last look found, how many before it found the same, and whether the
	 * credit is to be drained for that. */
	uint64_t idle_seen, miss_seen;
	unsigned idle_looks;
	bool stale;
};

/*
 * A key for (attachment, item), with its row live, added to the attachment. An extent that has to
 * be sent to the client comes with its number (else *ret_extent stays); its descriptors are the session's.
 * -ENOSPC: no key is left; -ENOMEM, and what growing the segment or the ledger may say.
 */
int key_new(struct attachment *a, uint32_t item, struct key **ret, uint32_t *ret_extent);

/* Makes room for more keys and places: the next extent, to be sent to the client. -ENOSPC: there is none;
 * else as above. */
int key_extend(struct session *s, uint32_t *ret_extent);

/* Frees it, its row and its number. Returns NULL. */
struct key *key_free(struct key *k);

/* The key that a message names by number and attachment; NULL: not (any more) a live one. */
struct key *key_find(struct session *s, uint32_t number, uint64_t attachment);

/* What a miss would bring now beyond its need. */
uint64_t key_batch(const struct key *k);

/*
 * Changes of what is granted to the key, in the counters: of its pool and, where limits of its item
 * are set, of the item. Each of them goes with the same change of the row (row.h), and there is no
 * other way to either.
 */
static inline int key_try_charge(
	const struct key *k, uint64_t bytes, struct itemlimit_place *ret_failed)
{
	return itemlimit_try_charge(k->attachment->pool, k->item, bytes, ret_failed);
}

static inline void key_charge(const struct key *k, uint64_t bytes)
{
	itemlimit_charge(k->attachment->pool, k->item, bytes);
}

static inline void key_uncharge(const struct key *k, uint64_t bytes)
{
	itemlimit_uncharge(k->attachment->pool, k->item, bytes);
}

static inline struct segment_key *key_words(const struct key *k)
{
	return segment_key(&k->attachment->session->segment, k->number);
}
