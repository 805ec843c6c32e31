/* SPDX-License-Identifier: MIT */
#ifndef TALLY_H
#define TALLY_H

/*
 * libtally: charge memory to pools that are shared by all processes of a host.
 *
 * A program opens the daemon once, attaches to pools, and then charges and uncharges bytes. A
 * charge that finds credit in the per-CPU stock takes no lock and makes no system call.
 *
 * Results: 0 or a positive count is success, a negative number is an errno; outputs come last and
 * are untouched on failure; destructors take NULL and return NULL. A structure that may grow is
 * passed with its size: bytes beyond what this library knows must be 0 (else -E2BIG), missing ones
 * count as 0. Unknown flags are -EINVAL. Handles are not NULL, unless it is said that they may be.
 *
 * Threads: every function may be called by any thread at any time; one struct tally serves a whole
 * process. Waiting on one attachment never holds up another. No function is a cancellation point.
 * Signals: only the functions marked "async-signal-safe" may be called from a signal handler.
 * Fork: in a child all handles of the parent answer -ECHILD (uncharge does nothing) until the child
 * opens its own; freeing them there is allowed and touches nothing of the parent's. Between vfork()
 * and exec: no calls. A program that execs keeps nothing, unless it cleared FD_CLOEXEC of
 * tally_fd(). Death: when a process ends, however it ends, all that it held is given back by the
 * daemon.
 *
 * The library never logs, starts no thread, installs no signal handler and never exits. No charge and
 * no uncharge allocates memory.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tally;       /* a connection to the daemon */
struct tally_pool;  /* an attachment to a pool */
struct tally_watch; /* an interest in the events of a pool */

/* An item of memory.stat, by number; 0 is "none". Numbers are the daemon's: look them up by name.
 */
typedef uint32_t tally_item;

/* Paths have at most 4095 bytes; charges are below 2^43 bytes. */
#define TALLY_BYTES_MAX ((UINT64_C(1) << 43) - 1)

/* ------------------------------------------------------------------ opening */

/* Flags of tally_open(). */
#define TALLY_FAIL_OPEN UINT64_C(1) /* reserved for charging on without a daemon: -EOPNOTSUPP */

struct tally_options {
	const char *address; /* as of tally_open() */
	const char *name; /* shown by `tallyctl clients`, at most 63 bytes; NULL: the program's */
	uint64_t flags;
	uint64_t connect_timeout_usec; /* longest wait for the daemon's answer; 0: 5 s */
	uint64_t fail_open_max;        /* reserved, must be 0 */
	const char *config;            /* with "embedded:" alone: a file, see there; NULL: none */
};

/*
 * Opens the daemon at `address`: "unix:PATH"; NULL means $TALLY_ADDRESS, and without it
 * "unix:/run/tallyd/tallyd.sock". Free with tally_close().
 *
 * "embedded:" is the same engine inside this process, with pools, limits, items and files of its own
 * that no other process sees: no daemon, no socket, no thread. Two opens are two engines. `config`
 * names a file in the format of tallyd.conf(5), of which the [stat] and [pool] sections, `batch`,
 * `batch_max`, `flush_interval` and `flush_threshold` count; `tallyd --check-config --config FILE`
 * tells what is wrong with one.
 *
 * $TALLY_PERCPU is "rseq" or "atomic" to force the kind of per-CPU operation; else it is the faster
 * one that thread, kernel and daemon can do.
 *
 * What the session may do (-EACCES, -EPERM below) is decided by the uid, gid and supplementary groups that
 * the process has now, whatever it becomes later; the rules are in tallyd(8).
 *
 * -ENOTCONN: no daemon there; -EACCES: the socket may not be used by this user; -EDQUOT: this user has
 * as many sessions as one may have; -ETIMEDOUT: it does not answer; -EPROTO: it speaks another version;
 * -EINVAL: bad address, flags, configuration or $TALLY_PERCPU; -ENOENT: no such configuration, or
 * what else hinders reading it (-EACCES, -EISDIR, …);
 * -EOPNOTSUPP: TALLY_FAIL_OPEN, and sequences that were forced and are not to be had; -EMFILE,
 * -ENFILE, -ENOMEM.
 */
