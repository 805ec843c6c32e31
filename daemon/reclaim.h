/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Getting memory back from clients that have a callback for it (core/reclaim.h says from whom). It goes
 * in rounds: all who are to give are asked at once, and waited for until they have answered, enough has
 * come, or the round's time is over; then idle credit is drained, because what a client uncharges lies
 * in its stocks. A client that does not answer is not waited for again until it has.
 */

#include "core/itemlimit.h"
#include "drain.h"
#include "manager.h"

struct attachment;
struct reclaims;
struct reclaim_wait;
struct round;

/* Rounds for one request, and their time in all. */
#define RECLAIM_ROUNDS 4
#define RECLAIM_USEC UINT64_C(1500000)

struct reclaim_result {
	uint64_t drained;          /* of idle credit */
	uint64_t asked, reclaimed; /* of clients; and what they said that they gave back */
	uint64_t came;             /* what really came free, at least */
};

/* Called in the loop, never from within reclaim_start(). */
typedef void (*reclaim_done_fn)(void *userdata, const struct reclaim_result *result);

int reclaims_new(struct manager *m, struct reclaims **ret);
/* After all sessions have ended. Returns NULL. */
struct reclaims *reclaims_free(struct reclaims *all);

/*
 * One round for `bytes` below the limit, or a part of one for several who want something there.
 * -EAGAIN: there is nobody to ask; -ENOMEM.
 */
int reclaim_start(struct manager *m, struct itemlimit_place at, uint64_t bytes, reclaim_done_fn fn,
	void *userdata, struct reclaim_wait **ret);
/* The same with a drain of this scope at the end, DRAIN_COUNTED or DRAIN_SURPLUS; of several in one
 * round, the former. */
int reclaim_start_scope(struct manager *m, struct itemlimit_place at, uint64_t bytes,
	enum drain_scope scope, reclaim_done_fn fn, void *userdata, struct reclaim_wait **ret);
/* fn will not be called. NULL is fine. Returns NULL. */
struct reclaim_wait *reclaim_cancel(struct reclaim_wait *w);
