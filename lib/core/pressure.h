/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * How much of the time attachments of a subtree wait for memory: memory.pressure, with the kernel's
 * averages. Whoever makes an attachment wait beyond an ordinary trip says when that begins and ends:
 * a request that is not decided at once, and a delay because of memory.high. `some` is the time in
 * which at least one attachment of the subtree waits, `full` that in which all of them do.
 *
 * There is no timer: whatever changes first brings the figures up to that moment, by the clock of
 * the tree (pool_tree.now; without one nothing is measured). begin and end allocate nothing.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "pool.h"

#define PRESSURE_TEXT_MAX 256

struct text;

enum pressure_state {
	PRESSURE_SOME,
	PRESSURE_FULL,
	PRESSURE_STATES,
};

enum {
	PRESSURE_AVERAGES = 3, /* over 10, 60 and 300 s */
};

struct pressure {
	TAILQ_ENTRY(pressure) entry; /* in the tree, while something is not 0 but the total */
	struct pool *pool;
	bool listed;
	uint64_t since_usec;  /* up to here all is in the figures below */
	uint64_t period_usec; /* when the running period began */
	struct {
		uint64_t total_usec, period_usec;    /* ever; in the running period */
		uint64_t average[PRESSURE_AVERAGES]; /* percent, fixed point */
	} state[PRESSURE_STATES];
};

/* Room for the figures of p and of all above it; until then nothing is measured there. -ENOMEM. */
int pressure_prepare(struct pool *p);

/* The member of p waits, for one thing more. */
void pressure_begin(struct pool *p, struct pool_member *m);
/* For one thing less. p NULL: it has left its pool meanwhile. */
void pressure_end(struct pool *p, struct pool_member *m);

/* For pool.c: something is about to change; a member that waits comes or goes; the pool is taken out
 * of its tree, and freed. */
void pressure_catch_up(struct pool *p);
void pressure_count(struct pool *p, int members);
void pressure_unlist(struct pool *p);
void pressure_free(struct pool *p);

/* Averages fall by themselves: marks the pools that show other ones than some time ago as changed. */
void pressure_age(struct pool_tree *t);

/* The text of memory.pressure. */
void pressure_read(const struct pool *p, struct text *t);
