/* SPDX-License-Identifier: MIT */

#include "server.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "log.h"
#include "message.h"
#include "rundir.h"
#include "session.h"

#define BACKLOG 1024
/* Messages of one session before the others have their turn. */
#define TURN 64
/* Out of descriptors: the listener rests so long. */
#define PAUSE_MS 100

struct server {
	struct manager *manager;
	uv_poll_t poll;
	uv_timer_t pause;
	unsigned handles;
	int fd;
	bool made; /* the socket's file is ours to remove */
	bool full_logged;
	char *path;
};

/* ------------------------------------------------------------------ reading */

/* No message of a client carries descriptors: what comes is closed, and counted. */
static unsigned close_received(struct msghdr *msg)
{
	unsigned n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t bytes = c->cmsg_len - CMSG_LEN(0);
		int fd;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < bytes / sizeof(int); i++, n++) {
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			close_fd(fd);
		}
	}
	return n;
}

/* Bytes of the next message; 0: the peer has hung up; -EAGAIN: none; other: the socket failed. */
static ssize_t receive(int fd, union message_buffer *m, unsigned *ret_fds, bool *ret_cut)
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
	ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	*ret_fds = close_received(&msg);
	*ret_cut = msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
	return n;
}

static bool is_connected(const struct session *s)
{
	return s->state == SESSION_NEW || s->state == SESSION_LIVE;
}

void server_read(struct session *s)
{
	for (unsigned i = 0; i < TURN && is_connected(s) && STAILQ_EMPTY(&s->packets); i++) {
		union message_buffer m;
		unsigned n_fds = 0;
		bool cut = false;
		ssize_t n = receive(s->fd, &m, &n_fds, &cut);

		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			session_hang_up(s, "it hung up");
			return;
		}
		if (cut || !message_handle(s, &m, (size_t)n, n_fds))
			session_break(s);
	}
}

/* ------------------------------------------------------------------ listening */

static void on_connection(uv_poll_t *p, int status, int events);

static void on_pause_over(uv_timer_t *t)
{
	struct server *s = t->data;

	uv_poll_start(&s->poll, UV_READABLE, on_connection);
}

/* Connections wait in the backlog meanwhile; without the rest the loop would spin. */
static void rest(struct server *s, int error)
{
	if (!s->full_logged)
		log_error("cannot accept connections: %s; raise the limit of open files",
			strerror(error));
	s->full_logged = true;
	uv_poll_stop(&s->poll);
	uv_timer_start(&s->pause, on_pause_over, PAUSE_MS, 0);
}

static void on_connection(uv_poll_t *p, int status, int events)
{
	struct server *s = p->data;
	struct session *session;
	int fd;

	(void)status;
	(void)events;
	for (unsigned i = 0; i < TURN; i++) {
		fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
				errno == ENOMEM)
				rest(s, errno);
			return;
		}
		s->full_logged = false;
		session_new(s->manager, fd, &session);
	}
}

static int make_socket(struct server *s)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	_cleanup_(close_fdp) int fd = -1;
	struct stat st;

	if (asprintf(&s->path, "%s/" SERVER_SOCKET, s->manager->runtime_dir) < 0) {
		s->path = NULL;
		return -ENOMEM;
	}
	if (strlen(s->path) >= sizeof(sa.sun_path))
		return -ENAMETOOLONG;
	strcpy(sa.sun_path, s->path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* The lock on the directory is ours: a socket there is left over. Anything else is not. */
	if (lstat(s->path, &st) == 0 && !S_ISSOCK(st.st_mode))
		return -EEXIST;
	if (unlink(s->path) < 0 && errno != ENOENT)
		return -errno;
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return -errno;
	s->made = true;
	if (chmod(s->path, s->manager->conf->socket_mode) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	s->fd = take_fd(&fd);
	return 0;
}

static void on_closed(uv_handle_t *h)
{
	struct server *s = h->data;

	if (--s->handles > 0)
		return;
	close_fd(s->fd);
	free(s->path);
	free(s);
}

int server_new(struct manager *m, int listen_fd, struct server **ret)
{
	struct server *s = calloc(1, sizeof(*s));
	int r = 0;

	if (!s) {
		close_fd(listen_fd);
		return -ENOMEM;
	}
	s->manager = m;
	s->fd = listen_fd;
	if (s->fd < 0)
		r = make_socket(s);
	if (r == 0)
		r = uv_poll_init(m->loop, &s->poll, s->fd);
	if (r < 0) {
		if (s->made)
			unlink(s->path);
		close_fd(s->fd);
		free(s->path);
		free(s);
		return r;
	}
	uv_timer_init(m->loop, &s->pause);
	s->poll.data = s->pause.data = s;
	s->handles = 2;
	uv_poll_start(&s->poll, UV_READABLE, on_connection);
	*ret = s;
	return 0;
}

struct server *server_free(struct server *s)
{
	if (!s)
		return NULL;
	if (s->made && rundir_is_ours(s->manager->rundir))
		unlink(s->path);
	uv_close((uv_handle_t *)&s->poll, on_closed);
	uv_close((uv_handle_t *)&s->pause, on_closed);
	return NULL;
}
