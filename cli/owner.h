/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Whose a pool is, in names. The daemon knows numbers alone, because looking a name up may take long;
 * here a person waits anyway.
 */

#include "command.h"

#define OWNER_TEXT_MAX 320

/* "alice (uid 1000)", or "uid 1000" when the number has no name. */
const char *owner_name(unsigned uid, char buf[static OWNER_TEXT_MAX]);

/* The same of who asks. */
const char *owner_name_own(char buf[static OWNER_TEXT_MAX]);

/* The same of the owner of a pool; "its owner" when the daemon does not tell. */
const char *owner_of(
	const struct invocation *inv, const char *path, char buf[static OWNER_TEXT_MAX]);

/*
 * "USER:GROUP", each a name or a number, as pool.owner takes it; to be freed. Other text comes back as it
 * is, for the daemon to refuse. Tells what is not known and returns NULL.
 */
char *owner_numbers(const char *path, const char *text);
