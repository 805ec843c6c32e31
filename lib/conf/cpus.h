/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * How many CPUs this machine can ever have. Arrays by CPU are as long as that: a thread may run on
 * any of them, whatever is online now and whatever the affinity mask of this process says.
 */

#include <stdint.h>

/* One more than the highest number of a possible CPU, however sparse they are; never 0. */
uint32_t cpus_possible(void);
