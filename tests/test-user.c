/* SPDX-License-Identifier: MIT */

/*
 * Accounts of uids: what one may have, and that it comes back whichever way it goes. The first part is
 * about the module alone; the second about a daemon with small limits and processes of real uids.
 */

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conf/conf.h"
#include "core/util.h"
#include "core/wire.h"
#include "harness.h"
#include "user.h"

/* ------------------------------------------------------------------ the module */

static struct users *new_users(uint32_t pools)
{
	struct conf c = {.max_sessions_per_uid = 2,
		.max_pools_per_uid = pools,
		.max_attachments_per_uid = UINT32_MAX,
		.max_queued_per_uid = 1};
	struct users *all;

	assert_int_equal(users_new(&all), 0);
	users_configure(all, &c);
	return all;
}

static void test_take_and_give(void **state)
{
	struct users *all = new_users(5);
	struct user *u;

	(void)state;
	assert_int_equal(user_get(all, 7, &u), 0);
	assert_int_equal(user_take(u, USER_POOLS, 3), 0);
	/* All or none. */
	assert_int_equal(user_take(u, USER_POOLS, 3), -EDQUOT);
	assert_int_equal(user_has(u, USER_POOLS), 3);
	assert_int_equal(user_take(u, USER_POOLS, UINT64_MAX), -EDQUOT);
	assert_int_equal(user_take(u, USER_POOLS, 2), 0);
	assert_int_equal(user_take(u, USER_POOLS, 1), -EDQUOT);
	assert_int_equal(user_take(u, USER_POOLS, 0), 0);
	/* Each resource by itself. */
	assert_int_equal(user_take(u, USER_SESSIONS, 2), 0);
	assert_int_equal(user_take(u, USER_SESSIONS, 1), -EDQUOT);
	assert_int_equal(user_take(u, USER_ATTACHMENTS, UINT32_MAX), 0);
	assert_int_equal(user_take(u, USER_QUEUED, 1), 0);
	user_give(u, USER_POOLS, 1);
	assert_int_equal(user_take(u, USER_POOLS, 1), 0);
	user_give(u, USER_POOLS, 5);
	user_give(u, USER_SESSIONS, 2);
	user_give(u, USER_ATTACHMENTS, UINT32_MAX);
	user_give(u, USER_QUEUED, 1);
	assert_null(user_unref(u));
	users_free(all);
}

static void test_uids_are_apart(void **state)
{
	struct users *all = new_users(1);
	struct user *u, *again, *other;

	(void)state;
	assert_int_equal(user_get(all, 0, &u), 0);
	assert_int_equal(user_get(all, (uid_t)-2, &other), 0);
	assert_int_equal(user_get(all, 0, &again), 0);
	assert_ptr_equal(u, again);
	assert_ptr_not_equal(u, other);
	assert_int_equal(user_take(u, USER_POOLS, 1), 0);
	assert_int_equal(user_take(again, USER_POOLS, 1), -EDQUOT);
	assert_int_equal(user_take(other, USER_POOLS, 1), 0);
	user_give(u, USER_POOLS, 1);
	user_give(other, USER_POOLS, 1);
	user_unref(again);
	user_unref(other);
	user_unref(u);
	assert_null(user_unref(NULL));
	assert_null(users_free(NULL));
	users_free(all);
}

static void test_new_limits(void **state)
{
	struct conf c = {.max_pools_per_uid = 2};
	struct users *all = new_users(5);
	struct user *u;

	(void)state;
	assert_int_equal(user_get(all, 1, &u), 0);
	assert_int_equal(user_take(u, USER_POOLS, 5), 0);
	users_configure(all, &c);
	/* It keeps what it has. */
	assert_int_equal(user_take(u, USER_POOLS, 1), -EDQUOT);
	user_give(u, USER_POOLS, 3);
	assert_int_equal(user_take(u, USER_POOLS, 1), -EDQUOT);
	user_give(u, USER_POOLS, 1);
	assert_int_equal(user_take(u, USER_POOLS, 1), 0);
	user_give(u, USER_POOLS, 2);
	user_unref(u);
	users_free(all);
}

