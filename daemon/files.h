/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Files of a pool as the daemon serves them: those of statfmt, and those about clients and about
 * the daemon itself, which only it knows.
 */

#include "manager.h"
#include "session.h"

/* The text, from the figures of the last look; errors as of statfmt_read(). */
int files_read(struct manager *m, struct pool *p, const char *file, char **ret_text);

/* Whether the session may; -ENOENT: there is no such file to be written, -EACCES: nobody writes it, or
 * as access_check(). */
int files_check_read(const struct session *s, struct pool *p, const char *file);
int files_check_write(const struct session *s, struct pool *p, const char *file);

/*
 * Writes a value, which the session may, and answers the session's SET, now or (pool.drain) when it is done. Errors as of
 * statfmt_write().
 */
void files_write(
	struct session *s, uint64_t cookie, struct pool *p, const char *file, const char *value);