int tally_open(const char *address, uint64_t flags, struct tally **ret);
int tally_open_with(const struct tally_options *o, size_t size, struct tally **ret);

/*
 * Ends the session: everything that its attachments hold goes back. Handles that are still
 * referenced stay valid and answer -ENODEV. Returns NULL.
 */
struct tally *tally_close(struct tally *t);

/*
 * A descriptor that belongs to `t`; do not read, write or close it: poll it for POLLIN, and when it
 * is readable call tally_dispatch(). It is FD_CLOEXEC; a program that clears this and then execs
 * keeps what it has charged until its process ends.
 */
int tally_fd(struct tally *t);

/* ------------------------------------------------------------------ attaching */

/* Flags of tally_attach(). */
#define TALLY_CREATE UINT64_C(1)    /* missing parts of the path are made */
#define TALLY_EPHEMERAL UINT64_C(2) /* and go again with their last attachment */
#define TALLY_PERSIST UINT64_C(4)   /* reserved: -EOPNOTSUPP; not with TALLY_EPHEMERAL */

/*
 * Attaches to a pool. The same path twice gives two attachments with accounts of their own. Waits
 * for the daemon, 5 s at most. Free with tally_detach().
 *
 * A pool that is made here with TALLY_EPHEMERAL, and each part of the path that is made with it, is
 * removed as soon as it has neither attachments nor children nor bytes granted; whether the last one is
 * detached, or its process ends, however it ends. Attachments to such a pool keep it, whoever made it;
 * tally_set() does not, nor a tally_create() that finds it there. A section of the daemon's
 * configuration that names it makes it one that stays. Without TALLY_CREATE nothing is made, and so the
 * flag does nothing.
 *
 * Over a daemon, the pool /users/UID of this process's uid is made when it, or a path below it, is first
 * named here or to tally_create().
 *
 * -ENOENT: no such pool (or, with path NULL, no rule that names one); -EACCES: the pool's mode does not
 * let this user attach, or that of the pool above make it; -EDQUOT: the user has as many attachments, or
 * has made as many pools, as one may; -EINVAL, -ENAMETOOLONG: not a path; -EAGAIN: what would be made is beyond cgroup.max.depth or cgroup.max.descendants of a pool above
 * it, and nothing is; -ENOSPC: the session has no key left; -ENOTCONN, -ETIMEDOUT, -ECHILD, -ENODEV (closed),
 * -EMFILE, -ENFILE (descriptors are needed for a moment), -ENOMEM.
 */
int tally_attach(struct tally *t, const char *path, uint64_t flags, struct tally_pool **ret);

/*
 * Returns to the pool all that this attachment holds, and drops the caller's reference. Handles
 * that others still reference answer -ENODEV from then on (uncharge does nothing). Returns NULL.
 */
struct tally_pool *tally_detach(struct tally_pool *p);

struct tally_pool *tally_pool_ref(struct tally_pool *p);   /* returns p */
struct tally_pool *tally_pool_unref(struct tally_pool *p); /* the last one detaches; returns NULL */

/* The path as given to tally_attach(); valid as long as the handle. Never NULL. */
const char *tally_pool_path(const struct tally_pool *p);

/* ------------------------------------------------------------------ charging */

/*
 * Charges `bytes` to the pool and all its ancestors. Charging 0 bytes succeeds. May wait for the
 * daemon while it takes idle credit back from others and asks them to give back (tally_on_reclaim(),
 * about 1.5 s at most), and sleep up to 2 s where it leaves a pool above
 * memory.high (then it has succeeded, and other threads go on): at most 5 s in all.
 *
 * -ENOMEM: over a limit of the pool or of an ancestor, after all that was tried: see tally_last_refusal(); -EDEADLK:
 * from within a function of tally_on_reclaim(), "embedded:" alone; -EINVAL:
 * more than TALLY_BYTES_MAX; -ENODEV: detached, closed or removed; -ECHILD: the parent's handle in
 * a forked child; -ENOTCONN: the daemon is gone (charges that hit the stock still succeed);
 * -ETIMEDOUT: no answer within 5 s.
 */
