/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A session's shared memory: two memfds, made by the daemon. The first is the client's to write
 * (stocks, reserves, force words); the second the daemon's alone (what the client need not write),
 * sealed against writing before it is handed out, so that no descriptor of it, however reopened,
 * can be used to forge it.
 *
 * Sealed memfds cannot grow, so both come in extents: extent 0 is the base, extents 1, 2, … hold
 * keys, each twice as many as the one before. A key's place is computed from its number alone, and
 * addresses never change while the session lives.
 *
 *     extent 0: rw  header, a byte a CPU ("touched"), a page a CPU      ro  struct segment_info
 *     extent e: rw  n = 64 << (e - 1) times struct segment_key          ro  n times segment_figures
 *                   n times struct segment_pending                          n times segment_pool
 *                   a block a CPU: n cells, and marks of what changed
 *
 * Beyond the CPUs there is one more page and one more block, for threads that have no sequences in a
 * session of sequences: what lies there is changed by atomics alone.
 *
 * What lies in rw is believed by nobody: whoever reads it reads it once, bounds it and clamps it.
 */

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "percpu.h"
#include "stock.h"

#define SEGMENT_VERSION 1
#define SEGMENT_MAGIC_RW UINT64_C(0x31775279616c7401)
#define SEGMENT_MAGIC_RO UINT64_C(0x316f5279616c7401)
#define SEGMENT_FIRST_KEYS 64 /* keys in extent 1 */
#define SEGMENT_CPUS_MAX 65535
#define SEGMENT_EXTENTS 15 /* the base and 14 extents of keys */
#define SEGMENT_KEYS_MAX (SEGMENT_FIRST_KEYS * ((1U << (SEGMENT_EXTENTS - 1)) - 1))

/* Unanswered requests that a key may have, one of each sort. */
enum segment_lane {
	SEGMENT_SMALL,
	SEGMENT_BIG,   /* above the batch; and those that wait in line */
	SEGMENT_FETCH, /* of what has been set aside for a place in line: answered at once */
	SEGMENT_LANES,
};

/* rw, extent 0. The touched bytes follow, then (page-aligned) the stocks. */
struct segment_header {
	uint64_t magic;
	uint32_t version;
	uint32_t kind; /* enum percpu_kind */
	uint32_t n_cpus;
	/* By CPU, and one more; set, once, by whoever takes a slot there or marks something. */
	alignas(64) _Atomic uint8_t touched[];
};

/* rw: a key's words. */
struct segment_key {
	alignas(64) _Atomic uint64_t reserve; /* a word, changed by real atomics from both sides */
	_Atomic uint64_t force;               /* cumulative bytes charged by force */
	_Atomic uint64_t debt; /* cumulative bytes charged while no daemon was there */
	_Atomic uint64_t accepted[SEGMENT_LANES]; /* seq of the last answer that was accepted */
	_Atomic uint32_t ring;                    /* the doorbell has been rung and not yet heard */
	_Atomic uint32_t ahead; /* a batch has been asked for ahead, and nothing came of it yet */
};

/* rw: a place for a pool that an attachment is of, or that is above one: updates of its subtree since
 * the last flush of it, which is set to 0 by that. */
struct segment_pending {
	_Atomic uint64_t updates;
};

/* rw, a CPU: what tally_stat_add() has moved by a key on this CPU. */
struct segment_cell {
	_Atomic int64_t value; /* cumulative; wraps */
	/* The client's: what may be moved before that is added to pending words, in the item's
	 * unit; 0: never used. */
	_Atomic uint64_t left;
};

/* So many updates come together in a cell before they are pending. */
#define SEGMENT_UPDATES 64

/*
 * Marks: what of a key has changed on a CPU since somebody looked. Whoever changes it stores,
 * unconditionally and after the change (release): the key's byte, then the byte of its group of
 * 64 keys, then the extent's byte on the CPU's page. Who looks clears them in the other order, each
 * before it looks at what is below it. Testing a mark before storing it loses updates for good.
 */
enum segment_mark {
	SEGMENT_MOVED,  /* the cell */
	SEGMENT_CREDIT, /* the key's reserve, or a cumulative word; on whichever CPU */
	SEGMENT_MARKS,
};

#define SEGMENT_GROUP 64 /* keys */

/* ro, extent 0. */
struct segment_info {
	uint64_t magic;
	uint32_t version;
	uint32_t reserved;
	uint64_t session;
	uint64_t generation;    /* of the daemon: differs after every start */
	_Atomic uint64_t batch; /* bytes asked for beyond the need; larger needs are SEGMENT_BIG */
	_Atomic uint64_t high;  /* mark of a slot while charges are small, see batch_high() */
	_Atomic uint64_t flushed_usec; /* CLOCK_MONOTONIC: the last flush of the whole tree */
};

