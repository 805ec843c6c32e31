/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Bringing the changes of a subtree together: what is held and what lies idle, from the rows and the
 * words, and what tally_stat_add() has moved, from the cells. Only what has changed is looked at:
 * slots are few and are compared with what they held at the last look; all else is marked by whoever
 * changes it (segment.h). What a look finds is added at once to the figures of the pool and of all
 * pools above it, so that in all that is shown a pool has what its children have and what is its own.
 *
 * A flush resets nothing: cells are cumulative, and `previous` is kept on this side. So what a client
 * that died has moved in gauges can be taken back exactly, while its event counts stay.
 *
 * All of it is called by one thread at a time.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "pool.h"
#include "segment.h"

struct rstat;
struct rstat_place;
struct rstat_seen;

/* Of the keys of the engine that uses this, the part that is looked at here. */
struct rstat_key {
	struct rstat *rstat;
	struct pool *pool;
	uint32_t number, item;
	bool touched;  /* its row has changed since the last look */
	bool has_idle; /* it is in the list of those */
	TAILQ_ENTRY(rstat_key) touch, idle_entry;
	uint64_t slots;      /* bytes in slots, at the last look */
	uint64_t held, idle; /* what the figures of the pools have of it */
	int64_t *moved;      /* the same by node; NULL: nothing */
	bool still;          /* its cells are not read any more */
};

struct rstat_host {
	struct pool_tree *tree;
	const uint16_t *node_of_cpu; /* below tree->n_nodes; NULL: there is one node */
	TAILQ_HEAD(, rstat) sessions;
	uint32_t n_sessions;
	TAILQ_HEAD(, rstat_key) idle; /* keys of which any credit lies idle, as of the last look */
	/* What was granted to the key, cumulative words folded in, and how much of it is in answers
	 * that nobody has accepted yet. */
	void (*read)(struct rstat_key *k, uint64_t *ret_granted, uint64_t *ret_unaccepted);
	/* Of a session, by number; NULL: there is none of that number now. */
	struct rstat_key *(*find)(struct rstat *r, uint32_t number);
	/* What is on its way between a slot and the row, and still idle: into `ret_seen` (NULL: it is only
	 * counted), at most one for each slot; returns how many. NULL: nothing ever is. */
	uint32_t (*taken)(struct rstat *r, struct rstat_seen *ret_seen);
	/* Calls fn for the keys of an attachment; returns the last error that one returned. */
	int (*each)(struct pool_member *m, int (*fn)(struct rstat_key *k, bool moved), bool moved);
	/* Since the beginning: looks, pools that were walked through, keys that had changed. */
	uint64_t looks, pools, keys;
};

struct rstat_seen {
	uint32_t key;
	uint64_t bytes;
};

/* One session. */
struct rstat {
	struct rstat_host *host;
	TAILQ_ENTRY(rstat) entry;
	const struct segment *segment;
	TAILQ_HEAD(, rstat_key) touched;
	uint64_t look;           /* number of the last look that has read its slots */
	struct rstat_seen *seen; /* n_seen of them: the slots at the last look */
	uint32_t n_seen;
	/* By extent, by CPU: values of cells that the figures have. NULL: all of them are 0. */
	int64_t **previous[SEGMENT_EXTENTS];
	void *place_index;           /* tsearch(3) root, by pool */
	struct rstat_place **places; /* by number - 1; NULL: it is free */
	uint32_t *free_places;
	uint32_t n_free_places, n_places; /* places of the extents that are known here */
};

void rstat_host_init(struct rstat_host *h, struct pool_tree *tree);

/* A session whose base is there. -ENOMEM. rstat_end() frees all; its keys have been closed. */
int rstat_begin(struct rstat *r, struct rstat_host *h, const struct segment *s);
void rstat_end(struct rstat *r);

/* The key is the pool's from now on, and has been granted nothing. */
void rstat_key_open(
	struct rstat_key *k, struct rstat *r, struct pool *p, uint32_t number, uint32_t item);
/* Its pool has been removed, and what the key has is that pool's parent's. What it moves from now on is
 * nobody's. */
void rstat_key_move(struct rstat_key *k, struct pool *parent);
/* What it has goes out of the figures, but for events that it counted, up to now. Twice is fine. */
void rstat_key_close(struct rstat_key *k);

/* Frees what it has, and touches neither figures nor shared memory. */
void rstat_key_free(struct rstat_key *k);

/* Its row has changed. Async-signal-safe, where its caller is alone. */
void rstat_touch(struct rstat_key *k);

/* Reads the slots of a session: k->slots of its keys are as they are now, and those that have any, or
 * had at the last time, are touched. What lies there of keys that are not open is nobody's. */
void rstat_scan(struct rstat *r);

/* What lies idle in the words of the key: in slots, as of the last look at them, and in the reserve now. */
uint64_t rstat_key_in_words(const struct rstat_key *k);

/* One key, whatever is marked. */
int rstat_look_key(struct rstat_key *k, bool moved);

/* What was granted has gone from the one to the other, of the same session: seen in one step, so that
 * no pool above both ever shows less or more. */
void rstat_look_pair(struct rstat_key *from, struct rstat_key *to);

/* All that has changed in the subtree; `moved`: cells too. -ENOMEM: some of it is missing, and will be
 * seen by the next look. */
int rstat_look(struct rstat_host *h, struct pool *root, bool moved);
