/* SPDX-License-Identifier: MIT */

#include "owner.h"

#include <errno.h>

#include "user.h"

static void own(struct pool *p, struct session *s)
{
	p->uid = s->uid;
	p->gid = s->gid;
	p->account = user_ref(s->user);
}

int owner_create(struct session *s, const char *path, enum owner_makes what, struct pool **ret)
{
	struct pool_tree *tree = s->manager->tree;
	struct pool *there, *made;
	size_t missing;
	int r = pool_find_nearest(tree, path, &there, &missing);

	if (r < 0)
		return r;
	if (missing == 0) {
		if (what == OWNER_LAST)
			return -EEXIST;
		*ret = there;
		return 0;
	}
	if (missing > 1 && what == OWNER_LAST)
		return -ENOENT;
	r = user_take(s->user, USER_POOLS, missing);
	if (r < 0)
		return r;
	r = what == OWNER_EPHEMERAL ? pool_create_ephemeral(tree, path, &made)
				    : pool_create_all(tree, path, &made);
	if (r < 0) {
		user_give(s->user, USER_POOLS, missing);
		return r;
	}
	*ret = made;
	for (; made != there; made = made->parent)
		own(made, s);
	return 0;
}

void owner_forget(struct pool *p)
{
	struct user *u = take_ptr(p->account);

	if (u)
		user_give(u, USER_POOLS, 1);
	user_unref(u);
}
