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

/*
 * Writes a value and answers the session's SET, now or (pool.drain) when it is done. Errors as of
 * statfmt_write().
 */
void files_write(
	struct session *s, uint64_t cookie, struct pool *p, const char *file, const char *value);