/* ------------------------------------------------------------------ the daemon */

#define UID 60011
#define OTHER 60012
#define HOME "/users/60011"
#define SESSIONS 4
#define POOLS 5
#define ATTACHMENTS 6
#define QUEUED 3

static const char config[] = "[daemon]\n"
			     "grace = 0\n"
			     "max_sessions_per_uid = 4\n"
			     "max_pools_per_uid = 5\n"
			     "max_attachments_per_uid = 6\n"
			     "max_queued_per_uid = 3\n"
			     "[pool open]\n"
			     "path = /open\n"
			     "mode = 0755\n";

static struct harness h;
static struct tally *root;

static int set_up(void **state)
{
	(void)state;
	if (geteuid() != 0)
		return 0;
	harness_start(&h, config);
	assert_int_equal(chmod(h.dir, 0711), 0);
	root = harness_open(&h);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	if (geteuid() != 0)
		return 0;
	tally_close(root);
	harness_stop(&h);
	return 0;
}

/* A process of that uid that runs fn, tells its result, and lives on with what it has. */
struct holder {
	pid_t pid;
	int fd;
};

static int hold(uid_t uid, int (*fn)(void), struct holder *ret)
{
	struct holder holder;
	int fds[2], r;

	assert_int_equal(pipe(fds), 0);
	holder.pid = fork();
	assert_true(holder.pid >= 0);
	if (holder.pid == 0) {
		close(fds[0]);
		r = setgroups(0, NULL) == 0 && setgid(uid) == 0 && setuid(uid) == 0 ? fn() : -EIO;
		if (write(fds[1], &r, sizeof(r)) == sizeof(r) && ret)
			pause();
		_exit(0);
	}
	close(fds[1]);
	holder.fd = fds[0];
	assert_int_equal(read(holder.fd, &r, sizeof(r)), sizeof(r));
	if (ret) {
		*ret = holder;
		return r;
	}
	close(holder.fd);
	assert_int_equal(waitpid(holder.pid, NULL, 0), holder.pid);
	return r;
}

static void kill_holder(struct holder *holder)
{
	assert_int_equal(kill(holder->pid, SIGKILL), 0);
	assert_int_equal(waitpid(holder->pid, NULL, 0), holder->pid);
	close(holder->fd);
}

/* The same once, without anything kept. */
static int once(uid_t uid, int (*fn)(void))
{
	return hold(uid, fn, NULL);
}

struct attempt {
	uid_t uid;
	int (*fn)(void);
	int r;
};

static int succeeds(void *userdata)
{
	struct attempt *a = userdata;

	a->r = once(a->uid, a->fn);
	return a->r == 0;
}

/* What a process had comes back when the daemon has noticed that it is gone. */
static void await_success(uid_t uid, int (*fn)(void))
{
	struct attempt a = {uid, fn, 0};

	if (!harness_wait(succeeds, &a, HARNESS_PATIENCE_MS))
		fail_msg("still %d", a.r);
}

static int open_one(void)
{
	struct tally *t;
	int r = tally_open(h.address, 0, &t);

	if (r == 0)
		tally_close(t);
	return r;
}

static int open_all(void)
{
	struct tally *t;

	for (unsigned i = 0; i < SESSIONS; i++) {
		int r = tally_open(h.address, 0, &t);

		if (r < 0)
			return r;
	}
	return tally_open(h.address, 0, &t) == -EDQUOT ? 0 : -EIO;
}

/* By closing. */
static int open_all_but_one(void)
{
	struct tally *t[SESSIONS];

	for (unsigned i = 0; i < SESSIONS; i++) {
		int r = tally_open(h.address, 0, &t[i]);

		if (r < 0)
			return r;
	}
	tally_close(t[0]);
	return 0;
}

