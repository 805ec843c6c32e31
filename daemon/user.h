/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Accounts: what the clients of each uid have taken of the daemon. Whatever a client can make
 * another one of is taken from its uid's account first and given back when it is gone, by whichever
 * way it went; so one uid can use up its own share and nobody else's. The account is the uid's and
 * not the session's, because a user has as many processes as it likes.
 */

#include <stdint.h>
#include <sys/types.h>

struct conf;
struct manager;

enum user_resource {
	USER_SESSIONS,    /* connections that are, or may still become, sessions */
	USER_POOLS,       /* that it has made, while they are in the tree */
	USER_ATTACHMENTS, /* attachment.h says which */
	USER_QUEUED,      /* requests and notices that wait, watches */
	USER_TURNED_AWAY, /* connections beyond USER_SESSIONS, kept to be told so */
	USER_RESOURCES,
};

struct users;
struct user;

/* Nobody has anything. The limits are those of users_configure(). -ENOMEM. */
int users_new(struct users **ret);
/* When every reference is gone. NULL is fine; returns NULL. */
struct users *users_free(struct users *all);

/* New limits; who has more already keeps it, and gets no more. */
void users_configure(struct users *all, const struct conf *c);

/* The account of a uid, with a reference for the caller. -ENOMEM. */
int user_get(struct users *all, uid_t uid, struct user **ret);
struct user *user_ref(struct user *u);
/* The last reference goes when all is given back. NULL is fine; returns NULL. */
struct user *user_unref(struct user *u);

/* Takes n of it, all or none. -EDQUOT: it would be more than one uid may have; logged, at most once
 * a minute for each uid and resource. */
int user_take(struct user *u, enum user_resource what, uint64_t n);
void user_give(struct user *u, enum user_resource what, uint64_t n);

uint64_t user_has(const struct user *u, enum user_resource what);
