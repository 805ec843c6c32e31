/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What a client may say, and what is done about it: one handler a type of message. Every message is
 * checked by wire.c before its handler sees it.
 */

#include "core/wire.h"
#include "session.h"

/* Aligned for every message. */
union message_buffer {
	struct wire_header h;
	struct wire_hello hello;
	struct wire_attach attach;
	struct wire_detach detach;
	struct wire_forget forget;
	struct wire_key key;
	struct wire_extent extent;
	struct wire_charge charge;
	struct wire_ring ring;
	struct wire_ahead ahead;
	struct wire_define define;
	struct wire_transfer transfer;
	struct wire_get get;
	struct wire_refusal refusal;
	struct wire_remove remove;
	struct wire_watch watch;
	struct wire_unwatch unwatch;
	struct wire_on_reclaim on_reclaim;
	struct wire_queue queue;
	struct wire_request request;
	struct wire_cancel cancel;
	struct wire_fetch fetch;
	char bytes[WIRE_MAX];
};

/* Handles a message of `n` bytes that came with n_fds descriptors (closed by now). False: it breaks
 * the protocol, and the session is to be ended. */
bool message_handle(struct session *s, const union message_buffer *m, size_t n, unsigned n_fds);
