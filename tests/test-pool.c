/* SPDX-License-Identifier: MIT */

/*
 * The tree of pools: what it holds after every way to change it, also at the sizes that a user may
 * bring about, and after a change that failed half-way.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/path.h"
#include "core/pool.h"
#include "core/util.h"

static unsigned fail_at; /* the how-manieth name cannot be copied; 0: none */

/* Stands before the C library's, so that memory can run short at a chosen pool. */
char *strndup(const char *text, size_t n)
{
	size_t length = strnlen(text, n);
	char *copy;

	if (fail_at && --fail_at == 0)
		return NULL;
	copy = malloc(length + 1);
	if (copy) {
		memcpy(copy, text, length);
		copy[length] = '\0';
	}
	return copy;
}

struct fixture {
	struct item_table items;
	struct pool_tree *tree;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	*state = f;
	return f ? pool_tree_new(&f->items, &f->tree) : -1;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	f->tree = pool_tree_free(f->tree);
	free(f);
	return 0;
}

static struct pool_tree *tree_of(void **state)
{
	return ((struct fixture *)*state)->tree;
}

static struct pool *make(struct pool_tree *t, const char *path)
{
	struct pool *p = NULL;

	assert_int_equal(pool_create_all(t, path, &p), 0);
	return p;
}

static void assert_absent(struct pool_tree *t, const char *path)
{
	struct pool *p = t->root;

	assert_int_equal(pool_find(t, path, &p), -ENOENT);
	assert_ptr_equal(p, t->root);
}

static void assert_path(const struct pool *p, const char *expected)
{
	_cleanup_(freep) char *path = pool_path(p);
	char buf[PATH_MAX_BYTES + 1];

	assert_string_equal(path, expected);
	assert_ptr_equal(pool_path_into(p, buf, sizeof(buf)), buf);
	assert_string_equal(buf, expected);
}

/* "/x/x/…", `depth` parts. */
static char *deep_path(size_t depth)
{
	char *path = malloc(2 * depth + 1);

	assert_non_null(path);
	for (size_t i = 0; i < depth; i++)
		memcpy(path + 2 * i, "/x", 2);
	path[2 * depth] = '\0';
	return path;
}

static void test_root(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *p = NULL;

	assert_int_equal(pool_find(t, "/", &p), 0);
	assert_ptr_equal(p, t->root);
	assert_int_equal(p->id, 1);
	assert_null(p->parent);
	assert_true(p->in_tree);
	assert_ptr_equal(p->tree, t);
	assert_ptr_equal(t->items, &((struct fixture *)*state)->items);
	assert_int_equal(t->n_pools, 1);
	assert_true(atomic_load(&p->counter.max) == COUNTER_MAX);
	assert_path(p, "/");
	assert_int_equal(pool_create(t, "/", &p), -EEXIST);
	assert_int_equal(pool_create_all(t, "/", &p), 0);
	assert_int_equal(pool_remove(t->root), -EPERM);
	assert_null(pool_tree_free(NULL));
	assert_null(pool_unref(NULL));
}

