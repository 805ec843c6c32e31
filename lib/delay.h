/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Sleeping because of memory.high, in the thread that has charged. The credit is its own already and
 * no lock is held; whoever else charges goes on.
 */

#include <stdint.h>

struct tally_pool;

/* So long, but not past the deadline. No cancellation point; errno is kept. */
void delay_sleep(struct tally_pool *p, uint32_t usec, uint64_t deadline_usec);
