/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The load of the benchmark `readers`: readers in turn on a thread a CPU, by one of several ways, and
 * writers in the background.
 */

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

#include "bench.h"
#include "grove.h"
#include "kernstat.h"
#include "latency.h"
#include "rig.h"

enum readload_way {
	READLOAD_EMBEDDED_TEXT,
	READLOAD_EMBEDDED_USAGE,
	READLOAD_DAEMON_TEXT,
	READLOAD_DAEMON_USAGE,
	READLOAD_EXPORTED,
	READLOAD_KERNEL,
	READLOAD_KERNEL_OPEN,
	READLOAD_WAYS,
};

enum readload_pace {
	READLOAD_PACED,
	READLOAD_FAST,
	READLOAD_PACES,
};

struct readload_reader {
	alignas(64) struct latency latency;
	struct tally *tally; /* over the daemon; readers are other processes there */
	uint64_t next;       /* read */
	double seconds;
};

struct readload {
	const struct bench *bench;
	struct grove grove;
	unsigned n_readers;
	uint64_t rate, writes; /* a second, on each CPU */
	uint64_t nsec;
	unsigned n_written;
	struct tally *tally[RIG_MODES];
	struct tally_pool **pools[RIG_MODES];
	tally_item charged, moved;
	struct kernstat kernel;
	char **files; /* that were found exported */
	unsigned n_files;

	enum readload_way way;
	enum readload_pace pace;
	pthread_barrier_t begin;
	_Atomic unsigned n_reading;
	struct readload_reader readers[BENCH_CPUS_MAX];
};

struct readload_result {
	double rate; /* reads a second */
	struct latency latency;
};

/* One sample: for l->nsec all readers read in that way. */
void readload_run(struct readload *l, enum readload_way way, enum readload_pace pace,
	struct readload_result *ret);
