/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A client's second socket: what it has not asked for just now. The daemon keeps no queue of messages
 * for it. Who may have something to tell embeds a notice, which stands in the channel's list at most
 * once; when the socket has room, it writes its state as it is then. So memory is bounded by what the
 * client has made (watches, attachments, requests), and one that never reads costs nobody anything.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>
#include <uv.h>

struct channel;

struct notice {
	TAILQ_ENTRY(notice) entry;
	struct channel *channel; /* in whose list it stands; NULL: in none */
	/* Writes the message into `buf` of WIRE_NOTICE_MAX bytes, aligned for all of them; its size,
	 * or 0: there is nothing to tell any more. Changes nothing, for the socket may yet refuse. */
	size_t (*pack)(const struct notice *n, void *buf);
	/* The message that was packed last has gone; the notice stands in no list, and may be posted
	 * again, or freed. NULL: nobody minds. */
	void (*sent)(struct notice *n);
};

struct channel_owner {
	/* A report, checked by wire.c. False: it breaks the protocol. */
	bool (*on_report)(void *userdata, const void *message, size_t n);
	/* The client has hung up (`broken`: or broken the protocol). Once; nothing is sent or read
	 * any more. */
	void (*on_gone)(void *userdata, bool broken);
	void *userdata;
};

/* Makes the pair; the client's end is in *ret_theirs. */
int channel_new(
	uv_loop_t *loop, const struct channel_owner *o, int *ret_theirs, struct channel **ret);
/* Forgets what is in its list, and hangs up. Returns NULL. */
struct channel *channel_free(struct channel *c);

/* The notice has something to tell, from the loop's next turn on: what happens in one turn is told
 * at once. One that is in the list stays where it is. */
void channel_post(struct channel *c, struct notice *n);

/* It has nothing to tell any more. */
void channel_forget(struct notice *n);
