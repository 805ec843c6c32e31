/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the daemon is made of: the state that its modules share, each part owned and changed by the
 * module of its name, all of it by the loop's thread alone. Only manager.c knows how to build and
 * tear down the whole.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "conf/conf.h"
#include "core/item.h"
#include "core/percpu.h"
#include "core/pool.h"
#include "core/rstat.h"
#include "ledger.h"

struct decay;
struct drain;
struct export;
struct flush;
struct givebacks;
struct queues;
struct reclaims;
struct refusals;
struct rundir;
struct server;
struct session;
struct throttle;
struct turns;
struct users;
struct watches;

TAILQ_HEAD(session_list, session);

struct manager_options {
	const char *config; /* NULL: the standard places */
	const char *runtime_dir;
	int listen_fd; /* from the service manager; -1: make the socket. Consumed. */
};

/* The daemon's own figures, shown in tallyd.status. */
struct manager_stats {
	uint64_t grants, refusals, drains, drained_bytes, steals_missed, rings;
	uint64_t reclaims, reclaimed_bytes; /* rounds; what clients said that they gave back */
	uint64_t flushes, unflushed_reads, flush_usec;
	uint64_t sessions_total;
	/* Files written, their bytes, what could not be written or removed; pools that have files. */
	uint64_t exports, export_bytes, export_errors, exported_pools;
};

struct manager {
	uv_loop_t *loop;
	char *config; /* NULL: the standard places */
	char *runtime_dir;
	struct rundir *rundir;
	uint64_t generation;
	uint64_t started_usec;
	uint32_t n_cpus;  /* possible ones */
	uint32_t n_nodes; /* of memory */
	uint16_t *node_of_cpu;
	enum percpu_kind kind; /* the best that a session may have */

	struct conf *conf;
	char *reload_text; /* what the last reload changed, or why it failed */
	struct item_table items;
	struct refusals *refusals;
	struct pool_tree *tree;
	struct users *users;
	gid_t admin_gid; /* NAMES_NOBODY: there are no admins but root */
	struct ledger *ledger;

	struct session_list sessions;
	uint64_t n_sessions, last_session;
	struct rstat_host rstats;

	struct drain *drain;
	struct reclaims *reclaims;
	struct givebacks *givebacks;
	struct decay *decay;
	struct queues *queues;
	struct throttle *throttle;
	struct turns *turns;
	struct flush *flush;
	struct export *export;
	struct watches *watches;
	struct server *server;
	struct manager_stats stats;
	bool stopping;
};

/*
 * Builds everything and begins to listen. -EALREADY: another daemon owns the directory; -EINVAL:
 * the configuration; both, and all else, have been logged.
 */
int manager_new(uv_loop_t *loop, const struct manager_options *o, struct manager **ret);

/* Ends all sessions and closes everything; the loop must then run until it is empty. */
void manager_stop(struct manager *m);

/* After the loop has run empty. Returns NULL. */
struct manager *manager_free(struct manager *m);

/* CLOCK_MONOTONIC in microseconds. */
uint64_t manager_now(void);
