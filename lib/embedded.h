/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The embedded engine: the daemon in a box. It speaks the daemon's protocol, message by message,
 * but no socket lies between it and the client: a message is handled at once, in the thread that
 * brings it, and its answers are handed to the owner before that returns. It has no thread and no
 * timer; what the daemon does now and then is done here at a miss or at a read. There is one
 * session, this process, which ends with the engine.
 *
 * Of the files of a pool those that only a daemon can fill do not exist here: cgroup.procs,
 * pool.clients, tallyd.status, tallyd.reload.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/percpu.h"

struct embedded;

struct embedded_owner {
	/* An answer, as the socket would bring it, with WIRE_FDS_MAX descriptors (-1: none);
	 * descriptors that are taken are set to -1, the others are closed afterwards by the engine.
	 * The engine's mutex is held: only a message that does not wait may be sent from here, and
	 * a lock that is taken here is not to be held by whoever brings a message that waits. */
	void (*on_message)(void *userdata, const void *message, size_t n, int *fds);
	/* Closes the gate: when it returns no thread is inside an operation on a stock, and none
	 * begins one until it is opened again. Of PERCPU_RSEQ alone. */
	void (*gate)(void *userdata, bool open);
	/* The attachment is to give back `want` bytes: how many it did, or (negative) it will say
	 * later, by embedded_reclaimed(). The mutex is not held. */
	int64_t (*on_reclaim)(void *userdata, uint64_t attachment, uint64_t token, uint64_t want,
		uint64_t deadline_usec);
	void *userdata;
};

/*
 * `config` names a file of tallyd.conf's format: its [stat] and [pool] sections, batch and
 * flush_interval count, other keys are checked and have no effect. NULL: the built-in defaults.
 * -EINVAL: a bad one; -ENOENT and what else open() may say; -ENOMEM.
 */
int embedded_new(const char *config, enum percpu_kind kind, const struct embedded_owner *o,
	struct embedded **ret);

/* When no thread is inside. In a forked child it touches nothing that is shared, and frees memory
 * unless the fork found a thread inside. Returns NULL. */
struct embedded *embedded_free(struct embedded *e);

/* What GET asks for, without a message: reads are many. The text is to be freed. -ENOTCONN as below; and
 * what tally_get() says. */
int embedded_get(
	struct embedded *e, const char *path, const char *file, uint64_t flags, char **ret_text);

/* A thread of the attachment is about to sleep because of memory.high, and has slept. The first returns
 * whether the second is to be called. */
bool embedded_begin_delay(struct embedded *e, uint64_t attachment);
void embedded_end_delay(struct embedded *e, uint64_t attachment);

/*
 * Handles a message of the client's, as packed by wire_pack() and aligned like its struct, before it
 * returns; a CHARGE that queues sleeps here until it is decided. Without `wait` it is
 * async-signal-safe, errno is kept, and the mutex is only tried.
 *
 * -EAGAIN: another thread is inside, or this one, interrupted; -EOPNOTSUPP: `wait` is not set and
 * this message needs it (those that need memory, and a CHARGE that queues); -EPROTO: it breaks the
 * protocol; -ENODEV: the attachment was detached, or the session ended, while the charge waited;
 * -ENOTCONN: BYE has been said.
 */
int embedded_handle(struct embedded *e, const void *message, size_t n, bool wait);

/* The next notice, as the event socket would bring it, into `buf` of WIRE_NOTICE_MAX bytes, aligned for
 * all of them; its size, 0: none now. -ENOTCONN. */
int embedded_next_notice(struct embedded *e, void *buf);

/* This thread is in on_reclaim(): a charge would wait for itself. */
bool embedded_is_recalling(const struct embedded *e);

/* A question of on_reclaim() is answered now. */
void embedded_reclaimed(struct embedded *e, uint64_t attachment, uint64_t token);
