/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Records of refusals: who was refused what, by which limit of which pool, what was tried before, and
 * who holds most. A refusal is seen by people long after it happened, and a log line a minute tells
 * of one of thousands; so the last ones are kept, of every pool that refuses.
 *
 * Programs decide how often they are refused, so a record costs a copy of some hundred bytes and no
 * allocation: all of them lie in one mapping of fixed size, in blocks, and the oldest makes room. Who
 * holds most takes a walk over the pool's children and clients, and is looked up only now and then
 * (refusal_is_look_due()); the records between have the answer of the one before.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "itemlimit.h"

/* Of a pool, and of all that a read shows. */
#define REFUSALS_OF_POOL 256

/* Enough for some 16,000 with paths of a usual length; for those of one process. */
#define REFUSALS_BYTES ((size_t)8 << 20)
#define REFUSALS_BYTES_SMALL ((size_t)512 << 10)

#define REFUSAL_HOLDERS 3

struct refusals;

/* Who holds bytes below a limit: a pool, or a client. */
struct refusal_holder {
	uint64_t bytes;
	const struct pool *pool; /* NULL: a client */
	const char *name;        /* of a client */
	pid_t pid;
};

/* A client's part of what is held with the item (0: of all); all but `pool` is to be set. */
typedef void (*refusal_holder_fn)(struct pool_member *m, uint32_t item, struct refusal_holder *ret);

struct refusal_facts {
	uint64_t session;   /* whose request it was */
	uint64_t time_usec; /* CLOCK_REALTIME */
	pid_t pid;
	uint64_t limit; /* COUNTER_MAX: what one attachment may hold at most */
	uint64_t held, idle, wanted, waited_usec;
	uint64_t drained, asked, reclaimed; /* what was tried for it */
	/* It would fit, but for others ahead in line who wait for so much; 0: it would not. */
	uint64_t ahead;
};

/* Room for so many bytes of records. -ENOMEM. */
int refusals_new(size_t bytes, struct refusals **ret);
/* After the tree. NULL is fine; returns NULL. */
struct refusals *refusals_free(struct refusals *r);

/* For refusal_facts.time_usec. */
uint64_t refusal_time(void);

/* Whether it is time to look at who holds most below the limit; the look took `cost_usec` when it was
 * done. A tenth of the time goes into looks at most. */
bool refusal_is_look_due(const struct pool *p, uint64_t now_usec);
void refusal_count_look(struct pool *p, uint64_t now_usec, uint64_t cost_usec);

/* The largest ones, largest first; their number. Of pools what the last look found, if it was just now
 * (looked); else what is granted there, idle credit included. */
size_t refusal_find_holders(struct itemlimit_place at, bool looked, refusal_holder_fn fn,
	struct refusal_holder ret[REFUSAL_HOLDERS]);

/*
 * Keeps a record of a refusal to somebody in `pool` by the limit `at`; `name` is the client's.
 * Without holders (NULL) they are those of the pool's last record. Returns its number, above 0;
 * 0: there was no room. Allocates nothing.
 */
uint64_t refusal_add(struct refusals *r, const struct refusal_facts *facts, const struct pool *pool,
	struct itemlimit_place at, const char *name, const struct refusal_holder *holders,
	size_t n_holders);

/* The name of the file whose value `at` is: memory.max, stat.<item>.max. For a limit COUNTER_MAX there
 * is none: "". Returns buf. */
#define REFUSAL_FILE_MAX 64
const char *refusal_file(struct itemlimit_place at, uint64_t limit, char buf[REFUSAL_FILE_MAX]);

/* One line of `key=value` a record: the last ones by limits of the pool and of those below, newest
 * last; that of this number, if the session's request was refused. To be freed. -ENOENT; -ENOMEM. */
int refusals_read(const struct refusals *r, const struct pool *below, char **ret_text);
int refusal_read(const struct refusals *r, uint64_t number, uint64_t session, char **ret_text);

/* The pool leaves its tree: its records are kept, by its path. */
void refusal_forget(struct pool *p);