static void test_create(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *a = NULL, *b = NULL, *p = NULL;

	assert_int_equal(pool_create(t, "/a/b", &p), -ENOENT);
	assert_int_equal(pool_create(t, "/a", &a), 0);
	assert_int_equal(pool_create(t, "/a/b", &b), 0);
	assert_int_equal(pool_create(t, "/a/b", &p), -EEXIST);
	assert_int_equal(pool_create(t, "/a/b/c/d", &p), -ENOENT);
	assert_int_equal(pool_create(t, "a", &p), -EINVAL);
	assert_int_equal(pool_create(t, "/a/", &p), -EINVAL);
	assert_int_equal(pool_create(t, "/a/..", &p), -EINVAL);
	assert_int_equal(pool_create(t, NULL, &p), -EINVAL);
	assert_int_equal(pool_find(t, "/a//b", &p), -EINVAL);
	assert_int_equal(pool_create_all(t, "/a\n", &p), -EINVAL);
	assert_null(p);

	assert_int_equal(a->id, 2);
	assert_int_equal(b->id, 3);
	assert_ptr_equal(b->parent, a);
	assert_ptr_equal(b->counter.parent, &a->counter);
	assert_ptr_equal(a->counter.parent, &t->root->counter);
	assert_ptr_equal(pool_of_counter(&b->counter), b);
	assert_true(atomic_load(&b->counter.max) == COUNTER_MAX);
	assert_string_equal(b->name, "b");
	assert_path(b, "/a/b");
	assert_int_equal(pool_find(t, "/a/b", &p), 0);
	assert_ptr_equal(p, b);
	assert_int_equal(t->n_pools, 3);
	assert_int_equal(t->root->n_children, 1);
	assert_int_equal(t->root->n_descendants, 2);
	assert_int_equal(a->n_descendants, 1);
	assert_int_equal(b->n_descendants, 0);
}

static void test_names_are_whole(void **state)
{
	struct pool_tree *t = tree_of(state);
	char path[1 + PATH_PART_MAX + 1], shorter[sizeof(path)];
	struct pool *p = NULL;

	make(t, "/ab");
	assert_absent(t, "/a");
	assert_absent(t, "/abc");
	assert_absent(t, "/ab/b");
	assert_absent(t, "/AB");

	memset(path, 'n', sizeof(path) - 1);
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	strcpy(shorter, path);
	shorter[sizeof(path) - 2] = '\0';
	make(t, path);
	assert_absent(t, shorter);
	assert_int_equal(pool_find(t, path, &p), 0);
	assert_path(p, path);
}

static void test_path_into_small_buffer(void **state)
{
	struct pool *p = make(tree_of(state), "/ab/c");
	char buf[8];

	memset(buf, '#', sizeof(buf));
	assert_string_equal(pool_path_into(p, buf, 6), "/ab/c");
	assert_string_equal(pool_path_into(p, buf, 5), "");
	assert_string_equal(pool_path_into(tree_of(state)->root, buf, 1), "");
	buf[0] = '#';
	pool_path_into(p, buf, 0);
	assert_int_equal(buf[0], '#');
}

static void test_create_all(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *a = make(t, "/a"), *p = NULL;

	assert_int_equal(pool_create_all(t, "/a/b/c", &p), 0);
	assert_path(p, "/a/b/c");
	assert_ptr_equal(p->parent->parent, a);
	assert_ptr_equal(make(t, "/a/b/c"), p);
	assert_ptr_equal(make(t, "/a"), a);
	assert_int_equal(t->n_pools, 4);
}

static void test_create_all_leaves_nothing(void **state)
{
	static const char *const bad[] = {"/a/b/c/../d", "/a/b/c//d", "/a/b/\x7f", "/a/b/c/"};
	struct pool_tree *t = tree_of(state);
	char too_long[8 + PATH_PART_MAX + 2];
	struct pool *a = make(t, "/a"), *p = NULL;
	unsigned nth, refs = a->refs;

	for (size_t i = 0; i < ELEMENTS(bad); i++)
		assert_int_equal(pool_create_all(t, bad[i], &p), -EINVAL);
	snprintf(too_long, sizeof(too_long), "/a/b/c/%0*d", PATH_PART_MAX + 1, 0);
	assert_int_equal(pool_create_all(t, too_long, &p), -ENAMETOOLONG);
	for (nth = 1; nth <= 4; nth++) {
		fail_at = nth;
		assert_int_equal(pool_create_all(t, "/a/b/c/d/e", &p), -ENOMEM);
		assert_int_equal(fail_at, 0);
		assert_absent(t, "/a/b");
		assert_int_equal(t->n_pools, 2);
		assert_int_equal(t->root->n_descendants, 1);
		assert_int_equal(a->n_children, 0);
		assert_int_equal(a->n_descendants, 0);
		assert_true(TAILQ_EMPTY(&a->children));
		assert_int_equal(a->refs, refs);
	}
	assert_null(p);

	assert_int_equal(pool_create_all(t, "/a/b/c/d/e", &p), 0);
	assert_int_equal(a->n_descendants, 4);
}

