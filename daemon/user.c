/* SPDX-License-Identifier: MIT */

#include "user.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <search.h>

#include "conf/conf.h"
#include "core/util.h"
#include "log.h"
#include "loglimit.h"
#include "manager.h"

#define LOG_USEC UINT64_C(60000000)

/* Each has a few seconds to say HELLO and be told; who opens more is hung up on at once. */
#define TURNED_AWAY_MAX 64

struct users {
	void *index; /* tsearch(3) root, by uid */
	uint64_t limits[USER_RESOURCES];
};

struct user {
	struct users *users;
	uid_t uid;
	unsigned refs;
	uint64_t has[USER_RESOURCES];
	uint64_t logged_usec[USER_RESOURCES]; /* 0: never */
};

/* NULL: not worth a word of its own. */
static const struct {
	const char *things, *key;
} names[USER_RESOURCES] = {
	[USER_SESSIONS] = {"sessions", "max_sessions_per_uid"},
	[USER_POOLS] = {"pools", "max_pools_per_uid"},
	[USER_ATTACHMENTS] = {"attachments", "max_attachments_per_uid"},
	[USER_QUEUED] = {"queued requests and notices", "max_queued_per_uid"},
};

static int by_uid(const void *a, const void *b)
{
	uid_t x = ((const struct user *)a)->uid, y = ((const struct user *)b)->uid;

	return x < y ? -1 : x > y;
}

int users_new(struct users **ret)
{
	struct users *all = calloc(1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	*ret = all;
	return 0;
}

struct users *users_free(struct users *all)
{
	if (!all)
		return NULL;
	assert(!all->index);
	free(all);
	return NULL;
}

void users_configure(struct users *all, const struct conf *c)
{
	all->limits[USER_SESSIONS] = c->max_sessions_per_uid;
	all->limits[USER_POOLS] = c->max_pools_per_uid;
	all->limits[USER_ATTACHMENTS] = c->max_attachments_per_uid;
	all->limits[USER_QUEUED] = c->max_queued_per_uid;
	all->limits[USER_TURNED_AWAY] = TURNED_AWAY_MAX;
}

int user_get(struct users *all, uid_t uid, struct user **ret)
{
	struct user wanted = {.uid = uid}, *u;
	void *found = tfind(&wanted, &all->index, by_uid);

	if (found) {
		*ret = user_ref(*(struct user **)found);
		return 0;
	}
	u = calloc(1, sizeof(*u));
	if (!u)
		return -ENOMEM;
	*u = (struct user){.users = all, .uid = uid, .refs = 1};
	if (!tsearch(u, &all->index, by_uid)) {
		free(u);
		return -ENOMEM;
	}
	*ret = u;
	return 0;
}

struct user *user_ref(struct user *u)
{
	u->refs++;
	return u;
}

struct user *user_unref(struct user *u)
{
	if (!u || --u->refs > 0)
		return NULL;
	for (unsigned i = 0; i < USER_RESOURCES; i++)
		assert(u->has[i] == 0);
	tdelete(u, &u->users->index, by_uid);
	free(u);
	return NULL;
}

static void log_over(struct user *u, enum user_resource what)
{
	uint64_t now = manager_now();

	if (!names[what].things)
		return;
	if (u->logged_usec[what] != 0 && now - u->logged_usec[what] < LOG_USEC)
		return;
	u->logged_usec[what] = now;
	if (!loglimit_allows(u->uid))
		return;
	log_warning("uid %u has %" PRIu64 " %s and gets no more: %s is %" PRIu64, (unsigned)u->uid,
		u->has[what], names[what].things, names[what].key, u->users->limits[what]);
}

int user_take(struct user *u, enum user_resource what, uint64_t n)
{
	uint64_t limit = u->users->limits[what], has = u->has[what];

	if (has > limit || n > limit - has) {
		log_over(u, what);
		return -EDQUOT;
	}
	u->has[what] += n;
	return 0;
}

void user_give(struct user *u, enum user_resource what, uint64_t n)
{
	assert(n <= u->has[what]);
	u->has[what] -= n;
}

uint64_t user_has(const struct user *u, enum user_resource what)
{
	return u->has[what];
}
