/* SPDX-License-Identifier: MIT */

#include "packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static void free_packet(struct packet *p)
{
	for (unsigned i = 0; i < p->n_fds; i++)
		close_fd(p->fds[i]);
	free(p);
}

void packet_drop_all(struct session *s)
{
	struct packet *p;

	while ((p = STAILQ_FIRST(&s->packets))) {
		STAILQ_REMOVE_HEAD(&s->packets, entry);
		free_packet(p);
	}
}

/* 0: sent; -EAGAIN: not now; other: the peer is gone. The descriptors stay the caller's. */
static int send_packet(int fd, const void *bytes, size_t size, const int *fds, unsigned n_fds)
{
	union {
		char buf[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {.iov_base = (void *)bytes, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (n_fds > 0) {
		struct cmsghdr *c;

		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	if (sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	return errno == EINTR ? -EAGAIN : -errno;
}

/* ETOOMANYREFS: the client holds too many descriptors in flight; it has to take them first. */
static bool is_full(int r)
{
	return r == -EAGAIN || r == -ENOBUFS || r == -ETOOMANYREFS;
}

int packet_flush(struct session *s)
{
	struct packet *p;

	while ((p = STAILQ_FIRST(&s->packets))) {
		int r = send_packet(s->fd, p->bytes, p->size, p->fds, p->n_fds);

		if (is_full(r))
			return 0;
		if (r < 0)
			return r;
		STAILQ_REMOVE_HEAD(&s->packets, entry);
		free_packet(p);
	}
	return 0;
}

/* The session is hung up on when its socket is looked at next: here it would come upon a caller who
 * holds requests of it in hand. */
static void give_up(struct session *s)
{
	shutdown(s->fd, SHUT_RDWR);
}

static void queue_packet(
	struct session *s, const void *message, size_t size, int *fds, unsigned n_fds)
{
	struct packet *p = malloc(sizeof(*p) + size);

	if (!p) {
		give_up(s);
		return;
	}
	p->size = size;
	p->n_fds = n_fds;
	for (unsigned i = 0; i < n_fds; i++)
		p->fds[i] = take_fd(&fds[i]);
	memcpy(p->bytes, message, size);
	STAILQ_INSERT_TAIL(&s->packets, p, entry);
	session_watch_socket(s);
}

void packet_send(struct session *s, const void *message, size_t size, int *fds, unsigned n_fds)
{
	if (s->state == SESSION_LIVE || s->state == SESSION_NEW) {
		int r = -EAGAIN;

		if (STAILQ_EMPTY(&s->packets))
			r = send_packet(s->fd, message, size, fds, n_fds);
		if (is_full(r))
			queue_packet(s, message, size, fds, n_fds);
		else if (r < 0)
			give_up(s);
	}
	for (unsigned i = 0; i < n_fds; i++)
		fds[i] = close_fd(fds[i]);
}

void packet_send_refused(struct session *s, uint64_t cookie, int status, uint64_t refusal)
{
	struct wire_done done = {.h = WIRE_HEADER(WIRE_DONE, struct wire_done, cookie),
		.status = status,
		.refusal = refusal};

	packet_send(s, &done, sizeof(done), NULL, 0);
}

void packet_send_done(struct session *s, uint64_t cookie, int status)
{
	packet_send_refused(s, cookie, status, 0);
}
