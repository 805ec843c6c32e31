/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The tree of pools: names, counters, event counts, references, removal. It knows nothing of
 * clients; who is attached hangs as a pool_member in a list here and is known in full to the daemon
 * (or to the embedded engine) alone. The tree is changed by one thread at a time; counters may be
 * charged by any.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "counter.h"
#include "figures.h"
#include "item.h"
#include "path.h"

/* In the order of memory.events. */
enum pool_event {
	POOL_LOW,
	POOL_HIGH,
	POOL_MAX,
	POOL_OOM,
	POOL_OOM_KILL,
	POOL_RECLAIM,
	POOL_FORCE,
	POOL_WOULD_REFUSE,
	POOL_EVENTS,
};

extern const char *const pool_event_names[POOL_EVENTS];

struct itemlimit;

struct pool_member {
	TAILQ_ENTRY(pool_member) entry;
};

/* Bits of pool.set_at_run: the value came from a person at run time and holds over the file's. */
#define POOL_SET_MAX (UINT32_C(1) << 0)

struct pool {
	struct pool_tree *tree;
	struct pool *parent;
	char *name;    /* one part; "" at the root */
	uint64_t id;   /* never used again */
	unsigned refs; /* 1 while it is in the tree, and one a holder */
	bool in_tree;
	bool configured; /* a section of the configuration names it */
	uint32_t set_at_run;
	uint64_t items_set_at_run; /* the same for limits of items: itemlimit_bit() */
	struct counter counter;
	struct itemlimit *itemlimits;       /* itemlimit.h: limits of items that are set here */
	uint64_t events[POOL_EVENTS];       /* this subtree */
	uint64_t events_local[POOL_EVENTS]; /* this pool alone */
	uint64_t version;   /* raised whenever something that a file shows may have changed */
	struct figures own; /* this pool's own attachments, as of the last look */
	struct figures sum; /* the subtree's */
	void *child_index;  /* tsearch(3) root, by name */
	TAILQ_HEAD(, pool) children; /* in the order of creation */
	TAILQ_ENTRY(pool) sibling;
	uint32_t n_children, n_descendants;
	TAILQ_HEAD(, pool_member) members;   /* attachments */
	uint32_t n_members, n_members_below; /* own; and in the subtree, own included */
	/* For whoever serves the tree, not touched here. */
	uint64_t seen_peak;        /* at the last look */
	void *queue;               /* requests that wait for headroom at this pool */
	uint64_t exported_version; /* that the exported files show; 0: there are none */
	uint64_t refusal_logged_usec, refusals_unlogged;
};

struct pool_tree {
	struct pool *root;
	struct item_table *items; /* not owned */
	/* From whoever serves the tree: the bytes that are granted with the item in the subtree. A
	 * limit of an item can be set only where this is known. */
	uint64_t (*sum_granted)(struct pool *p, uint32_t item);
	uint64_t last_id;
	uint64_t n_pools;
};

/* A tree with a root without limits. -ENOMEM. */
int pool_tree_new(struct item_table *items, struct pool_tree **ret);
/* Every pool must be without members. NULL is fine; returns NULL. */
struct pool_tree *pool_tree_free(struct pool_tree *t);

/* The pool of that path; -ENOENT, or what path_check() says. */
int pool_find(struct pool_tree *t, const char *path, struct pool **ret);

/* Makes the last part of the path: -EEXIST when it is there, -ENOENT when its parent is not. */
int pool_create(struct pool_tree *t, const char *path, struct pool **ret);

/* The same, with all missing parents; fine when it is there. On failure none of them stays. */
int pool_create_all(struct pool_tree *t, const char *path, struct pool **ret);

/* -EBUSY: children, members or bytes granted; -EPERM: the root. */
int pool_remove(struct pool *p);

struct pool *pool_ref(struct pool *p);
/* The last reference frees it. Returns NULL. */
struct pool *pool_unref(struct pool *p);

/* The whole path, to be freed by the caller; NULL when memory is short. */
char *pool_path(const struct pool *p);
/* Into a buffer of PATH_MAX_BYTES + 1; returns buf. */
const char *pool_path_into(const struct pool *p, char *buf, size_t size);

/* Whether p is `above` or below it. */
bool pool_is_below(const struct pool *p, const struct pool *above);

/* Counts an event at p and, in `events`, at all ancestors. */
void pool_count_event(struct pool *p, enum pool_event e);

void pool_add_member(struct pool *p, struct pool_member *m);
void pool_remove_member(struct pool *p, struct pool_member *m);

/* The next pool of the subtree in preorder (parents first), NULL behind the last one. Start with
 * p = root of the walk. */
struct pool *pool_next_preorder(struct pool *p, const struct pool *root);
/* Children first: start with pool_first_postorder(root); the root of the walk comes last. */
struct pool *pool_first_postorder(struct pool *root);
struct pool *pool_next_postorder(struct pool *p, const struct pool *root);

static inline struct pool *pool_of_counter(struct counter *c)
{
	return (struct pool *)((char *)c - offsetof(struct pool, counter));
}
