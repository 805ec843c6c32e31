/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * One client's life: its process, its socket, its segment. However a
 * session ends (BYE, its process, a hang-up that outlasted `grace`, a broken rule of the protocol),
 * it ends in session_end(), which gives back all that its rows say.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "core/rstat.h"
#include "core/segment.h"
#include "core/wire.h"
#include "manager.h"

struct attachment;
struct channel;
struct collect;
struct key;
struct line;
struct packet;
struct user;

enum session_state {
	SESSION_NEW, /* connected, has not said HELLO */
	SESSION_LIVE,
	SESSION_HUNG_UP, /* its socket is gone, its process lives */
	SESSION_ENDING,  /* waits for the drainer to leave it */
};

struct session {
	struct manager *manager;
	TAILQ_ENTRY(session) entry;
	enum session_state state;
	uint64_t number;
	/* Of the process that connected, as it was then. */
	pid_t pid;
	uid_t uid;
	gid_t gid;
	gid_t *groups; /* supplementary ones; n_groups of them */
	size_t n_groups;
	struct user *user; /* the account of its uid */
	bool turned_away;  /* the uid has as many sessions as it may have; its HELLO is told so */
	uint64_t since_usec;
	char name[WIRE_NAME_MAX + 1];

	int fd, pidfd;           /* the second socket is the channel's */
	struct channel *channel; /* NULL before HELLO */
	uint64_t last_token;     /* of what it was asked for; callback.c */
	TAILQ_HEAD(, session_watch) watches;
	void *watch_index; /* tsearch(3) root, by number */
	uv_poll_t poll, pid_poll;
	uv_timer_t timer; /* for HELLO, then for grace */
	unsigned handles; /* open libuv handles; the last one that closes frees the session */
	STAILQ_HEAD(, packet) packets; /* answers that the socket would not take yet */

	struct segment segment;
	struct percpu_area stocks; /* of the segment */
	struct rstat rstat;
	/* Of extents 1, 2, …: a client may have had no room for them when they were sent. */
	int extent_fds[SEGMENT_EXTENTS][2];
	struct key **keys;   /* by number; room for segment.n_keys + 1 */
	uint32_t *free_keys; /* numbers, a stack */
	uint32_t n_free_keys, n_forgotten_keys;
	struct collect *collect; /* the collection of keys that runs; NULL: none */
	void *attachment_index;  /* tsearch(3) root, by number */
	TAILQ_HEAD(, attachment) attachments;
	TAILQ_HEAD(, line) lines; /* the client's queues */
	uint32_t n_attachments, n_dead_attachments;

	unsigned n_owed;     /* answers that it is owed when something is done: files.c */
	unsigned in_drainer; /* words of this session that the drainer may be changing */
	uint64_t drained;    /* number of the last round of a drain that has taken from it */
	uint64_t refused;
	bool overdraft_logged, released, event_gone;
};

/*
 * Takes over a connected socket (consumed, also on failure). The answer to its HELLO and all else
 * happens in the loop.
 */
int session_new(struct manager *m, int fd, struct session **ret);

/* Gives everything back and lets go of it. `why` is for the log. The session may live on for a
 * moment, out of every list. */
void session_end(struct session *s, const char *why);
/* It has broken the protocol: logs that, and ends it. */
void session_break(struct session *s);

/* For the drainer's results: one of its words is no longer in the drainer. */
void session_left_drainer(struct session *s);

/* The socket is gone. Ends it, or (its process lives) waits for `grace`. */
void session_hang_up(struct session *s, const char *why);

/* While answers wait for a client that does not read them, nothing more is read from it: watches
 * the socket for what is wanted now. */
void session_watch_socket(struct session *s);

/* Writes the configuration's batch and the marks that follow from it where the client reads them.
 */
void session_publish_marks(struct session *s);

/* What HELLO asks for (has_rseq: its threads have sequences): -EDQUOT, -ENOMEM … are answered by the caller. On success the three
 * descriptors to send are in ret_fds. */
int session_hello(struct session *s, const char *name, bool has_rseq, int ret_fds[static 3]);

/* For rstat.h: what the drainer has taken out of slots and the loop does not know of yet is idle still,
 * of the key whose intent says so; and the key of a number. */
uint32_t session_read_taken(struct rstat *r, struct rstat_seen *ret_seen);
struct rstat_key *session_find_stat(struct rstat *r, uint32_t number);
