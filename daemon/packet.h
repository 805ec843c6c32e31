/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Messages on their way to a client. The loop never waits for one: what a socket does not take now
 * is queued behind it, and until it has gone nothing more is read from that client, so that the
 * queue is bounded by what it has asked already.
 */

#include "session.h"

struct packet {
	STAILQ_ENTRY(packet) entry;
	size_t size;
	unsigned n_fds;
	int fds[WIRE_FDS_MAX];
	char bytes[];
};

/*
 * Sends a message, or queues it behind others. The descriptors are consumed. A client that cannot
 * be sent to is hung up on.
 */
void packet_send(struct session *s, const void *message, size_t size, int *fds, unsigned n_fds);
void packet_send_done(struct session *s, uint64_t cookie, int status);
/* With the number of a record; 0: there is none. */
void packet_send_refused(struct session *s, uint64_t cookie, int status, uint64_t refusal);

/* Sends what is queued, as far as the socket takes it. Other than 0: the client is gone. */
int packet_flush(struct session *s);

/* Drops what is queued. */
void packet_drop_all(struct session *s);
