/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A thread that does what the loop may not wait for: tasks go to it in the order of their submission,
 * and come back to the loop when they are done. What a task is, is its owner's business.
 */

#include <stdbool.h>
#include <sys/queue.h>
#include <uv.h>

/* To be embedded; untouched by its owner between submission and `done`. */
struct worker_task {
	STAILQ_ENTRY(worker_task) entry;
};

struct worker_owner {
	void (*begin)(void); /* in the thread, before anything else; NULL: nothing */
	void (*carry_out)(struct worker_task *t, void *userdata); /* in the thread */
	void (*done)(struct worker_task *t, void *userdata);      /* in the loop */
	void *userdata;
};

struct worker;

int worker_new(uv_loop_t *loop, const struct worker_owner *o, struct worker **ret);
/*
 * Waits for the thread. What it has not begun is carried out (`finish`; what `done` submits meanwhile
 * is too), or goes to `done` as it is. The owner is not called any more afterwards; the memory goes when
 * the loop has run on. Returns NULL.
 */
struct worker *worker_free(struct worker *w, bool finish);

void worker_submit(struct worker *w, struct worker_task *t);
