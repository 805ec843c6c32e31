/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Who gets how much, in the embedded engine: a request is tried with a batch beyond its need, then
 * alone; over a limit, idle credit of the pool that refused is drained and it is tried again; then
 * it is refused, or waits in that pool's queue if it came with a deadline.
 *
 * A request that waits is on the stack of the thread that asked, which sleeps; each drains and tries
 * for itself, but only the head of a pool's queue may take. Uncharges go into stocks without a word
 * to the engine, so a head looks again and again.
 */

#include "core/wire.h"
#include "engine.h"

/* A CHARGE. 0: it was answered, or concerns nobody; -EPROTO; -ENODEV: dropped while it waited. */
int grant_handle(struct embedded *e, const struct wire_charge *m);

/* Puts a batch into the reserve of the key, if headroom is ample. */
void grant_ahead(struct engine_key *k);

/* The waiting requests of an attachment, of all, are dropped without an answer. */
void grant_drop(struct engine_attachment *a);
void grant_drop_all(struct embedded *e);
