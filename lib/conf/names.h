/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Names of users and groups as they stand in a configuration. They become numbers when it is read,
 * once: a look into the user database may go over the network, and nothing that serves clients may
 * wait for that.
 */

#include <stddef.h>
#include <sys/types.h>

#define NAMES_NOBODY ((uid_t)-1) /* no uid, and no gid either */

/* A name that this machine knows, or a number. -ENOENT: neither; -ENOMEM and others: the database
 * could not be asked. */
int names_find_user(const char *name, uid_t *ret);
int names_find_group(const char *name, gid_t *ret);

/* Digits alone, and not NAMES_NOBODY. -EINVAL. */
int names_parse_number(const char *text, size_t n, uid_t *ret);
