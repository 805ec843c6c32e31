/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Which exported pools are due before the periodic flush: those of whose subtrees more updates are
 * pending than their threshold. Only sessions are asked that have something pending at the root, so
 * that nothing is walked where nothing moves.
 */

#include "manager.h"

struct exportdue {
	struct pool **pools; /* n of them */
	size_t n, room;
	uint32_t looks;
};

/* Flushes those, and puts them first in the list of changes. Returns how many have changed. */
size_t exportdue_run(struct exportdue *d, struct manager *m);

void exportdue_clear(struct exportdue *d);