int tally_charge(struct tally_pool *p, uint64_t bytes);

/*
 * The same without ever waiting; async-signal-safe. -ENOMEM: known to be full; -EAGAIN: there was
 * no credit at hand, it has been asked for, try again later.
 */
int tally_try_charge(struct tally_pool *p, uint64_t bytes);

/*
 * Gives back what was charged; never waits; async-signal-safe. The caller gives back no more than
 * it charged through this attachment: the excess is dropped and shown as `overdraft`.
 */
void tally_uncharge(struct tally_pool *p, uint64_t bytes);

/*
 * The same, counted in the gauge `item` of memory.stat too. What was charged with an item is
 * uncharged with that item. -EINVAL also: no such item, or an event item.
 */
int tally_charge_item(struct tally_pool *p, tally_item item, uint64_t bytes);
int tally_try_charge_item(struct tally_pool *p, tally_item item, uint64_t bytes);
void tally_uncharge_item(struct tally_pool *p, tally_item item, uint64_t bytes);

/*
 * Charges whatever the limits say, for what has happened already; never waits; async-signal-safe.
 * What credit at hand does not cover goes above the limits and counts as a `force` event; it is seen
 * there at the next look of the daemon. More than TALLY_BYTES_MAX, an event item or no item, and a
 * handle that answers -ENODEV or -ECHILD: nothing is charged.
 */
void tally_charge_force(struct tally_pool *p, tally_item item, uint64_t bytes);

/* Flags of struct tally_charge_args; one of them with a deadline is -EINVAL. */
#define TALLY_NOWAIT UINT32_C(1) /* as tally_try_charge() */
#define TALLY_FORCE UINT32_C(2)  /* as tally_charge_force(); 0, -EINVAL, -ENODEV, -ECHILD */

struct tally_charge_args {
	tally_item item; /* 0: none */
	uint32_t flags;
	uint64_t bytes;
	uint64_t deadline_usec; /* CLOCK_MONOTONIC, 0: none */
};

/*
 * Charges as the arguments say. With a deadline a charge that does not fit waits in the pool's
 * queue, first come first served, until then: -ETIMEDOUT instead of -ENOMEM.
 */
int tally_charge_with(struct tally_pool *p, const struct tally_charge_args *a, size_t size);

/* Why a charge was refused: what the limit was held against then. Figures in bytes. */
struct tally_refusal {
	uint64_t limit;       /* that refused; UINT64_MAX: what one attachment may hold at most */
	uint64_t held;        /* charged below it and not uncharged */
	uint64_t idle;        /* granted below it and not charged, after a drain */
	uint64_t wanted;      /* the charge */
	uint64_t waited_usec; /* from the daemon's first look at it to the refusal */
	char pool[4096];      /* whose limit it is: the path */
	char file[64];        /* "memory.max", "stat.<item>.max"; "" for an attachment's own */
	/* Who held most below it: at most three whole lines "BYTES PATH" of pools, "BYTES NAME[PID]" of
	 * clients. They were looked up at most a tenth of a second before, longer in a very large pool. */
	char holders[4096];
};

/*
 * The last refusal of the calling thread, by whichever charging function or tally_transfer() (of `to`'s
 * pool): -ENOMEM and the -ETIMEDOUT
 * of a charge with a deadline. Waits for the daemon, which keeps the record; bytes of *ret beyond
 * what this library knows are set to 0. Not async-signal-safe. -ENODATA: it was not refused, or so
 * long ago that the record is gone (the daemon keeps the last 256 of each pool, and some ten thousand
 * in all; the library those of a few hundred threads); -EINVAL, -ENOTCONN, -ETIMEDOUT, -ECHILD,
 * -ENODEV, -ENOMEM.
 */
