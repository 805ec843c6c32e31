/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Collecting keys. A key whose attachment is gone may still stand in slots, and in the registers of
 * threads that carry credit from one word to another; used again too early, such credit would
 * become the new owner's. So, in bulk, when a session runs short of keys: every CPU's `moving` is
 * seen 0 (whoever carries since before has put it down), the drainer clears every slot of the keys,
 * every CPU's `moving` is seen 0 once more (whoever took one out of a slot before that has put it
 * down).
 */

#include "session.h"

struct collect;

/* Begins a collection if the session is short of free keys, or has many dead attachments, and enough
 * wait to be collected, or
 * takes the running one as far as it comes without waiting. Called whenever a key is about to be
 * needed. */
void collect_run(struct session *s);

/* At the end of the session. NULL is fine. Returns NULL. */
struct collect *collect_free(struct collect *c);
