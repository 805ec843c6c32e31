/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The exporter: the one thread that touches exported files, so that the loop never waits for a file
 * system. It is a thread of its own, not libuv's pool: what it is given is carried out in order (a
 * pool's files must not be removed before they are written), at the stop what has not begun can be
 * dropped, and its end waited for.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "exportfile.h"
#include "rundir.h"
#include "worker.h"

/* What is to be done for a pool: its files written, or (none) removed with the directory. */
struct exporter_job {
	STAILQ_ENTRY(exporter_job) entry;
	char *path; /* of the pool */
	struct exportfile *files;
	size_t n_files;
	struct exportfile_access *access; /* exportfile_write() */
	bool known;                       /* exportfile_write() */
	bool failed;                      /* not touched here */
	void *userdata;
	int result; /* out: 0 or negative errno */
};

STAILQ_HEAD(exporter_jobs, exporter_job);

struct exporter_batch {
	struct worker_task task;
	struct exporter_jobs jobs;
	void (*done)(struct exporter_batch *b); /* in the loop */
	void *userdata;
	struct exportfile_result wrote; /* out */
	bool lost; /* out: the runtime directory is no longer ours, and every result is -ESTALE */
};

struct exporter;

/* The files are below `dir`, in the directory of r. Removes what an earlier daemon left there. */
int exporter_new(uv_loop_t *loop, const struct rundir *r, const char *dir, struct exporter **ret);
/* Batches that are not begun come back as they are; all files are removed; waits for that. The memory
 * goes when the loop has run on. Returns NULL. */
struct exporter *exporter_free(struct exporter *x);

/* Hands a batch over until `done` is called; in the order of their submission. */
void exporter_submit(struct exporter *x, struct exporter_batch *b);

/* For a pool of that path, with room for that many files and of that many levels, the root included.
 * NULL: memory is short. */
struct exporter_job *exporter_job_new(const char *path, size_t room, size_t n_levels);
/* Takes the text, even when it fails. -ENOMEM. */
int exporter_job_add(struct exporter_job *j, const char *name, char *text);
/* Returns NULL. */
struct exporter_job *exporter_job_free(struct exporter_job *j);
