/* SPDX-License-Identifier: MIT */

/*
 * The life of a session: sockets, process, the ways in which it can end. What it holds
 * (attachments, keys, rows) is in attachment.c; what it says is read in server.c.
 */

#include "session.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "attachment.h"
#include "callback.h"
#include "channel.h"
#include "collect.h"
#include "key.h"
#include "log.h"
#include "loglimit.h"
#include "packet.h"
#include "queue.h"
#include "request.h"
#include "server.h"
#include "user.h"
#include "watch.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

#define HELLO_TIMEOUT_MS 5000

static void maybe_free(struct session *s)
{
	if (s->handles > 0 || !s->released)
		return;
	close_fd(s->fd);
	close_fd(s->pidfd);
	packet_drop_all(s);
	if (s->user)
		user_give(s->user, s->turned_away ? USER_TURNED_AWAY : USER_SESSIONS, 1);
	user_unref(s->user);
	free(s->groups);
	free(s);
}

static void on_handle_closed(uv_handle_t *h)
{
	struct session *s = h->data;

	s->handles--;
	maybe_free(s);
}

/* All libuv handles of a session say where they belong, and are counted. */
static void own_handle(struct session *s, void *handle)
{
	((uv_handle_t *)handle)->data = s;
	s->handles++;
}

static void close_handle(void *handle)
{
	uv_handle_t *h = handle;

	if (h->data && !uv_is_closing(h))
		uv_close(h, on_handle_closed);
}

static void close_handles(struct session *s)
{
	close_handle(&s->poll);
	close_handle(&s->pid_poll);
	close_handle(&s->timer);
}

/* The drainer is out of it: rows go back, then memory. */
static void release(struct session *s)
{
	s->collect = collect_free(s->collect);
	attachment_release_all(s);
	for (uint32_t e = 1; e < s->segment.n_extents; e++) {
		close_fd(s->extent_fds[e][0]);
		close_fd(s->extent_fds[e][1]);
	}
	rstat_end(&s->rstat);
	segment_unmap(&s->segment);
	free(s->keys);
	free(s->free_keys);
	queue_kick(s->manager);
	s->released = true;
	maybe_free(s);
}

/* It is told nothing any more, and asked for nothing. */
static void drop_waits(struct session *s)
{
	request_drop_session(s);
	callback_end_all(s);
	watches_remove_all(s);
}

void session_end(struct session *s, const char *why)
{
	struct manager *m = s->manager;

	if (s->state == SESSION_ENDING)
		return;
	if (s->state != SESSION_NEW)
		log_debug("session %" PRIu64 " of pid %d (%s) ended: %s", s->number, (int)s->pid,
			s->name, why);
	s->state = SESSION_ENDING;
	TAILQ_REMOVE(&m->sessions, s, entry);
	m->n_sessions--;
	drop_waits(s);
	s->channel = channel_free(s->channel);
	close_handles(s);
	if (s->in_drainer == 0)
		release(s);
}

void session_left_drainer(struct session *s)
{
	s->in_drainer--;
	if (s->state == SESSION_ENDING) {
		if (s->in_drainer == 0)
			release(s);
		return;
	}
	attachment_finish_detaches(s);
}

static void on_grace_over(uv_timer_t *t)
{
	session_end(t->data, "hung up, and has not come back within `grace`");
}

static void on_hello_late(uv_timer_t *t)
{
	session_end(t->data, "said no HELLO");
}

/* Both sockets are gone and the process lives: it has exec'ed, or closed everything. */
static void start_grace(struct session *s)
{
	uint64_t ms = s->manager->conf->grace_usec / 1000;

	uv_timer_start(&s->timer, on_grace_over, ms, 0);
}

void session_hang_up(struct session *s, const char *why)
{
	if (s->state == SESSION_NEW) {
		session_end(s, why);
		return;
	}
	if (s->state != SESSION_LIVE)
		return;
	s->state = SESSION_HUNG_UP;
	drop_waits(s);
	close_handle(&s->poll);
	s->fd = close_fd(s->fd);
	packet_drop_all(s);
	if (s->event_gone)
		start_grace(s);
}

