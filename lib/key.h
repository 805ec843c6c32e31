/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The client's side of a key: its words in the segment, and for each lane the record of the one
 * unanswered request. The record decides, in one step, whose the answer is: the need goes to the
 * thread that asked, if that still waits, all the rest to the reserve; an answer that fits no
 * record is dropped. All of it works without locks, from signal handlers too.
 */

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#include "core/segment.h"
#include "core/wire.h"
#include "link.h"

struct tally;

/* States of a record, below its seq. */
enum key_state {
	KEY_IDLE,
	KEY_CLAIMED, /* a thread fills it in */
	KEY_ASKED,   /* a thread waits for the answer */
	KEY_LEFT,    /* nobody does (any more) */
};

/* A thread that waits for its need, on its stack. */
struct key_asker {
	_Atomic uint64_t done;
	int status;          /* 0: the need is the asker's … */
	uint32_t delay_usec; /* … who sleeps so long, because of memory.high */
	uint64_t refusal;    /* number of its record; 0: none */
};

struct key_request {
	_Atomic uint64_t record; /* seq << 2 | state */
	_Atomic uint64_t need;
	struct key_asker *_Atomic asker;
};

struct client_key {
	/* What tally_stat_add() reads: a cache line. */
	alignas(64) struct segment_spot spot; /* since it was first opened, as `words` is */
	int64_t least;                        /* a delta below it does nothing */
	uint64_t unit;                        /* an update counts for so much, or for more */
	uint32_t shift;                       /* of the unit */
	uint32_t number;

	struct segment_key *words;
	const struct segment_figures *figures;
	struct tally *tally;
	_Atomic uint64_t attachment; /* 0: none has the key */
	_Atomic uint64_t refused; /* the least need that was refused while nobody waited; 0: none */
	_Atomic uint64_t refusal; /* number of that one's record; 0: none */
	struct key_request lane[SEGMENT_LANES];
};

/* The key is the attachment's from now on, empty; and no longer (returns what lay in the reserve).
 */
void key_open(struct client_key *k, uint64_t attachment);
uint64_t key_close(struct client_key *k);

/* Its pool was removed by force: what is put down goes back to the parent, and nothing is to be charged
 * with it. */
static inline bool key_is_lost(const struct client_key *k)
{
	return unlikely(atomic_load_explicit(&k->figures->attachment, memory_order_acquire) !=
		atomic_load_explicit(&k->attachment, memory_order_relaxed));
}

/* How the key's item is moved: 2^shift of it count for an update, and an event only grows. Nobody has
 * moved it yet. */
void key_set_moved(struct client_key *k, uint32_t shift, bool event);

/* Something is marked or lies on a CPU, or (n_cpus) beyond them; any other is nobody's. */
void key_touch(struct tally *t, uint32_t cpu);

/* An uncharge that found no room in its slot: the bytes go into the stock, or past it into the
 * reserve. The caller has a handle of the key. */
void key_put(struct client_key *k, uint64_t bytes);

/* Counts bytes as charged by force; the caller keeps the key from being used again. The other is for
 * a handle that knows its key, or not (yet, or any more): then false. Async-signal-safe. */
void key_force(struct client_key *k, uint64_t bytes);
bool key_force_known(struct tally *t, struct client_key *const _Atomic *known, uint64_t bytes);

/* Takes `bytes` out of the reserve, and refills this CPU's stock from the rest. False: not enough
 * there. With 0 bytes it only refills. */
bool key_take(struct client_key *k, uint64_t bytes);

/*
 * Asks the daemon for `bytes` and waits. 0: they are the caller's; -EBUSY: another thread's request
 * was on its way, and something came of it: look again; -ENOMEM, -ETIMEDOUT, -ENODEV, -ENOTCONN.
 * On success *ret_delay_usec is how long the caller is to sleep because of memory.high.
 */
int key_ask(struct client_key *k, uint64_t attachment, uint64_t bytes, bool queue,
	uint64_t deadline_usec, uint32_t *ret_delay_usec);

/* Asks without waiting; what comes goes to the reserve. -EAGAIN: asked for (or was already);
 * -ENOMEM: so much was refused just now; -ENODEV, -ENOTCONN. Async-signal-safe. */
int key_ask_nowait(struct client_key *k, uint64_t attachment, uint64_t bytes);

/*
 * Fetches what has been set aside for a place in line, without waiting; the asker, which stays where it
 * is, is told as by key_ask(). The lock of the client is held, in all of these. -EBUSY: the key has
 * another fetch under way; -EAGAIN: nothing was sent; -ENODEV, -ENOTCONN.
 */
int key_fetch(struct client_key *k, uint64_t attachment, uint64_t queue, uint64_t id,
	uint64_t bytes, struct key_asker *asker);
bool key_is_fetching(const struct client_key *k);
/* The asker wants it no more, and goes: what comes, if anything, lies at hand. */
void key_leave_fetch(struct client_key *k, const struct key_asker *asker);
void key_accept_fetched(struct client_key *k, const struct wire_fetched *m);

/* A GRANT has come. Async-signal-safe. */
void key_accept(struct client_key *k, const struct wire_grant *g);
