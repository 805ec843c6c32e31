/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Places in line of clients that do not block for them. A place is a request like any other until its
 * turn comes. Then its bytes are charged to the counters, set aside, and its client is told, which
 * fetches them by a request of the key's third lane: they become part of the row only then, by the
 * same step as any other grant. So what is set aside is bound to nothing that outlives the daemon,
 * and a client that does not come for it loses it after a second, though not its place: when it does
 * come, it stands at the head of whatever line there is.
 *
 * What is set aside is in the counters, and so in memory.peak and held against limits, and in nobody's
 * row, and so neither held nor idle.
 */

#include "request.h"

struct line;
struct turns;

int turns_new(struct manager *m, struct turns **ret);
/* After all sessions have ended. NULL is fine; returns NULL. */
struct turns *turns_free(struct turns *all);

/* REQUEST, CANCEL, FETCH of a live session. False: it breaks the protocol. */
bool turn_request(struct session *s, const struct wire_request *m);
bool turn_cancel(struct session *s, const struct wire_cancel *m);
bool turn_fetch(struct session *s, const struct wire_fetch *m);

/* For request.c: the counters have been charged with what the place needs. */
void turn_set_aside(struct request *r);
/* It will never be served, and its client is told so. */
void turn_end(struct request *r, int status);

/* The key is gone: its places end. */
void turn_drop_key(struct key *k);
/* Those of a line, which nobody is told of any more. */
void turn_free_all(struct line *l);

/* How many places of the key have not been fetched. */
unsigned turn_count(const struct key *k);
