/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Bringing the figures of a subtree together: what is held and what lies idle, pool by pool, from
 * the rows and the words; children before parents, so that a parent is the sum of its children in
 * one look.
 */

#include "manager.h"

struct attachment;
struct flush;

/* Flushes the whole tree every `flush_interval`, and lets the exporter look after each. */
int flush_new(struct manager *m, struct flush **ret);
/* Returns NULL; the memory goes when the loop has run on. */
struct flush *flush_free(struct flush *f);

/* The interval of the configuration may have changed. */
void flush_reconfigure(struct flush *f);

/* Flushes the subtree now. -ENOMEM: figures of some items are missing, to be tried again. */
int flush_pool(struct flush *f, struct pool *p);

/* Microseconds since the whole tree was last flushed. */
uint64_t flush_age(const struct flush *f);

/* What of an attachment is held and idle, as of a look at its words now. */
void flush_attachment(
	struct flush *f, const struct attachment *a, uint64_t *ret_held, uint64_t *ret_idle);
