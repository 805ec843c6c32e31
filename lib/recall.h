/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Getting bytes back from attachments of the embedded engine that have a function for it, as the
 * daemon's reclaim.c does. There is no other thread to run it: the one that charges, or writes
 * memory.reclaim, calls the functions one after the other, without the mutex. One thread does so at a
 * time; others that are short meanwhile wait for it. A charge from within a function would wait for
 * itself, and is -EDEADLK.
 */

#include "core/itemlimit.h"
#include "engine.h"

#define RECALL_ROUNDS 4

/* Of all rounds for a request, from its beginning. */
#define RECALL_USEC UINT64_C(1500000)

struct recall_result {
	uint64_t drained, asked, reclaimed;
};

/* This thread is in a function of an attachment that gives back. */
bool recall_is_inside(const struct embedded *e);

/*
 * One round for `bytes` below the limit, or the end of another thread's. False: there was nobody to ask.
 * The mutex is not held meanwhile, see question_run(); `result` is added to.
 */
bool recall_run(struct embedded *e, struct itemlimit_place at, uint64_t bytes,
	struct recall_result *result);

/* Gets so many bytes back, idle credit too. 0; -EAGAIN: fewer came; -EDEADLK. */
int recall_bytes(struct embedded *e, struct pool *p, uint64_t bytes);