void session_break(struct session *s)
{
	if (loglimit_allows(s->uid))
		log_warning("pid %d (%s) broke the protocol; its session is ended", (int)s->pid,
			s->name);
	session_end(s, "it broke the protocol");
}

static void on_channel_gone(void *userdata, bool broken)
{
	struct session *s = userdata;

	if (broken) {
		session_break(s);
		return;
	}
	s->event_gone = true;
	if (s->state == SESSION_HUNG_UP)
		start_grace(s);
}

static bool on_report(void *userdata, const void *message, size_t n)
{
	struct wire_reclaimed m;

	(void)n;
	memcpy(&m, message, sizeof(m));
	callback_answer(userdata, &m);
	return true;
}

static void on_process_gone(uv_poll_t *p, int status, int events)
{
	(void)status;
	(void)events;
	session_end(p->data, "its process has ended");
}

static void on_socket(uv_poll_t *p, int status, int events)
{
	struct session *s = p->data;

	if (status < 0) {
		session_hang_up(s, "its socket failed");
		return;
	}
	if (events & UV_WRITABLE) {
		if (packet_flush(s) < 0) {
			session_hang_up(s, "it cannot be sent to");
			return;
		}
		session_watch_socket(s);
		if (STAILQ_EMPTY(&s->packets))
			watches_answers_sent(s);
	}
	if (events & (UV_READABLE | UV_DISCONNECT))
		server_read(s);
}

void session_watch_socket(struct session *s)
{
	uv_poll_start(&s->poll, STAILQ_EMPTY(&s->packets) ? UV_READABLE : UV_WRITABLE, on_socket);
}

/* A descriptor of the very process that connected; by its number where the kernel cannot say. */
static int open_pidfd(int fd, pid_t pid)
{
	socklen_t n = sizeof(int);
	int pidfd;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &n) == 0)
		return pidfd;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	return pidfd < 0 ? -errno : pidfd;
}

/* The kernel allows 65536, and knows how many there are. */
static int read_groups(struct session *s)
{
	socklen_t n = 0;

	if (getsockopt(s->fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &n) == 0)
		return 0;
	if (errno != ERANGE)
		return -errno;
	s->groups = malloc(n);
	if (!s->groups)
		return -ENOMEM;
	if (getsockopt(s->fd, SOL_SOCKET, SO_PEERGROUPS, s->groups, &n) < 0)
		return -errno;
	s->n_groups = n / sizeof(*s->groups);
	return 0;
}

/* One too many is kept for a moment to be told, if there are not too many of those either. */
static int open_account(struct session *s)
{
	struct user *user;
	int r = user_get(s->manager->users, s->uid, &user);

	if (r < 0)
		return r;
	r = user_take(user, USER_SESSIONS, 1);
	if (r < 0) {
		s->turned_away = true;
		r = user_take(user, USER_TURNED_AWAY, 1);
	}
	if (r < 0)
		return user_unref(user), r;
	s->user = user;
	return 0;
}

