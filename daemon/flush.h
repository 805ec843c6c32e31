/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * When the figures of a subtree are brought together: for reads, and of the whole tree every
 * `flush_interval`. How is the business of core/rstat.h.
 */

#include "manager.h"

struct attachment;
struct flush;

/* Flushes the whole tree every `flush_interval`, and lets the exporter look after each. */
int flush_new(struct manager *m, struct flush **ret);
/* Returns NULL; the memory goes when the loop has run on. */
struct flush *flush_free(struct flush *f);

/* The interval of the configuration, or a threshold, may have changed. Flushes the whole tree: clients
 * hear of a threshold by that, and would stop counting at the old one until then. */
void flush_reconfigure(struct flush *f);

/* Flushes the subtree now; without `moved` only what is charged. -ENOMEM: some figures are missing, and
 * will be seen by the next flush. */
int flush_pool(struct flush *f, struct pool *p, bool moved);

/* Flushes what a read of the file is to show: always what is charged; what is moved without a charge if
 * the GET's flags want it, or when more of it is pending than the pool's threshold. */
int flush_for_read(struct flush *f, struct pool *p, const char *file, uint64_t flags);

/* Microseconds since the whole tree was last flushed. */
uint64_t flush_age(const struct flush *f);

/* What of an attachment is held and idle, as of a look at its words now. */
void flush_attachment(const struct attachment *a, uint64_t *ret_held, uint64_t *ret_idle);
