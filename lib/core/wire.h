/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The protocol between a client and the daemon, whole. Messages over a SOCK_SEQPACKET Unix socket,
 * one message a packet, numbers in the host's byte order (both ends are on one machine). A message
 * is a header, a fixed part, and for some types strings, each with its NUL, up to the end.
 *
 *   client → daemon           daemon → client       descriptors with it
 *   HELLO name                WELCOME               rw and ro base of the segment, event socket
 *   ATTACH path               ATTACHED              rw and ro of a new extent, if there is one
 *   DETACH                    DONE
 *   FORGET                    -
 *   KEY                       KEYED                 as ATTACHED
 *   EXTENT                    EXTENT_IS             rw and ro of that extent, once more
 *   CHARGE                    GRANT
 *   RING                      -
 *   AHEAD                     -
 *   ITEM name                 ITEM_IS
 *   DEFINE name unit help     ITEM_IS
 *   GET path file             TEXT                  a memfd, when the text is too long for a message
 *   REFUSAL                   TEXT                  as GET
 *   SET path file value       DONE
 *   CREATE path               DONE
 *   REMOVE path               DONE
 *   TRANSFER                  DONE
 *   BYE                       DONE, then the daemon hangs up
 *   WATCH path                DONE
 *   UNWATCH                   -
 *   ON_RECLAIM                DONE
 *   QUEUE                     QUEUE_IS              the queue's own event socket
 *   REQUEST                   -, or FETCHED: it has got no place
 *   CANCEL                    -
 *   FETCH                     FETCHED
 *
 * Over the event socket go notices, from the daemon, of what the client has not asked for just now, and
 * reports, from the client, of what came of one:
 *
 *   EVENT                     -
 *   RECLAIM                   RECLAIMED, at once or later
 *   TURN                      -                     on a queue's socket alone
 *
 * A notice tells the state as it is when it is sent, not what has happened one by one: the daemon
 * keeps none of them for a client that does not read.
 *
 * An answer carries its question's cookie. GRANT has none: it is accepted by the record of its key,
 * attachment, lane and seq, once, by whichever thread reads it. Messages name an attachment by its
 * 64-bit number, chosen by the client and never used again in a session, not by its key, which is.
 * A message that breaks a rule of this file ends the session.
 */

#include <stddef.h>
#include <stdint.h>

#define WIRE_VERSION 1
#define WIRE_MAX 65536      /* bytes of a message */
#define WIRE_NOTICE_MAX 256 /* bytes of a notice, and of a report */
#define WIRE_TEXT_MAX 32768 /* bytes of text sent in the message itself */
#define WIRE_FDS_MAX 3
#define WIRE_NAME_MAX 63 /* bytes of a client's name */
#define WIRE_STRINGS_MAX 3

enum wire_type {
	WIRE_HELLO = 1,
	WIRE_ATTACH,
	WIRE_DETACH,
	WIRE_FORGET,
	WIRE_KEY,
	WIRE_EXTENT,
	WIRE_CHARGE,
	WIRE_RING,
	WIRE_AHEAD,
	WIRE_ITEM,
	WIRE_DEFINE,
	WIRE_GET,
	WIRE_SET,
	WIRE_CREATE,
	WIRE_REMOVE,
	WIRE_BYE,
	WIRE_WATCH,
	WIRE_UNWATCH,
	WIRE_ON_RECLAIM,
	WIRE_REFUSAL,
	WIRE_QUEUE,
	WIRE_REQUEST,
	WIRE_CANCEL,
	WIRE_FETCH,
	WIRE_TRANSFER,
	WIRE_REQUESTS_END,

	WIRE_WELCOME = 64,
	WIRE_ATTACHED,
	WIRE_KEYED,
	WIRE_EXTENT_IS,
	WIRE_GRANT,
	WIRE_ITEM_IS,
	WIRE_TEXT,
	WIRE_DONE,
	WIRE_QUEUE_IS,
	WIRE_FETCHED,
	WIRE_ANSWERS_END,

