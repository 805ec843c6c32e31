/* SPDX-License-Identifier: MIT */

/*
 * Anyone who may create pools decides how deep and how wide the tree becomes. So a child is found
 * through an index, never by a search along the list; every walk climbs and descends along
 * pointers, never along the C stack; and what a reader asks of a subtree (pools, attachments) is
 * kept at each ancestor instead of being counted.
 *
 * A pool holds a reference to its parent from birth to death, not only while it is in the tree: a
 * removed pool that somebody still holds can tell its path and hand its counts up. A holder may
 * even outlive the tree, but then only to ask for the path and to let go.
 */

#include "pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "itemlimit.h"
#include "path.h"
#include "pressure.h"
#include "refusal.h"
#include "util.h"

const char *const pool_event_names[POOL_EVENTS] = {
	[POOL_LOW] = "low",
	[POOL_HIGH] = "high",
	[POOL_MAX] = "max",
	[POOL_OOM] = "oom",
	[POOL_OOM_KILL] = "oom_kill",
	[POOL_RECLAIM] = "reclaim",
	[POOL_FORCE] = "force",
	[POOL_WOULD_REFUSE] = "would_refuse",
};

/* Follows a checked path as far as there are pools; returns what is left of it for path_next(). */
static const char *descend(struct pool_tree *t, const char *path, struct pool **ret)
{
	struct pool *p = t->root, *child;
	const char *cursor = path, *rest = path, *part;
	size_t n;

	while ((part = path_next(&cursor, &n))) {
		child = index_find(&t->index, p, part, n);
		if (!child)
			break;
		p = child;
		rest = cursor;
	}

	*ret = p;
	return rest;
}

static void free_one(struct pool *p)
{
	pressure_free(p);
	figures_clear(&p->sum);
	free(p->name);
	free(p);
}

static void unpublish(struct pool *p)
{
	if (p->unpublished || !p->in_tree)
		return;
	p->unpublished = true;
	TAILQ_INSERT_TAIL(&p->tree->unpublished, p, publication);
}

static void forget_unpublished(struct pool *p)
{
	if (p->unpublished)
		TAILQ_REMOVE(&p->tree->unpublished, p, publication);
	p->unpublished = false;
}

struct pool *pool_take_unpublished(struct pool_tree *t)
{
	struct pool *p = TAILQ_FIRST(&t->unpublished);

	if (p)
		forget_unpublished(p);
	return p;
}

void pool_change(struct pool *p)
{
	unpublish(p);
	if (p->changed || !p->in_tree)
		return;
	p->changed = true;
	TAILQ_INSERT_TAIL(&p->tree->changes, p, change);
	p->tree->n_changes++;
}

void pool_change_up(struct pool *p)
{
	for (; p; p = p->parent)
		pool_change(p);
}

static void forget_change(struct pool *p)
{
	if (!p->changed)
		return;
	TAILQ_REMOVE(&p->tree->changes, p, change);
	p->tree->n_changes--;
	p->changed = false;
}

struct pool *pool_take_change(struct pool_tree *t)
{
	struct pool *p = TAILQ_FIRST(&t->changes);

	if (p)
		forget_change(p);
	return p;
}

void pool_hurry_change(struct pool *p)
{
	if (!p->changed)
		return;
	TAILQ_REMOVE(&p->tree->changes, p, change);
	TAILQ_INSERT_HEAD(&p->tree->changes, p, change);
}

/* Changes what p and its ancestors know of their subtrees. */
static void count_upwards(struct pool *p, int descendants, int members)
{
	for (; p; p = p->parent) {
		if (members != 0)
			pressure_catch_up(p);
		p->n_descendants += descendants;
		p->n_members_below += members;
		pool_change(p);
	}
}

/* Whether one more pool below p is within the limits of p and of all above it. */
static bool may_have_child(const struct pool *p)
{
	for (uint64_t level = 1; p; p = p->parent, level++)
		if (p->n_descendants >= p->max_descendants || level > p->max_depth)
			return false;
	return true;
}

static int new_pool(
	struct pool_tree *t, struct pool *parent, const char *part, size_t n, struct pool **ret)
{
	struct pool *p;

	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->name = strndup(part, n);
	if (!p->name) {
		free_one(p);
		return -ENOMEM;
	}

