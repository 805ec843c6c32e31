/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A connection to the daemon: the session's segment, the calls that wait for an answer, the
 * attachments. What the public functions need of it on the hit path is in struct tally_pool and
 * struct live, and nothing else is touched there.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "core/item.h"
#include "core/segment.h"
#include "dispatch.h"
#include "embedded.h"
#include "link.h"
#include "refused.h"
#include "tally.h"

/* Longest wait of any call and of any charge without a deadline. */
#define CLIENT_WAIT_USEC UINT64_C(5000000)

struct call;
struct client_key;

/*
 * What a hit reads. It lies on a page that is wiped in a forked child, so that the child finds no
 * stocks, and the check for that costs no load of its own. Closed, it has no CPU either: then every
 * charge misses.
 */
struct live {
	struct percpu_area stocks;
	_Atomic uint64_t high; /* mark of a slot */
	bool is_parent;        /* false in a child */
};

struct tally {
	_Atomic uint32_t refs; /* the caller's, and one a handle */
	struct live *live;
	struct link link;
	struct embedded *embedded; /* NULL: there is a daemon */
	_Atomic bool delivers;     /* `deliverer` holds the lock, and has a message handled */
	_Atomic pthread_t deliverer;
	int event_fd;
	pid_t mapped_by; /* the process in which the segment is mapped */
	struct segment segment;
	struct client_key *keys[SEGMENT_EXTENTS]; /* of extents 1, 2, …; they never move */
	_Atomic uint64_t last_ring_usec;
	_Atomic bool closed;
	/* Of all below, and of who opens and closes keys. Signal handlers only try to take it: that
	 * is one compare-and-swap. */
	pthread_mutex_t lock;
	TAILQ_HEAD(, call) calls;
	TAILQ_HEAD(, tally_queue) queues;
	uint64_t last_queue;
	void *pools; /* tsearch(3) root, of those that are not detached, by attachment */
	uint64_t last_cookie, last_attachment;
	struct refused refused;
	struct dispatch dispatch;
	_Atomic bool unsent; /* some handle may have moved what it could not send; stat.h */
};

/* Whether the key of an item has been asked for by who may not wait. */
enum client_asked {
	CLIENT_NOT_ASKED,
	CLIENT_ASKED,
	CLIENT_NO_SUCH_ITEM, /* so it was answered, and nobody has been told yet */
};

/* A handle. What a hit reads is in its first cache line, with what tally_usage() reads. */
struct tally_pool {
	struct live *live;
	struct tally *tally;
	uint64_t attachment;
	_Atomic uint64_t charged; /* items whose `known` is set, a bit each; of item 1 the lowest */
	_Atomic uint32_t place;   /* of the pool in the segment; 0: none */
	_Atomic bool detached;
	_Atomic bool owes; /* some `owed` may be above 0 */
	/* Keys by item, WORD_KEY_VOID where there is none (yet, or any more). */
	_Atomic uint32_t key[ITEM_MAX + 1];
	struct {
		struct client_key
			*_Atomic known; /* our side of that key, NULL where there is none */
		_Atomic uint64_t owed;  /* charged by force while there was no key; force.h */
	} items[ITEM_MAX + 1];
	/* Where tally_stat_add() goes; NULL: not known (yet, or any more). */
	struct client_key *_Atomic stat[ITEM_MAX + 1];
	/* What was moved before that was known: stat.h. */
	struct {
		_Atomic uint64_t up, down;
	} unsent[ITEM_MAX + 1];
	_Atomic uint32_t refs;
	/* By item, enum client_asked: by charges, and by tally_stat_add(). */
	_Atomic uint8_t asked[ITEM_MAX + 1], stat_asked[ITEM_MAX + 1];
	struct dispatch_reclaim reclaim;
	char path[];
};

int client_open(const struct tally_options *o, struct tally **ret);
struct tally *client_ref(struct tally *t);
struct tally *client_unref(struct tally *t);
/* Says BYE and closes; the memory goes with the last reference. */
void client_close(struct tally *t);

