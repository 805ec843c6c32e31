/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Who a pool belongs to. Whoever makes a pool owns it, and it counts for that uid until it is out of
 * the tree, whoever owns it by then. Pools of the configuration are the daemon's own and count for
 * nobody.
 */

#include <stdbool.h>

#include "core/pool.h"
#include "session.h"

/*
 * Makes the pool for a client, with missing ones above it if `all`; it is fine then when the pool is
 * there. -EDQUOT: its uid would have too many; else as pool_create(), pool_create_all().
 */
int owner_create(struct session *s, const char *path, bool all, struct pool **ret);

/* For pool_tree.on_drop: the pool counts no more. */
void owner_forget(struct pool *p);
