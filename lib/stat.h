/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Moving items of a pool, charging nothing: tally_stat_add(). An update goes to this CPU's cell of the
 * item's key, and marks it; from time to time what has come together is added to the pending words,
 * by which a reader knows whether to flush.
 *
 * An item whose key is not known yet is moved in the handle, until the key comes. Whether it is an
 * event is not known then either, so what goes up and what goes down are kept apart.
 */

#include "client.h"

/* What was moved while the key was not known goes to its cell; or is forgotten. Async-signal-safe. */
void stat_settle(struct tally_pool *p, tally_item item, struct client_key *k);
void stat_drop(struct tally_pool *p, tally_item item);

/* The same for all items of a handle, and for all handles, asking for the keys that it takes. What
 * cannot be sent stays. */
int stat_send(struct tally_pool *p);
void stat_send_all(struct tally *t);