int tally_last_refusal(struct tally *t, size_t size, struct tally_refusal *ret);
/*
 * Several charges that must not fail half-way: tally_reserve() charges them as one, as
 * tally_charge_with() does (but not TALLY_FORCE), and what it charged is then taken in parts.
 * Free with tally_reservation_free(), which gives back what is left. Any errno of
 * tally_charge_with(); -ENOMEM also: no memory for the reservation.
 */
struct tally_reservation;
int tally_reserve(struct tally_pool *p, const struct tally_charge_args *a, size_t size,
	struct tally_reservation **ret);

/*
 * Takes so much of it: from then on it is the caller's charge, to be uncharged as any other, with the
 * reservation's item if it has one. Never waits; async-signal-safe. -ENOMEM: more than is left, and
 * nothing was taken; -ENODEV, -ECHILD as of a charge.
 */
int tally_reservation_charge(struct tally_reservation *r, uint64_t bytes);

/* Gives back what is left. Nobody may be using it. Returns NULL. */
struct tally_reservation *tally_reservation_free(struct tally_reservation *r);

/* ------------------------------------------------------------------ waiting without blocking */

/*
 * A queue belongs to an event loop. tally_request() takes a place in line at the limit that has no
 * room, and returns at once; when the bytes are charged, or it is certain that they will not be,
 * the queue's descriptor becomes readable, and tally_queue_dispatch() runs the callback. Those who
 * wait at a limit are served in the order in which they came, whether they block in
 * tally_charge_with() or not. A loop that does not come for its bytes within a second of its turn
 * lets others pass until it does; then it is the next.
 *
 * A queue, and each request in it, may be used by any thread, but one thread at a time dispatches a
 * queue: another one's tally_queue_dispatch() returns 0 meanwhile, as does a callback's own. Several
 * queues are dispatched by several threads without waiting for each other. After fork() the child's
 * queues answer -ECHILD; freeing them there is allowed.
 */
struct tally_queue;
struct tally_request;

/*
 * The outcome of a request: 0, and its bytes are charged to the pool, to be uncharged as any other
 * charge; -ETIMEDOUT: not before its deadline; -ENODEV: detached, closed or removed; -ENOTCONN: the daemon is gone; -EDQUOT: this
 * user has as many requests and watches waiting as it may (max_queued_per_uid of tallyd.conf(5));
 * -EINVAL: no such item, or an event item; -ENOMEM. Runs in tally_queue_dispatch(), once, and without
 * any lock: it may call everything but tally_queue_dispatch() and tally_queue_free() of its queue.
 * `r` is freed when it returns.
 */
typedef void (*tally_done_fn)(struct tally_request *r, int result, void *userdata);

/* Waits for the daemon, 5 s at most. Free with tally_queue_free(). -EDQUOT, as above; -EMFILE, -ENFILE;
 * else as tally_attach(). */
int tally_queue_new(struct tally *t, struct tally_queue **ret);

/* Cancels all its requests, and closes its descriptor. Nobody may be dispatching it. Returns NULL. */
struct tally_queue *tally_queue_free(struct tally_queue *q);

/* To be polled for reading, also in an epoll set, and for nothing else. It is FD_CLOEXEC. */
int tally_queue_fd(struct tally_queue *q);

/* Never blocks. The number of callbacks that ran, or -ECHILD. After tally_close(), and when
 * the daemon is gone, all that wait end with -ENODEV and -ENOTCONN here. */
int tally_queue_dispatch(struct tally_queue *q);

/*
 * Asks for bytes as the arguments say; without a deadline (0) it waits as long as it takes; flags must
 * be 0. Never blocks, and never runs the callback itself. The pool is one of the queue's connection;
 * the request keeps a reference of it, so detach it explicitly: with the last reference it would be
 * detached by the dispatch, which then waits for the daemon.
 *
 * *ret (`ret` may be NULL) is the library's, and valid until the callback has returned or it was
 * cancelled. What is wrong with the arguments, -ENODEV, -ECHILD, -ENOTCONN, -EDQUOT (2^20 requests in
 * the queue) and -ENOMEM are returned, and then there is no request; all else is told the callback.
 */
