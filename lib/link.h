/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The way to whoever grants: the socket to the daemon, or the embedded engine in this process.
 *
 * The socket is shared by all threads of a process without a thread of its own: of
 * those that wait for an answer one reads for all (the reader), the others sleep on a futex until
 * theirs is there or the reader's place is free. No lock is held while anyone waits, so that a
 * signal handler may send, and read answers that need no lock, at any point.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/wire.h"

/*
 * What the owner of a link does with messages. All but GRANTs concern more than one word, and are
 * handled under a lock of the owner's.
 */
struct link_owner {
	/* Descriptors that are taken are set to -1, the others are closed afterwards. */
	void (*on_message)(void *userdata, const void *message, size_t n, int *fds);
	/* False: somebody has it, and `wait` is not set; that way it must be async-signal-safe. */
	bool (*lock)(void *userdata, bool wait);
	void (*unlock)(void *userdata);
	/* Instead of a socket: takes a message and has its answers handled before it returns. -EAGAIN
	 * when that had to wait and `wait` is not set; that way it must be async-signal-safe. */
	int (*deliver)(void *userdata, const void *message, size_t n, bool wait);
	void *userdata;
};

struct link {
	int fd;                    /* -1: messages are delivered */
	_Atomic uint32_t reader;   /* 1: a thread reads for all */
	_Atomic uint32_t progress; /* a futex: changes whenever a waiter may have something to do */
	_Atomic uint32_t waiters;
	_Atomic bool lost;
	char *buf; /* of WIRE_MAX bytes, the reader's */
	struct link_owner owner;
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

/* Reads what has come without waiting for anything, be it a lock: what cannot be handled now stays
 * for later. Async-signal-safe, errno is kept. */
void link_read_nowait(struct link *l);

/* The same for who may take a lock. */
void link_read(struct link *l);

/* A descriptor above the standard ones, which a program may have closed and may yet write to; takes
 * the other. A negative one is returned as it is. */
int link_raise_fd(int fd);

/* CLOCK_MONOTONIC in microseconds. Async-signal-safe. */
uint64_t link_now(void);
