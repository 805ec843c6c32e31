/* SPDX-License-Identifier: MIT */

#include "names.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <string.h>

#include "core/util.h"

/* A group of a hundred thousand members fits. */
#define ENTRY_FIRST 1024
#define ENTRY_MAX (UINT32_C(1) << 22)

int names_parse_number(const char *text, size_t n, uid_t *ret)
{
	uint64_t number = 0;

	if (n == 0 || n > 10)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EINVAL;
		number = number * 10 + (uint64_t)(text[i] - '0');
	}
	if (number >= NAMES_NOBODY)
		return -EINVAL;
	*ret = (uid_t)number;
	return 0;
}

static int look_up_user(const char *name, char *entry, size_t size, uid_t *ret)
{
	struct passwd pw, *found;
	int error = getpwnam_r(name, &pw, entry, size, &found);

	if (found)
		*ret = pw.pw_uid;
	return found ? 0 : error ? -error : -ENOENT;
}

static int look_up_group(const char *name, char *entry, size_t size, uid_t *ret)
{
	struct group gr, *found;
	int error = getgrnam_r(name, &gr, entry, size, &found);

	if (found)
		*ret = gr.gr_gid;
	return found ? 0 : error ? -error : -ENOENT;
}

/* A name goes before a number: a user may be called 42. The ways to say "no such name" are many. */
static int find(const char *name,
	int (*look_up)(const char *name, char *entry, size_t size, uid_t *ret), uid_t *ret)
{
	_cleanup_(freep) char *entry = NULL;
	int r = -ERANGE;

	for (size_t size = ENTRY_FIRST; r == -ERANGE && size <= ENTRY_MAX; size *= 4) {
		free(entry);
		entry = malloc(size);
		if (!entry)
			return -ENOMEM;
		r = look_up(name, entry, size, ret);
	}
	if (r < 0 && names_parse_number(name, strlen(name), ret) == 0)
		return 0;
	return r == -ESRCH || r == -EBADF || r == -EPERM ? -ENOENT : r;
}

int names_find_user(const char *name, uid_t *ret)
{
	return find(name, look_up_user, ret);
}

int names_find_group(const char *name, gid_t *ret)
{
	return find(name, look_up_group, ret);
}