int tally_request(struct tally_queue *q, struct tally_pool *p, const struct tally_charge_args *a,
	size_t size, tally_done_fn fn, void *userdata, struct tally_request **ret);

/*
 * Gives up the place, or gives back what it was charged; when this returns the callback does not run
 * and will not: if another thread is running it, this waits until it has returned. In its own callback
 * this does nothing. NULL is fine. Returns NULL.
 */
struct tally_request *tally_request_cancel(struct tally_request *r);

/* ------------------------------------------------------------------ items, files, pools */

/* -ENOENT: no item of that name. */
int tally_item_lookup(struct tally *t, const char *name, tally_item *ret);

/* Types of an item: a gauge goes up and down, an event only up. */
#define TALLY_GAUGE UINT64_C(0)
#define TALLY_EVENT UINT64_C(1)

struct tally_item_def {
	const char *name; /* [a-z][a-z0-9_]{0,31} */
	uint64_t type;
	const char *unit, *help; /* NULL: "" */
};

/*
 * Defines an item; the same once more is fine and gives the same number. Over a daemon it stands beside
 * those of the configuration, for all sessions and pools at once, until the daemon ends. -EPERM: over a
 * daemon, and this user is neither root, nor the daemon's own, nor a member of admin_group; -EEXIST:
 * another definition has the name; -EINVAL: bad name or type; -ENOSPC: there are 64.
 */
int tally_item_define(
	struct tally *t, const struct tally_item_def *d, size_t size, tally_item *ret);

/*
 * Moves an item of the pool by `delta` without charging anything: a gauge by bytes or whatever its
 * unit is, an event's count (only up: a negative delta does nothing). Never refused, and not held
 * against stat.<item>.max. What a process moved in gauges goes back when it detaches or ends; events
 * that it counted stay. An unknown item does nothing. Async-signal-safe; allocates nothing.
 *
 * An attachment moves a gauge by less than 2^43 up or down in all, on each memory node; what is beyond
 * is lost. So is what it counts of an event on one CPU between two looks of the daemon, if that is 2^43
 * or more.
 *
 * It never waits; so over a daemon what an attachment moves of an item before the daemon has answered
 * to its first call is kept in the process, until a later call of this function for the item or of any
 * that waits for the daemon. A look by tally_get() of the same session has all of it, and an event's
 * count is sent at the latest by tally_detach() or tally_close().
 */
void tally_stat_add(struct tally_pool *p, tally_item item, int64_t delta);

/*
 * Moves `bytes` that `from` holds, charged with `item` (0: with none), to `to`, as if they were uncharged
 * there and charged here, both or neither: they are uncharged through `to`. Pools above both are not
 * charged with them twice, and neither what they have nor their peaks change, so it succeeds when one of
 * those is full. No trip is saved: it always asks the daemon, which takes idle credit back once if need
 * be. It does not wait in line, and memory.high does not slow it.
 *
 * 0 also: 0 bytes, and from and to of the same pool, whatever that has left. -ENOMEM: over a limit
 * between to's pool and the first one above both; -EINVAL: of two sessions, an event item, no such item,
 * more than TALLY_BYTES_MAX, or more than from has been granted. What is moved beyond what from holds, up
 * to that, counts as uncharged too much: as `overdraft`. -ENODEV: one of them is detached, closed or
 * removed; -EAGAIN: 64 of the session's wait already; else as tally_charge().
 */
int tally_transfer(struct tally_pool *from, struct tally_pool *to, tally_item item, uint64_t bytes);

struct tally_usage {
	uint64_t held;    /* bytes charged by this attachment and not uncharged; exact when still */
	uint64_t current; /* bytes held in the pool's subtree, as memory.current shows them */
	uint64_t peak;    /* the highest that held and idle credit together have been there */
	uint64_t limit;   /* memory.max of the pool; UINT64_MAX: none */
	/* the least that is left below a limit, of the pool and of all above it; UINT64_MAX: no limit */
	uint64_t headroom;
	/* `current` is as it was so long ago, the others are no older */
	uint64_t age_usec;
};

