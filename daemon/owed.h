/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * An answer that is given later, when something has been waited for that the session does not wait
 * for itself: it may have ended by then.
 */

#include "session.h"

struct owed {
	struct manager *manager;
	uint64_t session, cookie;
};

/* DONE is owed for that cookie. -EAGAIN: the session is owed many already; -ENOMEM. */
int owed_new(struct session *s, uint64_t cookie, struct owed **ret);

/* The session, if there still is one that can be answered; else NULL. */
struct session *owed_session(const struct owed *o);

/* Answers, with a record of the refusal if there is one, and frees it. */
void owed_done(struct owed *o, int status);
void owed_refused(struct owed *o, int status, uint64_t refusal);

/* Without an answer. Returns NULL. */
struct owed *owed_free(struct owed *o);
