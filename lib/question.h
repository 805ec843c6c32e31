/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Asking attachments of the embedded engine to give bytes back: there is nobody but the thread that
 * charges, so the program's function runs in it, while the engine goes on without its mutex.
 */

#include "engine.h"

/* ON_RECLAIM: it has a function from now on, or has none any more. */
void question_set(struct engine_attachment *a, bool on);

/* It has one, which has answered what it was asked before. */
bool question_can_run(const struct engine_attachment *a);

/*
 * Has it give back `want` bytes, for an attachment that can; returns how many it says it did, 0 too if
 * it does so later. The mutex is not held meanwhile: afterwards nothing of what was known of
 * attachments, keys, pools without a reference is known any more, nor whether the session is still
 * open. Allocates nothing; not from where nothing may be waited for.
 */
uint64_t question_run(struct engine_attachment *a, uint64_t want, uint64_t deadline_usec);

/* What it was asked is done after all. */
void question_answer(struct embedded *e, uint64_t attachment, uint64_t token);
