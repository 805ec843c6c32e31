/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What a tenant does with its database, in steps, so that somebody can look at all tenants between
 * two of them.
 */

#include <sqlite3.h>
#include <stdint.h>

#include "sqlite-alloc.h"

enum work_result {
	WORK_RUNNING,
	WORK_FINISHED,
	WORK_REFUSED, /* met a limit, was rolled back to its last commit */
	WORK_FAILED,
};

struct work {
	struct owner owner;
	const char *name;
	uint64_t rows_wanted;

	sqlite3 *db;
	sqlite3_stmt *insert, *rollback, *count;
	uint64_t rows;  /* committed */
	int64_t amount; /* sum over the committed rows */
	enum work_result result;
	const char *complaint; /* what is wrong, if SQLite has nothing to say of it */
};

extern const char *const work_result_names[];

/* The steps in their order; NULL behind the last one. */
const char *work_step_name(unsigned step);

/* Runs one step in the calling thread, on behalf of the work's owner; nothing, once it has stopped.
 * Says on standard output where a limit was met, on standard error what failed. */
void work_run(struct work *w, unsigned step);

/* Frees what the steps have allocated; any thread may do it. */
void work_close(struct work *w);
