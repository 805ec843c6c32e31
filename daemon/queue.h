/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Requests that wait for headroom at a pool, in the order in which they came: what comes free goes
 * to the head first. Uncharges go into stocks without a word to the daemon, so while anyone waits
 * the pool is drained again and again.
 */

#include "manager.h"

struct queue;
struct queues;
struct request;

int queues_new(struct manager *m, struct queues **ret);
/* After all sessions have ended: then no queue is left. Returns NULL. */
struct queues *queues_free(struct queues *q);

/* The nearest pool above p (or p itself) at which requests wait; NULL: none. */
struct pool *queue_above(struct pool *p);

/* The request waits at the pool from now on, which is drained for it. -ENOMEM. */
int queue_join(struct request *r, struct pool *at);

/* It no longer does, if it did. */
void queue_leave(struct request *r);

/* Headroom may have come free somewhere: the queues are tried again soon. */
void queue_kick(struct manager *m);
