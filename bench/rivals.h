/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What tallyd is measured against, in a shared library of its own: whatever is compared is called
 * as libtally is called. All of it is written for these benchmarks, as small as the idea allows.
 * What each leaves out of what it stands for makes it faster, never slower.
 *
 * Charging is 0 or -ENOMEM; all may be called by several threads.
 */

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RIVAL_DEPTH 4 /* levels from a pool to the root */
#define RIVAL_NO_LIMIT INT64_MAX

/* ------------------------------------------------------------------ floors */

/* Nothing. */
int rival_empty_charge(void *unused, uint64_t bytes);
void rival_empty_uncharge(void *unused, uint64_t bytes);

/* A counter a thread: one comparison, one subtraction. In a shared library's usual way
 * (global-dynamic), and in the fast way of libraries that are loaded at the program's start
 * (initial-exec). */
int rival_tls_gd_charge(void *unused, uint64_t bytes);
void rival_tls_gd_uncharge(void *unused, uint64_t bytes);
int rival_tls_ie_charge(void *unused, uint64_t bytes);
void rival_tls_ie_uncharge(void *unused, uint64_t bytes);

/* The same as a statistic: an addition that nothing can refuse. */
void rival_tls_gd_add(void *unused, int64_t delta);
void rival_tls_ie_add(void *unused, int64_t delta);

/* A word a CPU, changed by an atomic compare-and-swap; room for so many CPUs. */
struct rival_word {
	alignas(64) _Atomic int64_t left;
};

int rival_percpu_charge(struct rival_word *words, uint64_t bytes);
void rival_percpu_uncharge(struct rival_word *words, uint64_t bytes);

/* One counter and its limit: changed atomically, or under a mutex. */
struct rival_single {
	alignas(64) _Atomic int64_t usage;
	alignas(64) int64_t max;
	alignas(64) pthread_mutex_t mutex;
	int64_t locked_usage;
};

void rival_single_init(struct rival_single *s);
int rival_shared_charge(struct rival_single *s, uint64_t bytes);
void rival_shared_uncharge(struct rival_single *s, uint64_t bytes);
int rival_mutex_charge(struct rival_single *s, uint64_t bytes);
void rival_mutex_uncharge(struct rival_single *s, uint64_t bytes);

/* ------------------------------------------------------------------ hierarchical counters */

/* As the kernel's page_counter: usage against max at each level, rolled back when one refuses. */
struct rival_counter {
	alignas(64) _Atomic int64_t usage;
	alignas(64) struct rival_counter *parent;
	int64_t max;
	_Atomic int64_t peak;
};

void rival_counter_init(struct rival_counter *c, struct rival_counter *parent);

/* levels[0] is the leaf, the last the root. */
void rival_counter_init_chain(struct rival_counter levels[static RIVAL_DEPTH]);

int rival_counter_charge(struct rival_counter *leaf, uint64_t bytes);
void rival_counter_uncharge(struct rival_counter *leaf, uint64_t bytes);

/* ------------------------------------------------------------------ peers */

/*
 * ClickHouse's way: a thread collects what it charged and gave back, and settles with the counters
 * of the hierarchy when that passes 4 MiB in either direction. Its limits may so be passed by 4 MiB
 * a thread. Modelled: the slack, its two bounds, the counters with limit and peak. Not: samples for
 * the profiler, exceptions, overcommit, the second slack that is shared by a CPU's threads. There
 * the slack belongs to the thread, which works for one query at a time; so it does here.
 *
 * The program is linked statically, so that its thread-locals are cheap: _ie comes near to that, _gd
 * is what the same code costs in a library that others load.
 */
int rival_slack_gd_charge(struct rival_counter *leaf, uint64_t bytes);
void rival_slack_gd_uncharge(struct rival_counter *leaf, uint64_t bytes);
int rival_slack_ie_charge(struct rival_counter *leaf, uint64_t bytes);
void rival_slack_ie_uncharge(struct rival_counter *leaf, uint64_t bytes);

