/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The exported files: the text of some files of the pools whose paths match a pattern, under
 * `pools/` in the runtime directory. Only pools of which something may have changed are looked at
 * (pool.h), and of those only texts that differ from what was written last are written: so a tree at
 * rest costs nothing.
 *
 * Texts are made in the loop, which owns the figures, for a few pools at a time; while the exporter
 * writes those the loop serves, and makes the next ones when they are written. So neither many
 * pools nor a slow file system make it late or big.
 */

#include "manager.h"

struct export;

/* Removes what an earlier daemon left there. */
int export_new(struct manager *m, struct export **ret);
/* Removes the files; waits for what is being written. Returns NULL. */
struct export *export_free(struct export *e);

/* Writes what has changed up to now, and tries again what could not be written. */
void export_run(struct export *e);

/* An event was counted at the pool and at all above it, and watchers of their files are to see it
 * soon: they are written within 10 ms of the last time, if the exporter keeps up. */
void export_hurry(struct export *e, struct pool *p);

/* The pool has been removed: its files go. */
void export_forget(struct export *e, struct pool *p);

/* Others than before may read the pool: so with its files, at once. */
void export_change_access(struct export *e, struct pool *p);

/* The configuration is another one. `anew`: patterns or files may have changed, so all pools are
 * chosen anew, and what is there is not trusted. */
void export_reconfigure(struct export *e, bool anew);
