/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Charging by force: what always succeeds, from a signal handler too. The bytes are added to a word
 * of the key that only grows, and whoever grants counts them in at its next look. A key that the
 * handle does not have yet cannot be waited for: until it comes, the bytes are owed by the handle.
 */

#include "client.h"

/* Not in a forked child. Of a handle that has lost its keys nothing is charged. Async-signal-safe. */
void force_charge(struct tally_pool *p, tally_item item, uint64_t bytes);

/* An uncharge that no slot took: of what is owed still, else of the key, if there is one. What is
 * neither was not charged. Async-signal-safe. */
void force_uncharge(struct tally_pool *p, tally_item item, uint64_t bytes);

/* What an item.s `owed` is, once and for all, when the handle has its key of the item. */
#define FORCE_SETTLED UINT64_MAX

/* The handle knows its key of the item, but has not begun to use it: what is owed goes there.
 * Async-signal-safe. */
void force_settle(struct tally_pool *p, tally_item item, struct client_key *k);
