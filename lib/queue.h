/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Waiting without blocking, from the client's side: what a request of a queue goes through until its
 * callback runs. A queue's lists, and its requests but for what their owner reads, are under the
 * client's lock; callbacks run without it.
 */

#include "client.h"

/* FETCHED has come; the lock is held. */
void queue_on_fetched(struct tally *t, const struct wire_fetched *m);

/* The key of some handle has come, or will not; the lock is held. */
void queue_on_key(struct tally *t);