static void test_create_short_of_memory(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *p = NULL;

	fail_at = 1;
	assert_int_equal(pool_create(t, "/a", &p), -ENOMEM);
	assert_null(p);
	assert_absent(t, "/a");
	assert_int_equal(t->root->n_children, 0);
	assert_int_equal(pool_create(t, "/a", &p), 0);
}

static void test_remove_busy(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *child = make(t, "/a/b"), *a = child->parent;
	struct pool_member m = {0};

	assert_int_equal(pool_remove(a), -EBUSY);
	assert_int_equal(pool_remove(child), 0);
	assert_absent(t, "/a/b");

	pool_add_member(a, &m);
	assert_int_equal(pool_remove(a), -EBUSY);
	pool_remove_member(a, &m);

	counter_charge(&a->counter, 1);
	assert_int_equal(pool_remove(a), -EBUSY);
	assert_int_equal(counter_uncharge(&a->counter, 1), 0);

	assert_true(a->in_tree);
	assert_int_equal(t->n_pools, 2);
	assert_int_equal(pool_remove(a), 0);
	assert_absent(t, "/a");
	assert_int_equal(t->n_pools, 1);
	assert_int_equal(t->root->n_descendants, 0);
	assert_int_equal(t->root->n_children, 0);
}

static void test_removed_stays_readable(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *old = pool_ref(make(t, "/a/b/c")), *b = old->parent, *a = b->parent, *p = NULL;
	uint64_t id = old->id;

	pool_count_event(old, POOL_OOM);
	assert_int_equal(pool_remove(old), 0);
	assert_int_equal(pool_remove(b), 0);
	assert_false(old->in_tree);
	assert_int_equal(pool_remove(old), -ENOENT);

	assert_int_equal(pool_create_all(t, "/a/b/c", &p), 0);
	assert_ptr_not_equal(p, old);
	assert_true(p->id > id);
	assert_int_equal(p->events[POOL_OOM], 0);

	assert_path(old, "/a/b/c");
	assert_int_equal(old->id, id);
	assert_int_equal(old->events[POOL_OOM], 1);
	assert_true(pool_is_below(old, a));
	assert_false(pool_is_below(old, p->parent));
	assert_int_equal(a->n_descendants, 2);
	assert_null(pool_unref(old));
	assert_path(p, "/a/b/c");
}

static void test_id_never_used_again(void **state)
{
	struct pool_tree *t = tree_of(state);
	uint64_t last = 0;

	for (unsigned i = 0; i < 10; i++) {
		struct pool *p = make(t, "/again");

		assert_true(p->id > last);
		last = p->id;
		assert_int_equal(pool_remove(p), 0);
	}
}

static void test_holder_outlives_tree(void **state _unused_)
{
	struct item_table items = {0};
	struct pool *in_tree, *removed;
	struct pool_tree *t;

	assert_int_equal(pool_tree_new(&items, &t), 0);
	in_tree = pool_ref(make(t, "/a/b"));
	removed = pool_ref(make(t, "/a/b/c"));
	assert_int_equal(pool_remove(removed), 0);
	assert_null(pool_tree_free(t));

	assert_false(in_tree->in_tree);
	assert_path(in_tree, "/a/b");
	pool_unref(in_tree);
	assert_path(removed, "/a/b/c");
	pool_unref(removed);
}

enum {
	MANY = 5000,
	STRIDE = 1237, /* prime to MANY: every number once, far from sorted */
};

static const char *numbered(unsigned i)
{
	static char path[32];

	snprintf(path, sizeof(path), "/n%u", i * STRIDE % MANY);
	return path;
}