	WIRE_EVENT = 128,
	WIRE_RECLAIM,
	WIRE_TURN,
	WIRE_NOTICES_END,

	WIRE_RECLAIMED = 192,
	WIRE_REPORTS_END,
};

struct wire_header {
	uint32_t size; /* of the whole message */
	uint32_t type;
	uint64_t cookie; /* chosen by the asker, in the answer too */
};

#define WIRE_HELLO_RSEQ UINT32_C(1) /* the client's threads have restartable sequences */

struct wire_hello { /* + name */
	struct wire_header h;
	uint32_t version;
	uint32_t flags; /* WIRE_HELLO_… */
};

struct wire_welcome {
	struct wire_header h;
	int32_t status; /* 0, -EPERM, -EPROTO, … as in all answers; else nothing below counts */
	uint32_t version;
	uint64_t session;
};

#define WIRE_ATTACH_CREATE UINT64_C(1)    /* make missing parts */
#define WIRE_ATTACH_EPHEMERAL UINT64_C(2) /* and what is made goes with its last attachment */

struct wire_attach { /* + path */
	struct wire_header h;
	uint64_t attachment;
	uint64_t flags;
};

/* ATTACHED and KEYED: the key of (attachment, none) and of (attachment, item). */
struct wire_key_is {
	struct wire_header h;
	int32_t status;
	uint32_t key;
	uint64_t attachment;
	uint32_t item;
	uint32_t extent; /* number of the extent that comes with this message; 0: none does */
	uint32_t place;  /* ATTACHED: of the pool; 0: it has none */
	uint32_t flags;  /* KEYED: those of the KEY, and WIRE_KEY_EVENT */
	uint32_t shift;  /* what is moved counts for an update for each 2^shift, and at least one */
	uint32_t reserved;
};

#define WIRE_DETACH_LAST UINT64_C(1) /* no handle is left: FORGET at once */

struct wire_detach {
	struct wire_header h;
	uint64_t attachment;
	uint64_t flags;
	uint64_t dropped; /* bytes that lay in the attachment's reserves when they were closed */
};

/* The last handle of a detached attachment is gone: its keys may be collected. */
struct wire_forget {
	struct wire_header h;
	uint64_t attachment;
};

/* For tally_stat_add(): the item may be an event. A gauge's key is the one that is charged. */
#define WIRE_KEY_STAT UINT32_C(1)
/* In the answer alone: it is an event. */
#define WIRE_KEY_EVENT UINT32_C(2)

struct wire_key {
	struct wire_header h;
	uint64_t attachment;
	uint32_t item;
	uint32_t flags; /* WIRE_KEY_… */
};

/* An extent that was sent and did not arrive: the client had no descriptor free, or no memory. */
struct wire_extent {
	struct wire_header h;
	uint32_t extent;
	uint32_t reserved;
};

struct wire_extent_is {
	struct wire_header h;
	int32_t status;
	uint32_t extent;
};

#define WIRE_CHARGE_QUEUE UINT32_C(1) /* wait in the pool's queue until the deadline */
/* Nobody waits: what is granted is put into the key's reserve by the daemon, where it can be taken
 * back; the answer's amount is 0 and its status tells (-EAGAIN: ask again). While the daemon is at a
 * word of the key, the answer brings it. Not with QUEUE. */
#define WIRE_CHARGE_NOWAIT UINT32_C(2)

struct wire_charge {
	struct wire_header h;
	uint64_t attachment;
	uint32_t key;
	uint32_t lane;
	uint64_t seq;           /* of this key and lane; first 1, each request one more */
	uint64_t need;          /* bytes, not 0, below 2^43 */
	uint64_t deadline_usec; /* CLOCK_MONOTONIC; only with QUEUE */
	uint32_t flags;
	uint32_t reserved;
};

