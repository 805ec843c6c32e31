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

/* The final answer to a request; the counters have been charged with what it brings. */
void credit_answer(struct engine_key *k, unsigned lane, const struct engine_answer *a);

/* The counters have been charged with so much for it, and it goes into the key's reserve. False: that did not take it, and it went back. */
bool credit_deposit(struct engine_key *k, uint64_t bytes);

/* What a miss would bring now beyond its need. */
uint64_t credit_batch(const struct engine_key *k);

/* How much more may be granted to it. */
uint64_t credit_room(const struct engine_key *k);

/* What was charged by force or as debt since the last look. */
void credit_fold(struct engine_key *k);

/* A word of the key is about to lose credit (segment_change()), which credit_return() tells of; 0: it
 * was not like that any more. */
void credit_intend(const struct engine_key *k, uint64_t change);

/* So much was taken out of a word of the key: it goes back. Returns the bytes that did: what had
 * never been granted is overdraft. */
uint64_t credit_return(struct engine_key *k, uint64_t bytes);

/* For rstat.h: what was granted, and how much of it is in answers that nobody has accepted yet. */
void credit_read(struct rstat_key *stat, uint64_t *ret_granted, uint64_t *ret_unaccepted);

/* Takes what lies in the key's reserve beyond `leave`. Returns the bytes that went back. */
uint64_t credit_take_reserve(struct engine_key *k, uint64_t leave);

/* Bytes of the one are the other's; its path up to `common` has been charged with them. */
void credit_transfer(
	struct engine_key *from, struct engine_key *to, uint64_t bytes, struct pool *common);

/* Its pool has been removed, and it is the attachment's present one's: what was granted stays, and nothing
 * more is. */
void credit_move(struct engine_key *k);

/* All of it goes back; the key is no longer live. */
void credit_give_back(struct engine_key *k);
