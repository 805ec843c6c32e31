/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The load of hackbench: groups of senders and receivers, each sender sending messages to each
 * receiver of its group over socket pairs. For every message a buffer is charged before it is sent,
 * and uncharged when it has been received.
 */

#include <stddef.h>
#include <stdint.h>

#include "accounting.h"

#define HACKLOAD_SENDERS 20 /* of a group, and as many receivers */

/* There are many more tasks than CPUs, so that a call may contain the time in which its task did not
 * run. A call so long is counted by itself. */
#define HACKLOAD_LONG_NSEC 20000

struct hackload {
	struct accounting *accounting;
	unsigned groups, messages; /* of a sender to a receiver */
	size_t size;               /* of a message */
	uint64_t charge;           /* for a message */
};

struct hackload_result {
	double seconds;
	double accounting;      /* seconds in calls that were not long, of all tasks together */
	double in_long, n_long; /* seconds in long ones, and how many */
	/* Operations of the hierarchical counter for each message: of the whole run, in which the
	 * messages under way first become many and in the end none; and of its middle half. Negative:
	 * unknown. */
	double operations, steady_operations;
};

/* One run, from a beginning in common to the last message. */
void hackload_run(const struct hackload *l, struct hackload_result *ret);
