/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Who a pool belongs to. Whoever makes a pool owns it, and it counts for that uid until it is out of
 * the tree, whoever owns it by then. Pools of the configuration are the daemon's own and count for
 * nobody.
 */

#include "core/pool.h"
#include "session.h"

/* What of a path is made. */
enum owner_makes {
	OWNER_LAST, /* the last part alone, which is not there yet */
	OWNER_ALL,  /* what is missing */
	OWNER_EPHEMERAL,
};

/* Makes the pool for a client. -EDQUOT: its uid would have too many; else as pool_create(),
 * pool_create_all(), pool_create_ephemeral(). */
int owner_create(struct session *s, const char *path, enum owner_makes what, struct pool **ret);

/* For pool_tree.on_drop: the pool counts no more. */
void owner_forget(struct pool *p);
