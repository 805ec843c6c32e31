/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * How much one user may make the daemon log. Lines about a pool or a session are rare by themselves,
 * but whoever makes pools and sessions makes more of them: so each uid has so many lines a minute,
 * whatever they are about, and then one that says how many were left out. The budget is not part of
 * the user's account, which goes with the last session and would come back fresh.
 */

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#define LOGLIMIT_LINES 30
#define LOGLIMIT_USEC UINT64_C(60000000)

/* What was left out is told in this loop; the handle is the module's own. */
void loglimit_open(uv_loop_t *loop);
void loglimit_close(void);

/* Whether one more line may be logged that a process of this user has caused; counts it. */
bool loglimit_allows(uid_t uid);
