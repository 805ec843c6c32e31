/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Getting bytes of a pool back although nothing has been refused: because somebody wrote
 * memory.reclaim, or because the pool is above its memory.high. Idle credit first, then clients, round
 * by round, until so much has come or nothing comes any more.
 */

#include "manager.h"

struct giveback;
struct givebacks;

/* Whether so much has come back for certain. Called in the loop, never from within giveback_start(). */
typedef void (*giveback_done_fn)(void *userdata, bool reached);

int givebacks_new(struct manager *m, struct givebacks **ret);
/* Before reclaims_free(); who waits is told what has come. Returns NULL. */
struct givebacks *givebacks_free(struct givebacks *all);

/* -ENOMEM. */
int giveback_start(
	struct manager *m, struct pool *p, uint64_t bytes, giveback_done_fn fn, void *userdata);

/* The same with nobody waiting; at most one a pool at a time, another one is left out. */
void giveback_in_background(struct manager *m, struct pool *p, uint64_t bytes);
