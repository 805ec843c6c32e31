/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What a session holds: attachments, and for each a key a item (the first one for "none"), and for
 * each key a row of the ledger. Keys are few and stand in words of shared memory, so a key is used
 * again only when it was seen to be nowhere any more (collect.c); attachments' numbers never are.
 */

#include "core/place.h"
#include "session.h"
#include "throttle.h"

struct callback;

/*
 * Dead attachments of a session that do not count for its uid: keys are collected in bulk, and a client
 * that does as it should is not to pay for that. One that keeps its keys from being collected is.
 */
#define ATTACHMENT_DEAD_FREE 256

enum attachment_state {
	ATTACHMENT_LIVE,
	ATTACHMENT_DETACHING, /* waits until no intent is open in its rows */
	ATTACHMENT_DETACHED,  /* given back; handles still name it */
	ATTACHMENT_FORGOTTEN, /* no handle names it; its keys wait to be collected */
};

struct attachment {
	struct pool_member member;
	struct session *session;
	struct pool *pool;
	/* The pool that it was attached to, which was removed: it answers -ENODEV, and what it has is
	 * `pool`'s, a parent's. NULL: no. */
	struct pool *removed_from;
	struct rstat_place *place; /* NULL: there was no room */
	struct throttle_delay delay;
	uint64_t number;
	enum attachment_state state;
	bool forget;     /* as soon as it is detached */
	bool collecting; /* the running collection is about its keys */
	uint64_t detach_cookie, detach_dropped;
	uint64_t refused; /* requests */
	uint64_t overdraft;
	struct callback *callback; /* NULL: it has none */
	/* Of reclaim.c: while it is waited for; the round in which it was asked last, for how much, and
	 * what it had then; not to be asked before. */
	TAILQ_ENTRY(attachment) asked_entry;
	uint64_t asked_round, asked_want, asked_own, ask_again_usec;
	TAILQ_HEAD(, key) keys;
	TAILQ_ENTRY(attachment) entry; /* in the session */
	/* It counts for the uid, and it is dead: detached, and its keys not yet to be used again. */
	bool counts, is_dead;
};

TAILQ_HEAD(asked_list, attachment);

/* The attachment of that number, whatever its state; NULL: none. */
struct attachment *attachment_find(struct session *s, uint64_t number);

/*
 * Attaches to a pool; the key of (attachment, none) in *ret_key. The same number again gives the
 * same answer. An extent that has to be sent comes with its number (0: none).
 * -EDQUOT: the uid has as many as it may have; -EPROTO: the number was used before; -ENOSPC: no key is left; -ENOMEM, and what growing the
 * segment or the ledger may say.
 */
int attachment_open(struct session *s, uint64_t number, struct pool *pool, struct key **ret_key,
	uint32_t *ret_extent);

/* The key of (attachment, item), made at its first use; else as attachment_open(). */
int attachment_key(struct attachment *a, uint32_t item, struct key **ret_key, uint32_t *ret_extent);

/* Gives back all rows of the attachment, now or as soon as no intent is open there, and answers. */
void attachment_detach(struct attachment *a, const struct wire_detach *m);
/* The detaches that waited for intents which are now closed. */
void attachment_finish_detaches(struct session *s);

/* Its pool has been removed by force, and its member is `to`'s now: for pool_remove_by_force(). */
void attachment_move(struct pool_member *m, struct pool *to, void *userdata);

/* No handle names a detached attachment any more. */
void attachment_forget(struct attachment *a);
/* Its keys are nowhere any more: they may be used again. Frees it. */
void attachment_free(struct attachment *a);

/* The doorbell: reserves above their mark go back down to what one request brings. */
void attachment_trim_reserves(struct attachment *a);

/* The end of a session: every row goes back, everything is freed. */
void attachment_release_all(struct session *s);

/* Bytes that are granted, or set aside, with the item in the subtree. */
uint64_t attachment_sum_granted(struct pool *root, uint32_t item);

/* For rstat.h: the keys of an attachment. */
int attachment_each_stat(
	struct pool_member *m, int (*fn)(struct rstat_key *k, bool moved), bool moved);

/* Counts credit that came back and had never been granted; the first time it is logged. */
void attachment_count_overdraft(struct attachment *a, uint64_t bytes);

static inline struct attachment *attachment_of(struct pool_member *m)
{
	return container_of(m, struct attachment, member);
}
