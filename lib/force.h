/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Charging by force: what always succeeds, from a signal handler too. The bytes are added to a word
 * of the key that only grows, and whoever grants counts them in at its next look. A key that the
 * handle does not have yet cannot be waited for: until it comes, the bytes are owed by the handle.
 */

#include "client.h"

/* The handle is not detached, or its bytes go with it. Async-signal-safe. */
void force_charge(struct tally_pool *p, tally_item item, uint64_t bytes);

/* Gives back what is owed still; nothing, when so much is not. Async-signal-safe. */
void force_uncharge(struct tally_pool *p, tally_item item, uint64_t bytes);

/* The handle has its key of the item now: what is owed goes there. Async-signal-safe. */
void force_settle(struct tally_pool *p, tally_item item);
