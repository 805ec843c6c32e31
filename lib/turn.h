/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Places in line in the embedded engine, of those that do not sleep for them. Nothing is set aside
 * here: a client comes again and again, in tally_queue_dispatch(), and one that is the head of its
 * line then takes what there is, as a thread that sleeps there does. One whose client has not come for
 * a second lets others pass, until it does.
 */

#include "core/wire.h"
#include "engine.h"

/* REQUEST, CANCEL, FETCH: 0, or -EPROTO. */
int turn_request(struct embedded *e, const struct wire_request *m);
int turn_cancel(struct embedded *e, const struct wire_cancel *m);
int turn_fetch(struct embedded *e, const struct wire_fetch *m);

/* All of them, when nobody comes any more. */
void turn_free_all(struct embedded *e);
