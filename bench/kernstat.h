/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The kernel's own memory.stat, to read beside ours: memory cgroups of the benchmark's own, in the
 * first hierarchy or in the second, wherever this process may make some. Nobody is in them, so that
 * the kernel has nothing to flush: its better case. They go with the process, however it ends.
 */

#define KERNSTAT_DIR 96

struct kernstat {
	char dir[KERNSTAT_DIR]; /* of the groups; their names are 0, 1, ... */
	unsigned n;             /* made */
	int *fds;               /* of their memory.stat, open */
	char *reason;           /* why there are none; NULL: there are */
};

/* To be called before there are threads. */
void kernstat_make(struct kernstat *k, unsigned n);
void kernstat_remove(struct kernstat *k);

/* Reads memory.stat of the i-th group: from the beginning of the open file, or opened and closed as
 * well. */
void kernstat_read(const struct kernstat *k, unsigned i);
void kernstat_open_and_read(const struct kernstat *k, unsigned i);

/* Opens a file, reads all of it, closes it; ends the benchmark if that fails. */
void kernstat_read_file(const char *path);
