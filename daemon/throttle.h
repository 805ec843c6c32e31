/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What memory.high does beyond counting: asking for memory, and knowing who sleeps. A client whose
 * charge came with a delay sleeps by itself and says nothing when it wakes; here its attachment
 * counts as one that waits until then.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/pool.h"

struct attachment;
struct manager;
struct throttle;

/* The delay of an attachment; several at once are one, which ends with the last of them. */
struct throttle_delay {
	TAILQ_ENTRY(throttle_delay) entry;
	uint64_t until_usec; /* 0: none */
};

int throttle_new(struct manager *m, struct throttle **ret);
/* After all sessions have ended. Returns NULL; the memory goes when the loop has run on. */
struct throttle *throttle_free(struct throttle *t);

/* For high_charged(), with the manager: idle credit of the pool goes back, and clients are asked. */
void throttle_on_high(void *manager, struct pool *p, uint64_t bytes);

/* Its memory.high was set: as much as it is above it is to come back. */
void throttle_check(struct manager *m, struct pool *p);

/* The attachment, which has a pool, sleeps from now on until then, at most HIGH_DELAY_MAX_USEC. */
void throttle_begin(struct attachment *a, uint64_t until_usec);
/* It is about to leave its pool. */
void throttle_end(struct attachment *a);
