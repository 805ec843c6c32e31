/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What this kernel can do is tried, not looked up: kernels exist that abort a restartable sequence
 * only when its thread is moved, and not when it is preempted, and distributions mend them without
 * a new version number.
 */

/* Whether it aborts a sequence at every preemption: 1, 0, or a negative errno when it could not be
 * tried. Takes some milliseconds. While there is one thread: it forks, and pins itself. */
int kernel_aborts_sequences(void);
