/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What a user may not do, and whom to ask. libtally says -EACCES or -EPERM; which pool decided that and
 * whose it is is looked up afterwards, for everybody may read it. A refusal that names nobody only sends
 * people to the wrong administrator.
 */

#include <stdbool.h>

#include "command.h"

/* All that return int tell it in one line and return STATUS_ERROR. `what` goes behind "may not". */

/* The mode of the pool `decider` does not let this user do it to `path`. */
int denied_by_mode(
	const struct invocation *inv, const char *path, const char *what, const char *decider);

/* -EACCES or -EPERM for something that the pool above decides. */
int denied_from_above(const struct invocation *inv, const char *path, const char *what, int error);

/* The same of writing a file, which may also be one that nobody writes. */
int denied_to_set(const struct invocation *inv, const char *path, const char *file, int error);

/* Of pool.evict: any errno; `pid` as it was typed. */
int denied_to_evict(const struct invocation *inv, const char *pid, int error);

/* That many pools below `path` may not be read by this user, and were left out: told, and no error. */
void denied_left_out(const char *path, size_t n);

/* Nobody reads it. */
bool denied_is_only_written(const char *file);