	p->tree = t;
	p->id = ++t->last_id;
	p->refs = 1;
	p->in_tree = true;
	p->uid = p->made_uid = geteuid();
	p->gid = p->made_gid = getegid();
	p->mode = POOL_MODE;
	p->threshold = parent ? parent->threshold : POOL_THRESHOLD;
	p->high = p->max_depth = p->max_descendants = COUNTER_MAX;
	counter_init(&p->counter, parent ? &parent->counter : NULL);
	TAILQ_INIT(&p->children);
	TAILQ_INIT(&p->members);
	TAILQ_INIT(&p->places);
	LIST_INIT(&p->watches);
	TAILQ_INIT(&p->refusals.list);
	t->n_pools++;
	if (parent) {
		p->parent = pool_ref(parent);
		TAILQ_INSERT_TAIL(&parent->children, p, sibling);
		parent->n_children++;
		index_add(&t->index, p);
		count_upwards(parent, 1, 0);
	}
	pool_change(p);
	*ret = p;
	return 0;
}

/* A removed pool is held still; or by nobody any more. */
static void count_dying(struct pool *p, int n)
{
	for (p = p->parent; p; p = p->parent) {
		p->n_dying += (uint32_t)n;
		pool_change(p);
	}
}

/* Takes a pool without children out of the tree, with the tree's reference. */
static void drop(struct pool *p)
{
	struct pool *parent = p->parent;

	if (parent) {
		index_remove(&p->tree->index, p);
		TAILQ_REMOVE(&parent->children, p, sibling);
		parent->n_children--;
		count_upwards(parent, -1, 0);
	}
	itemlimit_clear(p);
	refusal_forget(p);
	forget_change(p);
	forget_unpublished(p);
	pressure_unlist(p);
	if (p->tree->on_drop)
		p->tree->on_drop(p);
	p->in_tree = false;
	p->tree->n_pools--;
	count_dying(p, 1);
	pool_unref(p);
}

int pool_tree_new(struct item_table *items, struct pool_tree **ret)
{
	struct pool_tree *t;
	int r;

	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->items = items;
	t->n_nodes = 1;
	TAILQ_INIT(&t->changes);
	TAILQ_INIT(&t->unpublished);
	TAILQ_INIT(&t->pressures);
	r = index_init(&t->index);
	if (r == 0)
		r = new_pool(t, NULL, "", 0, &t->root);
	if (r < 0) {
		index_clear(&t->index);
		free(t);
		return r;
	}
	*ret = t;
	return 0;
}

struct pool_tree *pool_tree_free(struct pool_tree *t)
{
	struct pool *p, *next;

	if (!t)
		return NULL;
	for (p = pool_first_postorder(t->root); p; p = next) {
		next = pool_next_postorder(p, t->root);
		drop(p);
	}
	index_clear(&t->index);
	free(t);
	return NULL;
}

int pool_find(struct pool_tree *t, const char *path, struct pool **ret)
{
	const char *rest;
	struct pool *p;
	size_t n;
	int r;

	r = path_check(path);
	if (r < 0)
		return r;
	rest = descend(t, path, &p);
	if (path_next(&rest, &n))
		return -ENOENT;
	*ret = p;
	return 0;
}

int pool_find_nearest(struct pool_tree *t, const char *path, struct pool **ret, size_t *ret_missing)
{
	size_t n, missing = 0;
	const char *rest;
	int r;

	r = path_check(path);
	if (r < 0)
		return r;
	rest = descend(t, path, ret);
	while (path_next(&rest, &n))
		missing++;
	*ret_missing = missing;
	return 0;
}

int pool_create(struct pool_tree *t, const char *path, struct pool **ret)
{
	const char *rest, *part;
	struct pool *parent;
	size_t n, beyond;
	int r;

	r = path_check(path);
	if (r < 0)
		return r;
	rest = descend(t, path, &parent);
	part = path_next(&rest, &n);
	if (!part)
		return -EEXIST;
	if (path_next(&rest, &beyond))
		return -ENOENT;
	if (!may_have_child(parent))
		return -EAGAIN;
	return new_pool(t, parent, part, n, ret);
}

enum creation {
	ORDINARY,
	EPHEMERAL,
	CONFIGURED, /* whatever limits there are */
};

static int create_all(struct pool_tree *t, const char *path, enum creation how, struct pool **ret)
{
	struct pool *p, *there, *parent;
	const char *rest, *part;
	size_t n;
	int r;

	r = path_check(path);
	if (r < 0)
		return r;
	rest = descend(t, path, &there);
	p = there;
	while ((part = path_next(&rest, &n))) {
		r = how != CONFIGURED && !may_have_child(p) ? -EAGAIN : new_pool(t, p, part, n, &p);
		if (r < 0)
			break;
		p->ephemeral = how == EPHEMERAL;
	}
	if (r < 0) {
		for (; p != there; p = parent) {
			parent = p->parent;
			drop(p);
		}
		return r;
	}
	*ret = p;
	return 0;
}

