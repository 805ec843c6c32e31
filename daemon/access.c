/* SPDX-License-Identifier: MIT */

#include "access.h"

#include <errno.h>

#define DEFAULT_ADMIN_GROUP "tallyd"

#define MAY_READ 4
#define MAY_CHANGE 2
#define MAY_ATTACH 1

void access_configure(struct manager *m, const struct conf *c)
{
	gid_t gid;

	m->admin_gid = c->admin_gid;
	if (!c->has_admin_group && names_find_group(DEFAULT_ADMIN_GROUP, &gid) == 0)
		m->admin_gid = gid;
}

static bool is_in_group(const struct session *s, gid_t gid)
{
	if (s->gid == gid)
		return true;
	for (size_t i = 0; i < s->n_groups; i++)
		if (s->groups[i] == gid)
			return true;
	return false;
}

bool access_is_admin(const struct session *s)
{
	gid_t admins = s->manager->admin_gid;

	return s->uid == 0 || s->uid == geteuid() ||
		(admins != NAMES_NOBODY && is_in_group(s, admins));
}

static bool owns_above(const struct session *s, const struct pool *p)
{
	while ((p = p->parent))
		if (p->uid == s->uid)
			return true;
	return false;
}

/* MAY_… */
static mode_t bits_of(const struct session *s, const struct pool *p)
{
	mode_t bits;

	if (p->uid == s->uid)
		bits = p->mode >> 6;
	else if (is_in_group(s, p->gid))
		bits = p->mode >> 3;
	else
		bits = p->mode;
	while ((p = p->parent))
		if (p->uid == s->uid)
			bits |= p->mode >> 6;
	return bits & 07;
}

static bool may_change_above(const struct session *s, const struct pool *p)
{
	return p->parent && (bits_of(s, p->parent) & MAY_CHANGE);
}

/* What the pool above decides. Its owner is told that no mode of the own pool gives it. */
static int check_from_above(const struct session *s, const struct pool *p)
{
	if (may_change_above(s, p))
		return 0;
	return !p->parent || p->uid == s->uid ? -EPERM : -EACCES;
}

static int check_bit(const struct session *s, const struct pool *p, mode_t bit)
{
	return bits_of(s, p) & bit ? 0 : -EACCES;
}

int access_check(const struct session *s, const struct pool *p, enum access_action what)
{
	if (what == ACCESS_NAMES || access_is_admin(s))
		return 0;
	switch (what) {
	case ACCESS_READ:
		return check_bit(s, p, MAY_READ);
	case ACCESS_ATTACH:
		return check_bit(s, p, MAY_ATTACH);
	case ACCESS_CREATE:
		return check_bit(s, p, MAY_CHANGE);
	case ACCESS_OPERATE:
		return may_change_above(s, p) ? 0 : check_bit(s, p, MAY_CHANGE);
	case ACCESS_SET:
	case ACCESS_REMOVE:
		return check_from_above(s, p);
	case ACCESS_EVICT:
		return p->uid == s->uid ? 0 : check_from_above(s, p);
	case ACCESS_SET_MODE:
		return owns_above(s, p) ? 0 : -EPERM;
	case ACCESS_ADMIN:
	case ACCESS_NAMES:
		break;
	}
	return -EPERM;
}