/* ro: a key's figures. `seq` is odd while they are being written. */
struct segment_figures {
	alignas(64) _Atomic uint64_t attachment; /* 0: the key is free */
	_Atomic uint64_t granted; /* bytes: charged by the client, or lying idle in its words */
	_Atomic uint64_t folded;  /* of force and debt together, what is in `granted` */
	_Atomic uint64_t answer[SEGMENT_LANES]; /* the last one, see segment_answer() */
	_Atomic uint64_t change; /* of a word, see segment_change(); 0: none is on its way */
	_Atomic uint32_t batch;  /* bytes that a miss brings now beyond its need */
	_Atomic uint32_t seq;
};

/* What an answer brings, and the lower bits of its request's seq. */
static inline uint64_t segment_answer(uint64_t bytes, uint64_t seq)
{
	return bytes << 16 | (seq & UINT16_MAX);
}

/* The bytes of an answer that is not the one to request `accepted`. */
static inline uint64_t segment_unaccepted(uint64_t answer, uint64_t accepted)
{
	return (answer & UINT16_MAX) == (accepted & UINT16_MAX) ? 0 : answer >> 16;
}

/*
 * A change of a word of the key that has happened if the word's parity is `parity`, while the other
 * figures are as if not; but for a deposit, for which they are as if it had. The word is a slot of
 * that CPU, or with one of these instead of the slot's number the reserve (of CPU 0).
 */
#define SEGMENT_CHANGE_RESERVE 7
#define SEGMENT_CHANGE_DEPOSIT 8

static inline uint64_t segment_change(uint32_t cpu, unsigned slot, uint64_t bytes, unsigned parity)
{
	return bytes << 21 | (uint64_t)cpu << 5 | slot << 1 | parity;
}

static inline uint64_t segment_change_bytes(uint64_t change)
{
	return change >> 21;
}

static inline uint32_t segment_change_cpu(uint64_t change)
{
	return change >> 5 & 0xffff;
}

static inline unsigned segment_change_slot(uint64_t change)
{
	return change >> 1 & 0xf;
}

static inline bool segment_change_happened(uint64_t change, word w)
{
	return word_parity(w) == (change & 1);
}

/*
 * ro: a place's pool, as it was at `looked_usec` (CLOCK_MONOTONIC), or at the last flush of the whole
 * tree if that was later. `seq` is odd while the rest is being written.
 */
struct segment_pool {
	alignas(64) _Atomic uint32_t seq;
	_Atomic uint32_t parent;    /* the place of the pool above it; 0: it has none here */
	_Atomic uint64_t threshold; /* pending updates above which a read flushes */
	_Atomic uint64_t current, peak, limit; /* bytes; UINT64_MAX: no limit */
	/* What is left below its own limit; where it has no parent here, below any above it. */
	_Atomic uint64_t headroom;
	_Atomic uint64_t looked_usec;
};