static void assert_numbered_children(struct pool_tree *t, unsigned first, unsigned step)
{
	unsigned i = first;
	struct pool *p, *found;

	TAILQ_FOREACH (p, &t->root->children, sibling) {
		assert_string_equal(p->name, numbered(i) + 1);
		assert_int_equal(pool_find(t, numbered(i), &found), 0);
		assert_ptr_equal(found, p);
		i += step;
	}
	assert_int_equal(i, MANY + first);
	assert_int_equal(t->root->n_children, MANY / step);
	assert_int_equal(t->root->n_descendants, MANY / step);
	assert_int_equal(t->n_pools, 1 + MANY / step);
}

static void test_many_children(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *p;
	unsigned i;

	for (i = 0; i < MANY; i++)
		assert_int_equal(pool_create(t, numbered(i), &p), 0);
	assert_numbered_children(t, 0, 1);
	assert_int_equal(pool_create(t, "/n0", &p), -EEXIST);

	for (i = 0; i < MANY; i += 2) {
		assert_int_equal(pool_find(t, numbered(i), &p), 0);
		assert_int_equal(pool_remove(p), 0);
	}
	assert_numbered_children(t, 1, 2);
	for (i = 0; i < MANY; i += 2)
		assert_absent(t, numbered(i));
}

static void check_depth(struct pool_tree *t, size_t depth)
{
	_cleanup_(freep) char *path = deep_path(depth);
	struct pool *deepest = make(t, path), *p;
	size_t n = 0;

	assert_path(deepest, path);
	assert_int_equal(pool_find(t, path, &p), 0);
	assert_ptr_equal(p, deepest);
	assert_true(pool_is_below(deepest, t->root));
	assert_int_equal(t->root->n_descendants, depth);
	assert_int_equal(t->root->n_children, 1);

	for (p = t->root; p; p = pool_next_preorder(p, t->root))
		assert_int_equal(p->n_descendants, depth - n++);
	assert_int_equal(n, depth + 1);
	for (p = pool_first_postorder(t->root); p; p = pool_next_postorder(p, t->root))
		assert_int_equal(p->n_descendants, depth + 1 - n--);
	assert_int_equal(n, 0);

	pool_count_event(deepest, POOL_FORCE);
	assert_int_equal(t->root->events[POOL_FORCE], 1);

	/* All of them leave, then the last holder frees them in one go. */
	pool_ref(deepest);
	for (p = deepest; p != t->root; p = p->parent)
		assert_int_equal(pool_remove(p), 0);
	assert_int_equal(t->n_pools, 1);
	assert_path(deepest, path);
	assert_true(t->root->refs > 1);
	pool_unref(deepest);
	assert_int_equal(t->root->refs, 1);
}

static void test_depth(void **state)
{
	check_depth(tree_of(state), 1000);
}

static void test_greatest_depth(void **state)
{
	check_depth(tree_of(state), PATH_MAX_BYTES / 2);
}

/* Names in the order of a walk, "," behind each; the root is "". */
static void append(char *names, const struct pool *p)
{
	strcat(names, p->name);
	strcat(names, ",");
}

static void assert_preorder(struct pool *root, const char *expected)
{
	char names[256] = "";

	for (struct pool *p = root; p; p = pool_next_preorder(p, root))
		append(names, p);
	assert_string_equal(names, expected);
}

static void assert_postorder(struct pool *root, const char *expected)
{
	char names[256] = "";
	struct pool *p;

	for (p = pool_first_postorder(root); p; p = pool_next_postorder(p, root))
		append(names, p);
	assert_string_equal(names, expected);
}

static void assert_counted(struct pool *root, const char *expected)
{
	char names[256] = "";

	for (struct pool *p = root; p; p = pool_next_counted(p, root))
		append(names, p);
	assert_string_equal(names, expected);
}

static struct pool *standalone(struct pool_tree *t, const char *path)
{
	struct pool *p;

	assert_int_equal(pool_find(t, path, &p), 0);
	assert_int_equal(pool_set_standalone(p, true), 0);
	return p;
}

