/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the embedded engine knows: the tree of pools, this process's segment, and what it holds
 * there (attachments, for each a key an item, for each key what it was granted). All of it is
 * changed under one mutex.
 *
 * Nothing that a charge may lead to allocates memory, for the charge may come from an allocator, or
 * from a signal handler: keys lie in mapped arrays, requests on stacks, and attachments whose keys
 * were collected are freed when the next one is made.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "conf/conf.h"
#include "core/batch.h"
#include "core/item.h"
#include "core/place.h"
#include "core/pool.h"
#include "core/rstat.h"
#include "core/segment.h"
#include "core/wire.h"
#include "embedded.h"
#include "teller.h"

struct grant_request;

/* Number of the one session. */
#define EMBEDDED_SESSION 1

enum engine_state {
	ENGINE_LIVE,
	ENGINE_DETACHED,   /* given back; handles still name it */
	ENGINE_FORGOTTEN,  /* no handle names it; its keys wait to be collected */
	ENGINE_COLLECTING, /* they are being collected */
};

struct engine_attachment {
	struct pool_member member;
	struct embedded *engine;
	struct pool *pool; /* NULL: given back */
	/* The pool that it was attached to, which was removed: it answers -ENODEV, and what it has is
	 * `pool`'s, a parent's. NULL: no. */
	struct pool *removed_from;
	struct rstat_place *place;
	uint64_t number;
	enum engine_state state;
	uint64_t asked; /* token of what it was asked to give back and has not answered; 0: none */
	TAILQ_HEAD(, engine_key) keys;
	TAILQ_ENTRY(engine_attachment) entry;
};

/* The final answer to a request. */
struct engine_answer {
	uint64_t seq, amount;
	int status;
};

struct engine_key {
	uint32_t number, item;
	struct engine_attachment *attachment; /* NULL: the key is free */
	uint64_t granted;
	uint64_t previous_force, previous_debt; /* of the cumulative words, what is in `granted` */
	struct engine_answer answer[SEGMENT_LANES];   /* the last one */
	struct grant_request *waiting[SEGMENT_LANES]; /* in a queue; NULL: none */
	struct batch batch;                           /* what its misses bring */
	struct rstat_key stat;
	TAILQ_ENTRY(engine_key) entry; /* in its attachment, or among the free ones */
};

TAILQ_HEAD(engine_keys, engine_key);
TAILQ_HEAD(engine_attachments, engine_attachment);
TAILQ_HEAD(grant_requests, grant_request);

struct embedded {
	struct embedded_owner owner;
	enum percpu_kind kind; /* the best that the segment may have */
	uint32_t n_cpus;       /* possible ones */
	struct conf *conf;
	char name[WIRE_NAME_MAX + 1]; /* of the session */
	pid_t pid;

	pthread_mutex_t mutex; /* of all below */
	struct item_table items;
	struct refusals *refusals;
	struct pool_tree *tree;
	bool welcomed, closed;
	struct segment segment;
	struct percpu_area stocks;
	/* Of extents 1, 2, …, until they are known to have arrived. */
	int extent_fds[SEGMENT_EXTENTS][2];
	struct engine_key *keys[SEGMENT_EXTENTS]; /* of extents 1, 2, …; they never move */
	struct engine_keys free_keys;
	uint32_t n_free_keys, n_forgotten_keys;
	void *attachment_index; /* tsearch(3) root, by number */
	struct engine_attachments attachments, collected;

	struct rstat_host rstats;
	uint16_t *node_of_cpu;
	struct rstat rstat; /* its host is NULL before the segment is there */
	uint64_t tidied_usec, flushed_usec;
	uint8_t *quiet; /* by CPU: seen with nobody moving, in this phase of the collection */
	bool collecting, cleared;

	struct teller teller;
	uint64_t last_token;           /* question.h */
	_Atomic bool turned_away;      /* who may not wait has found the mutex held */
	struct grant_requests waiting; /* for headroom, in the order in which they came */
	/* recall.h: requests for which others give back just now; which thread sees to that; and how
	 * many sleep until it has, or for an answer. */
	struct grant_requests short_ones;
	_Atomic pthread_t recaller;
	_Atomic bool recalls;
	uint32_t n_short;
	void *turns;            /* tsearch(3) root of turn.c */
	_Atomic uint32_t freed; /* a futex: some may have come free */
};

int engine_new(const char *config, enum percpu_kind kind, const struct embedded_owner *o,
	struct embedded **ret);
/* In any state, also in a child. Returns NULL. */
struct embedded *engine_free(struct embedded *e);

/* Makes the base of the segment, by sequences if the threads have them; its descriptors are the
 * caller's. */
int engine_begin(struct embedded *e, bool rseq, int ret_fds[static 2]);

/* The attachment of that number, whatever its state; NULL: none. */
struct engine_attachment *engine_find(struct embedded *e, uint64_t number);

/*
 * Attaches to a pool, without any key; with room for a key, and places for the pools. A new extent,
 * which is to be sent, comes with its number (0: none). -EEXIST: the number was used before, *ret is what has it;
 * -ENOMEM.
 */
int engine_attach(struct embedded *e, uint64_t number, struct pool *pool,
	struct engine_attachment **ret, uint32_t *ret_extent);
/* Leaves the pool. What its keys were granted has been given back. */
void engine_leave(struct engine_attachment *a);
/* Its pool has been removed by force, and its member is `to`'s now: for pool_remove_by_force(). */
void engine_move(struct pool_member *m, struct pool *to, void *userdata);
/* Its keys are free again; the memory is too with the next attachment. */
void engine_drop(struct engine_attachment *a);

/*
 * A key for (attachment, item), which has been granted nothing. A new extent, which is to be sent,
 * comes with its number (else *ret_extent stays). -ENOSPC: no key is left; and what growing the segment may say.
 */
int engine_key_new(
	struct engine_attachment *a, uint32_t item, struct engine_key **ret, uint32_t *ret_extent);

/* The key of that number; NULL: there is none, or it is free. */
struct engine_key *engine_key(struct embedded *e, uint32_t number);

/* The key that a message names by number and attachment; NULL: not (any more) a live one. */
struct engine_key *engine_find_key(struct embedded *e, uint32_t number, uint64_t attachment);

static inline struct segment_key *engine_words(const struct engine_key *k)
{
	return segment_key(&k->attachment->engine->segment, k->number);
}

/* Lets go of the mutex, and tells those whom it has turned away. */
void engine_unlock(struct embedded *e);
/* Without waiting; who is turned away is told by CREDIT. */
bool engine_trylock(struct embedded *e);

/* Some may have come free: those who wait look again. Async-signal-safe. */
void engine_kick(struct embedded *e);

/* Sleeps until the next kick, or until then; the mutex is not held meanwhile. */
void engine_sleep(struct embedded *e, uint64_t until_usec);

/* CLOCK_MONOTONIC in microseconds; and to a few milliseconds, for a third of the price. */
uint64_t engine_now(void);
uint64_t engine_now_about(void);
