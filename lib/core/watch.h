/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Who wants to be told of a pool's events. A watch keeps what has happened since it was told last as one bit
 * a kind, and tells the pool's counts as they are when it does; so a storm of events costs what one
 * costs. Having told, it cools for 10 ms: what happens meanwhile is told at the end of that, so that the
 * last state is always known. When to tell is the host's business: the daemon has channels and a
 * timer, the embedded engine a descriptor that the program polls.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "pool.h"
#include "wire.h"

#define WATCH_COOL_USEC 10000

struct watch;

struct watch_host {
	TAILQ_HEAD(, watch) cooling; /* in the order in which they will have cooled */
	/* The watch may have something to tell, now or when it has cooled: watch_telling(),
	 * watch_next_cool(). */
	void (*on_marked)(struct watch *w);
};

struct watch {
	LIST_ENTRY(watch) at_pool;
	TAILQ_ENTRY(watch) entry; /* among those that cool */
	struct watch_host *host;
	struct pool *pool; /* a reference; also after it was removed */
	uint64_t number;
	uint32_t mask; /* what has happened and was not told */
	bool cooling, removed;
	uint64_t cool_usec; /* until then */
	uint64_t credits;
};

void watch_host_init(struct watch_host *h, void (*on_marked)(struct watch *w));

/* Zeroed before. */
void watch_begin(struct watch *w, struct watch_host *h, struct pool *p, uint64_t number);
void watch_end(struct watch *w);

/* For the tree's hooks: an event was counted at p; p was removed. */
void watch_event(struct pool *p, enum pool_event e);
void watch_removed(struct pool *p);
/* A request of the watching process that nobody waits for was answered. Not a matter of cooling: the
 * process has asked for it. */
void watch_credit(struct watch *w);

/* What it has to tell now, a mask; 0: nothing, or it cools. */
uint32_t watch_telling(const struct watch *w);
/* The message that tells that. */
void watch_pack(const struct watch *w, struct wire_event *ret);
/* It was told. */
void watch_told(struct watch *w, uint64_t now_usec);

/* Those that have cooled by now do not cool any more, and are marked anew if they have something to
 * tell. */
void watch_cool(struct watch_host *h, uint64_t now_usec);
/* When the first one that has something to tell will have cooled; UINT64_MAX: none. */
uint64_t watch_next_cool(const struct watch_host *h);