int pool_create_all(struct pool_tree *t, const char *path, struct pool **ret)
{
	return create_all(t, path, ORDINARY, ret);
}

int pool_create_ephemeral(struct pool_tree *t, const char *path, struct pool **ret)
{
	return create_all(t, path, EPHEMERAL, ret);
}

int pool_create_configured(struct pool_tree *t, const char *path, struct pool **ret)
{
	return create_all(t, path, CONFIGURED, ret);
}

/* Undecided bytes count too: somebody is charging. */
static bool has_granted(const struct pool *p)
{
	return atomic_load(&p->counter.usage) != 0;
}

static bool is_spent(const struct pool *p)
{
	return p->ephemeral && p->in_tree && p->n_children == 0 && p->n_members == 0 &&
		!has_granted(p);
}

void pool_sweep(struct pool *p, void (*gone)(struct pool *p, void *userdata), void *userdata)
{
	while (p && is_spent(p)) {
		struct pool *held = pool_ref(p);

		p = p->parent;
		drop(held);
		if (gone)
			gone(held, userdata);
		pool_unref(held);
	}
}

int pool_remove(struct pool *p)
{
	if (!p->parent)
		return -EPERM;
	if (!p->in_tree)
		return -ENOENT;
	if (p->n_children || p->n_members || has_granted(p))
		return -EBUSY;
	drop(p);
	return 0;
}

int pool_check_force(const struct pool *p)
{
	if (!p->parent)
		return -EPERM;
	if (!p->in_tree)
		return -ENOENT;
	/* What a standalone pool has was never its parent's, and does not become so. */
	return p->n_children || (p->standalone && has_granted(p)) ? -EBUSY : 0;
}

int pool_remove_by_force(struct pool *p,
	void (*move)(struct pool_member *m, struct pool *to, void *), void *userdata)
{
	struct pool *to = p->parent;
	struct pool_member *m;
	int r = pool_check_force(p);

	if (r < 0)
		return r;
	while ((m = TAILQ_FIRST(&p->members))) {
		pool_remove_member(p, m);
		pool_add_member(to, m);
		move(m, to, userdata);
	}
	drop(p);
	return 0;
}

struct pool *pool_ref(struct pool *p)
{
	p->refs++;
	return p;
}

struct pool *pool_unref(struct pool *p)
{
	struct pool *parent;

	for (; p && --p->refs == 0; p = parent) {
		parent = p->parent;
		count_dying(p, -1);
		free_one(p);
	}
	return NULL;
}

/* Bytes of the path without NUL. */
static size_t path_length(const struct pool *p)
{
	size_t n = 0;

	if (!p->parent)
		return 1;
	for (; p->parent; p = p->parent)
		n += 1 + strlen(p->name);
	return n;
}

/* Writes the path, `n` bytes by path_length(), from its end to its beginning. */
static void write_path(const struct pool *p, char *buf, size_t n)
{
	char *at = buf + n;
	size_t part;

	*at = '\0';
	*buf = '/';
	for (; p->parent; p = p->parent) {
		part = strlen(p->name);
		at -= part;
		memcpy(at, p->name, part);
		*--at = '/';
	}
}

char *pool_path(const struct pool *p)
{
	size_t n = path_length(p);
	char *path = malloc(n + 1);

	if (path)
		write_path(p, path, n);
	return path;
}

/* A cut path would name another pool, so a buffer that is too small gets an empty one. */
const char *pool_path_into(const struct pool *p, char *buf, size_t size)
{
	size_t n = path_length(p);

	if (n < size)
		write_path(p, buf, n);
	else if (size)
		*buf = '\0';
	return buf;
}

bool pool_is_below(const struct pool *p, const struct pool *above)
{
	while (p && p != above)
		p = p->parent;
	return p;
}

bool pool_counts_in(const struct pool *p, const struct pool *above)
{
	while (p && p != above)
		p = pool_above(p);
	return p;
}

/* The figures of the pools above have what p's have, or no longer. */
static void merge_above(const struct pool *p, bool minus)
{
	for (struct pool *above = p->parent; above; above = pool_above(above)) {
		figures_merge(&above->sum, &p->sum, p->tree->n_nodes, minus);
		pool_change(above);
	}
}