/* A standalone pool is the root of what is in it, and no part of what is above it. */
static void test_counted(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *m, *y, *deep, *late, *b;

	make(t, "/z");
	make(t, "/m/y/deep/deeper");
	make(t, "/m/y/late");
	make(t, "/m/b");
	make(t, "/last/l");
	assert_counted(t->root, ",z,m,y,deep,deeper,late,b,last,l,");
	assert_int_equal(pool_find(t, "/m", &m), 0);
	assert_int_equal(pool_find(t, "/m/y/deep", &deep), 0);
	assert_int_equal(pool_find(t, "/m/y/late", &late), 0);
	assert_null(pool_above(t->root));
	assert_ptr_equal(pool_above(deep), deep->parent);

	y = standalone(t, "/m/y");
	assert_counted(t->root, ",z,m,b,last,l,");
	assert_counted(m, "m,b,");
	assert_counted(y, "y,deep,deeper,late,");
	assert_counted(deep, "deep,deeper,");
	assert_null(pool_above(y));
	assert_ptr_equal(pool_above(deep), y);
	assert_true(pool_counts_in(deep, y));
	assert_false(pool_counts_in(deep, m));
	assert_true(pool_counts_in(y, y));
	assert_ptr_equal(pool_common(deep, late), y);
	assert_null(pool_common(deep, m));

	/* two beside each other, the last ones, and one in another */
	b = standalone(t, "/m/b");
	assert_counted(m, "m,");
	assert_counted(t->root, ",z,m,last,l,");
	standalone(t, "/last");
	assert_counted(t->root, ",z,m,");
	standalone(t, "/m/y/deep");
	assert_counted(y, "y,late,");
	assert_counted(b, "b,");
	assert_null(pool_common(deep, y));
	standalone(t, "/z");
	standalone(t, "/m");
	assert_counted(t->root, ",");

	assert_int_equal(pool_set_standalone(m, false), 0);
	assert_ptr_equal(pool_above(m), t->root);
	assert_counted(t->root, ",m,");
}

static void test_walks(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *m, *leaf;

	assert_preorder(t->root, ",");
	assert_postorder(t->root, ",");

	make(t, "/z");
	make(t, "/m/y/deep/deeper");
	make(t, "/m/b");
	make(t, "/m/a/c");
	make(t, "/last");
	make(t, "/m/y/late");
	assert_int_equal(pool_find(t, "/m", &m), 0);
	assert_int_equal(pool_find(t, "/m/b", &leaf), 0);

	assert_preorder(t->root, ",z,m,y,deep,deeper,late,b,a,c,last,");
	assert_postorder(t->root, "z,deeper,deep,late,y,b,c,a,m,last,,");
	assert_preorder(m, "m,y,deep,deeper,late,b,a,c,");
	assert_postorder(m, "deeper,deep,late,y,b,c,a,m,");
	assert_preorder(leaf, "b,");
	assert_postorder(leaf, "b,");

	pool_remove(leaf);
	assert_preorder(m, "m,y,deep,deeper,late,a,c,");
	make(t, "/m/b");
	assert_preorder(m, "m,y,deep,deeper,late,a,c,b,");
}

/* Whoever takes the next pool first may remove the one in hand. */
static void test_walk_that_removes(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *a, *p, *next;

	make(t, "/a/b/c");
	make(t, "/a/d");
	make(t, "/e");
	assert_int_equal(pool_find(t, "/a", &a), 0);
	for (p = pool_first_postorder(a); p; p = next) {
		next = pool_next_postorder(p, a);
		assert_int_equal(pool_remove(p), 0);
	}
	assert_preorder(t->root, ",e,");
	assert_int_equal(t->n_pools, 2);
}

/* The names of the pools that changed, as append() has them; afterwards none has. */
static void assert_changes(struct pool_tree *t, const char *expected)
{
	char names[256] = "";
	struct pool *p;

	while ((p = pool_take_change(t))) {
		assert_false(p->changed);
		append(names, p);
	}
	assert_string_equal(names, expected);
}

