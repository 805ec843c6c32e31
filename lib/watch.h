/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Watches from the client's side: a number for the daemon, a function of the program's.
 */

#include "dispatch.h"

/* EVENT: runs the function once for each kind; returns how often. */
int watch_tell(struct tally *t, const struct wire_event *m);
