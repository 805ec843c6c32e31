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
#include <sys/types.h>

struct exportfile {
	char *name, *text;
};

/* Who may read it besides the daemon's user: members of the group, all others. */
struct exportfile_access {
	gid_t gid;
	bool group, others;
};

struct exportfile_result {
	bool vanished;         /* the directory was not there, although it was known */
	uint64_t files, bytes; /* added: what was written */
};

/*
 * Writes files of the pool of that path, below `dir`. `access`: of the root, of each pool on the way,
 * and of this one; the directories are given it too, but everybody may pass through them, for a pool
 * below may be open to who may not read the one above. Files belong to the daemon's user whoever owns the
 * pool, or the owner could forge them. Where a group cannot be set, it reads nothing. `known`: its directory holds all its other
 * files, and nothing else; if it is not known, what is there besides of such files goes.
 */
int exportfile_write(const char *dir, const char *path, const struct exportfile_access *access,
	const struct exportfile *files, size_t n_files, bool known, struct exportfile_result *ret);

/* The pool's files, and its directory and those above that are empty then. */
int exportfile_remove(const char *dir, const char *path);

/* All of `dir`. */
int exportfile_remove_all(const char *dir);

/* Whether writing the file uses this name in its directory. */
bool exportfile_uses_name(const char *file, const char *name);