struct pool *pool_common(struct pool *a, const struct pool *b)
{
	while (a && !pool_counts_in(b, a))
		a = pool_above(a);
	return a;
}

int pool_prepare_standalone(struct pool *p, bool standalone)
{
	if (p->standalone == standalone)
		return 0;
	if (!p->parent)
		return -EINVAL;
	if (has_granted(p))
		return -EBUSY;
	for (struct pool *above = p->parent; above; above = pool_above(above))
		if ((p->sum.items && figures_need_items(&above->sum) < 0) ||
			(p->sum.moved && figures_need_moved(&above->sum, p->tree->n_nodes) < 0))
			return -ENOMEM;
	return 0;
}

int pool_set_standalone(struct pool *p, bool standalone)
{
	int r = pool_prepare_standalone(p, standalone);

	if (r < 0 || p->standalone == standalone)
		return r;
	merge_above(p, standalone);
	p->standalone = standalone;
	p->counter.parent = standalone ? NULL : &p->parent->counter;
	itemlimit_relink(p);
	for (struct pool *below = p; below; below = pool_next_preorder(below, p))
		pool_change(below);
	return 0;
}

static void show_threshold(struct pool *p, uint64_t threshold)
{
	p->threshold = threshold;
	unpublish(p);
}

void pool_set_threshold(struct pool *p, uint64_t threshold, uint64_t by_default)
{
	struct pool *below = p;

	p->threshold_is_own = threshold != 0;
	show_threshold(p, threshold ? threshold : p->parent ? p->parent->threshold : by_default);
	while ((below = pool_next_preorder(below, p)))
		if (!below->threshold_is_own)
			show_threshold(below, below->parent->threshold);
}

void pool_count_event(struct pool *p, enum pool_event e)
{
	p->events_local[e]++;
	for (struct pool *at = p; at; at = at->parent) {
		at->events[e]++;
		pool_change(at);
	}
	if (p->tree->on_event)
		p->tree->on_event(p, e);
}

void pool_count_overdraft(struct pool *p, uint64_t bytes)
{
	for (; bytes > 0 && p; p = pool_above(p)) {
		uint64_t *sum = &p->sum.overdraft;

		if (__builtin_add_overflow(*sum, bytes, sum))
			*sum = UINT64_MAX;
		pool_change(p);
	}
}

static void count_reclaimer(struct pool *p, int n)
{
	for (; p; p = p->parent)
		p->n_reclaimers_below += n;
}

void pool_add_member(struct pool *p, struct pool_member *m)
{
	TAILQ_INSERT_TAIL(&p->members, m, entry);
	p->n_members++;
	count_upwards(p, 0, 1);
	count_reclaimer(p, m->reclaims);
	if (m->n_stalls > 0)
		pressure_count(p, 1);
}

void pool_remove_member(struct pool *p, struct pool_member *m)
{
	if (m->n_stalls > 0)
		pressure_count(p, -1);
	TAILQ_REMOVE(&p->members, m, entry);
	p->n_members--;
	count_upwards(p, 0, -1);
	count_reclaimer(p, -m->reclaims);
}

void pool_set_reclaims(struct pool *p, struct pool_member *m, bool on)
{
	count_reclaimer(p, on - m->reclaims);
	m->reclaims = on;
}

struct pool *pool_next_preorder(struct pool *p, const struct pool *root)
{
	if (!TAILQ_EMPTY(&p->children))
		return TAILQ_FIRST(&p->children);
	for (; p != root; p = p->parent)
		if (TAILQ_NEXT(p, sibling))
			return TAILQ_NEXT(p, sibling);
	return NULL;
}

struct pool *pool_next_counted(struct pool *p, const struct pool *root)
{
	do {
		/* What is below it is passed over: the next one beside it, or beside one above. */
		if (p == root || !p->standalone)
			p = pool_next_preorder(p, root);
		else {
			while (p != root && !TAILQ_NEXT(p, sibling))
				p = p->parent;
			p = p == root ? NULL : TAILQ_NEXT(p, sibling);
		}
	} while (p && p->standalone);
	return p;
}

struct pool *pool_first_postorder(struct pool *root)
{
	struct pool *p = root;

	while (!TAILQ_EMPTY(&p->children))
		p = TAILQ_FIRST(&p->children);
	return p;
}

struct pool *pool_next_postorder(struct pool *p, const struct pool *root)
{
	if (p == root)
		return NULL;
	if (TAILQ_NEXT(p, sibling))
		return pool_first_postorder(TAILQ_NEXT(p, sibling));
	return p->parent;
}
