/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the processes of the stress share: the orders that they get, and the books that they keep.
 * A book says what has been charged and not uncharged, by attachment and item, and is written by
 * one thread alone, or by its signal handler alone, so that it is exact by itself. It lies in memory
 * that the processes share: when all stand still, the sum of the books is what the daemon has to
 * show.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../harness.h"
#include "tally.h"

#define STRESS_CLIENTS 2
#define STRESS_THREADS 32 /* of a client, at most, with the one that attaches and detaches */
#define STRESS_POOLS 6
#define STRESS_HANDLES 12 /* of a client, two a pool */
#define STRESS_ITEMS 3    /* none, and two gauges */

struct stress_book {
	uint64_t held[STRESS_HANDLES][STRESS_ITEMS];
};

struct stress_thread {
	struct stress_book own, in_handler;
	uint64_t operations, refused, moves;
	uint64_t signals, signals_inside;
	uint64_t errors; /* results that there should not have been */
	int last_error;
};

struct stress_client {
	struct stress_thread threads[STRESS_THREADS];
	/* Of the guest, the attachment that comes and goes: the one that is there in the end. */
	_Atomic uint64_t guest_held[STRESS_ITEMS];
	uint64_t guests;  /* how many there were */
	uint64_t visits;  /* of threads that charged one */
	uint64_t extents; /* of the session's keys, not long ago */
};

/* Of the process that drains. */
struct stress_drains {
	uint64_t drains, looks;
	uint64_t above_limit; /* looks that found more than memory.max */
};

struct stress {
	char address[128];
	_Atomic bool stop;
	unsigned n_threads; /* of each client */
	struct stress_client clients[STRESS_CLIENTS];
	struct stress_drains drains;
};

/* The pool of handle h is stress_pools[h % STRESS_POOLS]. */
extern const char *const stress_pools[STRESS_POOLS];
extern const char *const stress_items[STRESS_ITEMS]; /* the first is NULL */
#define STRESS_LIMITED 4                             /* the pool that has a limit */
#define STRESS_LIMIT UINT64_C(100000)
#define STRESS_GUEST "/stress/a/guest" /* the guests' pool */

/* Orders to a process, which answers when it is ready for the first, and has carried out the others
 * but RUN. */
enum stress_order {
	STRESS_RUN,
	STRESS_STAND,
	STRESS_GIVE_BACK, /* all that the books say */
	STRESS_DETACH,    /* everything */
	STRESS_END,
};

/* ------------------------------------------------------------------ processes */

/* Body of a client, of the process that drains: obeys what comes over `fd`. 0, or 1. */
int client_main(struct stress *s, unsigned number, int fd);
int drains_main(struct stress *s, int fd);

/* The next order; false: there will be none. And an answer. */
bool stress_next_order(int fd, enum stress_order *ret);
void stress_answer(int fd);

/* ------------------------------------------------------------------ audit.c */

/* Compares every pool and item with the books, those of `is_zero` with 0; prints each difference,
 * and returns how many there are. */
unsigned audit_held(struct tally *t, const struct stress *s, bool is_zero);

/* Nobody is attached: nothing lies idle, nothing is held, and the counters say so. */
unsigned audit_empty(struct tally *t, const struct stress *s);
