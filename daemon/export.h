/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The exported files: the text of some files of the pools whose paths match a pattern, under
 * `pools/` in the runtime directory. Written to a temporary name and renamed, so that a reader
 * never sees half of one; only where something has changed since; by a thread of libuv's pool, so
 * that a slow file system does not hold up the loop.
 */

#include "manager.h"

struct export;

/* Removes what an earlier daemon left there. */
int export_new(struct manager *m, struct export **ret);
/* Removes the files; waits for what is being written. Returns NULL. */
struct export *export_free(struct export *e);

/* Writes what has changed, unless the last run is still writing. */
void export_run(struct export *e);

/* The pool is being removed: its files go. */
void export_forget(struct export *e, struct pool *p);

/* Patterns or files may have changed: everything is removed and written anew. */
void export_reconfigure(struct export *e);