static void test_sessions(void **state)
{
	struct holder holder;

	(void)state;
	harness_need_root();
	assert_int_equal(hold(UID, open_all, &holder), 0);
	assert_int_equal(once(UID, open_one), -EDQUOT);
	assert_int_equal(once(OTHER, open_one), 0);
	assert_int_equal(harness_log_lines(&h,
				 "uid 60011 has 4 sessions and gets no more: "
				 "max_sessions_per_uid is 4"),
		1);
	kill_holder(&holder);
	await_success(UID, open_one);
	assert_int_equal(hold(UID, open_all_but_one, &holder), 0);
	await_success(UID, open_one);
	kill_holder(&holder);
	await_success(UID, open_all_but_one);
}

static int connect_raw(void)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/tallyd.sock", h.runtime);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return -errno;
	return fd;
}

/* Of connections that say nothing only some are kept. */
static int connect_many(void)
{
	unsigned n_closed = 0;
	int fds[200];

	for (unsigned i = 0; i < ELEMENTS(fds); i++) {
		fds[i] = connect_raw();
		if (fds[i] < 0)
			return fds[i];
	}
	/* Those are closed in a moment, the others when they have not said HELLO for some seconds. */
	for (unsigned i = 0; i < ELEMENTS(fds); i++) {
		struct timeval patience = {.tv_sec = 1};
		char byte;

		if (i >= 100)
			setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
		n_closed += i >= 100 && recv(fds[i], &byte, 1, 0) <= 0 && errno != EAGAIN;
		errno = 0;
	}
	return n_closed == 100 ? 0 : -EIO;
}

static void test_connections(void **state)
{
	struct holder holder;

	(void)state;
	harness_need_root();
	assert_int_equal(hold(UID, connect_many, &holder), 0);
	assert_int_equal(once(OTHER, open_one), 0);
	kill_holder(&holder);
	await_success(UID, open_one);
}

static int make(const char *path)
{
	struct tally *t;
	int r = tally_open(h.address, 0, &t);

	if (r < 0)
		return r;
	r = tally_create(t, path);
	tally_close(t);
	return r;
}

static int make_b(void)
{
	return make(HOME "/b");
}

static int make_all(void)
{
	static const char *const paths[POOLS] = {HOME, HOME "/b", HOME "/c", HOME "/d", HOME "/e"};

	for (unsigned i = 0; i < POOLS; i++) {
		int r = make(paths[i]);

		if (r < 0)
			return r;
	}
	return make(HOME "/f") == -EDQUOT ? 0 : -EIO;
}

static int make_two(void)
{
	struct tally_pool *p;
	struct tally *t;
	int r = tally_open(h.address, 0, &t);

	if (r < 0)
		return r;
	r = tally_attach(t, HOME "/two/below", TALLY_CREATE, &p);
	if (r == 0)
		tally_detach(p);
	tally_close(t);
	return r;
}

static int make_ephemeral(void)
{
	struct tally_pool *p;
	struct tally *t;
	int r = tally_open(h.address, 0, &t);

	if (r < 0)
		return r;
	r = tally_attach(t, HOME "/short", TALLY_CREATE | TALLY_EPHEMERAL, &p);
	return r;
}

static int make_others(void)
{
	return make("/users/60012");
}

