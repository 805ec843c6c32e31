/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Idle credit of the embedded engine: finding it, taking it back, and clearing words of keys that
 * are to be used again. Words that are changed by atomics are taken under way; those that are
 * changed by restartable sequences only behind the closed gate, where a plain store is as good as
 * any. Async-signal-safe, all of it.
 */

#include "engine.h"

/* What lies in the words of the attachment's keys, together with `dropped`, beyond what was granted: it
 * came from uncharging too much. What was charged by force is counted in first. */
uint64_t idle_excess(struct engine_attachment *a, uint64_t dropped);

/* Takes back all that lies idle and counts in the pool. Returns the bytes that went back. */
uint64_t idle_drain(struct embedded *e, struct pool *pool);

/* Takes what lies in slots of attachments whose pools were removed by force, and the slots with it: an
 * uncharge would fill them. */
void idle_expel(struct embedded *e);

/* The same if more is granted than a limit of the pool, memory.high too: idle credit is not to be charged past it. */
void idle_drain_above_limit(struct embedded *e, struct pool *pool);

/* The doorbell: reserves above their mark go back down to what one request brings. */
void idle_trim(struct engine_attachment *a);

/* After a look at the whole tree, which has counted in what was charged by force: reserves of those keys
 * that have idle credit. It does for idle_tidy(), and costs nothing for keys at rest. */
void idle_trim_listed(struct embedded *e);

/* Once a `flush_interval`, where there was no such look, which may need memory: doorbells that were lost, and what was charged by force. */
void idle_tidy(struct embedded *e);

/* Begins a collection of keys if free ones are short and enough wait to be collected, or takes the
 * running one as far as it comes. */
void idle_collect(struct embedded *e);
