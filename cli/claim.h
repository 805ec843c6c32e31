/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Charges to several pools, all or none of them. Nothing is held while one of them waits in line:
 * two that name the same pools in another order, or pools below the same limit, would otherwise wait
 * for each other.
 */

#include <stddef.h>
#include <stdint.h>

#include "tally.h"

struct claim {
	const char *path;
	uint64_t bytes;
	struct tally_pool *pool; /* attached by the caller */
};

/* CLOCK_MONOTONIC in microseconds. */
uint64_t claim_now(void);

/*
 * Takes all of them with the item (0: none), waiting until then (CLOCK_MONOTONIC; 0: not at all).
 * What the charge said that failed last, -ENOMEM or -ETIMEDOUT where a limit refused, and which it was
 * in *ret_failed; then nothing is held.
 */
int claim_all(struct claim *claims, size_t n, tally_item item, uint64_t deadline_usec,
	size_t *ret_failed);
