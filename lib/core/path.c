/* SPDX-License-Identifier: MIT */

/*
 * The one rule for names of pools. It lives here because a name travels from a person through the
 * configuration, the wire and the tree into an exported directory, and two rules that differ
 * somewhere on that way would make pools that one side can create and the other cannot name.
 */

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "path.h"

static bool is_part_byte(unsigned char b)
{
	return b >= 0x20 && b != 0x7f && b != '/';
}

static bool is_dots(const char *part, size_t n)
{
	return (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.');
}

int path_check_part(const char *part, size_t n)
{
	if (!part || n == 0)
		return -EINVAL;
	if (n > PATH_PART_MAX)
		return -ENAMETOOLONG;
	if (is_dots(part, n))
		return -EINVAL;
	for (size_t i = 0; i < n; i++)
		if (!is_part_byte((unsigned char)part[i]))
			return -EINVAL;
	return 0;
}

int path_check(const char *path)
{
	const char *part;

	if (!path || path[0] != '/')
		return -EINVAL;
	if (strnlen(path, PATH_MAX_BYTES + 1) > PATH_MAX_BYTES)
		return -ENAMETOOLONG;
	if (path[1] == '\0')
		return 0;

	for (part = path; *part == '/';) {
		size_t n = strcspn(++part, "/");
		int r = path_check_part(part, n);

		if (r < 0)
			return r;
		part += n;
	}
	return 0;
}

const char *path_next(const char **cursor, size_t *ret_n)
{
	const char *part = *cursor;

	if (*part == '/')
		part++;
	if (*part == '\0')
		return NULL;

	*ret_n = strcspn(part, "/");
	*cursor = part + *ret_n;
	return part;
}

int path_is_below(const char *path, const char *prefix)
{
	size_t n = strlen(prefix);

	if (n == 1)
		return 1;
	return strncmp(path, prefix, n) == 0 && (path[n] == '\0' || path[n] == '/');
}