/*
 * What the pool has, from memory that is shared with the daemon: no message, no text. `peak`, `limit`
 * and `headroom` are published at this process's grants and returns, and when a limit is set; all of
 * it at reads of the pool's figures and at the periodic flush, so that age_usec is at most two flush
 * intervals while the daemon runs. When it is gone, and with "embedded:", where reads alone publish
 * `current`, it grows. Bytes of *ret beyond what this library knows are set to 0.
 * Async-signal-safe. -ECHILD; -ENODEV: detached or closed; -EINVAL: no place for it; -EAGAIN: they were being written
 * at every one of several attempts.
 */
int tally_usage(struct tally_pool *p, size_t size, struct tally_usage *ret);

/* Flags of tally_get(). */
#define TALLY_EXACT UINT64_C(1)       /* flush the subtree first */
#define TALLY_RATELIMITED UINT64_C(2) /* flush only if the periodic flush is a whole cycle late */
#define TALLY_CACHED UINT64_C(4)      /* never flush */

/*
 * The text of a pool's file, as `tallyctl get` and the exported file show it; free() it. At most
 * one of the flags. -ENOENT: no such pool or file; -EACCES: the file cannot be read,
 * or the pool's mode does not let this user read it.
 */
int tally_get(struct tally *t, const char *path, const char *file, uint64_t flags, char **ret_text);

/*
 * Writes a value to a pool's file. -ENOENT: no such pool or file; -EACCES: the file cannot be
 * written, or the mode of the pool above does not let this user do it; -EPERM: no mode could, it is for
 * the owner of a pool above, or for root and admins; -EINVAL, -ERANGE: not a value of that file (the old
 * one stays). memory.reclaim: -EAGAIN: fewer bytes came; -EDEADLK: from within a function of
 * tally_on_reclaim(), "embedded:" alone. pool.evict: -ESRCH: nobody that is attached there is meant.
 */
int tally_set(struct tally *t, const char *path, const char *file, const char *value);

/* The pool belongs to this user. -EEXIST; -ENOENT: its parent does not exist; -EACCES: the parent's mode
 * does not let this user; -EDQUOT: the user has made as many pools as one may; -EAGAIN: it would be beyond cgroup.max.depth or
 * cgroup.max.descendants of a pool above it. */
int tally_create(struct tally *t, const char *path);

/*
 * -EBUSY: it has children, attached sessions or bytes granted; -EACCES: the mode of the pool above does
 * not let this user; -EPERM: the root, or the own pool in somebody else's.
 *
 * With TALLY_FORCE only children are in the way (-EBUSY), and bytes granted in a standalone pool, for
 * they are no part of its parent. From then on handles of the pool answer -ENODEV, also to charges that
 * wait, and tally_stat_add() does nothing by them; what they hold is the parent's, where it is shown and
 * counts against limits, until it is uncharged (by tally_uncharge(), which goes on) or they are detached.
 * Until then the pool is dying: nr_dying_descendants of cgroup.stat, of those above it. A pool of the
 * same path can be made at once, and is another one. tally_charge_force() by such a handle charges the
 * parent.
 */
int tally_remove(struct tally *t, const char *path, uint64_t flags);

/* ------------------------------------------------------------------ events and callbacks */

/*
 * Runs the callbacks that are due: of watches, and of tally_on_reclaim(). Never blocks. Returns how
 * many it ran, 0 also when another thread of the process is inside: one at a time runs them, in no
 * particular order. They run without any lock of the library: a callback may call any function of
 * it, but this one does nothing from there.
 *
 * A process that never calls it hears nothing, and delays nobody unless it has called tally_on_reclaim():
 * then the first charge that is short where it could give back waits up to 300 ms for its answer. It is
 * not asked again before it has answered.
 *
 * -ENOTCONN: the daemon is gone; -ENODEV: closed; -ECHILD.
 */
int tally_dispatch(struct tally *t);

