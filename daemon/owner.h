/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Who a pool belongs to. Whoever makes a pool owns it, and it counts for that uid until it is out of
 * the tree, whoever owns it by then. Pools of the configuration belong to the daemon's user, unless it
 * says otherwise, and count for nobody. Every uid has a place of its own, /users/<uid>, made when it
 * first asks for it; a pool of that name belongs to the uid whoever makes it, so that an administrator
 * may set its limits beforehand.
 */

#include <stdbool.h>
#include <stdio.h>

#include "conf/conf.h"
#include "core/pool.h"
#include "session.h"

/* What of a path is made. */
enum owner_makes {
	OWNER_LAST, /* the last part alone, which is not there yet */
	OWNER_ALL,  /* what is missing */
	OWNER_EPHEMERAL,
};

/*
 * Makes the pool for a client that may. -EACCES: it may not make pools there; -EDQUOT: its uid would have too many; else as
 * pool_create(), pool_create_all(), pool_create_ephemeral().
 */
int owner_create(struct session *s, const char *path, enum owner_makes what, struct pool **ret);

/* The pool of that path; the uid's own place is made if it is that, or would be above it. */
int owner_find(struct session *s, const char *path, struct pool **ret);

/* For pool_tree.on_drop: the pool counts no more. */
void owner_forget(struct pool *p);

/* Of a pool that the configuration has just made. */
void owner_adopt(struct pool *p);

/* Gives a pool the owner and the mode that the section says (NULL: there is none any more), or else
 * its maker's and the default, where no person's hold over them; what that changes is written to `changes`. Whether anything has. */
bool owner_configure(struct pool *p, const struct conf_pool *section, FILE *changes);

/* pool.owner, "UID:GID". The daemon knows numbers alone: names are looked up by who writes and reads.
 * -EINVAL: no such text. */
void owner_print(FILE *f, const struct pool *p);
int owner_set(struct pool *p, const char *value);

/* pool.mode, "0754". */
void owner_print_mode(FILE *f, const struct pool *p);
int owner_set_mode(struct pool *p, const char *value);
