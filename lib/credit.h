/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What a key was granted: the embedded engine's ledger. Nobody outlives the process, so a row is
 * what stands in struct engine_key, and no order of stores matters; but as in the daemon the
 * segment is not believed: what it says is read once, bounded and clamped.
 */

#include "engine.h"

/* The key is live from now on, with nothing granted. */
void credit_open(struct engine_key *k);

/* The counters have been charged with so much for it. */
void credit_grant(struct engine_key *k, uint64_t bytes);

/* The same, but it goes into the key's reserve. False: that did not take it, and it went back. */
bool credit_deposit(struct engine_key *k, uint64_t bytes);

/* What a miss would bring now beyond its need. */
uint64_t credit_batch(const struct engine_key *k);

/* How much more may be granted to it. */
uint64_t credit_room(const struct engine_key *k);

/* What was charged by force or as debt since the last look. */
void credit_fold(struct engine_key *k);

/* So much was taken out of a word of the key: it goes back. Returns the bytes that did: what had
 * never been granted is overdraft. */
uint64_t credit_return(struct engine_key *k, uint64_t bytes);

/* Takes what lies in the key's reserve beyond `leave`. Returns the bytes that went back. */
uint64_t credit_take_reserve(struct engine_key *k, uint64_t leave);

/* All of it goes back; the key is no longer live. */
void credit_give_back(struct engine_key *k);

/* Counts credit of the attachment that came back and had never been granted. */
void credit_count_overdraft(struct engine_attachment *a, uint64_t bytes);