/* Types of events. `count` is that of the pool's memory.events, or as said. */
#define TALLY_EVENT_LOW 1     /* its protection was broken */
#define TALLY_EVENT_HIGH 2    /* it was throttled above memory.high */
#define TALLY_EVENT_MAX 3     /* a charge met a limit, and was retried or refused */
#define TALLY_EVENT_OOM 4     /* a charge was refused */
#define TALLY_EVENT_RECLAIM 5 /* clients were asked to give back */
#define TALLY_EVENT_FORCE 6   /* bytes were charged by force */
#define TALLY_EVENT_REMOVED 7 /* the pool was removed: the last event of this watch; count 1 */
/* A charge of this session (struct tally) to this very pool that was answered -EAGAIN may be tried
 * again; watches of other sessions are not told, though of the same process. count: how many, since
 * tally_watch(). Now and then there is one too many. There is none for a try that could not ask, as the
 * socket to the daemon was full: who waits for it tries again now and then. */
#define TALLY_EVENT_CREDIT 8

struct tally_event {
	size_t size; /* of this structure; it may grow */
	int type;    /* TALLY_EVENT_…; there may be new ones */
	uint64_t count;
};

/* `path` as given to tally_watch(). */
typedef void (*tally_event_fn)(const char *path, const struct tally_event *e, void *userdata);

/*
 * From now on fn is called by tally_dispatch() for the events of the pool and of all below it; no
 * attachment is needed. Events are not queued: fn is called once for each type of which there was
 * any, with the count as it is then, at most every 10 ms, and in the end always with the last one. REMOVED and
 * CREDIT are told at once. Another pool that is made under the path of a removed one needs another watch.
 * Free with tally_unwatch().
 *
 * -ENOENT: no such pool; -EACCES: it may not be read; -EINVAL, -ENAMETOOLONG: not a path, no function;
 * -EDQUOT: this user's processes have too many; -ENOTCONN, -ETIMEDOUT, -ECHILD, -ENODEV (closed), -ENOMEM.
 */
int tally_watch(struct tally *t, const char *path, tally_event_fn fn, void *userdata,
	struct tally_watch **ret);

/*
 * fn is not called any more when this has returned: if another thread is in it, it is waited for; so
 * hold nothing that fn needs. From within fn it returns at once. NULL is fine; returns NULL.
 */
struct tally_watch *tally_unwatch(struct tally_watch *w);

/* Returned by a tally_reclaim_fn: the answer is given later, by tally_reclaim_done(). */
#define TALLY_LATER INT64_MIN

/*
 * The pool `p`, or one above it, needs `want` bytes: uncharge what can be spared, and return how many
 * bytes that were; more or fewer are fine, a negative number counts as 0. Who asked waits for it until
 * `deadline_usec` (CLOCK_MONOTONIC); what comes later is welcome. The handle is alive meanwhile, whoever detaches it.
 */
typedef int64_t (*tally_reclaim_fn)(struct tally_pool *p, uint64_t want, uint64_t deadline_usec,
	uint64_t token, void *userdata);

/*
 * From now on fn is asked to give bytes back when the pool or one above it is short; NULL: no more.
 * There is one a handle, and at most one question at a time.
 *
 * Over a daemon it is called by tally_dispatch(). With "embedded:" it is called in a thread that
 * charges or writes memory.reclaim, one at a time, and must not charge there: a charge that finds no
 * credit at hand is -EDEADLK, as is writing memory.reclaim.
 *
 * A function that was set before is not called any more when this has returned, nor is the function
 * of a handle after tally_detach(), or any callback after tally_close(): a running one is waited for,
 * unless the call comes from within it.
 *
 * -ENODEV: detached or closed; -ENOTCONN, -ETIMEDOUT, -ECHILD, -ENOMEM: it has no function now.
 */
int tally_on_reclaim(struct tally_pool *p, tally_reclaim_fn fn, void *userdata);

/*
 * The answer to a question that was answered TALLY_LATER: so many bytes were given back. By any
 * thread, also before the function has returned. -ENOENT: no question of this token is open;
 * -ENODEV, -ECHILD.
 */
int tally_reclaim_done(struct tally *t, uint64_t token, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