static int identify(struct session *s)
{
	struct ucred cred;
	socklen_t n = sizeof(cred);
	int r;

	if (getsockopt(s->fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
		return -errno;
	if (cred.pid <= 0)
		return -ESRCH;
	s->pid = cred.pid;
	s->uid = cred.uid;
	s->gid = cred.gid;
	r = open_account(s);
	if (r < 0)
		return r;
	r = read_groups(s);
	if (r < 0)
		return r;
	r = open_pidfd(s->fd, s->pid);
	if (r < 0)
		return r;
	s->pidfd = r;
	return 0;
}

static int watch(struct session *s, uv_poll_t *poll, int fd, int events, uv_poll_cb cb)
{
	int r = uv_poll_init(s->manager->loop, poll, fd);

	if (r < 0)
		return r;
	own_handle(s, poll);
	return uv_poll_start(poll, events, cb);
}

int session_new(struct manager *m, int fd, struct session **ret)
{
	struct session *s = calloc(1, sizeof(*s));
	int r;

	if (!s) {
		close_fd(fd);
		return -ENOMEM;
	}
	*s = (struct session){.manager = m, .fd = fd, .pidfd = -1};
	s->number = ++m->last_session;
	s->since_usec = manager_now();
	TAILQ_INIT(&s->attachments);
	TAILQ_INIT(&s->watches);
	TAILQ_INIT(&s->lines);
	STAILQ_INIT(&s->packets);
	TAILQ_INSERT_TAIL(&m->sessions, s, entry);
	m->n_sessions++;
	m->stats.sessions_total++;

	r = identify(s);
	if (r >= 0)
		r = uv_timer_init(m->loop, &s->timer);
	if (r >= 0) {
		own_handle(s, &s->timer);
		uv_timer_start(&s->timer, on_hello_late, HELLO_TIMEOUT_MS, 0);
		r = watch(s, &s->pid_poll, s->pidfd, UV_READABLE, on_process_gone);
	}
	if (r >= 0)
		r = watch(s, &s->poll, s->fd, UV_READABLE, on_socket);
	if (r < 0) {
		if (r != -ESRCH && r != -EDQUOT)
			log_warning("pid %d cannot be served: %s", (int)s->pid, strerror(-r));
		session_end(s, "it could not be set up");
		return r;
	}
	*ret = s;
	return 0;
}

static void fill_info(struct session *s)
{
	struct segment_info *info = segment_info(&s->segment);

	info->session = s->number;
	info->generation = s->manager->generation;
	atomic_store(&info->flushed_usec, manager_now());
	session_publish_marks(s);
}

void session_publish_marks(struct session *s)
{
	segment_set_batch(segment_info(&s->segment), s->manager->conf->batch);
}

int session_hello(struct session *s, const char *name, bool has_rseq, int ret_fds[static 3])
{
	_cleanup_(close_fdp) int theirs = -1, rw = -1, ro = -1;
	const struct channel_owner owner = {
		.on_report = on_report, .on_gone = on_channel_gone, .userdata = s};
	int fds[2], r;

	if (s->turned_away)
		return -EDQUOT;
	r = segment_extend(&s->segment, s->manager->n_cpus,
		has_rseq && s->manager->kind == PERCPU_RSEQ ? PERCPU_RSEQ : PERCPU_ATOMIC, fds);
	if (r < 0)
		return r;
	s->stocks = segment_stocks(&s->segment);
	rw = fds[0];
	ro = fds[1];
	s->keys = calloc(1, sizeof(*s->keys));
	if (!s->keys)
		return -ENOMEM;
	r = rstat_begin(&s->rstat, &s->manager->rstats, &s->segment);
	if (r < 0)
		return r;
	r = channel_new(s->manager->loop, &owner, &theirs, &s->channel);
	if (r < 0)
		return r;

	snprintf(s->name, sizeof(s->name), "%s", name);
	fill_info(s);
	uv_timer_stop(&s->timer);
	s->state = SESSION_LIVE;
	ret_fds[0] = take_fd(&rw);
	ret_fds[1] = take_fd(&ro);
	ret_fds[2] = take_fd(&theirs);
	return 0;
}

uint32_t session_read_taken(struct rstat *r, struct rstat_seen *ret_seen)
{
	struct session *s = container_of(r, struct session, rstat);
	uint32_t n = 0;

	for (uint32_t i = 1; s->in_drainer > 0 && i <= s->segment.n_keys; i++) {
		const struct ledger_copy *c = s->keys[i] ? ledger_read(s->keys[i]->row) : NULL;
		const struct stock *stock;

		if (!c || c->intent != LEDGER_SLOT)
			continue;
		stock = &s->stocks.pages[c->intent_cpu].stock;
		if (word_parity(percpu_load(&stock->slot[c->intent_slot])) != c->intent_parity)
			continue;
		if (ret_seen)
			ret_seen[n] = (struct rstat_seen){i, c->intent_bytes};
		n++;
	}
	return n;
}

struct rstat_key *session_find_stat(struct rstat *r, uint32_t number)
{
	struct session *s = container_of(r, struct session, rstat);
	struct key *k = number <= s->segment.n_keys ? s->keys[number] : NULL;

	return k ? &k->stat : NULL;
}