/* 0, or why nothing can be asked: -ECHILD, -ENODEV (closed). */
int client_check(const struct tally *t);

/*
 * Sends a request and waits for its answer: `fixed` is the request's struct, its header is filled
 * in. Strings end with NULL. The answer's fixed part goes into `ret_answer` (n_answer bytes).
 * Allocates nothing if there are no strings.
 */
int client_call(struct tally *t, uint32_t type, void *fixed, size_t n_fixed,
	const char *const strings[static WIRE_STRINGS_MAX], void *ret_answer, size_t n_answer);

/* A request that is answered by TEXT, which is to be freed; and GET. */
int client_ask_text(struct tally *t, uint32_t type, void *fixed, size_t n_fixed,
	const char *const strings[static WIRE_STRINGS_MAX], char **ret);
/* The same for an answer that brings a descriptor: it is the caller's, -1 if none came. */
int client_call_fd(struct tally *t, uint32_t type, void *fixed, size_t n_fixed,
	const char *const strings[static WIRE_STRINGS_MAX], void *ret_answer, size_t n_answer,
	int *ret_fd);

/* GET; the text is to be freed. */
int client_get(struct tally *t, const char *path, const char *file, uint64_t flags, char **ret);

/* Maps extents until the key has a place: those that were sent when they could not be received. */
int client_fetch_extents(struct tally *t, uint32_t key);

/* The client's side of a key; NULL: it has no place (yet). */
struct client_key *client_key(struct tally *t, uint32_t number);

/* ------------------------------------------------------------------ delivery.c */

/* Makes the engine, and messages reach it from now on. What embedded_new() says. */
int delivery_open(struct tally *t, const char *config, enum percpu_kind kind);

/* A message that needs no waiting, from who holds the lock. As link_send_nowait(). */
int delivery_send_locked(struct tally *t, const void *message, size_t n);

/* Whether sequences of other threads can be aborted; without that the engine has atomics. */
bool delivery_has_barrier(void);

/* ------------------------------------------------------------------ attach.c */

int client_attach(struct tally *t, const char *path, uint64_t flags, struct tally_pool **ret);
/* Gives everything back; `last`: no other handle names the attachment. */
void client_detach(struct tally_pool *p, bool last);
/* The last handle of a detached attachment is gone. */
void client_forget(struct tally_pool *p);
void client_free_pool(struct tally_pool *p);
/* The handle of that number, with a reference; NULL: there is none, or it is detached. */
struct tally_pool *client_ref_pool(struct tally *t, uint64_t attachment);
/* Whether its pool was removed by force. Then, from the first time that this is asked, no charge finds
 * credit any more; uncharges find the keys still. Async-signal-safe. */
bool client_is_lost(struct tally_pool *p);
/* When there are no handles any more, but for those of a forked child's parent. */
void client_free_index(struct tally *t);

/* The key of (attachment, item), asked for at its first use. -EINVAL: no gauge of that number. */
int client_key_of(struct tally_pool *p, tally_item item, struct client_key **ret);

/* The same without waiting: -EAGAIN when it has been asked for. Async-signal-safe. */
int client_key_of_nowait(struct tally_pool *p, tally_item item, struct client_key **ret);

/* The key for tally_stat_add() is asked for; when the answer has come, the handle has it. As
 * client_key_of(), or NULL without waiting. */
int client_stat_key(struct tally_pool *p, tally_item item);
struct client_key *client_stat_key_nowait(struct tally_pool *p, tally_item item);

/* An answer with a key has come: makes it the handle's. The lock is held. -ENXIO: it has no place.
 */
int client_adopt_key(struct tally *t, const struct wire_key_is *answer);

/* Calls fn for all handles that are not detached; the lock is held meanwhile. */
void client_each_pool(
	struct tally *t, void (*fn)(struct tally_pool *p, void *userdata), void *userdata);
