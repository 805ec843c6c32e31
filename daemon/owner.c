/* SPDX-License-Identifier: MIT */

#include "owner.h"

#include <errno.h>
#include <string.h>

#include "access.h"
#include "conf/names.h"
#include "core/value.h"
#include "user.h"

#define HOMES "users"

/* A name that is a uid as it is printed: "01" and "1x" are names like others. */
static bool is_uid(const char *name, size_t n, uid_t *ret)
{
	return (n == 1 || *name != '0') && names_parse_number(name, n, ret) == 0;
}

/* Whether the checked path is /users/<uid> or lies below it; the uid's. */
static bool names_home(const char *path, uid_t *ret)
{
	const char *cursor = path, *part;
	size_t n;

	part = path_next(&cursor, &n);
	if (!part || n != strlen(HOMES) || memcmp(part, HOMES, n) != 0)
		return false;
	part = path_next(&cursor, &n);
	return part && is_uid(part, n, ret);
}

static bool is_home(const struct pool *p, uid_t *ret)
{
	const struct pool *homes = p->parent;

	return homes && homes->parent && !homes->parent->parent &&
		strcmp(homes->name, HOMES) == 0 && is_uid(p->name, strlen(p->name), ret);
}

static void begin(struct pool *p, uid_t uid, gid_t gid)
{
	is_home(p, &uid);
	p->uid = p->made_uid = uid;
	p->gid = p->made_gid = gid;
}

void owner_adopt(struct pool *p)
{
	p->mode = POOL_MODE;
	begin(p, geteuid(), getegid());
}

static void own(struct pool *p, struct session *s)
{
	p->account = user_ref(s->user);
	begin(p, s->uid, s->gid);
}

/* `missing` parts of the path below `there` are made. */
static int make(struct session *s, const char *path, enum owner_makes what, struct pool *there,
	size_t missing, struct pool **ret)
{
	struct pool_tree *tree = s->manager->tree;
	struct pool *made;
	int r = user_take(s->user, USER_POOLS, missing);

	if (r < 0)
		return r;
	r = what == OWNER_EPHEMERAL ? pool_create_ephemeral(tree, path, &made)
				    : pool_create_all(tree, path, &made);
	if (r < 0) {
		user_give(s->user, USER_POOLS, missing);
		return r;
	}
	*ret = made;
	for (; made != there; made = made->parent)
		own(made, s);
	return 0;
}

/* Above all homes. It is the daemon's. */
static int find_homes(struct pool_tree *tree, struct pool **ret)
{
	int r = pool_find(tree, "/" HOMES, ret);

	if (r == -ENOENT) {
		r = pool_create(tree, "/" HOMES, ret);
		if (r == 0)
			owner_adopt(*ret);
	}
	return r;
}

/* 1: it was made just now; 0: it is there, or the path has nothing to do with it. */
static int make_home(struct session *s, const char *path)
{
	char home[sizeof("/" HOMES "/4294967295")];
	struct pool *homes, *p;
	uid_t uid;
	int r = path_check(path);

	if (r < 0 || s->uid == 0 || s->uid == geteuid() || !names_home(path, &uid) || uid != s->uid)
		return r;
	snprintf(home, sizeof(home), "/" HOMES "/%u", (unsigned)uid);
	r = pool_find(s->manager->tree, home, &p);
	if (r != -ENOENT)
		return r;
	r = find_homes(s->manager->tree, &homes);
	if (r == 0)
		r = make(s, home, OWNER_LAST, homes, 1, &p);
	return r < 0 ? r : 1;
}

int owner_find(struct session *s, const char *path, struct pool **ret)
{
	int r = make_home(s, path);

	return r < 0 ? r : pool_find(s->manager->tree, path, ret);
}

int owner_create(struct session *s, const char *path, enum owner_makes what, struct pool **ret)
{
	struct pool *there;
	size_t missing;
	int r, home = make_home(s, path);

	if (home < 0)
		return home;
	r = pool_find_nearest(s->manager->tree, path, &there, &missing);
	if (r < 0)
		return r;
	if (missing == 0) {
		if (what == OWNER_LAST && !home)
			return -EEXIST;
		*ret = there;
		return 0;
	}
	if (missing > 1 && what == OWNER_LAST)
		return -ENOENT;
	r = access_check(s, there, ACCESS_CREATE);
	return r < 0 ? r : make(s, path, what, there, missing, ret);
}

void owner_forget(struct pool *p)
{
	struct user *u = take_ptr(p->account);

	if (u)
		user_give(u, USER_POOLS, 1);
	user_unref(u);
}

/* ------------------------------------------------------------------ owner and mode */

static void say_owner(struct pool *p, uid_t uid, gid_t gid, FILE *changes)
{
	char path[PATH_MAX_BYTES + 1];

	fprintf(changes, "%s owner %u:%u -> %u:%u\n", pool_path_into(p, path, sizeof(path)),
		(unsigned)p->uid, (unsigned)p->gid, (unsigned)uid, (unsigned)gid);
}

static bool configure_owner(struct pool *p, const struct conf_pool *section, FILE *changes)
{
	bool says = section && section->uid != NAMES_NOBODY;
	uid_t uid = says ? section->uid : p->made_uid;
	gid_t gid = says ? section->gid : p->made_gid;
	bool changed = p->uid != uid || p->gid != gid;

	if (p->set_at_run & POOL_SET_OWNER)
		return false;
	if (changed)
		say_owner(p, uid, gid, changes);
	p->uid = uid;
	p->gid = gid;
	return changed;
}

static bool configure_mode(struct pool *p, const struct conf_pool *section, FILE *changes)
{
	bool says = section && section->mode != CONF_NO_MODE;
	mode_t mode = says ? section->mode : POOL_MODE;
	bool changed = p->mode != mode;
	char path[PATH_MAX_BYTES + 1];

	if (p->set_at_run & POOL_SET_MODE)
		return false;
	if (changed)
		fprintf(changes, "%s mode %04o -> %04o\n", pool_path_into(p, path, sizeof(path)),
			(unsigned)p->mode, (unsigned)mode);
	p->mode = mode;
	return changed;
}

bool owner_configure(struct pool *p, const struct conf_pool *section, FILE *changes)
{
	bool owner = configure_owner(p, section, changes);

	return configure_mode(p, section, changes) || owner;
}

void owner_print(FILE *f, const struct pool *p)
{
	fprintf(f, "%u:%u\n", (unsigned)p->uid, (unsigned)p->gid);
}

int owner_set(struct pool *p, const char *value)
{
	const char *group;
	uid_t uid;
	gid_t gid;

	value += strspn(value, " \t\n");
	group = strchr(value, ':');
	if (!group || names_parse_number(value, (size_t)(group - value), &uid) < 0)
		return -EINVAL;
	group++;
	value = group + strcspn(group, " \t\n");
	if (value[strspn(value, " \t\n")] ||
		names_parse_number(group, (size_t)(value - group), &gid) < 0)
		return -EINVAL;
	p->uid = uid;
	p->gid = gid;
	p->set_at_run |= POOL_SET_OWNER;
	return 0;
}

void owner_print_mode(FILE *f, const struct pool *p)
{
	fprintf(f, "%04o\n", (unsigned)p->mode);
}

int owner_set_mode(struct pool *p, const char *value)
{
	unsigned mode;
	int r = value_parse_mode(value, &mode);

	if (r < 0)
		return r;
	p->mode = mode;
	p->set_at_run |= POOL_SET_MODE;
	return 0;
}
