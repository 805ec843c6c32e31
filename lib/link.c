/* SPDX-License-Identifier: MIT */

#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>

#include "cancel.h"
#include "core/step.h"
#include "core/util.h"

/* Between two attempts to connect while the daemon's backlog is full. */
#define CONNECT_RETRY_MS 10

/* Messages that one reads who only looks. */
#define READ_MAX 256

uint64_t link_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* ------------------------------------------------------------------ waking */

/* Waiters sleep on one futex, but are woken by what they wait for: each listens for one bit of it.
 */
static uint32_t bit_of(const void *word)
{
	return UINT32_C(1) << ((uintptr_t)word / sizeof(uint64_t) % 32);
}

static void wake(struct link *l, int how_many, uint32_t bits)
{
	syscall(SYS_futex, &l->progress, FUTEX_WAKE_BITSET | FUTEX_PRIVATE_FLAG, how_many, NULL,
		NULL, bits);
}

static void sleep_until(struct link *l, uint32_t progress, uint64_t deadline_usec, uint32_t bits)
{
	struct timespec t = {.tv_sec = (time_t)(deadline_usec / 1000000),
		.tv_nsec = (long)(deadline_usec % 1000000) * 1000};

	syscall(SYS_futex, &l->progress, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, progress, &t, NULL,
		bits);
}

void link_wake(struct link *l, const void *word)
{
	int saved = errno;

	atomic_fetch_add(&l->progress, 1);
	if (atomic_load(&l->waiters) > 0)
		wake(l, INT_MAX, bit_of(word));
	errno = saved;
}

/* The reader's place is free: one of those who sleep takes it. */
static void pass_on(struct link *l)
{
	if (atomic_load(&l->waiters) == 0)
		return;
	atomic_fetch_add(&l->progress, 1);
	wake(l, 1, FUTEX_BITSET_MATCH_ANY);
}

static bool become_reader(struct link *l)
{
	uint32_t free_place = 0;

	return atomic_compare_exchange_strong(&l->reader, &free_place, 1);
}

static void stop_reading(struct link *l)
{
	atomic_store(&l->reader, 0);
	pass_on(l);
}

/* Everyone who waits is to look. */
static void lose(struct link *l)
{
	if (atomic_exchange(&l->lost, true))
		return;
	atomic_fetch_add(&l->progress, 1);
	wake(l, INT_MAX, FUTEX_BITSET_MATCH_ANY);
}

/* ------------------------------------------------------------------ the socket */

int link_raise_fd(int fd)
{
	int raised;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	raised = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (raised < 0)
		raised = -errno;
	close_fd(fd);
	return raised;
}

static int try_connect(const char *path, int *ret_fd)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	_cleanup_(close_fdp) int fd = -1;

	if (strlen(path) >= sizeof(sa.sun_path))
		return -EINVAL;
	strcpy(sa.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	fd = link_raise_fd(fd);
	if (fd < 0)
		return fd;
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return -errno;
	*ret_fd = take_fd(&fd);
	return 0;
}

int link_connect(struct link *l, const char *path, uint64_t deadline_usec)
{
	l->buf = malloc(WIRE_MAX);
	if (!l->buf)
		return -ENOMEM;
	for (;;) {
		int r = try_connect(path, &l->fd);

		if (r == -ENOENT || r == -ECONNREFUSED || r == -ENOTDIR || r == -EPROTOTYPE)
			return -ENOTCONN;
		if (r != -EAGAIN && r != -EINTR)
			return r;
		if (link_now() >= deadline_usec)
			return -ETIMEDOUT;
		poll(NULL, 0, CONNECT_RETRY_MS);
	}
}

void link_shut(struct link *l)
{
	lose(l);
	if (l->fd >= 0)
		shutdown(l->fd, SHUT_RDWR);
}

void link_close(struct link *l)
{
	l->fd = close_fd(l->fd);
	free(l->buf);
	l->buf = NULL;
}

int link_send_nowait(struct link *l, const void *message, size_t n)
{
	NO_CANCELLATION;
	int saved = errno, r = 0;

	if (atomic_load(&l->lost))
		return -ENOTCONN;
	if (l->owner.deliver)
		return l->owner.deliver(l->owner.userdata, message, n, false);
	TALLY_STEP();
	if (send(l->fd, message, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		r = errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? -EAGAIN : -ENOTCONN;
	TALLY_STEP();
	if (r == -ENOTCONN)
		lose(l);
	errno = saved;
	return r;
}

/* Milliseconds for poll(), rounded up; 0: the time is over. */
static int remaining_ms(uint64_t deadline_usec)
{
	uint64_t now = link_now(), ms;

	if (now >= deadline_usec)
		return 0;
	ms = (deadline_usec - now + 999) / 1000;
	return ms < INT_MAX ? (int)ms : INT_MAX;
}

int link_send(struct link *l, const void *message, size_t n, uint64_t deadline_usec)
{
	NO_CANCELLATION;
	if (l->owner.deliver)
		return atomic_load(&l->lost)
			? -ENOTCONN
			: l->owner.deliver(l->owner.userdata, message, n, true);
	for (;;) {
		struct pollfd p = {.fd = l->fd, .events = POLLOUT};
		int r = link_send_nowait(l, message, n), ms;

		if (r != -EAGAIN)
			return r;
		ms = remaining_ms(deadline_usec);
		if (ms == 0)
			return -ETIMEDOUT;
		poll(&p, 1, ms);
	}
}

/* ------------------------------------------------------------------ reading */

static unsigned take_fds(struct msghdr *msg, int fds[static WIRE_FDS_MAX])
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	size_t n;

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return 0;
	n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(fds, CMSG_DATA(c), n * sizeof(int));
	return (unsigned)n;
}

/* Whether the next message can be handled without waiting; then the lock that it needs is held. */
static bool lock_for_next(struct link *l, bool *ret_locked)
{
	struct wire_header h;
	ssize_t n = recv(l->fd, &h, sizeof(h), MSG_DONTWAIT | MSG_PEEK);

	*ret_locked = false;
	/* One that comes after this look may need the lock. */
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n != sizeof(h) || h.type == WIRE_GRANT)
		return true;
	*ret_locked = l->owner.lock(l->owner.userdata, false);
	return *ret_locked;
}

