/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Between those who stand in line at a limit and those who do not: small charges that come one after
 * the other take each byte as it comes free, and a big one that waits would never see enough of them
 * together. So who has been at the head of a line for a while has a right to what it waits for, and
 * whoever charges without standing in line gets what fits beside that. One whose need is above the
 * limit cannot be helped that way, and holds up nobody.
 */

#include <stdbool.h>
#include <stdint.h>

#include "counter.h"

#define FAIRNESS_USEC UINT64_C(50000)

/* Whether n bytes may be charged to the counter past a head that has needed so much for so long. */
static inline bool fairness_allows(
	const struct counter *c, uint64_t n, uint64_t head_need, uint64_t head_usec)
{
	uint64_t room;

	if (head_usec < FAIRNESS_USEC || head_need > atomic_load(&c->max))
		return true;
	room = counter_room(c);
	return room >= head_need && n <= room - head_need;
}
