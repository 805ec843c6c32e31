/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Pools that go: because somebody removes them, by force or not, or because they are ephemeral and the
 * last that kept them has left. Whatever the daemon has of a pool besides the tree is let go of here.
 */

#include "session.h"

/* As pool_remove(). */
int removal_run(struct manager *m, struct pool *p);

/*
 * By force, whoever is attached: what waits there is answered -ENODEV, and so is whatever its
 * attachments ask from then on; they, and what was granted to them, are the parent's. The session
 * gets its answer when no idle credit of them is left, so that none is charged after it. Errors, as
 * of pool_check_force(), and -ENOMEM, are the caller's to answer; nothing has changed then.
 */
int removal_by_force(struct session *s, uint64_t cookie, struct pool *p);

/* Something has left the pool: as pool_sweep(). */
void removal_sweep(struct manager *m, struct pool *p);
