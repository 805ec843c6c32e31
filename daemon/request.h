/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Who gets how much: the answers to charge requests. A request is tried with a batch beyond its
 * need, then alone; over a limit, of a pool or of an item in a pool, the idle credit that counts
 * there is drained and it is tried again; then it is refused, or waits in the queue of that limit if
 * it came with a deadline. A request that waits never holds up the loop.
 */

#include "core/itemlimit.h"
#include "key.h"
#include "manager.h"

struct drain_wait;
struct queue;
struct reclaim_wait;

/* Of the head of a queue whose time is over. */
enum request_last_drain {
	REQUEST_NOT_DRAINED,
	REQUEST_DRAINS, /* one that began afterwards runs */
	REQUEST_DRAINED,
};

struct request {
	TAILQ_ENTRY(request) entry; /* in a queue */
	struct key *key;
	unsigned lane;
	uint64_t seq, need, deadline_usec;
	bool may_queue, nowait, counted_max;
	bool stalled;                   /* its attachment waits, and pressure knows it */
	bool is_turn;                   /* part of a struct turn, of no lane: turn.h */
	struct itemlimit_place drained; /* where it failed last; only compared */
	unsigned drains;
	/* For the record of a refusal: when it came, and what was tried for it. */
	uint64_t since_usec, drained_bytes, asked_bytes, reclaimed_bytes;
	struct drain_wait *wait;
	struct reclaim_wait *reclaim;
	unsigned rounds; /* of reclaim */
	bool reclaimed_some;
	enum request_last_drain last_drain;
	struct queue *queue; /* NULL: in none */
};

/* A CHARGE of a live session. False: it breaks the protocol. */
bool request_handle(struct session *s, const struct wire_charge *m);

/* An AHEAD of a live session: a batch into the key's reserve, if there is room for everybody. */
void request_ahead(struct session *s, const struct wire_ahead *m);

/* A request that has been made is decided, or stands in line. */
void request_start(struct request *r);

/* It waits for nothing any more: not in a queue, not for a drain. */
void request_settle(struct request *r);

/* Grants it if it fits: true, and the request is gone. Else the limit that refuses in *ret_failed.
 */
bool request_try(struct request *r, struct itemlimit_place *ret_failed);

/* Answers it with the error; it was `at` that refused. The request is gone. */
void request_refuse(struct request *r, struct itemlimit_place at, int status);

/* The requests of a key, of a session, are dropped without an answer. */
void request_drop_key(struct key *k);
void request_drop_session(struct session *s);

/* Answers all requests of an attachment with that error. */
void request_end(struct attachment *a, int status);

/* How many requests of the attachment are not answered yet. */
unsigned request_count(const struct attachment *a);