static void test_events(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *b = make(t, "/a/b"), *a = b->parent, *other = make(t, "/a/other");

	assert_changes(t, ",a,b,other,");
	pool_count_event(b, POOL_MAX);
	pool_count_event(b, POOL_MAX);
	pool_count_event(a, POOL_MAX);

	assert_int_equal(b->events[POOL_MAX], 2);
	assert_int_equal(b->events_local[POOL_MAX], 2);
	assert_int_equal(a->events[POOL_MAX], 3);
	assert_int_equal(a->events_local[POOL_MAX], 1);
	assert_int_equal(t->root->events[POOL_MAX], 3);
	assert_int_equal(t->root->events_local[POOL_MAX], 0);
	assert_int_equal(other->events[POOL_MAX], 0);
	assert_int_equal(b->events[POOL_OOM], 0);

	assert_changes(t, "b,a,,");
}

static void test_members(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *b = make(t, "/a/b"), *a = b->parent;
	struct pool_member one = {0}, two = {0}, three = {0};

	make(t, "/a/other");
	assert_changes(t, ",a,b,other,");
	pool_add_member(b, &one);
	assert_changes(t, "b,a,,");
	pool_add_member(b, &two);
	pool_add_member(a, &three);
	assert_ptr_equal(TAILQ_FIRST(&b->members), &one);
	assert_ptr_equal(TAILQ_NEXT(&one, entry), &two);
	assert_int_equal(b->n_members, 2);
	assert_int_equal(b->n_members_below, 2);
	assert_int_equal(a->n_members, 1);
	assert_int_equal(a->n_members_below, 3);
	assert_int_equal(t->root->n_members, 0);
	assert_int_equal(t->root->n_members_below, 3);

	assert_changes(t, "b,a,,");
	pool_remove_member(b, &one);
	assert_changes(t, "b,a,,");
	assert_ptr_equal(TAILQ_FIRST(&b->members), &two);
	assert_int_equal(b->n_members, 1);
	assert_int_equal(t->root->n_members_below, 2);
	pool_remove_member(b, &two);
	pool_remove_member(a, &three);
	assert_int_equal(b->n_members_below, 0);
	assert_int_equal(t->root->n_members_below, 0);
	assert_true(TAILQ_EMPTY(&b->members));
}

static void test_children_are_changes(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *b;

	make(t, "/a");
	make(t, "/other");
	assert_changes(t, ",a,other,");
	b = make(t, "/a/b");
	assert_changes(t, "a,,b,");
	assert_int_equal(pool_remove(b), 0);
	assert_changes(t, "a,,");
}

static void test_is_below(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *b = make(t, "/a/b"), *a = b->parent, *ab = make(t, "/ab");

	assert_true(pool_is_below(b, a));
	assert_true(pool_is_below(b, b));
	assert_true(pool_is_below(b, t->root));
	assert_false(pool_is_below(a, b));
	assert_false(pool_is_below(ab, a));
	assert_false(pool_is_below(t->root, a));
}

static void test_changes(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *b, *a, *other;

	assert_changes(t, ",");
	b = make(t, "/a/b");
	a = b->parent;
	other = make(t, "/a/other");
	assert_changes(t, ",a,b,other,");
	assert_changes(t, "");

	/* once each, in the order of their first change */
	pool_change(other);
	pool_change(b);
	pool_change(other);
	pool_change_up(b);
	assert_true(a->changed);
	assert_changes(t, "other,b,a,,");
	pool_change_up(t->root);
	pool_change_up(a);
	assert_changes(t, ",a,");
	pool_change(other);
	assert_changes(t, "other,");

	/* what is taken may change again before the rest is taken */
	pool_change_up(b);
	assert_ptr_equal(pool_take_change(t), b);
	pool_change(b);
	assert_changes(t, "a,,b,");
}

