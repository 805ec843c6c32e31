/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The socket: listening, and reading what sessions say. Every message is checked by wire.c before a
 * handler sees it; one that breaks the protocol ends its session.
 */

#include "manager.h"

struct server;

#define SERVER_SOCKET "tallyd.sock" /* in the runtime directory */

/* Listens on the descriptor (consumed), or (-1) on tallyd.sock in the runtime directory. */
int server_new(struct manager *m, int listen_fd, struct server **ret);
/* Stops listening; removes the socket if it made it. Returns NULL. */
struct server *server_free(struct server *s);

/* Reads and handles messages of a session whose socket is readable. */
void server_read(struct session *s);