static void test_pools(void **state)
{
	char *text;

	(void)state;
	harness_need_root();
	assert_int_equal(once(UID, make_all), 0);
	assert_int_equal(once(OTHER, make_others), 0);
	assert_int_equal(harness_log_lines(&h, "uid 60011 has 5 pools and gets no more"), 1);
	/* They stay with the process gone, and count for who has made them, whose ever they are. */
	assert_int_equal(tally_set(root, HOME "/e", "pool.owner", "0:0"), 0);
	assert_int_equal(once(UID, make_two), -EDQUOT);
	assert_int_equal(tally_remove(root, HOME "/e", 0), 0);
	/* Both or neither. */
	assert_int_equal(once(UID, make_two), -EDQUOT);
	assert_int_equal(tally_get(root, HOME "/two", "memory.max", 0, &text), -ENOENT);
	/* One that goes by itself. */
	assert_int_equal(once(UID, make_ephemeral), 0);
	await_success(UID, make_ephemeral);
	assert_int_equal(tally_remove(root, HOME "/d", 0), 0);
	await_success(UID, make_two);
	assert_int_equal(tally_remove(root, HOME "/two/below", 0), 0);
	assert_int_equal(tally_remove(root, HOME "/two", 0), 0);
	assert_int_equal(tally_remove(root, HOME "/c", 0), 0);
	assert_int_equal(tally_remove(root, HOME "/b", 0), 0);
	assert_int_equal(once(UID, make_b), 0);
	assert_int_equal(tally_remove(root, HOME "/b", 0), 0);
	assert_int_equal(tally_remove(root, HOME, 0), 0);
	/* What root makes is root's, also in a home. */
	assert_int_equal(tally_create(root, HOME), 0);
	assert_int_equal(tally_create(root, HOME "/r1"), 0);
	assert_int_equal(tally_create(root, HOME "/r2"), 0);
	assert_int_equal(once(UID, make_b), 0);
	assert_int_equal(tally_remove(root, HOME "/b", 0), 0);
	assert_int_equal(tally_remove(root, HOME "/r1", 0), 0);
	assert_int_equal(tally_remove(root, HOME "/r2", 0), 0);
	assert_int_equal(tally_remove(root, HOME, 0), 0);
}

static int attach(unsigned n, unsigned n_sessions)
{
	struct tally_pool *p;
	struct tally *t = NULL;

	for (unsigned i = 0; i < n; i++) {
		int r = i < n_sessions ? tally_open(h.address, 0, &t) : 0;

		if (r == 0)
			r = tally_attach(t, "/open", 0, &p);
		if (r < 0)
			return r;
	}
	return 0;
}

static int attach_one(void)
{
	return attach(1, 1);
}

static int attach_all(void)
{
	return attach(ATTACHMENTS, 2);
}

static int attach_too_many(void)
{
	return attach(ATTACHMENTS + 1, 2);
}

/* Detached ones count no more. */
static int attach_and_detach(void)
{
	struct tally *t;
	int r = tally_open(h.address, 0, &t);

	for (unsigned i = 0; r == 0 && i < 3000; i++) {
		struct tally_pool *p;

		r = tally_attach(t, "/open", 0, &p);
		if (r == 0)
			tally_detach(p);
	}
	return r;
}

/* Those that are detached and whose handles are kept do not count while they are few, and then do. */
static int detach_and_keep(void)
{
	struct tally_pool *kept[1000], *p;
	struct tally *t;
	unsigned n = 0;
	int r = tally_open(h.address, 0, &t);

	while (r == 0 && n < ELEMENTS(kept)) {
		r = tally_attach(t, "/open", 0, &p);
		if (r == 0) {
			kept[n++] = tally_pool_ref(p);
			tally_detach(p);
		}
	}
	if (r != -EDQUOT || n < 100 || n > 300)
		return -EIO;
	while (n > 0)
		tally_pool_unref(kept[--n]);
	/* They are collected, and soon it goes on. */
	for (n = 0; n < 10000; n++) {
		r = tally_attach(t, "/open", 0, &p);
		if (r == 0)
			return 0;
		usleep(1000);
	}
	return r;
}

static void test_attachments(void **state)
{
	struct holder holder;

	(void)state;
	harness_need_root();
	assert_int_equal(once(UID, attach_too_many), -EDQUOT);
	await_success(UID, attach_all);
	assert_int_equal(harness_log_lines(&h, "uid 60011 has 6 attachments"), 1);
	await_success(UID, attach_one);
	await_success(UID, attach_and_detach);
	assert_int_equal(hold(UID, attach_all, &holder), 0);
	assert_int_equal(once(UID, attach_one), -EDQUOT);
	assert_int_equal(once(OTHER, attach_one), 0);
	kill_holder(&holder);
	await_success(UID, attach_all);
	await_success(UID, detach_and_keep);
	await_success(UID, attach_all);
}

