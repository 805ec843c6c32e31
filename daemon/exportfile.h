/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The files of one pool in the file system. They are written to a temporary name and renamed, so that
 * a reader never sees half of one; and what is removed is only what an exporter can have put there:
 * nobody else's files, and no directory that holds any.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct exportfile {
	char *name, *text;
};

struct exportfile_result {
	bool vanished;         /* the directory was not there, although it was known */
	uint64_t files, bytes; /* added: what was written */
};

/*
 * Writes files of the pool of that path, below `dir`. `known`: its directory holds all its other
 * files, and nothing else; if it is not known, what is there besides of such files goes.
 */
int exportfile_write(const char *dir, const char *path, const struct exportfile *files,
	size_t n_files, bool known, struct exportfile_result *ret);

/* The pool's files, and its directory and those above that are empty then. */
int exportfile_remove(const char *dir, const char *path);

/* All of `dir`. */
int exportfile_remove_all(const char *dir);

/* Whether writing the file uses this name in its directory. */
bool exportfile_uses_name(const char *file, const char *name);
