/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Records of refusals in the embedded engine. As nothing that a charge leads to may allocate, there is
 * no look at the figures: what is granted and what lies idle is read where it stands.
 */

#include "core/itemlimit.h"
#include "engine.h"

/* What is known of a request that is refused. */
struct record_request {
	const struct engine_key *key;
	uint64_t wanted, since_usec;
	uint64_t drained, asked, reclaimed;
	uint64_t ahead; /* what others in line wait for, if it would fit but for them */
};

/* Keeps a record of what `at` refuses. Returns its number; 0: there is none. */
uint64_t record_refusal(const struct record_request *r, struct itemlimit_place at);