static void test_removed_does_not_change(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *b = pool_ref(make(t, "/a/b"));

	pool_change(b);
	assert_int_equal(pool_remove(b), 0);
	assert_changes(t, ",a,");
	pool_change(b);
	assert_false(b->changed);
	assert_changes(t, "");
	/* what it still counts is its ancestors' too */
	pool_count_event(b, POOL_OOM);
	assert_changes(t, "a,,");
	pool_unref(b);
}

static void assert_threshold(struct pool_tree *t, const char *path, uint64_t threshold)
{
	struct pool *p = NULL;

	assert_int_equal(pool_find(t, path, &p), 0);
	assert_int_equal(p->threshold, threshold);
}

static void test_threshold_is_inherited(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *b = make(t, "/a/b/c")->parent, *a = b->parent;

	assert_threshold(t, "/", POOL_THRESHOLD);
	assert_threshold(t, "/a/b/c", POOL_THRESHOLD);
	pool_set_threshold(a, 4096, 128);
	assert_threshold(t, "/", POOL_THRESHOLD);
	assert_threshold(t, "/a", 4096);
	assert_threshold(t, "/a/b/c", 4096);
	make(t, "/a/new/deep");
	make(t, "/beside");
	assert_threshold(t, "/a/new/deep", 4096);
	assert_threshold(t, "/beside", POOL_THRESHOLD);

	/* another below it, which stays when the one above changes */
	pool_set_threshold(b, 1, 128);
	assert_threshold(t, "/a", 4096);
	assert_threshold(t, "/a/b/c", 1);
	pool_set_threshold(a, 8192, 128);
	assert_threshold(t, "/a", 8192);
	assert_threshold(t, "/a/new/deep", 8192);
	assert_threshold(t, "/a/b", 1);
	assert_threshold(t, "/a/b/c", 1);
	assert_threshold(t, "/beside", POOL_THRESHOLD);
}

static void test_threshold_taken_back(void **state)
{
	struct pool_tree *t = tree_of(state);
	struct pool *b = make(t, "/a/b/c")->parent, *a = b->parent;

	pool_set_threshold(a, 10, 128);
	pool_set_threshold(b, 20, 128);
	pool_set_threshold(b, 0, 128);
	assert_threshold(t, "/a/b", 10);
	assert_threshold(t, "/a/b/c", 10);

	/* the root's own, and the default in the place of it, go to where nothing is set */
	pool_set_threshold(t->root, 30, 128);
	assert_threshold(t, "/", 30);
	assert_threshold(t, "/a/b", 10);
	pool_set_threshold(a, 0, 128);
	assert_threshold(t, "/a/b/c", 30);
	pool_set_threshold(t->root, 0, 128);
	assert_threshold(t, "/", 128);
	assert_threshold(t, "/a/b/c", 128);
	pool_set_threshold(b, 0, 256);
	assert_threshold(t, "/a/b/c", 128);
	pool_set_threshold(t->root, 0, 256);
	assert_threshold(t, "/a/b/c", 256);
}

#define WITH_TREE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_TREE(test_root),
		WITH_TREE(test_create),
		WITH_TREE(test_names_are_whole),
		WITH_TREE(test_path_into_small_buffer),
		WITH_TREE(test_create_all),
		WITH_TREE(test_create_all_leaves_nothing),
		WITH_TREE(test_create_short_of_memory),
		WITH_TREE(test_remove_busy),
		WITH_TREE(test_removed_stays_readable),
		WITH_TREE(test_id_never_used_again),
		cmocka_unit_test(test_holder_outlives_tree),
		WITH_TREE(test_many_children),
		WITH_TREE(test_depth),
		WITH_TREE(test_greatest_depth),
		WITH_TREE(test_walks),
		WITH_TREE(test_counted),
		WITH_TREE(test_walk_that_removes),
		WITH_TREE(test_events),
		WITH_TREE(test_members),
		WITH_TREE(test_children_are_changes),
		WITH_TREE(test_is_below),
		WITH_TREE(test_changes),
		WITH_TREE(test_removed_does_not_change),
		WITH_TREE(test_threshold_is_inherited),
		WITH_TREE(test_threshold_taken_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
