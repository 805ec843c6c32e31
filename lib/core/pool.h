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
#include <sys/types.h>

#include "counter.h"
#include "figures.h"
#include "index.h"
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
struct pressure;
struct rstat_place;

/* Whether the files of a pool are written, and what is there: daemon/export.h. Nothing is allocated
 * for a pool that has none. */
struct pool_export {
	TAILQ_ENTRY(pool) entry; /* with others of its depth */
	uint64_t *hashes;        /* of the texts that were written last; NULL: nothing is known */
	uint32_t asked;          /* number of the last look at its pending updates */
	uint16_t depth;
	uint8_t state; /* enum exportset_state */
	bool has_files : 1, busy : 1, failed : 1, over : 1;
	bool hurried : 1; /* it is not to wait for the periodic flush */
};

/* Records of refusals by its limits: refusal.h. */
TAILQ_HEAD(pool_refusal_list, refusal);

struct pool_refusals {
	struct pool_refusal_list list;
	uint64_t next_look_usec; /* not before: at who holds most */
	uint32_t n;
};

struct pool_member {
	TAILQ_ENTRY(pool_member) entry;
	bool reclaims;      /* it gives back when it is asked; set by pool_set_reclaims() */
	uint64_t own, want; /* reclaim.h: what it has, and what it is to be asked for */
	uint32_t n_stalls;  /* pressure.h: what it waits for; it may come and go with them */
};

/* Of a tree whose server has said nothing else. */
#define POOL_THRESHOLD 64

/* Bits of pool.set_at_run beside those of limit.h. */
#define POOL_SET_OWNER (UINT32_C(1) << 30)
#define POOL_SET_MODE (UINT32_C(1) << 31)

/* Of a new pool: its owner may do all, the owner's group read and attach, all others read. */
#define POOL_MODE 0754

/* In the order of what a read touches. */
struct pool {
	struct pool *next_in_bucket; /* index.h */
	uint32_t hash;
	unsigned refs; /* 1 while it is in the tree, and one a holder */
	struct pool *parent;
	char *name; /* one part; "" at the root */
	struct pool_tree *tree;
	uint64_t id; /* never used again */
	bool in_tree;
	bool configured;       /* a section of the configuration names it */
	bool ephemeral;        /* it goes when nothing is in it any more: pool_sweep() */
	bool standalone;       /* what it has is not part of what the pools above it have */
	bool observe;          /* its own limits are counted and not enforced: limit_observe() */
	bool threshold_is_own; /* it was set here, and holds for the pools below that have none */
	/* Something that a file of this pool shows may have changed since it was last taken out of
	 * the list of changes. */
	bool changed;
	bool unpublished;   /* the same, of the places that sessions have for it */
	struct figures sum; /* the subtree's, as of the last look */
	uint64_t threshold; /* pending updates above which a read flushes the subtree */
	uint32_t n_descendants, n_children;
	uint32_t n_members_below, n_members; /* in the subtree, own included; and own */
	uint32_t n_reclaimers_below;         /* those of n_members_below that give back */
	uint32_t n_stalled_below;            /* pressure.h: those that wait */
	uint32_t n_dying; /* pools that were removed below it, and that somebody holds still */
	TAILQ_HEAD(, pool_member) members; /* attachments */
	TAILQ_HEAD(, rstat_place) places;  /* place.h: where sessions have it */
	TAILQ_ENTRY(pool) change, publication;
	struct counter counter;
	struct itemlimit *itemlimits; /* itemlimit.h: limits of items that are set here */
	/* limit.h: what people set beside memory.max, which is the counter's */
	uint64_t high, low, min, max_depth, max_descendants;
	uint64_t emin, elow;       /* protection.h: what holds of min and low */
	uint64_t planned;          /* reclaim.h: to be taken, while a plan is made; else 0 */
	uint64_t high_asked_usec;  /* high.h: when somebody was last asked; 0: never */
	struct pressure *pressure; /* NULL: nobody has waited yet */
	/* What came from a person at run time and holds over the file's; limit_bit(), below bit 16. */
	uint32_t set_at_run;
	uint64_t items_set_at_run;          /* the same for limits of items: itemlimit_bit() */
	uint64_t events[POOL_EVENTS];       /* this subtree */
	uint64_t events_local[POOL_EVENTS]; /* this pool alone */
	TAILQ_HEAD(, pool) children;        /* in the order of creation */
	TAILQ_ENTRY(pool) sibling;
	struct pool_refusals refusals;
	/* For whoever serves the tree, not touched here. */
	void *queue;                /* requests that wait for headroom at this pool */
	LIST_HEAD(, watch) watches; /* watch.h */
	uint32_t watches_marked;    /* kinds of events that all of them are to tell already */
	struct pool_export export;
	/* Who owns it, and what others may do: read it (4), change what is below (2), attach (1).
	 * A new one belongs to this process. */
	uid_t uid;
	gid_t gid;
	mode_t mode;
	/* Whose it was when it was made, and is when nobody says otherwise. */
	uid_t made_uid;
	gid_t made_gid;
	void *account; /* of whoever made it; NULL: nobody's. tree->on_drop gives it back */
	uint64_t refusal_logged_usec, refusals_unlogged;
};

