/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Putting a configuration into force, at start and at a reload: items are defined, pools made,
 * limits set. A value that a person set at run time holds over the file's until it is reset. A bad
 * configuration changes nothing.
 */

#include "manager.h"

/* At start: m->conf is put into force. -EINVAL and others have been logged. */
int reload_apply_first(struct manager *m);

/* Reads the files again. -EINVAL: the old configuration stays; why is in m->reload_text and logged.
 */
int reload_run(struct manager *m);

/* Reloads, and drops the run-time values of a pool: the file's, or the defaults, count again.
 * -ENOENT: no such pool; -EINVAL: not a path; else as reload_run(). */
int reload_reset(struct manager *m, const char *path);
