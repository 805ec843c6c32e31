/* SPDX-License-Identifier: MIT */

#include "denied.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "errors.h"
#include "owner.h"
#include "text.h"

int denied_by_mode(
	const struct invocation *inv, const char *path, const char *what, const char *decider)
{
	char own[OWNER_TEXT_MAX], owner[OWNER_TEXT_MAX];
	_cleanup_(freep) char *mode = NULL;

	if (tally_get(inv->tally, decider, "pool.mode", TALLY_CACHED, &mode) < 0)
		mode = NULL;
	else
		mode[strcspn(mode, "\n")] = '\0';
	return error_line(STATUS_ERROR,
		"%s: %s may not %s: the mode of %s%s%s%s does not allow it; ask %s, who owns %s, "
		"root or a member of admin_group",
		path, owner_name_own(own), what, decider, mode ? ", " : "", mode ? mode : "",
		mode ? "," : "", owner_of(inv, decider, owner), decider);
}

/* No mode could let this user do it; `above`: the pool above, whose owner may, or NULL. */
static int denied_by_owner(
	const struct invocation *inv, const char *path, const char *what, const char *above)
{
	char own[OWNER_TEXT_MAX], owner[OWNER_TEXT_MAX];

	if (!above)
		return error_line(STATUS_ERROR,
			"%s: %s may not %s: only root and members of admin_group may; ask one of "
			"them",
			path, owner_name_own(own), what);
	return error_line(STATUS_ERROR,
		"%s: %s may not %s: only the owner of a pool above it may, not its own; ask %s, "
		"who owns %s, root or a member of admin_group",
		path, owner_name_own(own), what, owner_of(inv, above, owner), above);
}

int denied_from_above(const struct invocation *inv, const char *path, const char *what, int error)
{
	_cleanup_(freep) char *above = strcmp(path, "/") ? text_parent_path(path) : NULL;

	return error == -EACCES && above ? denied_by_mode(inv, path, what, above)
					 : denied_by_owner(inv, path, what, above);
}

static bool is_one_of(const char *file, const char *const *names)
{
	while (*names && strcmp(*names, file) != 0)
		names++;
	return *names;
}

static const char *const only_written[] = {"pool.drain", "pool.flush", "pool.evict", "pool.release",
	"pool.save", "memory.reclaim", NULL};

static bool is_limit_of_item(const char *file)
{
	size_t n = strlen(file), suffix = strlen(".max");

	return strncmp(file, "stat.", strlen("stat.")) == 0 && n > suffix &&
		strcmp(file + n - suffix, ".max") == 0;
}

bool denied_is_only_written(const char *file)
{
	return is_one_of(file, only_written);
}

static bool is_ever_written(const char *file)
{
	static const char *const names[] = {"memory.peak", "memory.min", "memory.low",
		"memory.high", "memory.max", "cgroup.max.depth", "cgroup.max.descendants",
		"pool.owner", "pool.mode", "tallyd.reload", NULL};

	return is_one_of(file, names) || is_one_of(file, only_written) || is_limit_of_item(file);
}

int denied_to_set(const struct invocation *inv, const char *path, const char *file, int error)
{
	static const char *const own[] = {
		"pool.drain", "pool.flush", "pool.release", "memory.reclaim", NULL};
	static const char *const admins[] = {"pool.owner", "pool.save", "tallyd.reload", NULL};
	char what[64];

	if (!is_ever_written(file))
		return error_line(STATUS_ERROR, "%s: '%s' cannot be written; it can only be read",
			path, file);
	snprintf(what, sizeof(what), "set %.48s", file);
	if (is_one_of(file, admins))
		return denied_by_owner(inv, path, what, NULL);
	if (is_one_of(file, own))
		return denied_by_mode(inv, path, what, path);
	return denied_from_above(inv, path, what, error);
}

int denied_to_evict(const struct invocation *inv, const char *pid, int error)
{
	switch (-error) {
	case ESRCH:
		return error_line(STATUS_ERROR,
			"no client of tallyd has process id %s; 'tallyctl clients' shows those "
			"that there are",
			pid);
	case EACCES:
	case EPERM:
		return error_line(STATUS_ERROR,
			"%s may not evict process %s: that takes the owner of every pool that it "
			"is attached to, or who may change the pools above them; ask root or a "
			"member "
			"of admin_group",
			owner_name_own((char[OWNER_TEXT_MAX]){0}), pid);
	default:
		return error_plain(inv, inv->command, error);
	}
}

void denied_left_out(const char *path, size_t n)
{
	if (n > 0)
		error_line(STATUS_DONE, "%s: %zu %s left out: their modes do not let %s read them",
			path, n, n == 1 ? "pool below it is" : "pools below it are",
			owner_name_own((char[OWNER_TEXT_MAX]){0}));
}
