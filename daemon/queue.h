/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Requests that wait for headroom under a limit of a pool, in the order in which they came: what
 * comes free goes to the head first. Who waits under the limit of an item is no concern of those who
 * charge without it. Uncharges go into stocks without a word to the daemon, so while anyone waits
 * the pool is drained again and again.
 */

#include "core/itemlimit.h"
#include "manager.h"

struct queue;
struct queues;
struct request;

int queues_new(struct manager *m, struct queues **ret);
/* After all sessions have ended: then no queue is left. Returns NULL. */
struct queues *queues_free(struct queues *q);

/* Whether requests wait under this limit. */
bool queue_is_at(struct itemlimit_place at);

/* Whether one that does not stand in line may have so much there: not what the head of the queue has
 * waited for. */
bool queue_lets_pass(struct itemlimit_place at, uint64_t need);

/* What others in line there wait for, if it is that alone for which the request cannot have what it
 * needs; 0: there is less room than that. */
uint64_t queue_ahead(const struct request *r, struct itemlimit_place at);

/* The first place, from `at` on (itemlimit_next()), at which requests wait; pool NULL: none. */
struct itemlimit_place queue_above(struct itemlimit_place at, uint32_t item);

/* The request waits there from now on, and the pool is drained for it. -ENOMEM. */
int queue_join(struct request *r, struct itemlimit_place at);

/* The same before all who wait there, and without a drain: it had its turn, and missed it. -ENOMEM. */
int queue_join_head(struct request *r, struct itemlimit_place at);

/* It no longer does, if it did. */
void queue_leave(struct request *r);

/* Headroom may have come free somewhere: the queues are tried again soon. */
void queue_kick(struct manager *m);
