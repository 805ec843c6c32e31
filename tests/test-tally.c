/* SPDX-License-Identifier: MIT */

/*
 * The library as a program sees it: every function of tally.h over a real daemon, with every error
 * that the header promises, and the promises that no single call shows: which thread allocates,
 * what a signal handler may do, what a cancelled thread leaves behind.
 */

#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/item.h"
#include "core/path.h"
#include "core/util.h"
#include "core/wire.h"

#define NOBODY 65534
#define NOT_LIMITED 77
#define K UINT64_C(1024)
#define M (K * K)

static const char config[] = "[daemon]\n"
			     "flush_interval = 1h\n" /* figures change when a test asks for it */
			     "grace = 100ms\n"
			     "max_pools_per_uid = 100000\n"
			     "export =\n"
			     "[stat conn]\n"
			     "type = gauge\n";

static struct harness h;

static int start(void **state)
{
	(void)state;
	harness_start(&h, config);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	harness_stop(&h);
	return 0;
}

/* ------------------------------------------------------------------ helpers */

/* For children and threads, where cmocka's assertions may not be used. */
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

static struct tally_pool *attach_limited(struct tally *t, const char *path, const char *max)
{
	struct tally_pool *p = harness_attach(t, path);

	assert_int_equal(tally_set(t, path, "memory.max", max), 0);
	return p;
}

static tally_item item(struct tally *t, const char *name)
{
	tally_item i;

	assert_int_equal(tally_item_lookup(t, name, &i), 0);
	return i;
}

static bool has_text(struct tally *t, const char *path, const char *file, const char *text)
{
	_cleanup_(freep) char *all = harness_get(t, path, file);

	return strstr(all, text) != NULL;
}

/* A condition: in the pool so many requests wait at the daemon. */
struct waiters {
	struct tally *tally;
	const char *path;
	unsigned n;
};

static int are_waiting(void *userdata)
{
	struct waiters *w = userdata;

	return harness_waiting(w->tally, w->path) == w->n;
}

static void wait_for_waiters(struct tally *t, const char *path, unsigned n)
{
	struct waiters w = {t, path, n};

	assert_true(harness_wait(are_waiting, &w, HARNESS_PATIENCE_MS));
}

/* A condition: so much is held in the pool. */
struct holding {
	struct tally *tally;
	const char *path;
	uint64_t bytes;
};

static int is_held(void *userdata)
{
	struct holding *w = userdata;

	return harness_current(w->tally, w->path) == w->bytes;
}

static void wait_for_current(struct tally *t, const char *path, uint64_t bytes)
{
	struct holding w = {t, path, bytes};

	assert_true(harness_wait(is_held, &w, HARNESS_PATIENCE_MS));
}

struct trying {
	struct tally_pool *pool;
	tally_item item;
	uint64_t bytes;
	int result;
};

static int try_is_decided(void *userdata)
{
	struct trying *w = userdata;

	w->result = tally_try_charge_item(w->pool, w->item, w->bytes);
	return w->result != -EAGAIN;
}

/* What tally_try_charge_item() says when it no longer says -EAGAIN. */
static int try_until_decided(struct tally_pool *p, tally_item i, uint64_t bytes)
{
	struct trying w = {.pool = p, .item = i, .bytes = bytes};

	harness_wait(try_is_decided, &w, HARNESS_PATIENCE_MS);
	return w.result;
}

/* ------------------------------------------------------------------ counting allocations */

/* Volatile: a compiler knows that malloc() changes no variable. */
static _Thread_local volatile bool counting;
static _Thread_local volatile unsigned allocations;

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif

#ifndef SANITIZED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

void *malloc(size_t n)
{
	allocations += counting;
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	allocations += counting;
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	allocations += counting;
	return __libc_realloc(p, n);
}

void *memalign(size_t alignment, size_t n)
{
	allocations += counting;
	return __libc_memalign(alignment, n);
}

void *aligned_alloc(size_t alignment, size_t n)
{
	return memalign(alignment, n);
}
#endif

static void begin_counting(void)
{
	allocations = 0;
	counting = true;
}

static unsigned end_counting(void)
{
	counting = false;
	return allocations;
}

/* Valgrind and the sanitizers have allocators of their own, which nothing can stand in front of. */
static void need_counting(void)
{
	void *volatile p;

	begin_counting();
	p = malloc(1);
	free(p);
	if (end_counting() == 0) {
		print_message("skipped: the allocator in use cannot be watched\n");
		skip();
	}
}

/* ------------------------------------------------------------------ a thread that waits */

struct waiter {
	pthread_t thread;
	struct tally_pool *pool;
	uint64_t bytes, deadline_usec;
	atomic_int result; /* 1: has not returned */
	atomic_bool went_on;
	unsigned allocated;
};

/* A cancelled thread never leaves this frame, of which AddressSanitizer must not know therefore. */
__attribute__((no_sanitize_address)) static void *run_waiter(void *arg)
{
	struct waiter *w = arg;
	struct tally_charge_args a = {.bytes = w->bytes, .deadline_usec = w->deadline_usec};

	begin_counting();
	w->result = tally_charge_with(w->pool, &a, sizeof(a));
	w->allocated = end_counting();
	pthread_testcancel();
	w->went_on = true;
	return NULL;
}

/* Begins to charge, and returns when the daemon has `n` requests waiting there. */
static void start_waiter(struct waiter *w, struct tally_pool *p, uint64_t bytes, uint64_t usec,
	struct tally *watcher, unsigned n)
{
	*w = (struct waiter){.pool = p, .bytes = bytes, .deadline_usec = harness_now() + usec};
	w->result = 1;
	assert_int_equal(pthread_create(&w->thread, NULL, run_waiter, w), 0);
	wait_for_waiters(watcher, tally_pool_path(p), n);
}

static int join_waiter(struct waiter *w)
{
	assert_int_equal(pthread_join(w->thread, NULL), 0);
	return w->result;
}

/* ------------------------------------------------------------------ a server that is none */

struct impostor {
	char dir[64], address[128];
	int fd;
	pthread_t thread;
	const void *answer; /* NULL: hangs up */
	size_t n;           /* 0: says nothing */
};

static void *run_impostor(void *arg)
{
	struct impostor *s = arg;
	int fd = accept(s->fd, NULL, NULL);
	char buf[256];

	while (recv(fd, buf, sizeof(buf), 0) > 0) {
		if (!s->answer)
			break;
		if (s->n > 0)
			send(fd, s->answer, s->n, MSG_NOSIGNAL);
	}
	close(fd);
	return NULL;
}

static void start_impostor(struct impostor *s)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};

	strcpy(s->dir, "/tmp/tally-test-XXXXXX");
	assert_non_null(mkdtemp(s->dir));
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/s", s->dir);
	snprintf(s->address, sizeof(s->address), "unix:%s", sa.sun_path);
	s->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_true(s->fd >= 0);
	assert_int_equal(bind(s->fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(s->fd, 0), 0);
}

static void stop_impostor(struct impostor *s)
{
	close(s->fd);
	assert_int_equal(unlink(s->address + strlen("unix:")), 0);
	assert_int_equal(rmdir(s->dir), 0);
}

static void open_impostor(const void *answer, size_t n, uint64_t timeout_usec, int error)
{
	struct tally_options o = {.connect_timeout_usec = timeout_usec};
	struct impostor s = {.answer = answer, .n = n};
	struct tally *t = (struct tally *)&s;

	start_impostor(&s);
	o.address = s.address;
	assert_int_equal(pthread_create(&s.thread, NULL, run_impostor, &s), 0);
	assert_int_equal(tally_open_with(&o, sizeof(o), &t), error);
	assert_ptr_equal(t, &s);
	assert_int_equal(pthread_join(s.thread, NULL), 0);
	stop_impostor(&s);
}

/* ------------------------------------------------------------------ opening */

static void test_addresses(void **state)
{
	static const struct {
		const char *address;
		uint64_t flags;
		int error;
	} cases[] = {
		{"unix:", 0, -EINVAL},
		{"unix", 0, -EINVAL},
		{"/run/tallyd/tallyd.sock", 0, -EINVAL},
		{"tcp:localhost", 0, -EINVAL},
		{"embedded", 0, -EINVAL},
		{"embedded:x", 0, -EINVAL},
		{"embedded:", 2, -EINVAL},
		{"unix:/nonexistent/tallyd.sock", 0, -ENOTCONN},
		{"unix:/dev/null/tallyd.sock", 0, -ENOTCONN},
		{"unix:/tmp", 0, -ENOTCONN}, /* there, and no socket */
		{"unix:/nonexistent/s", TALLY_FAIL_OPEN, -EOPNOTSUPP},
		{"unix:/nonexistent/s", 2, -EINVAL},
		{"unix:/nonexistent/s", UINT64_C(1) << 63, -EINVAL},
	};
	struct tally *untouched = (struct tally *)&untouched, *t = untouched;
	char too_long[256] = "unix:/";

	(void)state;
	for (size_t i = 0; i < ELEMENTS(cases); i++)
		assert_int_equal(tally_open(cases[i].address, cases[i].flags, &t), cases[i].error);
	memset(too_long + 6, 'a', sizeof(too_long) - 7);
	assert_int_equal(tally_open(too_long, 0, &t), -EINVAL);
	assert_ptr_equal(t, untouched);
}

static void test_default_address(void **state)
{
	struct tally_options o = {0};
	struct tally *t;

	(void)state;
	setenv("TALLY_ADDRESS", h.address, 1);
	assert_int_equal(tally_open(NULL, 0, &t), 0);
	assert_null(tally_close(t));
	/* a structure of size 0 is all defaults */
	assert_int_equal(tally_open_with(&o, 0, &t), 0);
	tally_close(t);
	setenv("TALLY_ADDRESS", "tcp:localhost", 1);
	assert_int_equal(tally_open(NULL, 0, &t), -EINVAL);
	/* what is said holds over the environment */
	assert_int_equal(tally_open(h.address, 0, &t), 0);
	tally_close(t);
	unsetenv("TALLY_ADDRESS");
}