struct wire_grant {
	struct wire_header h;
	uint64_t attachment;
	uint32_t key;
	uint32_t lane;
	uint64_t seq;
	uint64_t amount; /* bytes, need included; 0: refused, or (NOWAIT) put into the reserve */
	int32_t status;  /* why: -ENOMEM, -ETIMEDOUT, -ENODEV, -EAGAIN */
	uint32_t delay_usec; /* granted, but a memory.high was passed: who waits sleeps so long */
	uint64_t refusal;    /* number of the record of the refusal; 0: there is none */
};

/* The reserve of this key has grown above its mark. */
struct wire_ring {
	struct wire_header h;
	uint64_t attachment;
	uint32_t key;
	uint32_t reserved;
};

/* The reserve of this key has run low: a batch may be put into it, if headroom is ample. */
struct wire_ahead {
	struct wire_header h;
	uint64_t attachment;
	uint32_t key;
	uint32_t reserved;
};

struct wire_item { /* + name */
	struct wire_header h;
};

struct wire_define { /* + name, unit, help */
	struct wire_header h;
	uint32_t type; /* enum item_type */
	uint32_t reserved;
};

struct wire_item_is {
	struct wire_header h;
	int32_t status;
	uint32_t item;
	uint32_t type; /* enum item_type */
	uint32_t reserved;
};

#define WIRE_GET_EXACT UINT64_C(1)
#define WIRE_GET_RATELIMITED UINT64_C(2)
#define WIRE_GET_CACHED UINT64_C(4)

struct wire_get { /* + path, file */
	struct wire_header h;
	uint64_t flags;
};

struct wire_text { /* + the text, without NUL, unless it is in the memfd */
	struct wire_header h;
	int32_t status;
	uint32_t in_memfd;
	uint64_t length;
};

struct wire_set { /* + path, file, value */
	struct wire_header h;
};

struct wire_create { /* + path */
	struct wire_header h;
};

#define WIRE_REMOVE_FORCE UINT64_C(1) /* with attachments, and with what is granted to them */

struct wire_remove { /* + path */
	struct wire_header h;
	uint64_t flags; /* WIRE_REMOVE_… */
};

/* The record of a refusal to this session, as a line of pool.refusals. */
struct wire_refusal {
	struct wire_header h;
	uint64_t number; /* the `refusal` of a GRANT, or of a DONE */
};

/* Bytes that were granted to the one key are the other's from now on; both are of the same item. */
struct wire_transfer {
	struct wire_header h;
	uint64_t from, to; /* attachments */
	uint32_t from_key, to_key;
	uint64_t bytes; /* not 0, below 2^43 */
};

struct wire_bye {
	struct wire_header h;
};

/* The pool's events are told from now on, under this number, chosen by the client and not in use. */
struct wire_watch { /* + path */
	struct wire_header h;
	uint64_t watch;
};

struct wire_unwatch {
	struct wire_header h;
	uint64_t watch;
};

#define WIRE_ON_RECLAIM_SET UINT64_C(1) /* it has one from now on; else it has none any more */

/* Whether the attachment can be asked to give bytes back. */
struct wire_on_reclaim {
	struct wire_header h;
	uint64_t attachment;
	uint64_t flags;
};

/*
 * A queue, by a number that is the client's and never used again in a session. It ends when the client
 * closes its socket.
 */
struct wire_queue {
	struct wire_header h;
	uint64_t queue;
};

struct wire_queue_is {
	struct wire_header h;
	int32_t status;
	uint32_t reserved;
};

/* A place in line, under an id that is not in use in the queue. */
struct wire_request {
	struct wire_header h;
	uint64_t queue;
	uint64_t id; /* not 0 */
	uint64_t attachment;
	uint64_t need;          /* bytes, not 0, below 2^43 */
	uint64_t deadline_usec; /* CLOCK_MONOTONIC; UINT64_MAX: none */
	uint32_t key;
	uint32_t reserved;
};

/* Whatever has become of it; what was set aside for it goes back. */
struct wire_cancel {
	struct wire_header h;
	uint64_t queue;
	uint64_t id;
};

