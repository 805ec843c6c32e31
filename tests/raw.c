/* SPDX-License-Identifier: MIT */

#include "raw.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/util.h"

const char *const raw_no_strings[WIRE_STRINGS_MAX];

void raw_connect(struct raw *r, const struct harness *h)
{
	struct timeval patience = {.tv_sec = HARNESS_PATIENCE_MS / 1000};
	struct sockaddr_un sa = {.sun_family = AF_UNIX};

	*r = (struct raw){.event_fd = -1};
	strcpy(sa.sun_path, h->address + strlen("unix:"));
	r->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_true(r->fd >= 0);
	assert_int_equal(
		setsockopt(r->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	assert_int_equal(connect(r->fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
}

void raw_close(struct raw *r)
{
	r->fd = close_fd(r->fd);
	r->event_fd = close_fd(r->event_fd);
	segment_unmap(&r->segment);
}

/* The daemon may have hung up by now: that is for the reader to see. */
void raw_send(struct raw *r, const void *message, size_t n, const int *fds, unsigned n_fds)
{
	char control[CMSG_SPACE(253 * sizeof(int))] = {0};
	struct iovec iov = {.iov_base = (void *)message, .iov_len = n};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (n_fds > 0) {
		struct cmsghdr *c = (struct cmsghdr *)control;

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
	}
	if (sendmsg(r->fd, &msg, MSG_NOSIGNAL) < 0)
		assert_true(errno == EPIPE || errno == ECONNRESET);
}

void raw_request(struct raw *r, uint32_t type, void *fixed, size_t n,
	const char *const strings[static WIRE_STRINGS_MAX])
{
	_cleanup_(freep) void *buf = malloc(WIRE_MAX);
	int size;

	assert_non_null(buf);
	size = wire_pack(buf, fixed, n, type, ++r->cookie, strings);
	assert_true(size > 0);
	raw_send(r, buf, (size_t)size, NULL, 0);
}

size_t raw_receive(struct raw *r, union message *m, int fds[static WIRE_FDS_MAX])
{
	union {
		char buf[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = m, .iov_len = sizeof(*m)};
	struct msghdr msg = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf)};
	ssize_t n = recvmsg(r->fd, &msg, MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	unsigned n_fds = 0;

	memset(fds, -1, WIRE_FDS_MAX * sizeof(int));
	if (n <= 0) {
		assert_true(n == 0 || errno == ECONNRESET);
		return 0;
	}
	if (c) {
		n_fds = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(c), n_fds * sizeof(int));
	}
	assert_int_equal(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC), 0);
	assert_int_equal(wire_check_answer(m, (size_t)n, n_fds), 0);
	return (size_t)n;
}

void raw_expect(struct raw *r, uint32_t type, union message *m)
{
	int fds[WIRE_FDS_MAX];

	assert_true(raw_receive(r, m, fds) > 0);
	assert_int_equal(m->h.type, type);
	for (unsigned i = 0; i < WIRE_FDS_MAX; i++)
		close_fd(fds[i]);
}

void raw_hello(struct raw *r)
{
	struct wire_hello hello = {.version = WIRE_VERSION};
	const char *const name[WIRE_STRINGS_MAX] = {"by hand"};
	int fds[WIRE_FDS_MAX];
	union message m;

	raw_request(r, WIRE_HELLO, &hello, sizeof(hello), name);
	assert_true(raw_receive(r, &m, fds) > 0);
	assert_int_equal(m.h.type, WIRE_WELCOME);
	assert_int_equal(m.h.cookie, r->cookie);
	assert_int_equal(m.welcome.status, 0);
	assert_int_equal(m.welcome.version, WIRE_VERSION);
	assert_int_equal(segment_map(&r->segment, fds), 0);
	close(fds[0]);
	close(fds[1]);
	r->event_fd = fds[2];
}

void raw_open(struct raw *r, const struct harness *h)
{
	raw_connect(r, h);
	raw_hello(r);
}

void raw_ask_attach(struct raw *r, uint64_t attachment, const char *path, uint64_t flags)
{
	struct wire_attach a = {.attachment = attachment, .flags = flags};
	const char *const strings[WIRE_STRINGS_MAX] = {path};

	raw_request(r, WIRE_ATTACH, &a, sizeof(a), strings);
}

int raw_take_key(struct raw *r, uint32_t type, union message *m)
{
	int fds[WIRE_FDS_MAX];

	assert_true(raw_receive(r, m, fds) > 0);
	assert_int_equal(m->h.type, type);
	assert_int_equal(m->h.cookie, r->cookie);
	if (m->key_is.extent) {
		assert_int_equal(m->key_is.extent, r->segment.n_extents);
		assert_int_equal(segment_map(&r->segment, fds), 0);
		close(fds[0]);
		close(fds[1]);
	}
	return m->key_is.status;
}

uint32_t raw_attach(struct raw *r, uint64_t attachment, const char *path)
{
	union message m;

	raw_ask_attach(r, attachment, path, WIRE_ATTACH_CREATE);
	assert_int_equal(raw_take_key(r, WIRE_ATTACHED, &m), 0);
	assert_int_equal(m.key_is.attachment, attachment);
	assert_int_equal(m.key_is.item, 0);
	segment_reserve_open(segment_key(&r->segment, m.key_is.key), m.key_is.key);
	return m.key_is.key;
}

void raw_ask_charge(struct raw *r, uint64_t attachment, uint32_t key, uint64_t seq, uint64_t need)
{
	struct wire_charge c = {.attachment = attachment, .key = key, .seq = seq, .need = need};

	raw_request(r, WIRE_CHARGE, &c, sizeof(c), raw_no_strings);
}

struct wire_grant raw_expect_grant(struct raw *r, uint64_t attachment, uint32_t key, uint64_t seq)
{
	union message m;

	raw_expect(r, WIRE_GRANT, &m);
	assert_int_equal(m.grant.attachment, attachment);
	assert_int_equal(m.grant.key, key);
	assert_int_equal(m.grant.seq, seq);
	return m.grant;
}

uint64_t raw_charge(struct raw *r, uint64_t attachment, uint32_t key, uint64_t seq, uint64_t need)
{
	struct wire_grant g;

	raw_ask_charge(r, attachment, key, seq, need);
	g = raw_expect_grant(r, attachment, key, seq);
	assert_int_equal(g.status, 0);
	assert_true(g.amount >= need);
	atomic_store(&segment_key(&r->segment, key)->accepted[0], seq);
	return g.amount;
}

void raw_ask_get(struct raw *r, const char *path, const char *file, uint64_t flags)
{
	struct wire_get g = {.flags = flags};
	const char *const strings[WIRE_STRINGS_MAX] = {path, file};

	raw_request(r, WIRE_GET, &g, sizeof(g), strings);
}

void raw_assert_alive(struct raw *r)
{
	union message m;

	raw_ask_get(r, "/", "memory.max", 0);
	raw_expect(r, WIRE_TEXT, &m);
	assert_int_equal(m.h.cookie, r->cookie);
	assert_int_equal(m.text.status, 0);
	assert_memory_equal(&m.text + 1, "max\n", 4);
}

void raw_assert_ended(struct raw *r)
{
	int fds[WIRE_FDS_MAX];
	union message m;

	assert_int_equal(raw_receive(r, &m, fds), 0);
	raw_close(r);
}
