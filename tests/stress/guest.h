/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Attachments that come and go while threads charge them: a thread may be in the middle of a charge
 * when the attachment is detached under it, and the numbers of its keys are used again by the next.
 * What such an attachment holds goes with it; only the last one's book counts.
 */

#include <pthread.h>

#include "stress.h"

struct worker;

/* One attachment, kept by all that use it. */
struct guest {
	struct tally_pool *pool;
	_Atomic uint64_t held[STRESS_ITEMS];
	unsigned refs; /* under the lock of guests */
	struct guests *guests;
};

struct guests {
	pthread_mutex_t lock;
	struct tally *tally;
	struct guest *present; /* NULL: none */
	struct stress_client *shared;
};

/* The one that is there, kept until guest_leave(); NULL: none is. Not for signal handlers. */
struct guest *guests_enter(struct guests *g);
void guest_leave(struct guest *g);

/*
 * The body of the thread that attaches and detaches, until its worker is to stop; the last guest
 * stays, until guests_end(). Its book is in the memory that is shared.
 */
void guests_run(struct guests *g, struct worker *w);
void guests_end(struct guests *g);
