/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Which pools have their files written: those that a pattern names, at most `export_max` of them, the
 * deeper ones last. It is kept as pools come and go, by lists of equal depth: a pool that comes may
 * take the place of one that lies deeper, one that goes leaves its place to one that waits.
 */

#include "conf/conf.h"
#include "core/pool.h"

enum exportset_state {
	EXPORTSET_UNSEEN,
	EXPORTSET_UNWANTED,
	EXPORTSET_WAITING, /* there is no room */
	EXPORTSET_IN,
};

TAILQ_HEAD(exportset_list, pool);

struct exportset_level {
	struct exportset_list in, waiting;
};

struct exportset {
	const char *dir; /* that holds the files of the root, not owned */
	const struct conf *conf;
	uint64_t n, n_waiting; /* pools that are in; that wait */
	uint32_t n_levels;
	uint32_t deepest;    /* no pool that is in lies below this depth */
	uint32_t shallowest; /* no pool that waits lies above it */
	bool full_logged, unfit_logged;
	struct exportset_level levels[PATH_MAX_BYTES / 2 + 1]; /* the first n_levels are in use */
};

/* Zeroed before the first time. Every pool of the tree is unseen from now on. */
void exportset_begin(struct exportset *s, const char *dir, const struct conf *c, struct pool *root);

/* An unseen pool comes. The pool that has lost its place to it, which waits now; NULL: none. */
struct pool *exportset_add(struct exportset *s, struct pool *p);

/* A pool of any state goes. The pool that has got its place; NULL: none. */
struct pool *exportset_remove(struct exportset *s, struct pool *p);