/* ------------------------------------------------------------------ what waits */

union message {
	struct wire_header h;
	struct wire_welcome welcome;
	struct wire_done done;
	char bytes[WIRE_MAX];
};

static int send_message(int fd, const void *fixed, size_t n, uint32_t type, const char *a,
	const char *b, const char *c)
{
	const char *const strings[WIRE_STRINGS_MAX] = {a, b, c};
	static union message m;
	int size = wire_pack(&m, fixed, n, type, 1, strings);

	return size > 0 && send(fd, &m, (size_t)size, MSG_NOSIGNAL) == size ? 0 : -EIO;
}

static int receive_done(int fd)
{
	static union message m;

	if (recv(fd, &m, sizeof(m), 0) <= 0 || m.h.type != WIRE_DONE)
		return -EIO;
	return m.done.status;
}

static int open_raw(void)
{
	struct wire_hello hello = {.version = WIRE_VERSION};
	int fd = connect_raw();
	static union message m;

	if (fd < 0 || send_message(fd, &hello, sizeof(hello), WIRE_HELLO, "raw", NULL, NULL) < 0 ||
		recv(fd, &m, sizeof(m), 0) <= 0 || m.h.type != WIRE_WELCOME)
		return -EIO;
	return m.welcome.status < 0 ? m.welcome.status : fd;
}

static int watch(int fd, uint64_t number)
{
	struct wire_watch w = {.watch = number};

	if (send_message(fd, &w, sizeof(w), WIRE_WATCH, "/open", NULL, NULL) < 0)
		return -EIO;
	return receive_done(fd);
}

static int watch_all(void)
{
	struct wire_unwatch u = {.watch = 1};
	int fd = open_raw(), r = fd < 0 ? fd : 0;

	for (unsigned i = 1; r == 0 && i <= QUEUED; i++)
		r = watch(fd, i);
	if (r < 0)
		return r;
	if (watch(fd, 9) != -EDQUOT)
		return -EIO;
	if (send_message(fd, &u, sizeof(u), WIRE_UNWATCH, NULL, NULL, NULL) < 0)
		return -EIO;
	return watch(fd, 10);
}

static int watch_one(void)
{
	int fd = open_raw();

	return fd < 0 ? fd : watch(fd, 1);
}

static void test_watches(void **state)
{
	struct holder holder;

	(void)state;
	harness_need_root();
	assert_int_equal(hold(UID, watch_all, &holder), 0);
	assert_int_equal(once(UID, watch_one), -EDQUOT);
	assert_int_equal(once(OTHER, watch_one), 0);
	kill_holder(&holder);
	await_success(UID, watch_all);
}

/* Limits that are lowered take nothing away. */
static void test_reload(void **state)
{
	struct holder holder;

	(void)state;
	harness_need_root();
	await_success(UID, open_one);
	assert_int_equal(hold(UID, open_all_but_one, &holder), 0);
	harness_configure(&h, "[daemon]\ngrace = 0\nmax_sessions_per_uid = 2\n");
	assert_int_equal(tally_set(root, "/", "tallyd.reload", "1"), 0);
	assert_int_equal(once(UID, open_one), -EDQUOT);
	harness_configure(&h, "[daemon]\ngrace = 0\nmax_sessions_per_uid = 5\n");
	assert_int_equal(tally_set(root, "/", "tallyd.reload", "1"), 0);
	assert_int_equal(once(UID, open_one), 0);
	kill_holder(&holder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_take_and_give),
		cmocka_unit_test(test_uids_are_apart),
		cmocka_unit_test(test_new_limits),
		cmocka_unit_test(test_sessions),
		cmocka_unit_test(test_connections),
		cmocka_unit_test(test_pools),
		cmocka_unit_test(test_attachments),
		cmocka_unit_test(test_watches),
		cmocka_unit_test(test_reload),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