/*
 * Impala's way: every charge goes through all levels, from the root down, and at each the usage is
 * compared with the limit and swapped; then the peak is raised. Modelled: that, and the rollback.
 * Not: collecting garbage when a limit refuses, soft limits, logging.
 */
struct rival_tracker {
	struct rival_counter levels[RIVAL_DEPTH];
};

void rival_tracker_init(struct rival_tracker *t);
int rival_cas_charge(struct rival_tracker *t, uint64_t bytes);
void rival_cas_uncharge(struct rival_tracker *t, uint64_t bytes);

/*
 * Velox's way: a leaf reserves in steps of 1, 4 or 8 MiB, by size, and charges within its
 * reservation under its mutex; only a change of the reservation asks the parents, each under its
 * mutex, and the root alone has a limit. Modelled: that, the retry after the reservation grew, and
 * the peaks. Not: arbitration between queries, statistics, leaves for a single thread.
 */
struct rival_quanta {
	alignas(64) pthread_mutex_t mutex;
	struct rival_quanta *parent;
	int64_t reserved, used, max, peak;
};

void rival_quanta_init_chain(struct rival_quanta levels[static RIVAL_DEPTH]);
int rival_quanta_charge(struct rival_quanta *leaf, uint64_t bytes);
void rival_quanta_uncharge(struct rival_quanta *leaf, uint64_t bytes);

/* ------------------------------------------------------------------ the kernel's stock */

/*
 * The kernel's multi-slot stock, in three states of its development: a lock a CPU that is only ever
 * tried, for an interrupt may find it held; whoever fails goes to the hierarchical counter. Between
 * LOW and HIGH a slot keeps what comes back. What differs:
 *
 * - UNDER_LOCK: excess and evicted credit are returned to the counter while the lock is held; the
 *   statistic is updated at every charge, in two cache lines of the pool and CPU.
 * - AFTER_UNLOCK: they are carried out of the lock and returned then.
 * - BATCHED: besides, the statistic is counted beside the slot, and spilled when the slot turns over.
 *
 * The kernel's lock is no atomic operation, for whoever holds it cannot be preempted; in a process
 * it has to be one.
 */
enum rival_stock_way {
	RIVAL_UNDER_LOCK,
	RIVAL_AFTER_UNLOCK,
	RIVAL_BATCHED,
};

struct rival_stocks;

struct rival_stocks *rival_stocks_new(enum rival_stock_way way, unsigned n_cpus, unsigned n_pools);
struct rival_stocks *rival_stocks_free(struct rival_stocks *s);

/* *fallbacks counts the times that the lock was held. May be called from a signal handler. */
int rival_stocks_charge(struct rival_stocks *s, unsigned pool, uint64_t bytes, uint64_t *fallbacks);
void rival_stocks_uncharge(
	struct rival_stocks *s, unsigned pool, uint64_t bytes, uint64_t *fallbacks);

/* What the counters hold once all stocks are drained: 0 if all was given back. Nobody may charge. */
int64_t rival_stocks_drain(struct rival_stocks *s);

/* ------------------------------------------------------------------ the kernel's two layers */

/*
 * A stock of bytes on top of a stock of pages, as the kernel had them for objects in 2021: an object
 * takes whole pages from below and leaves the rest of the last page to the next ones. What the byte
 * stock has beyond a page drains, into the counter or into the page stock. One pool: that a slot
 * belongs to it is not compared. The kernel disables interrupts where this takes a CPU's mutex.
 */
struct rival_layers;

struct rival_layers *rival_layers_new(
	bool into_stock, unsigned n_cpus, struct rival_counter *counter);
struct rival_layers *rival_layers_free(struct rival_layers *l);
int rival_layers_charge(struct rival_layers *l, uint64_t bytes);
void rival_layers_uncharge(struct rival_layers *l, uint64_t bytes);

/* Charges and uncharges of the hierarchical counter so far. */
uint64_t rival_layers_operations(const struct rival_layers *l);