/* They are written between the one and the other. */
static inline void segment_figures_begin(struct segment_figures *f)
{
	uint32_t seq = atomic_load_explicit(&f->seq, memory_order_relaxed);

	atomic_store_explicit(&f->seq, seq | 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
}

static inline void segment_figures_end(struct segment_figures *f)
{
	uint32_t seq = atomic_load_explicit(&f->seq, memory_order_relaxed);

	atomic_store_explicit(&f->seq, (seq | 1) + 1, memory_order_release);
}

static_assert(sizeof(struct segment_key) == 64, "a key's words are one cache line");
static_assert(sizeof(struct segment_pool) == 64, "a pool's figures are one cache line");
static_assert(sizeof(struct segment_cell) == 16, "four cells in a cache line");
static_assert(SEGMENT_MARKS == STOCK_MARKS && SEGMENT_EXTENTS <= STOCK_EXTENTS,
	"a CPU's page has a byte for each");
static_assert(sizeof(struct segment_figures) == 64, "a key's figures are one cache line");

/* Writes the batch and the mark of a slot that follows from it where the client reads them: HIGH is
 * what one request brings, and LOW half of it, so that a program's common swing stays within a slot,
 * and a thread that changes its CPU finds something. */
void segment_set_batch(struct segment_info *info, uint64_t batch);

/* A reserve above the mark has more than its use, and rings the doorbell; one below the other asks
 * ahead. */
#define SEGMENT_MARK(batch) ((batch)*2)
#define SEGMENT_AHEAD(batch) ((batch) / 2)

struct segment {
	uint32_t n_cpus;
	enum percpu_kind kind;
	uint32_t n_extents;      /* mapped; 0: none */
	_Atomic uint32_t n_keys; /* keys 1..n_keys, and as many pools, have a place */
	void *rw[SEGMENT_EXTENTS], *ro[SEGMENT_EXTENTS];
};

/*
 * For the daemon: makes the next extent, the base first (n_cpus and kind count then), and maps it.
 * The descriptors to hand out come back in ret_fds, the second opened read-only. -ENOSPC: no
 * further extent; else what memfd_create(), mmap() etc. say.
 */
int segment_extend(
	struct segment *s, uint32_t n_cpus, enum percpu_kind kind, int ret_fds[static 2]);

/*
 * For the client: maps the next extent from what the daemon sent. -EPROTO: not a segment of this
 * version, wrong size, or not sealed. The descriptors stay the caller's.
 */
int segment_map(struct segment *s, const int fds[static 2]);

/* Unmaps everything. */
void segment_unmap(struct segment *s);

static inline struct segment_header *segment_header(const struct segment *s)
{
	return s->rw[0];
}

static inline struct segment_info *segment_info(const struct segment *s)
{
	return s->ro[0];
}

/* Bytes before the stocks in the base. */
static inline size_t segment_stocks_offset(uint32_t n_cpus)
{
	size_t n = offsetof(struct segment_header, touched) + n_cpus + 1;

	return (n + STOCK_PAGE - 1) / STOCK_PAGE * STOCK_PAGE;
}

/* The stocks, as an operation of the session's kind sees them. */
static inline struct percpu_area segment_stocks(const struct segment *s)
{
	return percpu_area_make(
		(struct stock_page *)((char *)s->rw[0] + segment_stocks_offset(s->n_cpus)),
		s->n_cpus, s->kind);
}

static inline uint32_t segment_keys_of_extent(uint32_t e)
{
	return SEGMENT_FIRST_KEYS << (e - 1);
}

/* The extent of a key (≥ 1) and its place there. */
static inline uint32_t segment_extent_of(uint32_t key, uint32_t *ret_index)
{
	uint32_t n = (key - 1) / SEGMENT_FIRST_KEYS + 1;
	uint32_t e = 32 - (uint32_t)__builtin_clz(n);

	*ret_index = key - 1 - SEGMENT_FIRST_KEYS * ((1U << (e - 1)) - 1);
	return e;
}

/* A key's words; NULL when the key has no place (0, or above n_keys). */
static inline struct segment_key *segment_key(const struct segment *s, uint32_t key)
{
	uint32_t e, i;

	if (unlikely(key == 0 || key > atomic_load_explicit(&s->n_keys, memory_order_acquire)))
		return NULL;
	e = segment_extent_of(key, &i);
	return (struct segment_key *)s->rw[e] + i;
}

/* A key's figures; the key has a place. */
static inline struct segment_figures *segment_figures(const struct segment *s, uint32_t key)
{
	uint32_t i, e = segment_extent_of(key, &i);

	return (struct segment_figures *)s->ro[e] + i;
}

/* A pool's place: what it has pending, and its figures; NULL as above. */
static inline struct segment_pending *segment_pending(const struct segment *s, uint32_t place)
{
	uint32_t e, i;

	if (unlikely(place == 0 || place > atomic_load_explicit(&s->n_keys, memory_order_acquire)))
		return NULL;
	e = segment_extent_of(place, &i);
	return (struct segment_pending *)((struct segment_key *)s->rw[e] +
		       segment_keys_of_extent(e)) +
		i;
}

static inline struct segment_pool *segment_pool(const struct segment *s, uint32_t place)
{
	uint32_t e, i;

	if (unlikely(place == 0 || place > atomic_load_explicit(&s->n_keys, memory_order_acquire)))
		return NULL;
	e = segment_extent_of(place, &i);
	return (struct segment_pool *)((struct segment_figures *)s->ro[e] +
		       segment_keys_of_extent(e)) +
		i;
}

/* Where a key's cells and marks are: on CPU c that many bytes further, `stride` times c. */
struct segment_cells {
	char *block;    /* of CPU 0 */
	size_t stride;  /* from a CPU's block to the next one's */
	uint32_t n;     /* keys in the extent */
	uint32_t index; /* of the key there */
	uint32_t extent;
};

/* Of a key that has a place. */
struct segment_cells segment_cells(const struct segment *s, uint32_t key);

static inline struct segment_cell *segment_cell(const struct segment_cells *c, uint32_t cpu)
{
	return (struct segment_cell *)(c->block + cpu * c->stride) + c->index;
}

/* The marks of a block: of its keys, and of its groups. */
static inline _Atomic uint8_t *segment_key_marks(
	const struct segment_cells *c, uint32_t cpu, enum segment_mark which)
{
	return (_Atomic uint8_t *)(c->block + cpu * c->stride + c->n * sizeof(struct segment_cell) +
		which * (c->n + c->n / SEGMENT_GROUP));
}

static inline _Atomic uint8_t *segment_group_marks(
	const struct segment_cells *c, uint32_t cpu, enum segment_mark which)
{
	return segment_key_marks(c, cpu, which) + c->n;
}

/* The page of a CPU, or (cpu is n_cpus) the one beyond them. */
static inline struct stock_page *segment_page(const struct segment *s, uint32_t cpu)
{
	return (struct stock_page *)((char *)s->rw[0] + segment_stocks_offset(s->n_cpus)) + cpu;
}

/* The same of one key, for its client. */
struct segment_spot {
	char *cell; /* of CPU 0 */
	size_t stride;
	struct {
		uint32_t key, group; /* bytes behind the CPU's cell */
		uint32_t page;       /* bytes into the CPU's page */
	} mark[SEGMENT_MARKS];
};

/* Of a key that has a place. */
struct segment_spot segment_spot(const struct segment *s, uint32_t key);

/* Client: the key has changed on that CPU, whose cell it is. */
static inline void segment_mark(
	const struct segment_spot *s, char *cell, struct stock_page *page, enum segment_mark which)
{
	_Atomic uint8_t *key = (_Atomic uint8_t *)(cell + s->mark[which].key);
	_Atomic uint8_t *group = (_Atomic uint8_t *)(cell + s->mark[which].group);
	_Atomic uint8_t *changed = (_Atomic uint8_t *)((char *)page + s->mark[which].page);

	TALLY_STEP();
	atomic_store_explicit(key, 1, memory_order_release);
	TALLY_STEP();
	atomic_store_explicit(group, 1, memory_order_release);
	TALLY_STEP();
	atomic_store_explicit(changed, 1, memory_order_release);
	TALLY_STEP();
}

/*
 * What a cumulative word (force, debt) has grown by since *previous, which becomes what it is now; at
 * most `room`. The word is the client's to write: one that went back, or ran away, adds nothing it
 * could not have charged.
 */
uint64_t segment_growth(const _Atomic uint64_t *cumulative, uint64_t *previous, uint64_t room);

/* ------------------------------------------------------------------ reserves, from both sides */

/* Gives the reserve to a key, empty, keeping the parity (client, at attach). */
void segment_reserve_open(struct segment_key *k, uint32_t key);

/* Takes the reserve from whatever key has it; the bytes that lay in it are dropped, and returned
 * (client, at detach). */
uint64_t segment_reserve_close(struct segment_key *k);

/* Adds credit of the key; false: the reserve is no longer the key's, the credit is dropped. What
 * would not fit in the word is dropped too. The bytes it then holds in *ret_bytes. */
static inline bool segment_reserve_add(
	struct segment_key *k, uint32_t key, uint64_t bytes, uint64_t *ret_bytes)
{
	word w = atomic_load(&k->reserve);
	uint64_t total;

	do {
		if (word_key(w) != key)
			return false;
		total = word_bytes(w);
		total = bytes > WORD_BYTES_MAX - total ? WORD_BYTES_MAX : total + bytes;
		TALLY_STEP();
	} while (!atomic_compare_exchange_weak(
		&k->reserve, &w, word_make(key, total, word_parity(w))));
	TALLY_STEP();
	*ret_bytes = total;
	return true;
}

/* Takes at least `need` and up to `want` bytes of the key; 0 when it has less than need. What is
 * left there in *ret_left. Client: the parity stays. */
static inline uint64_t segment_reserve_take(
	struct segment_key *k, uint32_t key, uint64_t need, uint64_t want, uint64_t *ret_left)
{
	word w = atomic_load(&k->reserve);
	uint64_t n, left;

	do {
		uint64_t bytes = word_bytes(w);

		if (word_key(w) != key || bytes < need || bytes == 0)
			return 0;
		n = bytes < want ? bytes : want;
		left = bytes - n;
		TALLY_STEP();
	} while (!atomic_compare_exchange_weak(&k->reserve, &w, w - (n << 1)));
	TALLY_STEP();
	*ret_left = left;
	return n;
}

/* For the daemon: adds exactly `bytes` if key and parity are as recorded and there is room, and
 * flips the parity. 0 or -EAGAIN. */
int segment_reserve_give(struct segment_key *k, uint32_t key, uint64_t bytes, unsigned parity);

/* For the daemon: takes exactly `bytes` if key and parity are as recorded, and flips the parity.
 * 0 or -EAGAIN. */
int segment_reserve_steal(struct segment_key *k, uint32_t key, uint64_t bytes, unsigned parity);