/* Receives a message into the reader's buffer; returns its size. -EAGAIN: there is none; -ENOTCONN:
 * the daemon is gone, or what comes is not the protocol. */
static ssize_t receive(struct link *l, int fds[static WIRE_FDS_MAX])
{
	union {
		char buf[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = l->buf, .iov_len = WIRE_MAX};
	struct msghdr msg = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf)};
	ssize_t n = recvmsg(l->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	unsigned n_fds;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return -EAGAIN;
	if (n <= 0)
		return -ENOTCONN;
	/* Fewer descriptors than were sent (this process has too many) is the owner's affair. */
	n_fds = take_fds(&msg, fds);
	if ((msg.msg_flags & MSG_TRUNC) || wire_check_answer(l->buf, (size_t)n, n_fds) < 0)
		return -ENOTCONN;
	return n;
}

/* Reads one message and has it handled; `locked`: the owner's lock is held, and will be released.
 */
static int read_one(struct link *l, bool locked)
{
	const struct link_owner *o = &l->owner;
	int fds[WIRE_FDS_MAX] = {-1, -1, -1};
	ssize_t n = receive(l, fds);

	if (n >= 0) {
		if (!locked && ((const struct wire_header *)(void *)l->buf)->type != WIRE_GRANT)
			locked = o->lock(o->userdata, true);
		o->on_message(o->userdata, l->buf, (size_t)n, fds);
	}
	if (locked)
		o->unlock(o->userdata);
	for (unsigned i = 0; i < WIRE_FDS_MAX; i++)
		close_fd(fds[i]);
	return n < 0 ? (int)n : 0;
}

/* The reader's turn: until its own answer is there, the time is over, or the daemon is gone. */
static void read_for_all(
	struct link *l, const _Atomic uint64_t *word, uint64_t seen, uint64_t deadline_usec)
{
	while (atomic_load(word) == seen && !atomic_load(&l->lost)) {
		struct pollfd p = {.fd = l->fd, .events = POLLIN};
		int r = read_one(l, false), ms;

		if (r == -ENOTCONN)
			lose(l);
		if (r != -EAGAIN)
			continue;
		ms = remaining_ms(deadline_usec);
		if (ms == 0)
			return;
		poll(&p, 1, ms);
	}
}

int link_wait(struct link *l, const _Atomic uint64_t *word, uint64_t seen, uint64_t deadline_usec)
{
	NO_CANCELLATION;
	int r;

	atomic_fetch_add(&l->waiters, 1);
	for (;;) {
		uint32_t progress = atomic_load(&l->progress);

		if (atomic_load(word) != seen)
			r = 0;
		else if (atomic_load(&l->lost))
			r = -ENOTCONN;
		else if (link_now() >= deadline_usec)
			r = -ETIMEDOUT;
		else {
			if (l->fd >= 0 && become_reader(l)) {
				read_for_all(l, word, seen, deadline_usec);
				stop_reading(l);
			} else
				sleep_until(l, progress, deadline_usec, bit_of(word));
			continue;
		}
		break;
	}
	atomic_fetch_sub(&l->waiters, 1);
	/* It may have been woken to take the reader's place, and leaves. */
	if (atomic_load(&l->reader) == 0)
		pass_on(l);
	return r;
}

void link_read(struct link *l)
{
	NO_CANCELLATION;
	int r = 0;

	if (l->fd < 0 || atomic_load(&l->lost) || !become_reader(l))
		return;
	for (unsigned i = 0; i < READ_MAX && r == 0; i++)
		r = read_one(l, false);
	if (r == -ENOTCONN)
		lose(l);
	stop_reading(l);
}

void link_read_nowait(struct link *l)
{
	NO_CANCELLATION;
	int saved = errno, r = 0;
	bool locked;

	if (l->fd < 0 || atomic_load(&l->lost) || !become_reader(l))
		return;
	while (r == 0 && lock_for_next(l, &locked))
		r = read_one(l, locked);
	if (r == -ENOTCONN)
		lose(l);
	stop_reading(l);
	errno = saved;
}
