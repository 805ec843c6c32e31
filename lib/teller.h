/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the embedded engine has to tell. It has no thread that could write to a socket, so the
 * program's descriptor is a timer: armed at once when there is something to tell, and for the end of
 * a watch's cooling when there is something but it was told a moment ago. What there is then is
 * asked for by tally_dispatch().
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/watch.h"

struct embedded;
struct engine_watch;

struct teller {
	struct watch_host host;
	TAILQ_HEAD(, engine_watch) watches, ready;
	int fd; /* the timer; -1: none yet */
	uint64_t armed_usec;
};

void teller_init(struct embedded *e);
/* Makes the timer; another descriptor of it, the caller's, in *ret_fd. */
int teller_open(struct embedded *e, int *ret_fd);
void teller_clear(struct embedded *e);

/* WATCH: -EEXIST, -ENOMEM; UNWATCH. */
int teller_watch(struct embedded *e, uint64_t number, struct pool *p);
void teller_unwatch(struct embedded *e, uint64_t number);

/* What was asked for at p, and was not to be had at once, may be had now; NULL: anywhere. */
void teller_credit(struct embedded *e, const struct pool *p);

/* The next message that is to be told now, into `buf` of WIRE_NOTICE_MAX bytes; its size, 0: none, and
 * the timer is armed for what is left. */
size_t teller_next(struct embedded *e, void *buf);
