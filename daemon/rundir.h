/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The runtime directory: socket, state and exported files. It has to be the daemon's alone, because
 * what it holds is believed and what lies in its way is removed: so it is refused when others may
 * write to it, or when it holds things that no tallyd has put there. Its lock is the mark by which a
 * directory is known as tallyd's, and is held as long as the daemon lives.
 */

#include <stdbool.h>

struct rundir {
	char *path;
	int fd, state_fd, lock_fd;
};

/* Makes it if it is missing, but not its parents. -EALREADY: another tallyd has it. Errors have been
 * logged. */
int rundir_open(const char *path, struct rundir **ret);

/* Returns NULL. */
struct rundir *rundir_close(struct rundir *r);

/* False: the path leads to another directory by now, which may be another daemon's. */
bool rundir_is_ours(const struct rundir *r);
