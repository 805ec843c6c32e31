/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What may happen to a key's row, and in which order: every rule of the credit protocol that a
 * crash of the daemon could break is in this module and nowhere else.
 *
 * - Granting raises the counters, then flips the row; giving back flips the row, then lowers the
 *   counters: counters are never below the rows.
 * - A final answer, a refusal too, is flipped in before it is sent.
 * - Before credit is taken out of a word, or put into one, the intent is flipped in; the word is changed by exactly
 *   the recorded amount; then `granted` and the closed intent are flipped together, with the
 *   cumulative words folded in as they are *after* the take. One intent a row and a word.
 */

#include "key.h"

/* The row is to be the key's, live and empty. */
void row_open(struct key *k);

/* Answers a request: `bytes` (0: refused) with which the counters have been charged already. */
void row_answer(struct key *k, unsigned lane, uint64_t seq, uint64_t bytes);

/*
 * Answers a request that nobody waits for (seq 0: no request, it was asked ahead): the bytes go into
 * the key's reserve. False: they could not, and are given back; the request is answered all the same.
 * The row is settled.
 */
bool row_deposit(struct key *k, unsigned lane, uint64_t seq, uint64_t bytes);

/* What may still be granted to it: what is set aside for it is going to be. */
uint64_t row_room(const struct key *k);

/* What was charged by force or as debt since the last look. */
void row_fold(struct key *k);

/*
 * Bytes that `from` was granted are to's: the path of its pool, up to but not with `common`, has been
 * charged with them, and that of from's is uncharged here. The flip of from's row decides, and says what
 * to's is to be: after a restart that is written again, which changes nothing if it was written, as
 * nothing else happens to either before from's row says that it is done.
 */
void row_transfer(struct key *from, struct key *to, uint64_t bytes, struct pool *common);

/* Its pool has been removed, and it is the attachment's present one's: what was granted stays, and nothing
 * more is. */
void row_remove(struct key *k);

/* For rstat.h: what was granted, and how much of it is in answers that nobody has accepted yet. */
void row_read(struct rstat_key *stat, uint64_t *ret_granted, uint64_t *ret_unaccepted);

/* An answer with credit is on its way: nobody has accepted it yet. */
bool row_is_in_flight(const struct key *k);

/* Live, and no intent is open. */
bool row_is_settled(const struct key *k);

/* Credit is about to be taken out of the reserve, or out of a slot of a stock, that held `w`. */
void row_intend_reserve(struct key *k, word w);
void row_intend_slot(struct key *k, uint32_t cpu, uint32_t slot, word w);

/* The intent is carried out, or (the word was not like that any more) given up. Returns the bytes
 * that went back to the counters. */
uint64_t row_settle(struct key *k, bool taken);

/* Takes what lies in the key's reserve beyond `leave`. Returns the bytes that went back. */
uint64_t row_take_reserve(struct key *k, uint64_t leave);

/* Everything that the row has goes back; the row is in `state` from then on. */
void row_give_back(struct key *k, enum ledger_state state);
