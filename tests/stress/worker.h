/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A thread that charges and uncharges at random, moves from CPU to CPU, and is interrupted by a
 * timer signal again and again; the signal's handler charges and uncharges too.
 */

#include <pthread.h>
#include <time.h>

#include "guest.h"
#include "stress.h"

struct worker {
	pthread_t thread;
	timer_t timer;
	struct stress_thread *shared;
	const _Atomic bool *stop;
	struct tally_pool *const *handles; /* STRESS_HANDLES of them */
	const tally_item *items;           /* STRESS_ITEMS of them */
	struct guests *guests;
	unsigned number;
	uint64_t seed, seed_in_handler;
	/* The keys that are charged for the time being: how many, from which on. */
	volatile unsigned first, spread;
	volatile bool inside;          /* a call of the library */
	struct guest *volatile visits; /* NULL: none */
};

/* For the whole process, once. */
void worker_handle_signals(void);

/* The body of a thread, for pthread_create(); the argument is the worker. */
void *worker_run(void *worker);

/* The same around another body: signals come from the first to the second. */
void worker_begin(struct worker *w);
void worker_end(struct worker *w);

/* Some charges to the guest, not all of which are uncharged. */
void worker_visit(struct worker *w, struct guest *g);

uint64_t worker_random(uint64_t *seed);