/* Its turn has come: the bytes become the key's. `seq` is of the key's lane for this. */
struct wire_fetch {
	struct wire_header h;
	uint64_t queue;
	uint64_t id;
	uint64_t attachment;
	uint64_t seq;
	uint32_t key;
	uint32_t reserved;
};

/*
 * What a FETCH brings, or (seq 0) why a REQUEST has got no place. -EAGAIN: it came too late, or there
 * was no turn; it has its place, and is told again. With any other status the place is gone.
 */
struct wire_fetched {
	struct wire_header h;
	uint64_t queue;
	uint64_t id;
	uint64_t attachment;
	uint64_t seq;
	uint64_t amount; /* bytes: the need, or 0 */
	uint32_t key;
	int32_t status;
};

/*
 * Status 0: the turn of that place has come, and what it needs is set aside for a second; else it is
 * over (-ETIMEDOUT, -ENODEV, …). Id 0: there is something for the queue on the main socket.
 */
struct wire_turn {
	struct wire_header h;
	uint64_t queue;
	uint64_t id;
	int32_t status;
	uint32_t reserved;
};

/* What a watch tells of, numbers of bits in `mask`. */
enum wire_event_kind {
	WIRE_EVENT_LOW,
	WIRE_EVENT_HIGH,
	WIRE_EVENT_MAX,
	WIRE_EVENT_OOM,
	WIRE_EVENT_RECLAIM,
	WIRE_EVENT_FORCE,
	WIRE_EVENT_REMOVED, /* the watched pool; it is the last that this watch tells */
	WIRE_EVENT_CREDIT,  /* a NOWAIT of this session to the pool was answered */
	WIRE_EVENT_KINDS,
};

struct wire_event {
	struct wire_header h;
	uint64_t watch;
	uint32_t mask; /* what has happened since this watch's last notice */
	uint32_t reserved;
	uint64_t counts
		[WIRE_EVENT_KINDS]; /* of all kinds, since the pool was made; CREDIT: the watch */
};

/* The attachment is asked to give back `want` bytes. */
struct wire_reclaim {
	struct wire_header h;
	uint64_t attachment;
	uint64_t token; /* of the session, never used again */
	uint64_t want;
	uint64_t deadline_usec; /* CLOCK_MONOTONIC: what comes later is too late for who asked */
};

/* It has given back so many, and can be asked again. */
struct wire_reclaimed {
	struct wire_header h;
	uint64_t attachment;
	uint64_t token;
	uint64_t bytes;
};

struct wire_done {
	struct wire_header h;
	int32_t status;
	uint32_t reserved;
	uint64_t refusal; /* of a TRANSFER, as a GRANT's */
};

/*
 * Checks a message of `n` bytes with `n_fds` descriptors as it came from the socket: type known and
 * of this direction, sizes, number of descriptors, strings terminated and as many as the type has.
 * The strings come back in `ret_strings` (unused ones NULL). 0 or -EPROTO. It does not look at the
 * meaning of any field.
 */
int wire_check_request(const void *message, size_t n, unsigned n_fds,
	const char *ret_strings[static WIRE_STRINGS_MAX]);
int wire_check_answer(const void *message, size_t n, unsigned n_fds);
/* The same of the event socket, where no descriptors go. */
int wire_check_notice(const void *message, size_t n);
int wire_check_report(const void *message, size_t n);

/*
 * Packs fixed part and strings (up to WIRE_STRINGS_MAX, NULL ends them) into `buf` of WIRE_MAX
 * bytes; sets the header's size. Returns the size, or -E2BIG.
 */
int wire_pack(void *buf, const void *fixed, size_t n_fixed, uint32_t type, uint64_t cookie,
	const char *const strings[static WIRE_STRINGS_MAX]);

/* The header of a message without strings. */
#define WIRE_HEADER(message_type, message_struct, message_cookie)                                  \
	((struct wire_header){.size = sizeof(message_struct),                                      \
		.type = (message_type),                                                            \
		.cookie = (message_cookie)})
