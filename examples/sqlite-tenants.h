/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * One run of the example: what was asked for, its tenants, and the checks that look at all of them.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "sqlite-work.h"

struct tenant {
	struct work work;
	struct run *run;
	pthread_t thread;
	char name[16];
	char *path;
};

struct run {
	const char *base;
	unsigned n_tenants;
	uint64_t rows;
	unsigned hold_sec;
	bool check;
	char **limits; /* TENANT=BYTES */
	unsigned n_limits;

	struct tally *tally;
	struct tenant *tenants;
	struct owner shared;
	char *shared_path;
	sqlite3 *results;          /* the main thread's own database: nobody's but the process's */
	pthread_barrier_t barrier; /* all tenants and the main thread */
	unsigned differences;
};

/* Says on standard error what went wrong and ends the process. */
_Noreturn void die(const char *what, const char *why);

/*
 * Compares the daemon's figures with those of SQLite and of the allocator, prints one line, and one
 * more for each difference, which it counts. Nothing may allocate meanwhile, here or in another
 * process that uses these pools. `closed`: the tenants are to hold nothing.
 */
void check_all(struct run *r, const char *when, bool closed);

/* After sqlite3_shutdown(): no pool is to hold anything. */
void check_shut_down(struct run *r);
