/* SPDX-License-Identifier: MIT */

#include "owner.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "errors.h"
#include "text.h"

const char *owner_name(unsigned uid, char buf[static OWNER_TEXT_MAX])
{
	const struct passwd *pw = getpwuid(uid);

	if (pw)
		snprintf(buf, OWNER_TEXT_MAX, "%.255s (uid %u)", pw->pw_name, uid);
	else
		snprintf(buf, OWNER_TEXT_MAX, "uid %u", uid);
	return buf;
}

const char *owner_name_own(char buf[static OWNER_TEXT_MAX])
{
	return owner_name(geteuid(), buf);
}

const char *owner_of(
	const struct invocation *inv, const char *path, char buf[static OWNER_TEXT_MAX])
{
	_cleanup_(freep) char *text = NULL;
	unsigned uid;

	if (tally_get(inv->tally, path, "pool.owner", TALLY_CACHED, &text) < 0 ||
		sscanf(text, "%u:", &uid) != 1)
		snprintf(buf, OWNER_TEXT_MAX, "its owner");
	else
		owner_name(uid, buf);
	return buf;
}

static bool is_number(const char *text)
{
	return text[strspn(text, "0123456789")] == '\0';
}

/* A name goes before a number: a user may be called 42. */
static char *user_number(const char *user)
{
	const struct passwd *pw = getpwnam(user);
	char *number;

	if (!pw)
		return is_number(user) ? strdup(user) : NULL;
	return asprintf(&number, "%u", (unsigned)pw->pw_uid) < 0 ? NULL : number;
}

static char *group_number(const char *group)
{
	const struct group *gr = getgrnam(group);
	char *number;

	if (!gr)
		return is_number(group) ? strdup(group) : NULL;
	return asprintf(&number, "%u", (unsigned)gr->gr_gid) < 0 ? NULL : number;
}

static char *tell_unknown(const char *path, const char *kind, const char *name)
{
	error_line(STATUS_ERROR, "%s: there is no %s '%s'; 'getent' shows those that there are",
		path, kind, ERROR_CUT(name));
	return NULL;
}

char *owner_numbers(const char *path, const char *text)
{
	_cleanup_(freep) char *user = strndup(text, strcspn(text, ":"));
	_cleanup_(freep) char *uid = NULL, *gid = NULL;
	const char *group = strchr(text, ':');
	char *numbers;

	if (!user || !group || !*user || !group[1])
		return strdup(text);
	group++;
	uid = user_number(user);
	if (!uid)
		return tell_unknown(path, "user", user);
	gid = group_number(group);
	if (!gid)
		return tell_unknown(path, "group", group);
	return asprintf(&numbers, "%s:%s", uid, gid) < 0 ? NULL : numbers;
}
