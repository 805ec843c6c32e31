/* SPDX-License-Identifier: MIT */

/*
 * The recursion is as deep as the tree, at most half of a path's bytes, so each step keeps its
 * texts on the heap.
 */

#include <errno.h>

#include "denied.h"
#include "text.h"
#include "walk.h"

struct walk {
	const struct invocation *inv;
	uint64_t depth;
	walk_fn fn;
	void *userdata;
	size_t *n_left_out;
};

static int visit(const struct walk *w, const char *path, size_t level)
{
	_cleanup_(freep) char *children = NULL;
	char *cursor, *name;
	int r;

	r = w->fn(w->inv, path, level, w->userdata);
	if (r == -EACCES && level > 0) {
		++*w->n_left_out;
		return 0;
	}
	if (r < 0 || level >= w->depth)
		return r;
	r = tally_get(w->inv->tally, path, "pool.children", TALLY_CACHED, &children);
	if (r < 0)
		return r;
	cursor = children;
	while ((name = text_next_line(&cursor))) {
		_cleanup_(freep) char *child = text_join_path(path, name);

		r = child ? visit(w, child, level + 1) : -ENOMEM;
		if (r < 0 && r != -ENOENT)
			return r;
	}
	return 0;
}

int walk_pools(
	const struct invocation *inv, const char *path, uint64_t depth, walk_fn fn, void *userdata)
{
	size_t n_left_out = 0;
	const struct walk w = {.inv = inv,
		.depth = depth,
		.fn = fn,
		.userdata = userdata,
		.n_left_out = &n_left_out};
	int r = visit(&w, path, 0);

	if (r == 0)
		denied_left_out(path, n_left_out);
	return r;
}