static void open_as(const char *name, int error, const char *shown)
{
	struct tally_options o = {.address = h.address, .name = name};
	char wanted[128];
	struct tally_pool *p;
	struct tally *t;

	assert_int_equal(tally_open_with(&o, sizeof(o), &t), error);
	if (error < 0)
		return;
	p = harness_attach(t, "/named");
	snprintf(wanted, sizeof(wanted), " name=%s pid=%d ", shown, (int)getpid());
	assert_true(has_text(t, "/named", "pool.clients", wanted));
	tally_detach(p);
	tally_close(t);
}

static void test_names(void **state)
{
	char name[WIRE_NAME_MAX + 2] = {0};

	(void)state;
	memset(name, 'n', WIRE_NAME_MAX + 1);
	open_as(name, -EINVAL, NULL);
	open_as(name + 1, 0, name + 1);
	open_as("two words", 0, "two%20words");
	open_as(NULL, 0, program_invocation_short_name);
}

static int open_with_long_program_name(void *userdata)
{
	static char name[256];
	struct tally_pool *p;
	struct tally *t;

	(void)userdata;
	memset(name, 'p', sizeof(name) - 1);
	program_invocation_short_name = name;
	CHECK(tally_open(h.address, 0, &t) == 0);
	name[WIRE_NAME_MAX] = '\0';
	CHECK(tally_attach(t, "/long-name", TALLY_CREATE, &p) == 0);
	CHECK(has_text(t, "/long-name", "pool.clients", name));
	tally_detach(p);
	tally_close(t);
	return 0;
}

/* Whoever gives no name cannot help how long the program's is. */
static void test_long_program_name(void **state)
{
	(void)state;
	harness_join(harness_fork(open_with_long_program_name, NULL), 0);
}

static void test_options(void **state)
{
	struct {
		struct tally_options known;
		uint64_t unknown;
	} o = {.known = {.address = h.address}};
	struct tally *t;

	(void)state;
	assert_int_equal(tally_open_with(&o.known, offsetof(struct tally_options, name), &t), 0);
	tally_close(t);
	assert_int_equal(tally_open_with(&o.known, sizeof(o), &t), 0);
	tally_close(t);
	o.unknown = UINT64_C(1) << 63;
	assert_int_equal(tally_open_with(&o.known, sizeof(o), &t), -E2BIG);
	o.known.fail_open_max = 1;
	assert_int_equal(tally_open_with(&o.known, sizeof(o.known), &t), -EINVAL);
	/* what lies behind the size is not looked at */
	assert_int_equal(
		tally_open_with(&o.known, offsetof(struct tally_options, fail_open_max), &t), 0);
	tally_close(t);
	o.known = (struct tally_options){.address = h.address, .config = ""};
	assert_int_equal(tally_open_with(&o.known, sizeof(o.known), &t), -EINVAL);
	o.known = (struct tally_options){.address = h.address, .flags = TALLY_FAIL_OPEN};
	assert_int_equal(tally_open_with(&o.known, sizeof(o.known), &t), -EOPNOTSUPP);
	o.known.flags = 4;
	assert_int_equal(tally_open_with(&o.known, sizeof(o.known), &t), -EINVAL);
}

static void test_servers_that_fail(void **state)
{
	struct wire_welcome w = {.h = WIRE_HEADER(WIRE_WELCOME, struct wire_welcome, 1),
		.status = -EPROTO,
		.version = WIRE_VERSION + 1};

	(void)state;
	open_impostor(&w, sizeof(w), 0, -EPROTO);
	w.status = -ENOMEM;
	open_impostor(&w, sizeof(w), 0, -ENOMEM);
	open_impostor(NULL, 0, 0, -ENOTCONN);
	open_impostor("", 0, 100000, -ETIMEDOUT);
	open_impostor("no message", 10, 0, -ENOTCONN);
}

/* Connections that nobody accepts fill the backlog; then not even connecting ends. */
static void test_full_backlog(void **state)
{
	struct impostor s = {0};
	struct tally_options o = {.address = s.address, .connect_timeout_usec = 100000};
	struct tally *t;

	(void)state;
	start_impostor(&s);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(tally_open_with(&o, sizeof(o), &t), -ETIMEDOUT);
	stop_impostor(&s);
}

static int open_as_nobody(void *userdata)
{
	int *error = userdata;
	struct tally *t;

	CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
	CHECK(tally_open(h.address, 0, &t) == *error);
	if (*error == 0)
		tally_close(t);
	return 0;
}

static void test_other_users(void **state)
{
	int error = -EACCES;

	(void)state;
	if (geteuid() != 0) {
		print_message("skipped: only root can become another user\n");
		skip();
	}
	harness_join(harness_fork(open_as_nobody, &error), 0);
	assert_int_equal(chmod(h.dir, 0711), 0);
	assert_int_equal(chmod(h.address + strlen("unix:"), 0666), 0);
	error = 0;
	harness_join(harness_fork(open_as_nobody, &error), 0);
	assert_int_equal(chmod(h.address + strlen("unix:"), 0600), 0);
	error = -EACCES;
	harness_join(harness_fork(open_as_nobody, &error), 0);
	assert_int_equal(chmod(h.address + strlen("unix:"), 0666), 0);
	assert_int_equal(chmod(h.dir, 0700), 0);
}

static int allow_descriptors(void)
{
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	return 0;
}

/* Leaves room for so many more descriptors. */
static int leave_descriptors(unsigned n)
{
	struct rlimit limit;
	int first;

	CHECK(allow_descriptors() == 0);
	first = dup(0);
	CHECK(first >= 0);
	CHECK(close_range((unsigned)first, ~0U, 0) == 0);
	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = (rlim_t)first + n;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	return 0;
}

static int open_with_few_descriptors(void *userdata)
{
	(void)userdata;
	for (unsigned n = 0; n <= 4; n++) {
		struct tally *t = NULL;
		int r;

		CHECK(leave_descriptors(n) == 0);
		r = tally_open(h.address, 0, &t);
		if (n >= 4)
			CHECK(r == 0);
		else if (r != -EMFILE) {
			fprintf(stderr, "with room for %u descriptors opening says %d\n", n, r);
			return 1;
		}
		tally_close(t);
	}
	return 0;
}

/* Whether the limit also holds for descriptors that come over a socket: not under valgrind. */
static int descriptors_are_limited(void *userdata)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr c;
	} control = {.c = {.cmsg_level = SOL_SOCKET,
			     .cmsg_type = SCM_RIGHTS,
			     .cmsg_len = CMSG_LEN(sizeof(int))}};
	struct iovec iov = {.iov_base = "", .iov_len = 1};
	struct msghdr msg = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf)};
	struct rlimit limit;
	char byte;
	int fds[2];

	(void)userdata;
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) == 0);
	CHECK(sendmsg(fds[0], &msg, 0) == 1);
	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = 1;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	iov.iov_base = &byte;
	CHECK(recvmsg(fds[1], &msg, 0) == 1);
	return msg.msg_flags & MSG_CTRUNC ? 0 : NOT_LIMITED;
}