struct pool_tree {
	struct pool *root;
	struct item_table *items;  /* not owned */
	struct refusals *refusals; /* not owned; NULL: none are kept */
	struct index index;
	/* From whoever serves the tree: the bytes that are granted with the item in the subtree. A
	 * limit of an item can be set only where this is known. */
	uint64_t (*sum_granted)(struct pool *p, uint32_t item);
	uint64_t (*now)(void);            /* microseconds; NULL: pressure is not measured */
	TAILQ_HEAD(, pressure) pressures; /* pools where it is not at rest */
	/* The same: a pool leaves the tree. NULL: nobody wants to know. */
	void (*on_drop)(struct pool *p);
	/* The same: an event was counted at p and above. */
	void (*on_event)(struct pool *p, enum pool_event e);
	void *userdata;             /* of whoever serves the tree */
	uint32_t n_nodes;           /* of memory, that figures are kept apart by; at least 1 */
	TAILQ_HEAD(, pool) changes; /* each pool once, in the order of their first change */
	uint64_t n_changes;
	TAILQ_HEAD(, pool) unpublished; /* each pool once */
	uint64_t last_id;
	uint64_t n_pools;
};

/* A tree with a root without limits. -ENOMEM. */
int pool_tree_new(struct item_table *items, struct pool_tree **ret);
/* Every pool must be without members. NULL is fine; returns NULL. */
struct pool_tree *pool_tree_free(struct pool_tree *t);

/* The pool of that path; -ENOENT, or what path_check() says. */
int pool_find(struct pool_tree *t, const char *path, struct pool **ret);

/* The pool of that path, or else the deepest one above it that there is; how many parts of the path are
 * still to be made. What path_check() says. */
int pool_find_nearest(
	struct pool_tree *t, const char *path, struct pool **ret, size_t *ret_missing);

/* Makes the last part of the path: -EEXIST when it is there, -ENOENT when its parent is not, -EAGAIN
 * beyond a max_depth or max_descendants above it. */
int pool_create(struct pool_tree *t, const char *path, struct pool **ret);

/* The same, with all missing parents; fine when it is there. On failure none of them stays. */
int pool_create_all(struct pool_tree *t, const char *path, struct pool **ret);
/* The same, and those that it makes are ephemeral. */
int pool_create_ephemeral(struct pool_tree *t, const char *path, struct pool **ret);

/*
 * Something has left the pool, a member or a child: if it is ephemeral, and has neither children nor
 * members nor bytes granted, it is removed, and so are those above it that are spent by that. `gone`
 * (NULL: nobody) is called for each, out of the tree already. NULL is fine.
 */
