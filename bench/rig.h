/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The library as programs meet it: over a daemon of the benchmark's own, in a directory of its own,
 * and embedded in the process.
 */

#include <stdint.h>
#include <sys/types.h>

#include "tally.h"

enum rig_mode {
	RIG_DAEMON,
	RIG_EMBEDDED,
};
#define RIG_MODES 2

extern const char *const rig_mode_names[RIG_MODES];

/* For [daemon]: one user makes all that is measured. */
#define RIG_NO_LIMITS                                                                              \
	"max_sessions_per_uid = 4294967295\nmax_pools_per_uid = 4294967295\n"                      \
	"max_attachments_per_uid = 4294967295\n"

/*
 * Starts the daemon $TALLYD with this configuration; it ends with the process. Several may run; what
 * follows is of the one that was started last. Embedded engines get the same configuration.
 */
void rig_start(const char *config);

/* Its runtime directory, its process, and the nanoseconds of CPU time that it has had. */
const char *rig_runtime(void);
pid_t rig_pid(void);
uint64_t rig_cpu_nsec(void);

/*
 * Opens a session, NULL if this library cannot do it in that mode: then *ret_reason says why. A
 * daemon that cannot be reached ends the benchmark.
 */
struct tally *rig_open(enum rig_mode mode, const char **ret_reason);

/* Attaches to the pool, which is made if need be. */
struct tally_pool *rig_attach(struct tally *t, const char *path);

tally_item rig_item(struct tally *t, const char *name);

/* The value behind `key` in a file of a pool, as it is exactly now; -1: there is no such line. */
int64_t rig_value(struct tally *t, const char *path, const char *file, const char *key);

/* Ends the benchmark unless r is success. */
void rig_check(int r, const char *what);
