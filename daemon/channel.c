/* SPDX-License-Identifier: MIT */

#include "channel.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "core/util.h"
#include "core/wire.h"

/* What lies in the socket was packed long ago if the client does not read: it is to be little. */
#define ROOM 16384
/* Messages of one client before the others have their turn. */
#define TURN 64

/* Aligned for every message. */
union channel_message {
	struct wire_header h;
	struct wire_event event;
	char bytes[WIRE_NOTICE_MAX];
};

struct channel {
	struct channel_owner owner;
	uv_poll_t poll;
	int fd;
	bool gone;
	TAILQ_HEAD(, notice) notices;
};

static void watch(struct channel *c);

static void hang_up(struct channel *c, bool broken)
{
	if (c->gone)
		return;
	c->gone = true;
	uv_poll_stop(&c->poll);
	while (!TAILQ_EMPTY(&c->notices))
		channel_forget(TAILQ_FIRST(&c->notices));
	c->owner.on_gone(c->owner.userdata, broken);
}

/* ------------------------------------------------------------------ out */

/* 0: it went, or there was nothing; -EAGAIN: there is no room. */
static int send_notice(struct channel *c, struct notice *n)
{
	union channel_message m;
	size_t size = n->pack(n, &m);

	if (size > 0 && send(c->fd, &m, size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return errno == EINTR || errno == ENOBUFS || errno == ENOMEM ? -EAGAIN : -errno;
	channel_forget(n);
	if (size > 0 && n->sent)
		n->sent(n);
	return 0;
}

/* False: the client is gone. */
static bool flush(struct channel *c)
{
	for (unsigned i = 0; i < TURN && !TAILQ_EMPTY(&c->notices); i++) {
		int r = send_notice(c, TAILQ_FIRST(&c->notices));

		if (r == -EAGAIN)
			break;
		if (r < 0)
			return false;
	}
	return true;
}

void channel_post(struct channel *c, struct notice *n)
{
	if (n->channel || c->gone)
		return;
	n->channel = c;
	TAILQ_INSERT_TAIL(&c->notices, n, entry);
	if (TAILQ_FIRST(&c->notices) == n)
		watch(c);
}

void channel_forget(struct notice *n)
{
	struct channel *c = n->channel;

	if (!c)
		return;
	TAILQ_REMOVE(&c->notices, n, entry);
	n->channel = NULL;
	if (TAILQ_EMPTY(&c->notices) && !c->gone)
		watch(c);
}

/* ------------------------------------------------------------------ in */

/* False: the client is gone. Descriptors that come with a message are closed by the kernel, which
 * marks the message as cut. */
static bool read_report(struct channel *c, bool *ret_broken, bool *ret_empty)
{
	union channel_message m;
	struct iovec iov = {.iov_base = &m, .iov_len = sizeof(m)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n = recvmsg(c->fd, &msg, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		*ret_empty = true;
		return true;
	}
	if (n <= 0)
		return false;
	*ret_broken = (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ||
		wire_check_report(&m, (size_t)n) < 0 ||
		!c->owner.on_report(c->owner.userdata, &m, (size_t)n);
	return !*ret_broken;
}

static void read_reports(struct channel *c)
{
	bool broken = false, empty = false;

	for (unsigned i = 0; i < TURN && !empty && !c->gone; i++)
		if (!read_report(c, &broken, &empty)) {
			hang_up(c, broken);
			return;
		}
}

static void on_socket(uv_poll_t *p, int status, int events)
{
	struct channel *c = p->data;

	if (events & UV_READABLE)
		read_reports(c);
	if (c->gone)
		return;
	if (status < 0 || (events & UV_DISCONNECT) || ((events & UV_WRITABLE) && !flush(c)))
		hang_up(c, false);
}

static void watch(struct channel *c)
{
	int events = UV_READABLE | UV_DISCONNECT;

	uv_poll_start(
		&c->poll, TAILQ_EMPTY(&c->notices) ? events : events | UV_WRITABLE, on_socket);
}

/* ------------------------------------------------------------------ from the start to the end */

int channel_new(
	uv_loop_t *loop, const struct channel_owner *o, int *ret_theirs, struct channel **ret)
{
	_cleanup_(close_fdp) int ours = -1, theirs = -1;
	const int room = ROOM;
	struct channel *c;
	int fds[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return -errno;
	ours = fds[0];
	theirs = fds[1];
	if (setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) < 0)
		return -errno;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->owner = *o;
	TAILQ_INIT(&c->notices);
	r = uv_poll_init(loop, &c->poll, ours);
	if (r < 0) {
		free(c);
		return r;
	}
	c->poll.data = c;
	c->fd = take_fd(&ours);
	watch(c);
	*ret_theirs = take_fd(&theirs);
	*ret = c;
	return 0;
}

static void on_closed(uv_handle_t *h)
{
	struct channel *c = h->data;

	close_fd(c->fd);
	free(c);
}

struct channel *channel_free(struct channel *c)
{
	if (!c)
		return NULL;
	c->gone = true;
	while (!TAILQ_EMPTY(&c->notices))
		channel_forget(TAILQ_FIRST(&c->notices));
	uv_close((uv_handle_t *)&c->poll, on_closed);
	return NULL;
}
