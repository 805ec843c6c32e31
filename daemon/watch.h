/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Watches of sessions: when one has something to tell, it is posted to the session's channel. One
 * timer serves all that cool.
 */

#include "session.h"

struct watches;

int watches_new(struct manager *m, struct watches **ret);
/* After all sessions have ended: then no watch is left. Returns NULL. */
struct watches *watches_free(struct watches *all);

/* WATCH. -EEXIST: the number is in use; -EDQUOT: its uid has too many; -ENOMEM. */
int watches_add(struct session *s, uint64_t number, struct pool *p);
/* UNWATCH; one that is not there is fine. */
void watches_remove(struct session *s, uint64_t number);
void watches_remove_all(struct session *s);

/* A request of the session at the pool, for which nobody waits, was answered: its watches of the pool
 * tell CREDIT as soon as the answer is in the socket. */
void watches_credit(struct session *s, struct pool *p);
/* Answers that waited in the session are in its socket now. */
void watches_answers_sent(struct session *s);
