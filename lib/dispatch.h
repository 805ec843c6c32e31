/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Callbacks of the program: what tally_dispatch() runs. None of them runs with a lock held, so that it
 * may call anything; instead each object that has one knows which thread is inside it, and who
 * takes a callback away waits until that is out, unless it is that thread itself.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "core/wire.h"
#include "tally.h"

struct tally;
struct tally_pool;

/* A callback that may be running; of the dispatch's lock. */
struct dispatch_call {
	bool running;
	pthread_t by;
};

enum dispatch_question {
	DISPATCH_ANSWERED,
	DISPATCH_ASKED,
	DISPATCH_UNSENT, /* answered, but the socket had no room */
};

/* What a handle was asked to give back. */
struct dispatch_reclaim {
	tally_reclaim_fn fn; /* NULL: none */
	void *userdata;
	struct dispatch_call call;
	enum dispatch_question question;
	uint64_t token, bytes;
	TAILQ_ENTRY(tally_pool) entry; /* while it is not answered */
};

struct dispatch {
	pthread_mutex_t lock;      /* of all below; nothing is waited for with it */
	struct dispatch_call call; /* whoever is in tally_dispatch() */
	/* Whoever is in a function of a handle, which with "embedded:" is a thread that charges; one at
	 * a time is. */
	struct dispatch_call reclaim;
	_Atomic uint32_t turns; /* a futex: some callback is over */
	void *watches;          /* tsearch(3) root, by number */
	uint64_t last_watch;
	TAILQ_HEAD(, tally_pool) asked;
};

void dispatch_init(struct dispatch *d);
/* When nobody is inside; in a child, whatever state the fork found. */
void dispatch_clear(struct dispatch *d);

/* The lock is held: `c` runs from now on, no longer runs, is waited for if another thread runs it. */
void dispatch_begin(struct dispatch_call *c);
void dispatch_finish(struct dispatch *d, struct dispatch_call *c);
void dispatch_await(struct dispatch *d, struct dispatch_call *c);

/* Runs what there is; the number of callbacks, or an error. */
int dispatch_run(struct tally *t);

/* Has the handle of the message give back: true, with what its function returned, if there was one. */
bool dispatch_reclaim(struct tally *t, const struct wire_reclaim *m, int64_t *ret_freed);

/* The function of a handle; NULL: it has none. */
int dispatch_set_reclaim(struct tally_pool *p, tally_reclaim_fn fn, void *userdata);

/* -ENOENT: nothing of that token is unanswered. */
int dispatch_reclaimed(struct tally *t, uint64_t token, uint64_t bytes);

/* No callback of the handle, of the session, is run any more; running ones are waited for. */
void dispatch_end(struct tally_pool *p);
void dispatch_stop(struct tally *t);
