/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Pools that go: because somebody removes them, by force or not, or because they are ephemeral and the
 * last that kept them has left. Whatever the daemon has of a pool besides the tree is let go of here.
 */

#include "manager.h"

/* As pool_remove(). */
int removal_run(struct manager *m, struct pool *p);

/* Something has left the pool: as pool_sweep(). */
void removal_sweep(struct manager *m, struct pool *p);
