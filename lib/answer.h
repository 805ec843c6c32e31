/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Answers of the embedded engine on their way to the owner: what packets are to the daemon. The
 * owner takes what it wants of the descriptors; the others are closed here, or kept for another
 * time.
 */

#include "engine.h"

/* Without descriptors. */
void answer_send(struct embedded *e, const void *message, size_t n);

/* With WIRE_FDS_MAX descriptors (-1: none), which are consumed. */
void answer_send_fds(struct embedded *e, const void *message, size_t n, int *fds);

/* With an extent (0: none), which is kept: a client that had no memory for it asks again. */
void answer_send_extent(struct embedded *e, const void *message, size_t n, uint32_t extent);

/* The extent of the key is let go of if it is known to have arrived. */
void answer_settle_extent(const struct engine_key *k);

void answer_done(struct embedded *e, uint64_t cookie, int status);
/* With the number of a record; 0: there is none. */
void answer_refused(struct embedded *e, uint64_t cookie, int status, uint64_t refusal);

/* TEXT; `text` counts if status is 0. -ENOMEM: nothing was sent. */
int answer_text(struct embedded *e, uint64_t cookie, int status, const char *text);
