/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Who may do what to a pool: the one place that decides. A session acts as the process that connected,
 * with its uid, gid and supplementary groups as they were then.
 *
 * Root, the daemon's own user and the members of admin_group may do everything. For all others the
 * mode of a pool says: r, its files may be read and its events watched; x, it may be attached to; w,
 * pools may be made and removed right below it, and the files of those be set. Of a mode the owner's
 * bits count for the owner, else the group's for members of the group, else the others'. And an owner
 * has what the owner's bits give in all pools below too. So nobody changes the limits of the own pool,
 * unless the pool above it is the own one as well.
 */

#include "core/pool.h"
#include "session.h"

enum access_action {
	ACCESS_ADMIN,    /* what root and admins alone may: owners, the daemon itself, its items */
	ACCESS_READ,     /* read its files, watch it, flush it */
	ACCESS_ATTACH,   /* attach to it */
	ACCESS_CREATE,   /* make a pool right below it */
	ACCESS_OPERATE,  /* drain it, reclaim: what it holds changes, and no limit */
	ACCESS_SET,      /* set its files */
	ACCESS_REMOVE,   /* remove it */
	ACCESS_EVICT,    /* end sessions that are attached to it */
	ACCESS_SET_MODE, /* set its mode */
	ACCESS_NAMES,    /* read who owns it and what its mode is: everybody may */
};

/* 0; -EACCES: the mode of the pool, or of the one above it, does not allow it; -EPERM: no mode could: it
 * is for the owner of a pool above, or for root and admins. */
int access_check(const struct session *s, const struct pool *p, enum access_action what);

/* Root, the daemon's own user, members of admin_group. */
bool access_is_admin(const struct session *s);

/* Which group that is; where the configuration says nothing, the group tallyd, if there is one. */
void access_configure(struct manager *m, const struct conf *c);
