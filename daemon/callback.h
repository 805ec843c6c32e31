/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Asking a client to give bytes back. An attachment that has a callback is asked over the session's
 * channel, by one request at a time, and answers when it has done what it could; whoever asked waits
 * for that no longer than it likes, but until it has come the attachment is busy and is not asked
 * again. All of this is of the loop: nothing here waits, and there is no timer.
 */

#include "attachment.h"

struct channel;

/* What came of it: bytes given back, as the client says; 0 too when it cannot answer any more
 * (detached, hung up, ended). The attachment may be asked again from here, unless it cannot. */
typedef void (*callback_done_fn)(void *userdata, struct attachment *a, uint64_t bytes);

/* ON_RECLAIM: it has one from now on, or has none any more. -ENODEV: it is not live; -ENOMEM. */
int callback_set(struct attachment *a, bool on);

/* It can be asked: it has a callback, and has answered what it was asked before. */
bool callback_can_ask(const struct attachment *a);
/* It has been asked and has not answered, whether or not anyone waits for that. */
bool callback_is_busy(const struct attachment *a);

/*
 * Asks it to give back `want` bytes; for one that can be asked. `deadline_usec` is for the client to
 * know, nobody here looks at it. `done` is called once, later, unless it is cancelled before.
 */
void callback_ask(struct attachment *a, uint64_t want, uint64_t deadline_usec,
	callback_done_fn done, void *userdata);

/* Whoever asked no longer waits: `done` is not called. If the question has not been sent yet it is not,
 * and the attachment can be asked again; else it is busy until it has answered. */
void callback_cancel(struct attachment *a);

/* RECLAIMED. One for another question than the last is nobody's. */
void callback_answer(struct session *s, const struct wire_reclaimed *m);

/* The attachment is detached, or nothing can be said to its client any more. */
void callback_end(struct attachment *a);
void callback_end_all(struct session *s);
