/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The socket to the daemon, shared by all threads of a process without a thread of its own: of
 * those that wait for an answer one reads for all (the reader), the others sleep on a futex until
 * theirs is there or the reader's place is free. No lock is held while anyone waits, so that a
 * signal handler may send, and read answers that need no lock, at any point.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/wire.h"

/* A message that came, with its descriptors: those taken are set to -1, the others are closed.
 * Called for GRANTs from link_read_grants() too, and then no lock may be taken. */
typedef void (*link_message_fn)(
	void *userdata, const void *message, size_t n, int *fds, unsigned n_fds);

struct link {
	int fd;
	_Atomic uint32_t reader;   /* 1: a thread reads for all */
	_Atomic uint32_t progress; /* a futex: changes whenever a waiter may have something to do */
	_Atomic uint32_t waiters;
	_Atomic bool lost;
	char *buf; /* of WIRE_MAX bytes, the reader's */
	link_message_fn on_message;
	void *userdata;
};

/* Connects to the path, before `deadline_usec`. -ENOTCONN: nobody listens there; -EACCES; … */
int link_connect(struct link *l, const char *path, uint64_t deadline_usec);
/* Ends all waits with -ENOTCONN; the descriptor stays until link_close(). */
void link_shut(struct link *l);
void link_close(struct link *l);

/* Sends a message, waiting for room in the socket until the deadline. -ENOTCONN, -ETIMEDOUT. */
int link_send(struct link *l, const void *message, size_t n, uint64_t deadline_usec);

/* The same without waiting: -EAGAIN. Async-signal-safe, errno is kept. */
int link_send_nowait(struct link *l, const void *message, size_t n);

/* Waits, and reads if nobody else does, until *word is no longer `seen`. 0, -ETIMEDOUT, -ENOTCONN.
 */
int link_wait(struct link *l, const _Atomic uint64_t *word, uint64_t seen, uint64_t deadline_usec);

/* The word at this address (which need not be there any more) has changed: wakes who waits for it.
 * Async-signal-safe. */
void link_wake(struct link *l, const void *word);

/* Reads the GRANTs that have come, as long as they are first in line, without waiting and without a
 * lock. Async-signal-safe, errno is kept. */
void link_read_grants(struct link *l);

/* CLOCK_MONOTONIC in microseconds. Async-signal-safe. */
uint64_t link_now(void);
