/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A client by hand: it speaks the protocol without libtally, so that it can say what libtally never
 * would, and has its segment to write into.
 */

#include "core/segment.h"
#include "core/wire.h"
#include "harness.h"

union message {
	struct wire_header h;
	struct wire_welcome welcome;
	struct wire_key_is key_is;
	struct wire_extent_is extent_is;
	struct wire_grant grant;
	struct wire_item_is item_is;
	struct wire_text text;
	struct wire_done done;
	struct wire_queue_is queue_is;
	struct wire_fetched fetched;
	char bytes[WIRE_MAX];
};

struct raw {
	int fd, event_fd;
	struct segment segment;
	uint64_t cookie;
};

extern const char *const raw_no_strings[WIRE_STRINGS_MAX];

/* Connects, and (open) says HELLO. */
void raw_connect(struct raw *r, const struct harness *h);
void raw_hello(struct raw *r);
void raw_open(struct raw *r, const struct harness *h);
void raw_close(struct raw *r);

/* Bytes as they are; and a message with its header and the next cookie. */
void raw_send(struct raw *r, const void *message, size_t n, const int *fds, unsigned n_fds);
void raw_request(struct raw *r, uint32_t type, void *fixed, size_t n,
	const char *const strings[static WIRE_STRINGS_MAX]);

/* Bytes of the next message, 0 when the daemon has hung up. Descriptors in fds, the others -1. */
size_t raw_receive(struct raw *r, union message *m, int fds[static WIRE_FDS_MAX]);
/* The next message, which is of this type, without what it brings. */
void raw_expect(struct raw *r, uint32_t type, union message *m);

void raw_ask_attach(struct raw *r, uint64_t attachment, const char *path, uint64_t flags);
/* The answer to that, or to a KEY. Returns its status. */
int raw_take_key(struct raw *r, uint32_t type, union message *m);
/* Attaches, the pool made if needed. Returns the key. */
uint32_t raw_attach(struct raw *r, uint64_t attachment, const char *path);

void raw_ask_charge(struct raw *r, uint64_t attachment, uint32_t key, uint64_t seq, uint64_t need);
struct wire_grant raw_expect_grant(struct raw *r, uint64_t attachment, uint32_t key, uint64_t seq);
/* Charges, and holds all that it gets. */
uint64_t raw_charge(struct raw *r, uint64_t attachment, uint32_t key, uint64_t seq, uint64_t need);

void raw_ask_get(struct raw *r, const char *path, const char *file, uint64_t flags);

/* The session goes on, and nothing was answered before this. */
void raw_assert_alive(struct raw *r);
/* The daemon has hung up without another word. Closes it. */
void raw_assert_ended(struct raw *r);
