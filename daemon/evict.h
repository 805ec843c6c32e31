/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Ending sessions because somebody says so. A session ends whole, so whoever wants that must be allowed
 * to at every pool that it is attached to, not only at the one in whose name it is asked.
 */

#include "core/pool.h"
#include "session.h"

/*
 * pool.evict: "pid=N", "session=N", or a number that is the one or the other. Of sessions attached to
 * the pool or below it (at the root: of all), and answers `by` when they have ended. -EINVAL: none of
 * these; -ESRCH: there is no such session; -ENOTUNIQ: a bare number is the process of one and the
 * number of another; -EACCES, -EPERM: as access_check() for one of the pools, and then nobody is evicted.
 */
int evict(struct session *by, uint64_t cookie, struct pool *below, const char *value);
