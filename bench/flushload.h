/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The load of the benchmark `flush`: workers that allocate and give back, and readers of memory.stat,
 * many of each on a few threads.
 */

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

#include "bench.h"
#include "grove.h"
#include "latency.h"
#include "rig.h"

#define FLUSHLOAD_READER_THREADS_MAX 8
#define FLUSHLOAD_THRESHOLD_OF_CPU 64 /* updates, as by default */

enum flushload_way {
	FLUSHLOAD_NO_READERS,
	FLUSHLOAD_SUBTREE, /* tally_get() as it is */
	FLUSHLOAD_GLOBAL,  /* the whole tree, when all updates together pass the threshold */
	FLUSHLOAD_ALWAYS,  /* the whole tree */
	FLUSHLOAD_WAYS,
};

/* Who is in the engine of a mode. */
struct flushload_engine {
	enum rig_mode mode;
	const char *reason; /* why there is none */
	struct tally *workers, *readers;
	struct tally_pool **pools;
	tally_item charged, moved;
};

struct flushload_worker {
	alignas(64) _Atomic uint64_t updates;
	uint64_t begin, end, cpu_nsec;
};

struct flushload_reader {
	alignas(64) struct latency latency;
	uint64_t cpu_nsec;
};

struct flushload {
	const struct bench *bench;
	struct grove grove;
	unsigned n_tasks, burst, n_readers, n_reader_threads;
	uint64_t passes, interval_nsec;

	/* Of the load itself. */
	const struct flushload_engine *engine;
	enum flushload_way way;
	unsigned n_chunks;
	char *pages; /* one a task */
	pthread_barrier_t begin;
	alignas(64) _Atomic uint64_t ticket; /* the next chunk of a pass */
	_Atomic unsigned n_working;
	_Atomic uint64_t *passes_done; /* by chunk */
	struct flushload_worker workers[BENCH_CPUS_MAX];
	struct flushload_reader readers[FLUSHLOAD_READER_THREADS_MAX];
	_Atomic uint64_t flushed; /* updates when the whole tree was flushed */
	atomic_flag flushing;
};

struct flushload_result {
	double run;                      /* seconds */
	double workers, readers, daemon; /* seconds of CPU time */
	struct latency latency;          /* ticks */
};

/* Once the numbers stand there. */
void flushload_init(struct flushload *l);
void flushload_free(struct flushload *l);

/* One run, until all workers have had all their turns. */
void flushload_run(struct flushload *l, const struct flushload_engine *e, enum flushload_way way,
	struct flushload_result *ret);
