/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Names of pools. One rule, used by the tree, the configuration, the wire and the library alike, so
 * that a path which one of them accepts is accepted by all.
 */

#include <stddef.h>

#define PATH_PART_MAX 255   /* bytes of one part, without NUL */
#define PATH_MAX_BYTES 4095 /* bytes of a whole path, without NUL */

/*
 * 0 when `path` names a pool: "/" or "/part/part…", each part 1–255 bytes of anything but '/', NUL
 * and control characters (below 0x20, and 0x7f), neither "." nor "..", no trailing '/'.
 * -EINVAL when it does not, -ENAMETOOLONG when a part or the whole is too long. NULL is -EINVAL.
 */
int path_check(const char *path);

/* The same for one part alone, of `n` bytes. */
int path_check_part(const char *part, size_t n);

/*
 * Steps through the parts of a checked path: *cursor starts at the path; returns the next part's
 * first byte and its length in *ret_n, or NULL behind the last one.
 */
const char *path_next(const char **cursor, size_t *ret_n);

/* Whether `path` is `prefix` itself or below it; both checked paths. */
int path_is_below(const char *path, const char *prefix);