void pool_sweep(struct pool *p, void (*gone)(struct pool *p, void *userdata), void *userdata);

/* The same, whatever limits there are: a configuration is put into force alike at a start, where none
 * is set yet, and later. */
int pool_create_configured(struct pool_tree *t, const char *path, struct pool **ret);

/* -EBUSY: children, members or bytes granted; -EPERM: the root. */
int pool_remove(struct pool *p);

/*
 * Removes it whatever it has but for children. Its members become its parent's, and `move` is called
 * for each when it is that: what was granted to it is the parent's from then on, whose counters have
 * had it all the time. -EBUSY: children, or a standalone pool that has bytes granted; -EPERM: the root.
 */
int pool_remove_by_force(struct pool *p,
	void (*move)(struct pool_member *m, struct pool *to, void *), void *userdata);
/* Whether that would be refused, and why. */
int pool_check_force(const struct pool *p);

/*
 * From now on it is standalone, or part of the pools above it: their figures and its counters follow.
 * -EBUSY: bytes are granted in its subtree; -EINVAL: the root; -ENOMEM. Nothing has changed then. After
 * the other it cannot fail, unless something has been granted or moved meanwhile.
 */
int pool_set_standalone(struct pool *p, bool standalone);
int pool_prepare_standalone(struct pool *p, bool standalone);

struct pool *pool_ref(struct pool *p);
/* The last reference frees it. Returns NULL. */
struct pool *pool_unref(struct pool *p);

/* The whole path, to be freed by the caller; NULL when memory is short. */
char *pool_path(const struct pool *p);
/* Into a buffer of PATH_MAX_BYTES + 1; returns buf. */
const char *pool_path_into(const struct pool *p, char *buf, size_t size);

/* Whether p is `above` or below it. */
bool pool_is_below(const struct pool *p, const struct pool *above);

/* The pool above, whose figures and counters have what p has; NULL: there is none. Whatever adds up
 * bytes, and every limit that they are held against, goes this way and not by `parent`. */
static inline struct pool *pool_above(const struct pool *p)
{
	return p->standalone ? NULL : p->parent;
}

/* Whether what p has is part of what `above` has. */
bool pool_counts_in(const struct pool *p, const struct pool *above);

/* The lowest pool in which what either has is counted; NULL: there is none. */
struct pool *pool_common(struct pool *a, const struct pool *b);

/* As pool_next_preorder(), but for the standalone pools below the root of the walk, and what is in
 * them. */
struct pool *pool_next_counted(struct pool *p, const struct pool *root);

/* What a file of p shows may have changed; and of all pools above it. */
void pool_change(struct pool *p);
void pool_change_up(struct pool *p);
/* Takes a pool whose places may show something else than they should; NULL: there is none. */
struct pool *pool_take_unpublished(struct pool_tree *t);
/* Takes the first pool out of the list of changes; NULL: it is empty. */
struct pool *pool_take_change(struct pool_tree *t);
/* If p is in the list, it is the first one from now on. */
void pool_hurry_change(struct pool *p);

/* Sets the threshold of p and of those below it that have none of their own; 0: it has none of its
 * own any more, and gets its parent's (the root: `by_default`). */
void pool_set_threshold(struct pool *p, uint64_t threshold, uint64_t by_default);

/* Counts an event at p and, in `events`, at all ancestors. */
void pool_count_event(struct pool *p, enum pool_event e);

/* Counts credit that came back to p and had never been granted; sums stop at UINT64_MAX: what clients
 * say has no bound. */
void pool_count_overdraft(struct pool *p, uint64_t bytes);

void pool_add_member(struct pool *p, struct pool_member *m);
/* What is set in m stays: it may be added to another pool. */
void pool_remove_member(struct pool *p, struct pool_member *m);
/* Whether that member of p gives back when it is asked. */
void pool_set_reclaims(struct pool *p, struct pool_member *m, bool on);

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
