/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A client's queue (tally_queue): the requests that one of its event loops has waiting, and the channel by which
 * it is told. It ends with the channel: a client that frees its queue closes that.
 */

#include <stdbool.h>
#include <sys/queue.h>

#include "channel.h"
#include "session.h"

struct turn;

struct line {
	struct session *session;
	uint64_t number; /* the client's, never used again in the session */
	struct channel *channel;
	struct notice look; /* there is something for it on the main socket */
	void *index;        /* tsearch(3) root of its turns, by id */
	TAILQ_HEAD(, turn) turns;
	TAILQ_ENTRY(line) entry; /* in the session */
};

/* With a channel, whose other end is in *ret_fd. -EEXIST; -EDQUOT; and what channel_new() says. */
int line_new(struct session *s, uint64_t number, int *ret_fd);

/* The line of that number; NULL: none (any more). */
struct line *line_find(struct session *s, uint64_t number);

/* There is something for it on the main socket, which its loop does not watch all the time. */
void line_look(struct line *l);

/* All of a session, with all that wait in them. */
void line_free_all(struct session *s);
