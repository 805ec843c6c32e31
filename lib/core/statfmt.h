/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The text of every file of a pool, written once: exported files, queries over the socket and the
 * embedded engine all come here. Formats are those of cgroup v2. What only the daemon knows (its
 * clients, itself) it formats itself and names to statfmt_list() in no way.
 */

#include "pool.h"

enum statfmt_access {
	STATFMT_READ = 1,
	STATFMT_WRITE = 2,
};

/* Access bits of a file that this module serves; 0: no such file. */
unsigned statfmt_access(const struct pool *p, const char *file);

/* Whether the file shows what only a look brings together. */
bool statfmt_shows_figures(const char *file);

/* The text, newline-terminated (or empty), to be freed by the caller. From the figures of the last
 * look. -ENOENT: no such file; -EACCES: it cannot be read; -ENOMEM. */
int statfmt_read(const struct pool *p, const char *file, char **ret_text);

/* Sets a value. -ENOENT; -EACCES: it cannot be written; -EINVAL, -ERANGE: bad value, the old one
 * stays; what itemlimit_set() says. A written limit is marked in set_at_run, items_set_at_run. */
int statfmt_write(struct pool *p, const char *file, const char *value);