static void need_limited_descriptors(void)
{
	pid_t child = harness_fork(descriptors_are_limited, NULL);
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == NOT_LIMITED) {
		print_message("skipped: descriptors cannot be limited under valgrind\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_descriptors_to_open(void **state)
{
	(void)state;
	need_limited_descriptors();
	harness_join(harness_fork(open_with_few_descriptors, NULL), 0);
}

/* A process that was short of descriptors once is not lost for good. */
static int attach_with_few_descriptors(void *userdata)
{
	struct tally_pool *p;
	struct tally *t;
	int r;

	(void)userdata;
	CHECK(tally_open(h.address, 0, &t) == 0);
	CHECK(leave_descriptors(0) == 0);
	CHECK(tally_attach(t, "/few", TALLY_CREATE, &p) < 0);
	CHECK(allow_descriptors() == 0);
	r = tally_attach(t, "/few", TALLY_CREATE, &p);
	if (r < 0) {
		fprintf(stderr, "attaching says %d although there are descriptors again\n", r);
		return 1;
	}
	CHECK(tally_charge(p, 1000) == 0);
	tally_detach(p);
	tally_close(t);
	return 0;
}

static void test_descriptors_to_attach(void **state)
{
	(void)state;
	need_limited_descriptors();
	harness_join(harness_fork(attach_with_few_descriptors, NULL), 0);
}

static void test_fd(void **state)
{
	struct tally *t = harness_open(&h);
	struct pollfd p = {.fd = tally_fd(t), .events = POLLIN};

	(void)state;
	assert_true(p.fd > 2);
	assert_int_equal(fcntl(p.fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(poll(&p, 1, 0), 0);
	tally_close(t);
	assert_int_equal(fcntl(p.fd, F_GETFD), -1);
}

/* ------------------------------------------------------------------ paths */

/* "/aaa…/aaa…" of n bytes, no part longer than a part may be. */
static void make_path(char *buf, size_t n)
{
	memset(buf, 'a', n);
	buf[n] = '\0';
	for (size_t i = 0; i < n - 1; i += PATH_PART_MAX + 1)
		buf[i] = '/';
}

static void accept_path(struct tally *t, const char *path)
{
	struct tally_pool *p = (struct tally_pool *)t;
	char *text;

	assert_int_equal(tally_attach(t, path, 0, &p), -ENOENT);
	assert_ptr_equal(p, t);
	assert_int_equal(tally_get(t, path, "memory.max", 0, &text), -ENOENT);
	assert_int_equal(tally_set(t, path, "memory.max", "1"), -ENOENT);
	assert_int_equal(tally_remove(t, path, 0), -ENOENT);

	assert_int_equal(tally_attach(t, path, TALLY_CREATE, &p), 0);
	assert_string_equal(tally_pool_path(p), path);
	assert_int_equal(tally_create(t, path), -EEXIST);
	assert_int_equal(tally_set(t, path, "memory.max", "1M"), 0);
	assert_int_equal(tally_charge(p, 1000), 0);
	assert_int_equal(harness_current(t, path), 1000);
	tally_uncharge(p, 1000);
	tally_detach(p);
	assert_int_equal(tally_remove(t, path, 0), 0);

	assert_int_equal(tally_create(t, path), 0);
	assert_int_equal(tally_attach(t, path, 0, &p), 0);
	tally_detach(p);
	assert_int_equal(tally_remove(t, path, 0), 0);
}

static void refuse_path(struct tally *t, const char *path, int error)
{
	struct tally_pool *p = (struct tally_pool *)t;
	char *text = (char *)t;

	assert_int_equal(tally_attach(t, path, 0, &p), error);
	assert_int_equal(tally_attach(t, path, TALLY_CREATE, &p), error);
	assert_int_equal(tally_create(t, path), error);
	assert_int_equal(tally_get(t, path, "memory.max", 0, &text), error);
	assert_int_equal(tally_set(t, path, "memory.max", "1"), error);
	assert_int_equal(tally_remove(t, path, 0), error);
	assert_ptr_equal(p, t);
	assert_ptr_equal(text, t);
}

static void test_paths(void **state)
{
	static const char *const good[] = {"/a b", "/ ", "/...", "/.a", "/a.", "/\xc3\xa9", "/\xff",
		"/%2f", "/deep/er/and/deeper", "/memory.max", "/~"};
	static const char *const bad[] = {"", "a", "a/b", "//", "/a/", "/a//b", "/.", "/..",
		"/a/../b", "/a/.", "/a\nb", "/\x01", "/a\x1f", "/\x7f", "/\t", " /a"};
	struct tally *t = harness_open(&h);
	char path[PATH_MAX_BYTES + 2];

	(void)state;
	for (size_t i = 0; i < ELEMENTS(good); i++)
		accept_path(t, good[i]);
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		refuse_path(t, bad[i], -EINVAL);
	make_path(path, PATH_PART_MAX + 1);
	accept_path(t, path);
	make_path(path, PATH_MAX_BYTES);
	accept_path(t, path);
	make_path(path, PATH_MAX_BYTES + 1);
	refuse_path(t, path, -ENAMETOOLONG);
	make_path(path, PATH_PART_MAX + 1);
	strcat(path, "a");
	refuse_path(t, path, -ENAMETOOLONG);
	tally_close(t);
}

/* ------------------------------------------------------------------ attaching */

static void test_attach_flags(void **state)
{
	struct tally *t = harness_open(&h);
	struct tally_pool *p = (struct tally_pool *)t;

	(void)state;
	assert_int_equal(tally_attach(t, "/", 8, &p), -EINVAL);
	assert_int_equal(tally_attach(t, "/", UINT64_C(1) << 63, &p), -EINVAL);
	assert_int_equal(tally_attach(t, "/", TALLY_EPHEMERAL | TALLY_PERSIST, &p), -EINVAL);
	assert_int_equal(tally_attach(t, "/", TALLY_PERSIST | TALLY_CREATE, &p), -EOPNOTSUPP);
	assert_int_equal(tally_attach(t, NULL, 0, &p), -ENOENT);
	assert_int_equal(tally_attach(t, "/nowhere", 0, &p), -ENOENT);
	assert_int_equal(tally_attach(t, "/nowhere/below", 0, &p), -ENOENT);
	assert_ptr_equal(p, t);
	assert_int_equal(tally_attach(t, "/", 0, &p), 0);
	assert_string_equal(tally_pool_path(p), "/");
	tally_detach(p);
	tally_close(t);
}

static void test_null(void **state)
{
	struct tally *t = harness_open(&h);
	struct tally_pool *p = harness_attach(t, "/null");
	tally_item i;
	char *text;

	(void)state;
	assert_null(tally_close(NULL));
	assert_null(tally_detach(NULL));
	assert_null(tally_pool_unref(NULL));
	assert_int_equal(tally_charge_with(p, NULL, sizeof(struct tally_charge_args)), -EINVAL);
	assert_int_equal(tally_item_lookup(t, NULL, &i), -EINVAL);
	assert_int_equal(tally_get(t, NULL, "memory.max", 0, &text), -EINVAL);
	assert_int_equal(tally_get(t, "/null", NULL, 0, &text), -EINVAL);
	assert_int_equal(tally_set(t, NULL, "memory.max", "1"), -EINVAL);
	assert_int_equal(tally_set(t, "/null", NULL, "1"), -EINVAL);
	assert_int_equal(tally_set(t, "/null", "memory.max", NULL), -EINVAL);
	assert_int_equal(tally_create(t, NULL), -EINVAL);
	assert_int_equal(tally_remove(t, NULL, 0), -EINVAL);
	assert_null(tally_detach(p));
	assert_null(tally_close(t));
}

static void test_same_path_twice(void **state)
{
	struct tally *t = harness_open(&h);
	struct tally_pool *a = harness_attach(t, "/twice"), *b = harness_attach(t, "/twice");

	(void)state;
	assert_ptr_not_equal(a, b);
	assert_int_equal(tally_charge(a, 1000), 0);
	assert_int_equal(tally_charge(b, 300), 0);
	assert_true(has_text(t, "/twice", "pool.clients", " held=1000 "));
	assert_true(has_text(t, "/twice", "pool.clients", " held=300 "));
	tally_detach(a);
	assert_int_equal(harness_current(t, "/twice"), 300);
	tally_detach(b);
	assert_int_equal(harness_current(t, "/twice"), 0);
	tally_close(t);
}

static void test_references(void **state)
{
	struct tally *t = harness_open(&h);
	struct tally_pool *p = harness_attach(t, "/refs");

	(void)state;
	/* all but the last reference keep it */
	assert_ptr_equal(tally_pool_ref(p), p);
	assert_int_equal(tally_charge(p, 5000), 0);
	assert_null(tally_pool_unref(p));
	assert_int_equal(harness_current(t, "/refs"), 5000);
	assert_null(tally_pool_unref(p));
	assert_int_equal(harness_current(t, "/refs"), 0);
	assert_int_equal(harness_value(t, "/refs", "cgroup.events", "populated"), 0);

	/* a detach gives back whoever still refers to it */
	p = harness_attach(t, "/refs");
	tally_pool_ref(p);
	assert_int_equal(tally_charge(p, 5000), 0);
	assert_null(tally_detach(p));
	assert_int_equal(harness_current(t, "/refs"), 0);
	assert_int_equal(harness_value(t, "/refs", "cgroup.events", "populated"), 0);
	assert_int_equal(tally_charge(p, 1), -ENODEV);
	assert_int_equal(tally_charge(p, 0), -ENODEV);
	assert_int_equal(tally_try_charge(p, 1), -ENODEV);
	assert_int_equal(tally_charge_item(p, item(t, "anon"), 1), -ENODEV);
	assert_int_equal(tally_try_charge_item(p, item(t, "anon"), 1), -ENODEV);
	tally_uncharge(p, 5000);
	tally_uncharge_item(p, item(t, "anon"), 5000);
	assert_string_equal(tally_pool_path(p), "/refs");
	assert_int_equal(harness_current(t, "/refs"), 0);
	assert_int_equal(harness_value(t, "/refs", "memory.stat", "overdraft"), 0);
	assert_int_equal(tally_remove(t, "/refs", 0), 0);
	assert_null(tally_detach(p));
	tally_close(t);
}

static void test_close(void **state)
{
	struct tally *t = harness_open(&h), *other = harness_open(&h);
	struct tally_pool *p = harness_attach(t, "/closed"), *q;
	tally_item i;
	char *text;

	(void)state;
	assert_int_equal(tally_charge(p, 7000), 0);
	assert_null(tally_close(t));
	wait_for_current(other, "/closed", 0);
	assert_int_equal(tally_charge(p, 1), -ENODEV);
	assert_int_equal(tally_try_charge(p, 1), -ENODEV);
	tally_uncharge(p, 7000);
	/* the handle keeps the memory of the session, which answers still */
	assert_int_equal(tally_attach(t, "/closed", 0, &q), -ENODEV);
	assert_int_equal(tally_item_lookup(t, "anon", &i), -ENODEV);
	assert_int_equal(tally_get(t, "/", "memory.max", 0, &text), -ENODEV);
	assert_int_equal(tally_set(t, "/", "memory.max", "max"), -ENODEV);
	assert_int_equal(tally_create(t, "/x"), -ENODEV);
	assert_int_equal(tally_remove(t, "/x", 0), -ENODEV);
	assert_string_equal(tally_pool_path(p), "/closed");
	assert_null(tally_detach(p));
	tally_close(other);
}

/* ------------------------------------------------------------------ charging */

static void test_charge(void **state)
{
	struct tally *t = harness_open(&h);
	struct tally_pool *p = harness_attach(t, "/charge/below");

	(void)state;
	assert_int_equal(tally_charge(p, 0), 0);
	assert_int_equal(tally_try_charge(p, 0), 0);
	tally_uncharge(p, 0);
	assert_int_equal(harness_current(t, "/charge/below"), 0);
	assert_int_equal(tally_charge(p, 1), 0);
	assert_int_equal(tally_charge(p, 10 * M), 0);
	assert_int_equal(harness_current(t, "/charge/below"), 10 * M + 1);
	assert_int_equal(harness_current(t, "/charge"), 10 * M + 1);
	tally_uncharge(p, 10 * M);
	assert_int_equal(harness_current(t, "/charge"), 1);
	tally_uncharge(p, 1);
	assert_int_equal(harness_current(t, "/charge/below"), 0);
	assert_int_equal(harness_current(t, "/charge"), 0);
	tally_detach(p);
	tally_close(t);
}

static void test_largest(void **state)
{
	static const uint64_t above[] = {
		TALLY_BYTES_MAX + 1, UINT64_C(1) << 62, UINT64_C(1) << 63, UINT64_MAX};
	struct tally *t = harness_open(&h);
	struct tally_pool *p = harness_attach(t, "/largest");
	tally_item anon = item(t, "anon");

	(void)state;
	for (size_t i = 0; i < ELEMENTS(above); i++) {
		struct tally_charge_args a = {.bytes = above[i]};

		assert_int_equal(tally_charge(p, above[i]), -EINVAL);
		assert_int_equal(tally_try_charge(p, above[i]), -EINVAL);
		assert_int_equal(tally_charge_item(p, anon, above[i]), -EINVAL);
		assert_int_equal(tally_try_charge_item(p, anon, above[i]), -EINVAL);
		assert_int_equal(tally_charge_with(p, &a, sizeof(a)), -EINVAL);
		tally_uncharge(p, above[i]);
	}
	assert_int_equal(harness_current(t, "/largest"), 0);
	assert_int_equal(tally_charge(p, TALLY_BYTES_MAX), 0);
	assert_int_equal(harness_current(t, "/largest"), TALLY_BYTES_MAX);
	tally_uncharge(p, TALLY_BYTES_MAX);
	assert_int_equal(harness_current(t, "/largest"), 0);
	assert_int_equal(tally_charge(p, TALLY_BYTES_MAX), 0);
	tally_uncharge(p, TALLY_BYTES_MAX - 1);
	assert_int_equal(harness_current(t, "/largest"), 1);
	tally_detach(p);
	assert_int_equal(harness_value(t, "/largest", "memory.stat", "overdraft"), 0);
	tally_close(t);
}

static void test_limit(void **state)
{
	struct tally *t = harness_open(&h);
	struct tally_pool *p = attach_limited(t, "/limit/below", "max");

	(void)state;
	assert_int_equal(tally_set(t, "/limit", "memory.max", "1M"), 0);
	assert_int_equal(tally_charge(p, M + 1), -ENOMEM);
	assert_int_equal(harness_current(t, "/limit"), 0);
	assert_int_equal(tally_charge(p, M), 0);
	assert_int_equal(tally_charge(p, 1), -ENOMEM);
	assert_int_equal(tally_charge(p, 0), 0);
	assert_int_equal(harness_current(t, "/limit"), M);
	assert_int_equal(harness_value(t, "/limit", "memory.events.local", "oom"), 2);
	assert_int_equal(harness_value(t, "/limit/below", "memory.events", "oom"), 0);
	tally_uncharge(p, 1);
	assert_int_equal(tally_charge(p, 1), 0);
	/* a limit below the usage refuses until enough has gone */
	tally_uncharge(p, 256 * K);
	assert_int_equal(tally_set(t, "/limit", "pool.drain", "1"), 0);
	assert_int_equal(tally_set(t, "/limit", "memory.max", "512K"), 0);
	assert_int_equal(tally_charge(p, 1), -ENOMEM);
	tally_uncharge(p, 256 * K);
	assert_int_equal(tally_set(t, "/limit", "pool.drain", "1"), 0);
	assert_int_equal(tally_charge(p, 1), -ENOMEM);
	tally_uncharge(p, 1);
	assert_int_equal(tally_charge(p, 1), 0);
	assert_int_equal(harness_current(t, "/limit"), 512 * K);
	tally_detach(p);
	tally_close(t);
}

static void test_try_charge(void **state)
{
	struct tally *t = harness_open(&h);
	struct tally_pool *p = attach_limited(t, "/try", "1M");

	(void)state;
	/* nothing is at hand, and what was asked for comes */
	assert_int_equal(tally_try_charge(p, 1000), -EAGAIN);
	assert_int_equal(try_until_decided(p, 0, 1000), 0);
	assert_int_equal(harness_current(t, "/try"), 1000);
	/* known to be full, until it is asked again */
	assert_int_equal(try_until_decided(p, 0, M), -ENOMEM);
	assert_int_equal(harness_current(t, "/try"), 1000);
	assert_int_equal(try_until_decided(p, 0, M - 1000), 0);
	assert_int_equal(harness_current(t, "/try"), M);
	tally_uncharge(p, M);
	assert_int_equal(tally_try_charge(p, 1000), 0);
	tally_uncharge(p, 1000);
	assert_int_equal(harness_current(t, "/try"), 0);
	tally_detach(p);
	tally_close(t);
}

static void test_items(void **state)
{
	static const char *const names[] = {
		"anon", "file", "shmem", "sock", "slab", "hugetlb", "alloc", "free", "conn"};
	struct tally *t = harness_open(&h);
	struct tally_pool *p = harness_attach(t, "/items");
	tally_item anon = item(t, "anon"), conn = item(t, "conn"), event = item(t, "alloc"), i;

	(void)state;
	for (size_t n = 0; n < ELEMENTS(names); n++)
		assert_int_not_equal(item(t, names[n]), 0);
	i = 4711;
	assert_int_equal(tally_item_lookup(t, "no_such_item", &i), -ENOENT);
	assert_int_equal(tally_item_lookup(t, "", &i), -ENOENT);
	assert_int_equal(tally_item_lookup(t, "held", &i), -ENOENT);
	assert_int_equal(i, 4711);

	assert_int_equal(tally_charge_item(p, anon, 1000), 0);
	assert_int_equal(tally_charge_item(p, conn, 200), 0);
	assert_int_equal(tally_charge_item(p, 0, 30), 0);
	assert_int_equal(tally_charge(p, 4), 0);
	assert_int_equal(harness_value(t, "/items", "memory.stat", "anon"), 1000);
	assert_int_equal(harness_value(t, "/items", "memory.stat", "conn"), 200);
	assert_int_equal(harness_value(t, "/items", "memory.stat", "held"), 1234);
	assert_int_equal(tally_try_charge_item(p, anon, 1000), 0);
	tally_uncharge_item(p, anon, 2000);
	tally_uncharge_item(p, conn, 100);
	tally_uncharge_item(p, 0, 34);
	assert_int_equal(harness_value(t, "/items", "memory.stat", "anon"), 0);
	assert_int_equal(harness_value(t, "/items", "memory.stat", "conn"), 100);
	assert_int_equal(harness_current(t, "/items"), 100);

	for (uint64_t bytes = 0; bytes < 2; bytes++) {
		struct tally_charge_args a = {.item = ITEM_MAX + 1, .bytes = bytes};

		assert_int_equal(tally_charge_item(p, event, bytes), -EINVAL);
		assert_int_equal(tally_charge_item(p, conn + 1, bytes), -EINVAL);
		assert_int_equal(tally_charge_item(p, ITEM_MAX, bytes), -EINVAL);
		assert_int_equal(tally_charge_item(p, ITEM_MAX + 1, bytes), -EINVAL);
		assert_int_equal(tally_charge_item(p, UINT32_MAX, bytes), -EINVAL);
		assert_int_equal(tally_try_charge_item(p, ITEM_MAX + 1, bytes), -EINVAL);
		assert_int_equal(tally_charge_with(p, &a, sizeof(a)), -EINVAL);
		tally_uncharge_item(p, ITEM_MAX + 1, bytes);
		tally_uncharge_item(p, event, bytes);
		tally_uncharge_item(p, ITEM_MAX, bytes);
	}
	assert_int_equal(harness_current(t, "/items"), 100);
	tally_detach(p);
	assert_int_equal(harness_current(t, "/items"), 0);
	assert_int_equal(harness_value(t, "/items", "memory.stat", "overdraft"), 0);
	tally_close(t);
}

/* A program that only ever tries gets its credit too, if it tries again, whatever the item. */
static void test_try_charge_first_of_item(void **state)
{
	struct tally *t = harness_open(&h);
	struct tally_pool *p = harness_attach(t, "/try-item");
	tally_item anon = item(t, "anon");

	(void)state;
	assert_int_equal(try_until_decided(p, anon, 1000), 0);
	assert_int_equal(harness_value(t, "/try-item", "memory.stat", "anon"), 1000);
	tally_detach(p);
	tally_close(t);
}

static void test_try_charge_no_item(void **state)
{
	struct tally *t = harness_open(&h);
	struct tally_pool *p = harness_attach(t, "/try-no-item");

	(void)state;
	assert_int_equal(try_until_decided(p, item(t, "alloc"), 1), -EINVAL);
	assert_int_equal(try_until_decided(p, ITEM_MAX, 1), -EINVAL);
	tally_detach(p);
	tally_close(t);
}

static void test_overdraft(void **state)
{
	struct tally *t = harness_open(&h);
	struct tally_pool *p = harness_attach(t, "/overdraft"),
			  *q = harness_attach(t, "/overdraft");

	(void)state;
	assert_int_equal(tally_charge(q, 500), 0);
	assert_int_equal(tally_charge(p, 1000), 0);
	tally_uncharge(p, 1700);
	tally_detach(p);
	/* the excess is dropped: it takes nothing from the other account */
	assert_int_equal(harness_current(t, "/overdraft"), 500);
	assert_int_equal(harness_value(t, "/overdraft", "memory.stat", "overdraft"), 700);
	tally_detach(q);
	assert_int_equal(harness_value(t, "/overdraft", "memory.stat", "overdraft"), 700);
	tally_close(t);
}

/* ------------------------------------------------------------------ tally_charge_with() */

static void test_charge_with(void **state)
{
	struct {
		struct tally_charge_args known;
		uint64_t unknown;
	} a = {.known = {.bytes = 1000}};
	struct tally_charge_args b = {.flags = TALLY_NOWAIT, .bytes = 1};
	struct tally *t = harness_open(&h);
	struct tally_pool *p = attach_limited(t, "/with", "1M");

	(void)state;
	a.known.item = item(t, "anon");
	assert_int_equal(tally_charge_with(p, &a.known, sizeof(a.known)), 0);
	assert_int_equal(tally_charge_with(p, &a.known, sizeof(a)), 0);
	a.unknown = 1;
	assert_int_equal(tally_charge_with(p, &a.known, sizeof(a)), -E2BIG);
	a.known.deadline_usec = UINT64_MAX;
	assert_int_equal(
		tally_charge_with(p, &a.known, offsetof(struct tally_charge_args, deadline_usec)),
		0);
	assert_int_equal(tally_charge_with(p, &a.known, 0), 0);
	assert_int_equal(harness_value(t, "/with", "memory.stat", "anon"), 3000);
	tally_uncharge_item(p, a.known.item, 3000);

	assert_int_equal(tally_charge_with(p, &b, sizeof(b)), -EAGAIN);
	b.deadline_usec = harness_now() + 1000000;
	assert_int_equal(tally_charge_with(p, &b, sizeof(b)), -EINVAL);
	b.flags = TALLY_FORCE;
	assert_int_equal(tally_charge_with(p, &b, sizeof(b)), -EINVAL);
	b = (struct tally_charge_args){.flags = 4, .bytes = 1};
	assert_int_equal(tally_charge_with(p, &b, sizeof(b)), -EINVAL);
	b.flags = UINT32_C(1) << 31 | TALLY_NOWAIT;
	assert_int_equal(tally_charge_with(p, &b, sizeof(b)), -EINVAL);
	assert_int_equal(harness_current(t, "/with"), 0);
	tally_detach(p);
	tally_close(t);
}

/* Above the limit, of items that the handle has no key of, and given back before it has. */
static void test_force(void **state)
{
	struct tally *t = harness_open(&h);
	struct tally_pool *p = attach_limited(t, "/force", "1M");
	struct tally_charge_args a = {.bytes = 10, .flags = TALLY_FORCE};
	tally_item anon = item(t, "anon"), sock = item(t, "sock");
	struct tally_item_def d = {.name = "new"};
	tally_item none = 77;

	(void)state;
	assert_int_equal(tally_charge(p, M), 0);
	assert_int_equal(tally_charge(p, 1), -ENOMEM);
	tally_charge_force(p, 0, 5 * M);
	tally_charge_force(p, sock, 1000);
	tally_charge_force(p, sock, 2000);
	tally_uncharge_item(p, sock, 500);
	a.item = anon;
	assert_int_equal(tally_charge_with(p, &a, sizeof(a)), 0);
	/* The keys come with the next answer that is read; then the owed bytes can go there. */
	harness_current(t, "/force");
	assert_int_equal(harness_current(t, "/force"), 6 * M + 2510);
	assert_int_equal(harness_value(t, "/force", "memory.stat", "sock"), 2500);
	assert_int_equal(harness_value(t, "/force", "memory.stat", "anon"), 10);
	assert_true(harness_value(t, "/force", "memory.events", "force") > 0);
	tally_charge_force(p, 65, 10);
	tally_charge_force(p, 0, TALLY_BYTES_MAX + 1);
	assert_int_equal(harness_current(t, "/force"), 6 * M + 2510);
	tally_uncharge_item(p, sock, 2500);
	tally_uncharge_item(p, anon, 10);
	tally_uncharge(p, 6 * M);
	assert_int_equal(harness_current(t, "/force"), 0);
	assert_int_equal(harness_value(t, "/force", "memory.stat", "overdraft"), 0);

	assert_int_equal(tally_item_define(t, &d, sizeof(d), &none), 0);
	assert_int_not_equal(none, 77);
	tally_detach(tally_pool_ref(p));
	tally_charge_force(p, 0, 100);
	tally_charge_force(p, sock, 100);
	assert_int_equal(harness_current(t, "/force"), 0);
	tally_pool_unref(p);
	tally_close(t);
}

static void test_deadline(void **state)
{
	struct tally *t = harness_open(&h), *watcher = harness_open(&h);
	struct tally_pool *p = attach_limited(t, "/deadline", "1M");
	struct tally_charge_args a = {.bytes = M, .deadline_usec = harness_now() + 60000000};
	struct waiter first, second;

	(void)state;
	/* what fits does not wait; what does not fit, until the deadline */
	assert_int_equal(tally_charge_with(p, &a, sizeof(a)), 0);
	a = (struct tally_charge_args){.bytes = 1, .deadline_usec = 1};
	assert_int_equal(tally_charge_with(p, &a, sizeof(a)), -ETIMEDOUT);
	a.deadline_usec = harness_now() - 1;
	assert_int_equal(tally_charge_with(p, &a, sizeof(a)), -ETIMEDOUT);
	a.deadline_usec = harness_now() + 50000;
	assert_int_equal(tally_charge_with(p, &a, sizeof(a)), -ETIMEDOUT);
	assert_true(harness_now() >= a.deadline_usec);
	wait_for_waiters(watcher, "/deadline", 0);
	assert_int_equal(harness_current(t, "/deadline"), M);

	/* first come first served: what the second wants would fit before */
	start_waiter(&first, p, 512 * K, 600000000, watcher, 1);
	start_waiter(&second, harness_attach(watcher, "/deadline"), 64 * K, 600000000, watcher, 2);
	tally_uncharge(p, 256 * K);
	wait_for_current(watcher, "/deadline", 768 * K);
	assert_int_equal(first.result, 1);
	assert_int_equal(second.result, 1);
	tally_uncharge(p, 256 * K);
	assert_int_equal(join_waiter(&first), 0);
	tally_uncharge(p, 64 * K);
	assert_int_equal(join_waiter(&second), 0);
	assert_int_equal(harness_current(t, "/deadline"), M);
	tally_uncharge(second.pool, 64 * K);
	tally_detach(second.pool);
	tally_uncharge(p, 960 * K);
	assert_int_equal(harness_current(t, "/deadline"), 0);
	tally_detach(p);
	tally_close(watcher);
	tally_close(t);
}

/* It is no cancellation point: the charge is had, and only then does the thread end. */
static void test_cancel(void **state)
{
	struct tally *t = harness_open(&h), *watcher = harness_open(&h);
	struct tally_pool *p = attach_limited(t, "/cancel", "1M");
	struct waiter w;
	void *end;

	(void)state;
	assert_int_equal(tally_charge(p, M), 0);
	start_waiter(&w, p, 1000, 600000000, watcher, 1);
	assert_int_equal(pthread_cancel(w.thread), 0);
	assert_true(has_text(watcher, "/cancel", "pool.clients", " waiting=1 "));
	assert_int_equal(w.result, 1);
	tally_uncharge(p, M);
	assert_int_equal(pthread_join(w.thread, &end), 0);
	assert_ptr_equal(end, PTHREAD_CANCELED);
	assert_int_equal(w.result, 0);
	assert_false(w.went_on);
	assert_int_equal(harness_current(t, "/cancel"), 1000);
	tally_uncharge(p, 1000);
	assert_int_equal(harness_current(t, "/cancel"), 0);
	tally_detach(p);
	tally_close(watcher);
	tally_close(t);
}

/* Who waits for a pool that is let go is told. */
static void test_detach_while_waiting(void **state)
{
	struct tally *t = harness_open(&h), *watcher = harness_open(&h);
	struct tally_pool *p = attach_limited(t, "/let-go", "1M");
	struct waiter w;

	(void)state;
	assert_int_equal(tally_charge(p, M), 0);
	start_waiter(&w, tally_pool_ref(p), 1000, 600000000, watcher, 1);
	tally_detach(p);
	assert_int_equal(join_waiter(&w), -ENODEV);
	assert_int_equal(harness_current(t, "/let-go"), 0);
	tally_pool_unref(p);

	p = harness_attach(t, "/let-go");
	assert_int_equal(tally_charge(p, M), 0);
	start_waiter(&w, p, 1000, 600000000, watcher, 1);
	tally_close(t);
	assert_int_equal(join_waiter(&w), -ENODEV);
	wait_for_current(watcher, "/let-go", 0);
	tally_detach(p);
	tally_close(watcher);
}

/* ------------------------------------------------------------------ files */

static void test_values(void **state)
{
	static const struct {
		const char *value, *shown;
	} good[] = {{"0", "0\n"}, {"1", "1\n"}, {"1K", "1024\n"}, {"2m", "2097152\n"},
		{"  4G\n", "4294967296\n"}, {"1T", "1099511627776\n"}, {"1P", "1125899906842624\n"},
		{"15E", "17293822569102704640\n"}, {"max", "max\n"}, {"\tmax ", "max\n"},
		{"18446744073709551614", "18446744073709551614\n"}, {"007", "7\n"}};
	static const struct {
		const char *value;
		int error;
	} bad[] = {{"", -EINVAL}, {" ", -EINVAL}, {"-1", -EINVAL}, {"+1", -EINVAL},
		{"1.5K", -EINVAL}, {"1 K", -EINVAL}, {"K", -EINVAL}, {"1KB", -EINVAL},
		{"1KK", -EINVAL}, {"0x10", -EINVAL}, {"max1", -EINVAL}, {"ma", -EINVAL},
		{"MAX", -EINVAL}, {"1 2", -EINVAL}, {"1\n2", -EINVAL}, {"one", -EINVAL},
		{"16E", -ERANGE}, {"18446744073709551615", -ERANGE},
		{"18446744073709551616", -ERANGE}, {"99999999999999999999999", -ERANGE}};
	struct tally *t = harness_open(&h);

	(void)state;
	assert_int_equal(tally_create(t, "/values"), 0);
	for (size_t i = 0; i < ELEMENTS(good); i++) {
		_cleanup_(freep) char *text = NULL;

		assert_int_equal(tally_set(t, "/values", "memory.max", good[i].value), 0);
		text = harness_get(t, "/values", "memory.max");
		assert_string_equal(text, good[i].shown);
	}
	assert_int_equal(tally_set(t, "/values", "memory.max", "123"), 0);
	for (size_t i = 0; i < ELEMENTS(bad); i++) {
		_cleanup_(freep) char *text = NULL;

		assert_int_equal(tally_set(t, "/values", "memory.max", bad[i].value), bad[i].error);
		text = harness_get(t, "/values", "memory.max");
		assert_string_equal(text, "123\n");
	}
	tally_close(t);
}

static void test_peak(void **state)
{
	struct tally *t = harness_open(&h);
	struct tally_pool *p = attach_limited(t, "/peak", "8M");
	_cleanup_(freep) char *text = NULL, *after = NULL;

	(void)state;
	assert_int_equal(tally_charge(p, 8 * M), 0);
	tally_uncharge(p, 8 * M);
	assert_int_equal(tally_set(t, "/peak", "pool.drain", "1"), 0);
	text = harness_get(t, "/peak", "memory.peak");
	assert_string_equal(text, "8388608\n");
	assert_int_equal(tally_set(t, "/peak", "memory.peak", ""), -EINVAL);
	assert_int_equal(tally_set(t, "/peak", "memory.peak", "reset"), 0);
	after = harness_get(t, "/peak", "memory.peak");
	assert_string_equal(after, "0\n");
	tally_detach(p);
	tally_close(t);
}

static void test_access(void **state)
{
	static const char *const read_only[] = {"memory.current", "memory.events",
		"memory.events.local", "memory.stat", "cgroup.procs", "cgroup.events",
		"cgroup.stat", "pool.children", "pool.clients"};
	static const char *const write_only[] = {"pool.drain", "pool.flush"};
	static const char *const none[] = {"", "memory", "memory.max ", "memory.Max",
		"../memory.max", "tallyd.status", "tallyd.reload", "cgroup.kill"};
	struct tally *t = harness_open(&h);
	char *const untouched = (char *)t, *text = untouched;

	(void)state;
	assert_int_equal(tally_create(t, "/access"), 0);
	for (size_t i = 0; i < ELEMENTS(read_only); i++) {
		assert_int_equal(tally_set(t, "/access", read_only[i], "1"), -EACCES);
		free(harness_get(t, "/access", read_only[i]));
	}
	for (size_t i = 0; i < ELEMENTS(write_only); i++) {
		assert_int_equal(tally_get(t, "/access", write_only[i], 0, &text), -EACCES);
		assert_int_equal(tally_set(t, "/access", write_only[i], "1"), 0);
	}
	for (size_t i = 0; i < ELEMENTS(none); i++) {
		assert_int_equal(tally_get(t, "/access", none[i], 0, &text), -ENOENT);
		assert_int_equal(tally_set(t, "/access", none[i], "1"), -ENOENT);
	}
	assert_int_equal(tally_set(t, "/", "tallyd.status", "1"), -EACCES);
	assert_ptr_equal(text, untouched);
	assert_true(has_text(t, "/", "tallyd.status", "\nsessions "));
	tally_close(t);
}

static void assert_current(struct tally *t, const char *path, uint64_t flags, const char *wanted)
{
	_cleanup_(freep) char *text = NULL;

	assert_int_equal(tally_get(t, path, "memory.current", flags, &text), 0);
	assert_string_equal(text, wanted);
}

static void test_get_flags(void **state)
{
	static const uint64_t bad[] = {TALLY_EXACT | TALLY_CACHED, TALLY_EXACT | TALLY_RATELIMITED,
		TALLY_RATELIMITED | TALLY_CACHED, 7, 8, TALLY_EXACT | 8, UINT64_C(1) << 63};
	struct tally *t = harness_open(&h);
	struct tally_pool *p = harness_attach(t, "/flags");
	char *text;

	(void)state;
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		assert_int_equal(tally_get(t, "/flags", "memory.current", bad[i], &text), -EINVAL);
	assert_current(t, "/flags", 0, "0\n");
	assert_int_equal(tally_charge(p, 1000), 0);
	/* the periodic flush is an hour away */
	assert_current(t, "/flags", TALLY_CACHED, "0\n");
	assert_current(t, "/flags", TALLY_RATELIMITED, "0\n");
	assert_current(t, "/flags", TALLY_EXACT, "1000\n");
	tally_uncharge(p, 1000);
	assert_current(t, "/flags", TALLY_CACHED, "1000\n");
	assert_int_equal(tally_set(t, "/flags", "pool.flush", "1"), 0);
	assert_current(t, "/flags", TALLY_CACHED, "0\n");
	tally_detach(p);
	tally_close(t);
}

static unsigned count_descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* An answer that fits in no message comes in a memfd, whole, and the memfd goes. */
static void test_large_answer(void **state)
{
	struct tally *t = harness_open(&h);
	_cleanup_(freep) char *wanted = calloc(5000, 32), *text = NULL;
	char *end = wanted, path[64];
	unsigned before;

	(void)state;
	assert_non_null(wanted);
	assert_int_equal(tally_create(t, "/many"), 0);
	for (unsigned i = 0; i < 5000; i++) {
		snprintf(path, sizeof(path), "/many/pool-number-%05u", i);
		assert_int_equal(tally_create(t, path), 0);
		end += sprintf(end, "%s\n", path + strlen("/many/"));
	}
	assert_true(end - wanted > 64 * 1024);
	before = count_descriptors();
	text = harness_get(t, "/many", "pool.children");
	assert_string_equal(text, wanted);
	assert_int_equal(count_descriptors(), before);
	tally_close(t);
}

static void test_create_and_remove(void **state)
{
	struct tally *t = harness_open(&h);
	struct tally_pool *p;

	(void)state;
	assert_int_equal(tally_create(t, "/"), -EEXIST);
	assert_int_equal(tally_create(t, "/made/below"), -ENOENT);
	assert_int_equal(tally_create(t, "/made"), 0);
	assert_int_equal(tally_create(t, "/made"), -EEXIST);
	assert_int_equal(tally_create(t, "/made/below"), 0);
	assert_int_equal(tally_remove(t, "/", 0), -EPERM);
	assert_int_equal(tally_remove(t, "/made", 0), -EBUSY);
	assert_int_equal(tally_attach(t, "/made/below", 0, &p), 0);
	assert_int_equal(tally_remove(t, "/made/below", 0), -EBUSY);
	assert_int_equal(tally_charge(p, 1000), 0);
	assert_int_equal(tally_remove(t, "/made/below", 0), -EBUSY);
	tally_detach(p);
	assert_int_equal(tally_remove(t, "/made", TALLY_FORCE), -EBUSY);
	assert_int_equal(tally_remove(t, "/made/below", 1), -EINVAL);
	assert_int_equal(tally_remove(t, "/made/below", UINT64_C(1) << 63), -EINVAL);
	assert_int_equal(tally_remove(t, "/made/below", 0), 0);
	assert_int_equal(tally_remove(t, "/made/below", 0), -ENOENT);
	assert_int_equal(tally_remove(t, "/made", 0), 0);
	assert_int_equal(tally_attach(t, "/made", 0, &p), -ENOENT);
	tally_close(t);
}

/* ------------------------------------------------------------------ many threads */

#define THREADS 8
#define TURNS 300

struct crowd {
	struct tally *tally;
	struct tally_pool *pool;
	tally_item item;
	unsigned number;
	int failed;
};

static int charge_and_back(struct crowd *c, uint64_t bytes)
{
	struct tally_charge_args a = {
		.item = c->item, .bytes = bytes, .deadline_usec = harness_now() + 600000000};
	int r = tally_charge(c->pool, bytes);

	CHECK(r == 0);
	r = tally_charge_item(c->pool, c->item, bytes);
	CHECK(r == 0);
	if (tally_try_charge(c->pool, bytes) == 0)
		tally_uncharge(c->pool, bytes);
	if (tally_try_charge_item(c->pool, c->item, bytes) == 0)
		tally_uncharge_item(c->pool, c->item, bytes);
	tally_uncharge(c->pool, bytes);
	CHECK(tally_charge_with(c->pool, &a, sizeof(a)) == 0);
	tally_uncharge_item(c->pool, c->item, bytes);
	tally_uncharge_item(c->pool, c->item, bytes);
	return 0;
}

static int attach_and_back(struct crowd *c, uint64_t bytes)
{
	struct tally_pool *p;

	CHECK(tally_attach(c->tally, "/crowd/all", 0, &p) == 0);
	CHECK(tally_pool_ref(p) == p);
	CHECK(tally_charge(p, bytes) == 0);
	CHECK(tally_charge_item(p, c->item, bytes) == 0);
	tally_pool_unref(p);
	CHECK(tally_charge(p, bytes) == 0);
	tally_detach(p);
	return 0;
}

static int manage(struct crowd *c, unsigned turn)
{
	_cleanup_(freep) char *text = NULL;
	char path[64];
	tally_item i;

	snprintf(path, sizeof(path), "/crowd/own-%u", c->number);
	CHECK(tally_create(c->tally, path) == 0);
	CHECK(tally_set(c->tally, path, "memory.max", "1M") == 0);
	CHECK(tally_get(c->tally, path, "memory.max", turn % 2 ? TALLY_EXACT : 0, &text) == 0);
	CHECK(strcmp(text, "1048576\n") == 0);
	CHECK(tally_item_lookup(c->tally, "sock", &i) == 0 && i != 0);
	CHECK(tally_remove(c->tally, path, 0) == 0);
	return 0;
}

static int take_turns(struct crowd *c)
{
	for (unsigned turn = 0; turn < TURNS; turn++) {
		uint64_t bytes = 1 + (turn * 7919 + c->number * 104729) % (600 * K);

		CHECK(charge_and_back(c, bytes) == 0);
		if (turn % 8 == c->number)
			CHECK(attach_and_back(c, bytes) == 0);
		if (turn % 8 == 7 - c->number)
			CHECK(manage(c, turn) == 0);
	}
	return 0;
}

static void *run_crowd(void *arg)
{
	struct crowd *c = arg;

	c->failed = take_turns(c);
	return NULL;
}

static void test_threads(void **state)
{
	struct tally *t = harness_open(&h);
	struct tally_pool *p = harness_attach(t, "/crowd/all");
	struct crowd crowd[THREADS];
	pthread_t threads[THREADS];

	(void)state;
	for (unsigned i = 0; i < THREADS; i++) {
		crowd[i] = (struct crowd){
			.tally = t, .pool = p, .item = item(t, "slab"), .number = i, .failed = -1};
		assert_int_equal(pthread_create(&threads[i], NULL, run_crowd, &crowd[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(crowd[i].failed, 0);
	}
	assert_int_equal(harness_current(t, "/crowd"), 0);
	assert_int_equal(harness_value(t, "/crowd", "memory.stat", "slab"), 0);
	assert_int_equal(harness_value(t, "/crowd", "memory.stat", "overdraft"), 0);
	tally_detach(p);
	assert_int_equal(harness_value(t, "/crowd", "memory.stat", "overdraft"), 0);
	assert_int_equal(harness_value(t, "/crowd", "memory.stat", "stock"), 0);
	tally_close(t);
}

/* ------------------------------------------------------------------ signals */

#define HANDLED 300 /* signals that are to arrive inside a charge */
#define ODD_ERRNO 4242

/* What the frame of a signal needs, and what the library may use beside it. */
#ifdef SANITIZED
#define HANDLER_STACK (256 * 1024)
#else
#define HANDLER_STACK 4096
#endif

static struct {
	struct tally_pool *pool;
	tally_item item;
	atomic_bool inside, stop;
	atomic_uint handled_inside, wrong;
	atomic_uint_fast64_t held, held_item;
	pthread_t target;
} handling;

static void charge_in_handler(tally_item i, atomic_uint_fast64_t *held)
{
	int r = tally_try_charge_item(handling.pool, i, 300);

	if (r == 0)
		*held += 300;
	else if (r != -EAGAIN && r != -ENOMEM)
		handling.wrong++;
	if (*held >= 3000) {
		tally_uncharge_item(handling.pool, i, 2700);
		*held -= 2700;
	}
}

static void on_signal(int number)
{
	int saved = errno;

	(void)number;
	errno = ODD_ERRNO;
	charge_in_handler(0, &handling.held);
	charge_in_handler(handling.item, &handling.held_item);
	if (errno != ODD_ERRNO)
		handling.wrong++;
	if (handling.inside)
		handling.handled_inside++;
	errno = saved;
}

static void *send_signals(void *arg)
{
	(void)arg;
	while (!handling.stop) {
		pthread_kill(handling.target, SIGUSR1);
		usleep(20);
	}
	return NULL;
}

/* So that stocks are empty again and again, and charges have to ask. */
static void *drain_on_and_on(void *arg)
{
	struct tally *t = arg;

	while (!handling.stop)
		if (tally_set(t, "/signals", "pool.drain", "1") < 0)
			handling.wrong++;
	return NULL;
}

/* With a page below that ends the program when the stack is not large enough. */
static void *make_stack(size_t *ret_size)
{
	long minimum = sysconf(_SC_MINSIGSTKSZ), page = sysconf(_SC_PAGESIZE);
	size_t size = (size_t)(minimum > 0 ? minimum : MINSIGSTKSZ) + HANDLER_STACK;
	size_t n = (size + (size_t)page - 1) / (size_t)page * (size_t)page + (size_t)page;
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(mprotect(p, (size_t)page, PROT_NONE), 0);
	*ret_size = size;
	return p + page;
}

static void free_stack(void *stack, size_t size)
{
	long page = sysconf(_SC_PAGESIZE);

	munmap((char *)stack - page, size + (size_t)page);
}

static void test_signals(void **state)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
	struct tally *t = harness_open(&h), *other = harness_open(&h);
	stack_t stack = {0}, old_stack;
	pthread_t sender, drainer;
	struct sigaction old;
	uint64_t bytes = 1;

	(void)state;
	handling.pool = harness_attach(t, "/signals");
	handling.item = item(t, "anon");
	handling.target = pthread_self();
	/* Of a change of stacks valgrind believes that it leaves the other one. */
	if (getenv("TEST_VALGRIND") && *getenv("TEST_VALGRIND"))
		action.sa_flags &= ~SA_ONSTACK;
	stack.ss_sp = make_stack(&stack.ss_size);
	assert_int_equal(sigaltstack(&stack, &old_stack), 0);
	assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
	assert_int_equal(pthread_create(&drainer, NULL, drain_on_and_on, other), 0);
	assert_int_equal(pthread_create(&sender, NULL, send_signals, NULL), 0);

	for (unsigned n = 0; handling.handled_inside < HANDLED && n < 10000000; n++) {
		int r;

		bytes = bytes * 13 % (400 * K) + 1;
		handling.inside = true;
		r = tally_charge(handling.pool, bytes);
		handling.inside = false;
		if (r == 0)
			tally_uncharge(handling.pool, bytes);
		else
			handling.wrong++;
	}
	handling.stop = true;
	pthread_join(sender, NULL);
	pthread_join(drainer, NULL);
	sigaction(SIGUSR1, &old, NULL);
	sigaltstack(&old_stack, NULL);
	free_stack(stack.ss_sp, stack.ss_size);

	assert_true(handling.handled_inside >= HANDLED);
	assert_int_equal(handling.wrong, 0);
	assert_int_equal(harness_current(t, "/signals"), handling.held + handling.held_item);
	assert_int_equal(harness_value(t, "/signals", "memory.stat", "anon"), handling.held_item);
	tally_uncharge(handling.pool, handling.held);
	tally_uncharge_item(handling.pool, handling.item, handling.held_item);
	assert_int_equal(harness_current(t, "/signals"), 0);
	tally_detach(handling.pool);
	assert_int_equal(harness_value(t, "/signals", "memory.stat", "overdraft"), 0);
	tally_close(other);
	tally_close(t);
}

/* ------------------------------------------------------------------ no allocation */

static void test_no_allocation(void **state)
{
	struct tally_pool *p;
	struct tally *t;
	tally_item anon;
	int wrong = 0;

	(void)state;
	need_counting();
	t = harness_open(&h);
	p = attach_limited(t, "/no-malloc", "4M");
	anon = item(t, "anon");
	assert_int_equal(tally_charge_item(p, anon, 1), 0);
	begin_counting();
	/* misses of both lanes, hits, and what an uncharge cannot keep */
	for (unsigned i = 0; i < 100; i++) {
		wrong |= tally_charge(p, i * 20000);
		wrong |= tally_charge_item(p, anon, i * 100);
		tally_uncharge(p, i * 20000);
		tally_uncharge_item(p, anon, i * 100);
	}
	/* refusals */
	wrong |= tally_charge(p, 5 * M) != -ENOMEM;
	wrong |= try_until_decided(p, 0, 5 * M) != -ENOMEM;
	wrong |= try_until_decided(p, anon, 64 * K);
	tally_uncharge_item(p, anon, 64 * K);
	assert_int_equal(end_counting(), 0);
	assert_int_equal(wrong, 0);
	tally_detach(p);
	tally_close(t);
}

/* More attachments than a stock has slots, on one CPU: each uncharge puts another one's out. */
static void test_no_allocation_in_eviction(void **state)
{
	struct tally_pool *p[10];
	cpu_set_t all, one;
	struct tally *t;
	int wrong = 0;

	(void)state;
	need_counting();
	t = harness_open(&h);
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	for (size_t i = 0; i < ELEMENTS(p); i++) {
		p[i] = harness_attach(t, "/evict");
		assert_int_equal(tally_charge(p[i], 100000), 0);
	}
	begin_counting();
	for (unsigned i = 0; i < 1000; i++) {
		tally_uncharge(p[i * 7 % 10], 1000);
		wrong |= tally_charge(p[i * 3 % 10], 1000);
	}
	assert_int_equal(end_counting(), 0);
	assert_int_equal(wrong, 0);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	assert_int_equal(harness_current(t, "/evict"), 1000000);
	for (size_t i = 0; i < ELEMENTS(p); i++)
		tally_detach(p[i]);
	assert_int_equal(harness_value(t, "/evict", "memory.stat", "overdraft"), 0);
	tally_close(t);
}

static void test_no_allocation_in_wait(void **state)
{
	struct tally *t, *watcher;
	struct tally_pool *p;
	struct waiter w;

	(void)state;
	need_counting();
	t = harness_open(&h);
	watcher = harness_open(&h);
	p = attach_limited(t, "/malloc-wait", "1M");
	assert_int_equal(tally_charge(p, M), 0);
	start_waiter(&w, p, 1000, 600000000, watcher, 1);
	tally_uncharge(p, M);
	assert_int_equal(join_waiter(&w), 0);
	assert_int_equal(w.allocated, 0);
	start_waiter(&w, p, M, 50000, watcher, 0);
	assert_int_equal(join_waiter(&w), -ETIMEDOUT);
	assert_int_equal(w.allocated, 0);
	tally_detach(p);
	tally_close(watcher);
	tally_close(t);
}

static void test_no_allocation_first_of_item(void **state)
{
	struct tally_pool *p;
	struct tally *t;
	tally_item anon;
	int r;

	(void)state;
	need_counting();
	t = harness_open(&h);
	p = harness_attach(t, "/malloc-item");
	anon = item(t, "anon");
	begin_counting();
	r = tally_charge_item(p, anon, 1000);
	assert_int_equal(end_counting(), 0);
	assert_int_equal(r, 0);
	tally_detach(p);
	tally_close(t);
}

/* Who waits reads for all, also what others have asked for. */
static void test_no_allocation_for_others(void **state)
{
	struct tally_pool *p, *others[100];
	struct tally *t, *watcher;
	struct waiter w;

	(void)state;
	need_counting();
	t = harness_open(&h);
	watcher = harness_open(&h);
	p = attach_limited(t, "/malloc-reader", "1M");
	assert_int_equal(tally_charge(p, M), 0);
	start_waiter(&w, p, 1000, 600000000, watcher, 1);
	for (size_t i = 0; i < ELEMENTS(others); i++) {
		free(harness_get(t, "/malloc-reader", "memory.stat"));
		others[i] = harness_attach(t, "/malloc-reader");
	}
	tally_uncharge(p, M);
	assert_int_equal(join_waiter(&w), 0);
	for (size_t i = 0; i < ELEMENTS(others); i++)
		tally_detach(others[i]);
	assert_int_equal(w.allocated, 0);
	tally_detach(p);
	tally_close(watcher);
	tally_close(t);
}

/* ------------------------------------------------------------------ other processes */

struct family {
	struct tally *tally;
	struct tally_pool *pool;
	tally_item item;
};

static int use_as_child(void *userdata)
{
	struct family *f = userdata;
	struct tally_charge_args a = {.bytes = 1};
	struct tally_pool *p;
	struct tally *t;
	tally_item i;
	char *text;

	CHECK(tally_charge(f->pool, 1) == -ECHILD);
	CHECK(tally_charge(f->pool, 0) == -ECHILD);
	CHECK(tally_try_charge(f->pool, 1) == -ECHILD);
	CHECK(tally_charge_item(f->pool, f->item, 1) == -ECHILD);
	CHECK(tally_try_charge_item(f->pool, f->item, 1) == -ECHILD);
	CHECK(tally_charge_with(f->pool, &a, sizeof(a)) == -ECHILD);
	tally_uncharge(f->pool, 1000);
	tally_uncharge_item(f->pool, f->item, 1000);
	CHECK(tally_attach(f->tally, "/family", 0, &p) == -ECHILD);
	CHECK(tally_item_lookup(f->tally, "anon", &i) == -ECHILD);
	CHECK(tally_get(f->tally, "/", "memory.max", 0, &text) == -ECHILD);
	CHECK(tally_set(f->tally, "/", "memory.max", "max") == -ECHILD);
	CHECK(tally_create(f->tally, "/x") == -ECHILD);
	CHECK(tally_remove(f->tally, "/x", 0) == -ECHILD);
	CHECK(strcmp(tally_pool_path(f->pool), "/family") == 0);
	/* it has its own, if it opens it, before and after it has freed its parent's */
	CHECK(tally_open(h.address, 0, &t) == 0);
	CHECK(tally_detach(f->pool) == NULL);
	CHECK(tally_close(f->tally) == NULL);
	CHECK(tally_attach(t, "/family", 0, &p) == 0);
	CHECK(tally_charge(p, 500) == 0);
	tally_detach(p);
	tally_close(t);
	return 0;
}

static void test_fork(void **state)
{
	struct family f = {0};

	(void)state;
	harness_skip_emulated("ignores MADV_WIPEONFORK");
	f.tally = harness_open(&h);
	f.pool = harness_attach(f.tally, "/family");
	f.item = item(f.tally, "anon");
	assert_int_equal(tally_charge(f.pool, 1000), 0);
	assert_int_equal(tally_charge_item(f.pool, f.item, 2000), 0);
	harness_join(harness_fork(use_as_child, &f), 0);
	assert_int_equal(harness_current(f.tally, "/family"), 3000);
	assert_int_equal(tally_charge(f.pool, 1000), 0);
	tally_uncharge(f.pool, 2000);
	tally_uncharge_item(f.pool, f.item, 2000);
	assert_int_equal(harness_current(f.tally, "/family"), 0);
	tally_detach(f.pool);
	assert_int_equal(harness_value(f.tally, "/family", "memory.stat", "overdraft"), 0);
	tally_close(f.tally);
}

static int charge_and_stay(void *userdata)
{
	struct tally_pool *p;
	struct tally *t;

	(void)userdata;
	CHECK(tally_open(h.address, 0, &t) == 0);
	CHECK(tally_attach(t, "/dead", TALLY_CREATE, &p) == 0);
	CHECK(tally_charge(p, 12345) == 0);
	pause();
	return 1;
}

static void end_child(pid_t child)
{
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
}

static void test_death(void **state)
{
	struct tally *t = harness_open(&h);
	pid_t child;

	(void)state;
	assert_int_equal(tally_create(t, "/dead"), 0);
	child = harness_fork(charge_and_stay, NULL);
	wait_for_current(t, "/dead", 12345);
	end_child(child);
	wait_for_current(t, "/dead", 0);
	assert_int_equal(tally_remove(t, "/dead", 0), 0);
	tally_close(t);
}

static int charge_and_exec(void *userdata)
{
	const bool *keep = userdata;
	struct tally_pool *p;
	struct tally *t;

	CHECK(tally_open(h.address, 0, &t) == 0);
	CHECK(tally_attach(t, *keep ? "/kept" : "/not-kept", TALLY_CREATE, &p) == 0);
	CHECK(tally_charge(p, 4000) == 0);
	if (*keep)
		CHECK(fcntl(tally_fd(t), F_SETFD, 0) == 0);
	execlp("sleep", "sleep", "1000", (char *)NULL);
	return 1;
}

/* Its figures show 4000 once it has charged, 0 once its grace is over. */
static void test_exec(void **state)
{
	struct tally *t = harness_open(&h);
	bool keep = true;
	pid_t kept, other;

	(void)state;
	assert_int_equal(tally_create(t, "/kept"), 0);
	assert_int_equal(tally_create(t, "/not-kept"), 0);
	kept = harness_fork(charge_and_exec, &keep);
	wait_for_current(t, "/kept", 4000);
	keep = false;
	other = harness_fork(charge_and_exec, &keep);
	wait_for_current(t, "/not-kept", 4000);
	wait_for_current(t, "/not-kept", 0);
	assert_int_equal(kill(other, 0), 0);
	assert_int_equal(harness_current(t, "/kept"), 4000);
	end_child(kept);
	wait_for_current(t, "/kept", 0);
	end_child(other);
	tally_close(t);
}

/* ------------------------------------------------------------------ no daemon, or a silent one */

static void test_lost_daemon(void **state)
{
	struct harness own;
	struct tally_pool *p, *q;
	struct tally *t;
	tally_item i;
	char *text;

	(void)state;
	harness_start(&own, config);
	t = harness_open(&own);
	p = harness_attach(t, "/lost");
	assert_int_equal(tally_charge(p, 1000), 0);
	harness_kill(&own);
	/* what lies at hand is still good */
	tally_uncharge(p, 1000);
	assert_int_equal(tally_charge(p, 1000), 0);
	assert_int_equal(tally_charge(p, M), -ENOTCONN);
	assert_int_equal(tally_charge(p, M), -ENOTCONN);
	assert_int_equal(tally_try_charge(p, M), -ENOTCONN);
	assert_int_equal(tally_charge_item(p, 1, 1), -ENOTCONN);
	assert_int_equal(tally_charge(p, 1000), 0);
	assert_int_equal(tally_attach(t, "/lost", 0, &q), -ENOTCONN);
	assert_int_equal(tally_item_lookup(t, "anon", &i), -ENOTCONN);
	assert_int_equal(tally_get(t, "/", "memory.max", 0, &text), -ENOTCONN);
	assert_int_equal(tally_set(t, "/", "memory.max", "max"), -ENOTCONN);
	assert_int_equal(tally_create(t, "/x"), -ENOTCONN);
	assert_int_equal(tally_remove(t, "/x", 0), -ENOTCONN);
	tally_uncharge(p, 2000);
	assert_null(tally_detach(p));
	assert_null(tally_close(t));
	harness_stop(&own);
}

enum call {
	CALL_ATTACH,
	CALL_CHARGE,
	CALL_CHARGE_ITEM,
	CALL_CHARGE_DEADLINE,
	CALL_LOOKUP,
	CALL_GET,
	CALL_SET,
	CALL_CREATE,
	CALL_REMOVE,
	CALLS,
};

struct caller {
	pthread_t thread;
	enum call call;
	struct tally *tally;
	struct tally_pool *pool;
	int result;
};

static void *call_and_wait(void *arg)
{
	struct caller *c = arg;
	struct tally_charge_args a = {.bytes = M, .deadline_usec = harness_now() + 100000};
	struct tally_pool *p;
	tally_item i;
	char *text;

	switch (c->call) {
	case CALL_ATTACH:
		c->result = tally_attach(c->tally, "/silent/new", TALLY_CREATE, &p);
		break;
	case CALL_CHARGE:
		c->result = tally_charge(c->pool, 64 * M);
		break;
	case CALL_CHARGE_ITEM:
		c->result = tally_charge_item(c->pool, 1, 1);
		break;
	case CALL_CHARGE_DEADLINE:
		c->result = tally_charge_with(c->pool, &a, sizeof(a));
		break;
	case CALL_LOOKUP:
		c->result = tally_item_lookup(c->tally, "anon", &i);
		break;
	case CALL_GET:
		c->result = tally_get(c->tally, "/", "memory.stat", 0, &text);
		break;
	case CALL_SET:
		c->result = tally_set(c->tally, "/silent", "memory.max", "512M");
		break;
	case CALL_CREATE:
		c->result = tally_create(c->tally, "/silent/made");
		break;
	case CALL_REMOVE:
		c->result = tally_remove(c->tally, "/silent/gone", 0);
		break;
	case CALLS:
		break;
	}
	return NULL;
}

static void start_call(struct caller *c, enum call call, struct tally *t, struct tally_pool *p)
{
	*c = (struct caller){.call = call, .tally = t, .pool = p};
	assert_int_equal(pthread_create(&c->thread, NULL, call_and_wait, c), 0);
}

/* All at once, so that it takes the 5 s of one. */
static void test_silent_daemon(void **state)
{
	struct caller callers[CALLS + 1];
	struct harness own;
	struct tally_options o = {.address = own.address, .connect_timeout_usec = 100000};
	struct tally_pool *p, *only_tries;
	struct tally *t, *u;

	(void)state;
	harness_start(&own, config);
	t = harness_open(&own);
	u = harness_open(&own);
	p = harness_attach(t, "/silent");
	only_tries = harness_attach(u, "/silent/tries");
	assert_int_equal(tally_create(t, "/silent/gone"), 0);
	assert_int_equal(kill(own.daemon, SIGSTOP), 0);

	for (unsigned i = 0; i < CALLS; i++)
		start_call(&callers[i], (enum call)i, t, p);
	start_call(&callers[CALLS], CALL_LOOKUP, u, NULL);
	assert_int_equal(tally_open_with(&o, sizeof(o), &t), -ETIMEDOUT);
	for (unsigned i = 0; i <= CALLS; i++) {
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
		assert_int_equal(callers[i].result, -ETIMEDOUT);
	}

	/* The late answers change nothing that a caller was told. */
	assert_int_equal(kill(own.daemon, SIGCONT), 0);
	assert_int_equal(harness_current(t, "/silent"), 0);
	assert_int_equal(harness_value(t, "/silent/new", "cgroup.events", "populated"), 0);
	assert_int_equal(tally_charge_item(p, 1, 64 * M), 0);
	assert_int_equal(tally_charge(p, 64 * M), 0);
	assert_int_equal(harness_current(t, "/silent"), 128 * M);
	tally_uncharge_item(p, 1, 64 * M);
	tally_uncharge(p, 64 * M);
	assert_int_equal(harness_current(t, "/silent"), 0);

	/* Nobody waits for them in this session, and they stand before what it asks for. */
	assert_int_equal(try_until_decided(only_tries, 0, 1000), 0);
	assert_int_equal(harness_current(t, "/silent"), 1000);
	tally_detach(only_tries);
	tally_detach(p);
	tally_close(u);
	tally_close(t);
	harness_stop(&own);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_default_address),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_long_program_name),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_servers_that_fail),
		cmocka_unit_test(test_full_backlog),
		cmocka_unit_test(test_other_users),
		cmocka_unit_test(test_descriptors_to_open),
		cmocka_unit_test(test_descriptors_to_attach),
		cmocka_unit_test(test_fd),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_attach_flags),
		cmocka_unit_test(test_null),
		cmocka_unit_test(test_same_path_twice),
		cmocka_unit_test(test_references),
		cmocka_unit_test(test_close),
		cmocka_unit_test(test_charge),
		cmocka_unit_test(test_largest),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_try_charge),
		cmocka_unit_test(test_items),
		cmocka_unit_test(test_try_charge_first_of_item),
		cmocka_unit_test(test_try_charge_no_item),
		cmocka_unit_test(test_overdraft),
		cmocka_unit_test(test_charge_with),
		cmocka_unit_test(test_force),
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_detach_while_waiting),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_peak),
		cmocka_unit_test(test_access),
		cmocka_unit_test(test_get_flags),
		cmocka_unit_test(test_large_answer),
		cmocka_unit_test(test_create_and_remove),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_signals),
		cmocka_unit_test(test_no_allocation),
		cmocka_unit_test(test_no_allocation_in_eviction),
		cmocka_unit_test(test_no_allocation_in_wait),
		cmocka_unit_test(test_no_allocation_first_of_item),
		cmocka_unit_test(test_no_allocation_for_others),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_death),
		cmocka_unit_test(test_exec),
		cmocka_unit_test(test_lost_daemon),
		cmocka_unit_test(test_silent_daemon),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
