/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Who gets how much, in the embedded engine: a request is tried with a batch beyond its need, then
 * alone; over a limit, idle credit of the pool that refused is drained and it is tried again; then
 * attachments below are asked to give back, and it is tried once more; then it is refused. One that
 * came with a deadline waits in that pool's queue instead.
 *
 * A request that waits is on the stack of the thread that asked, which sleeps; each drains and tries
 * for itself, but only the head of a pool's queue may take. Uncharges go into stocks without a word
 * to the engine, so a head looks again and again.
 */

#include "core/itemlimit.h"
#include "core/wire.h"
#include "engine.h"
#include "recall.h"

struct grant_request {
	TAILQ_ENTRY(grant_request) entry; /* among all that wait */
	struct embedded *engine;
	struct engine_key *key; /* NULL: dropped */
	unsigned lane;
	uint64_t seq, need, batch, deadline_usec;
	uint32_t flags;
	bool counted_max;
	bool is_short;                 /* among those that others give back for */
	bool stalled;                  /* its attachment waits, and pressure knows it */
	struct pool *at;               /* in the queue of this pool; NULL: in none */
	uint64_t head_since_usec;      /* of that queue */
	struct itemlimit_place failed; /* by what it was refused last */
	uint64_t since_usec;
	struct recall_result tried; /* for it */
	unsigned rounds;            /* of recall.h */
	uint64_t next_recall_usec;  /* at the head of a queue: not before */
	struct pool *high;          /* it passed this one's memory.high, by so much; a reference */
	uint64_t high_bytes;
	bool is_turn;         /* nobody sleeps for it: turn.h */
	uint64_t looked_usec; /* then: when its client came last */
};

/* A CHARGE. 0: it was answered, or concerns nobody; -EPROTO; -ENODEV: dropped while it waited. */
int grant_handle(struct embedded *e, const struct wire_charge *m);

/* Puts a batch into the reserve of the key, if headroom is ample. */
void grant_ahead(struct engine_key *k);

/* Last in line, as one that nobody sleeps for. */
void grant_stand(struct grant_request *r);
/* Its client has come: true, it is granted, and no longer in line. */
bool grant_serve(struct grant_request *r);
/* Its deadline has passed: it is refused, and no longer in line. */
void grant_refuse_late(struct grant_request *r);
/* It leaves the line without an answer, if it was not dropped already. */
void grant_leave(struct grant_request *r);

/* The waiting requests of an attachment, of all, are dropped without an answer. */
void grant_drop(struct engine_attachment *a);
void grant_drop_all(struct embedded *e);
