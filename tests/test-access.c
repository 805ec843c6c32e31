/* SPDX-License-Identifier: MIT */

/*
 * Who may do what: every action by everybody who stands in another relation to a pool, in processes of
 * real uids. Each cell of the tables below is tried and compared with the error that it should be.
 */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/util.h"
#include "core/wire.h"
#include "harness.h"

/* Nobody has them. */
#define ABOVE_UID 60001
#define OWNER_UID 60002
#define MEMBER_UID 60003
#define EXTRA_UID 60004
#define OTHER_UID 60005
#define ADMIN_UID 60006
#define POOL_GID 61001
#define ADMIN_GID 61002
#define OTHER_GID 61003
#define ANY_GID ((gid_t)-1)

static const char config[] = "[daemon]\n"
			     "flush_interval = 100ms\n"
			     "admin_group = 61002\n"
			     "[pool above]\n"
			     "path = /above\n"
			     "owner = 60001:61003\n"
			     "[pool own]\n"
			     "path = /above/own\n"
			     "owner = 60002:61001\n";

union message {
	struct wire_header h;
	struct wire_welcome welcome;
	struct wire_done done;
	char bytes[WIRE_MAX];
};

static struct harness h;
static struct tally *root;

enum who { ROOT, ADMIN, ABOVE, OWNER, MEMBER, EXTRA, OTHER, EVERYBODY };

static const struct {
	const char *name;
	uid_t uid;
	gid_t gid;
	gid_t extra; /* supplementary group */
} people[EVERYBODY] = {
	[ROOT] = {"root", 0, 0, 0},
	[ADMIN] = {"admin", ADMIN_UID, OTHER_GID, ADMIN_GID},
	[ABOVE] = {"owner of the pool above", ABOVE_UID, OTHER_GID, OTHER_GID},
	[OWNER] = {"owner", OWNER_UID, POOL_GID, POOL_GID},
	[MEMBER] = {"member", MEMBER_UID, POOL_GID, POOL_GID},
	[EXTRA] = {"member by a supplementary group", EXTRA_UID, OTHER_GID + 2, POOL_GID},
	[OTHER] = {"other", OTHER_UID, OTHER_GID + 1, OTHER_GID + 1},
};

static bool become(uid_t uid, gid_t gid, gid_t extra)
{
	return setgroups(1, &extra) == 0 && setresgid(gid, gid, gid) == 0 &&
		setresuid(uid, uid, uid) == 0;
}

/* A child that has become that person does one thing; what came of it. */
struct errand {
	enum who who;
	int (*fn)(struct tally *t, void *userdata);
	void *userdata;
};

static int run_errand(void *userdata)
{
	const struct errand *e = userdata;
	struct tally *t;
	int r;

	if (!become(people[e->who].uid, people[e->who].gid, people[e->who].extra))
		return 255;
	r = tally_open(h.address, 0, &t);
	if (r == 0) {
		r = e->fn(t, e->userdata);
		tally_close(t);
	}
	return -r;
}

static int as(enum who who, int (*fn)(struct tally *t, void *userdata), void *userdata)
{
	struct errand e = {who, fn, userdata};
	int status;

	assert_true(waitpid(harness_fork(run_errand, &e), &status, 0) > 0);
	assert_true(WIFEXITED(status));
	assert_int_not_equal(WEXITSTATUS(status), 255);
	return -WEXITSTATUS(status);
}

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

/* ------------------------------------------------------------------ the matrix */

#define OWN "/above/own"
#define CHILD OWN "/child"

static int attach(struct tally *t, void *userdata)
{
	struct tally_pool *p;
	int r = tally_attach(t, userdata, 0, &p);

	if (r == 0)
		r = tally_charge(p, 1);
	if (r == 0)
		tally_detach(p);
	return r;
}

static int attach_new(struct tally *t, void *userdata)
{
	struct tally_pool *p;
	int r = tally_attach(t, userdata, TALLY_CREATE, &p);

	if (r == 0)
		tally_detach(p);
	return r;
}

static int create(struct tally *t, void *userdata)
{
	return tally_create(t, userdata);
}

static int remove_pool(struct tally *t, void *userdata)
{
	return tally_remove(t, userdata, 0);
}

struct reading {
	const char *path, *file;
};

static int get(struct tally *t, void *userdata)
{
	const struct reading *g = userdata;
	char *text;
	int r = tally_get(t, g->path, g->file, TALLY_EXACT, &text);

	if (r == 0)
		free(text);
	return r;
}

struct setting {
	const char *path, *file, *value;
};

static int set(struct tally *t, void *userdata)
{
	const struct setting *s = userdata;

	return tally_set(t, s->path, s->file, s->value);
}

/* Sends a message and receives the answer to it, which goes over it. */
static int talk(
	int fd, union message *m, const void *fixed, size_t n, uint32_t type, const char *string)
{
	const char *const strings[WIRE_STRINGS_MAX] = {string};
	int size = wire_pack(m, fixed, n, type, 1, strings);

	if (size < 0 || send(fd, m, (size_t)size, MSG_NOSIGNAL) != size)
		return -EIO;
	return recv(fd, m, sizeof(*m), 0) > 0 ? 0 : -EIO;
}

/* Over a socket of its own. */
static int watch(struct tally *t, void *userdata)
{
	struct wire_hello hello = {.version = WIRE_VERSION};
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct wire_watch w = {.watch = 1};
	union message m;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), r;

	(void)t;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/tallyd.sock", h.runtime);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return -errno;
	r = talk(fd, &m, &hello, sizeof(hello), WIRE_HELLO, "watcher");
	if (r == 0)
		r = m.welcome.status;
	if (r == 0)
		r = talk(fd, &m, &w, sizeof(w), WIRE_WATCH, userdata);
	if (r == 0)
		r = m.h.type == WIRE_DONE ? m.done.status : -EPROTO;
	close(fd);
	return r;
}

static int define(struct tally *t, void *userdata)
{
	struct tally_item_def def = {.name = userdata, .unit = "", .help = ""};
	tally_item item;

	return tally_item_define(t, &def, sizeof(def), &item);
}

#define READ(path, file) (&(struct reading){path, file})
#define SET(path, file, value) (&(struct setting){path, file, value})

struct cell {
	const char *what;
	int (*fn)(struct tally *t, void *userdata);
	void *userdata;
	int expected[EVERYBODY];
	void (*before)(void), (*after)(void);
};

static void make_child(void)
{
	assert_int_equal(tally_create(root, CHILD), 0);
}

static void remove_child(void)
{
	int r = tally_remove(root, CHILD, 0);

	assert_true(r == 0 || r == -ENOENT);
}

static void keep_own(void)
{
	int r = tally_create(root, OWN);

	assert_true(r == 0 || r == -EEXIST);
	assert_int_equal(tally_set(root, OWN, "pool.owner", "60002:61001"), 0);
	assert_int_equal(tally_set(root, OWN, "pool.mode", "0754"), 0);
	assert_int_equal(tally_set(root, OWN, "memory.max", "max"), 0);
}

static void open_to_group(void)
{
	keep_own();
	assert_int_equal(tally_set(root, OWN, "pool.mode", "0770"), 0);
	make_child();
}

static void close_to_all(void)
{
	keep_own();
	assert_int_equal(tally_set(root, OWN, "pool.mode", "0700"), 0);
	make_child();
}

static void close_to_owner(void)
{
	keep_own();
	assert_int_equal(tally_set(root, OWN, "pool.mode", "0070"), 0);
}

static void restore(void)
{
	remove_child();
	keep_own();
}

#define A (-EACCES)
#define P (-EPERM)

static const struct cell cells[] = {
	/* root, admin, above, owner, member, extra, other */
	{"attach", attach, OWN, {0, 0, 0, 0, 0, 0, A}, NULL, NULL},
	{"attach above", attach, "/above", {0, 0, 0, A, A, A, A}, NULL, NULL},
	{"attach to the root", attach, "/", {0, 0, A, A, A, A, A}, NULL, NULL},
	{"create below", create, CHILD, {0, 0, 0, 0, A, A, A}, NULL, remove_child},
	{"create by attaching", attach_new, CHILD, {0, 0, 0, 0, A, A, A}, NULL, remove_child},
	{"create beside", create, "/above/beside", {0, 0, 0, A, A, A, A}, NULL, NULL},
	{"read", get, READ(OWN, "memory.stat"), {0}, NULL, NULL},
	{"read its limit", get, READ(OWN, "memory.max"), {0}, NULL, NULL},
	{"read its clients", get, READ(OWN, "pool.clients"), {0}, NULL, NULL},
	{"read the daemon", get, READ("/", "tallyd.status"), {0}, NULL, NULL},
	{"watch", watch, OWN, {0}, NULL, NULL},
	{"set its limit", set, SET(OWN, "memory.max", "1G"), {0, 0, 0, P, A, A, A}, NULL, NULL},
	{"reset its peak", set, SET(OWN, "memory.peak", "1"), {0, 0, 0, P, A, A, A}, NULL, NULL},
	{"set an item's limit", set, SET(OWN, "stat.anon.max", "max"), {0, 0, 0, P, A, A, A}, NULL,
		NULL},
	{"set a child's limit", set, SET(CHILD, "memory.max", "1G"), {0, 0, 0, 0, A, A, A},
		make_child, remove_child},
	{"set the limit above", set, SET("/above", "memory.max", "max"), {0, 0, P, A, A, A, A},
		NULL, NULL},
	{"set the root's limit", set, SET("/", "memory.max", "max"), {0, 0, P, P, P, P, P}, NULL,
		NULL},
	{"remove", remove_pool, OWN, {0, 0, 0, P, A, A, A}, keep_own, keep_own},
	{"remove a child", remove_pool, CHILD, {0, 0, 0, 0, A, A, A}, make_child, remove_child},
	{"drain", set, SET(OWN, "pool.drain", "1"), {0, 0, 0, 0, A, A, A}, NULL, NULL},
	{"drain above", set, SET("/above", "pool.drain", "1"), {0, 0, 0, A, A, A, A}, NULL, NULL},
	{"reclaim", set, SET(OWN, "memory.reclaim", "0"), {0, 0, 0, 0, A, A, A}, NULL, NULL},
	{"flush", set, SET(OWN, "pool.flush", "1"), {0}, NULL, NULL},
	{"chown", set, SET(OWN, "pool.owner", "60002:61001"), {0, 0, P, P, P, P, P}, NULL, NULL},
	{"chown a child", set, SET(CHILD, "pool.owner", "1:1"), {0, 0, P, P, P, P, P}, make_child,
		remove_child},
	{"chmod", set, SET(OWN, "pool.mode", "0754"), {0, 0, 0, P, P, P, P}, NULL, NULL},
	{"chmod a child", set, SET(CHILD, "pool.mode", "0700"), {0, 0, 0, 0, P, P, P}, make_child,
		remove_child},
	{"reload", set, SET("/", "tallyd.reload", "1"), {0, 0, P, P, P, P, P}, NULL, keep_own},
	{"read who owns it", get, READ(OWN, "pool.owner"), {0}, NULL, NULL},

	/* Of a pool that its group may change and others not even read. */
	{"0770: create below", create, OWN "/more", {0, 0, 0, 0, 0, 0, A}, open_to_group, restore},
	{"0770: set a child's limit", set, SET(CHILD, "memory.max", "1G"), {0, 0, 0, 0, 0, 0, A},
		open_to_group, restore},
	{"0770: chmod a child", set, SET(CHILD, "pool.mode", "0700"), {0, 0, 0, 0, P, P, P},
		open_to_group, restore},
	{"0770: set its limit", set, SET(OWN, "memory.max", "1G"), {0, 0, 0, P, A, A, A},
		open_to_group, restore},
	{"0770: drain", set, SET(OWN, "pool.drain", "1"), {0, 0, 0, 0, 0, 0, A}, open_to_group,
		restore},
	{"0770: read", get, READ(OWN, "memory.stat"), {0, 0, 0, 0, 0, 0, A}, open_to_group,
		restore},
	{"0770: watch", watch, OWN, {0, 0, 0, 0, 0, 0, A}, open_to_group, restore},
	{"0770: flush", set, SET(OWN, "pool.flush", "1"), {0, 0, 0, 0, 0, 0, A}, open_to_group,
		restore},
	{"0770: read who owns it", get, READ(OWN, "pool.mode"), {0}, open_to_group, restore},

	/* The owner's alone. */
	{"0700: attach", attach, OWN, {0, 0, 0, 0, A, A, A}, close_to_all, restore},
	{"0700: read", get, READ(OWN, "memory.stat"), {0, 0, 0, 0, A, A, A}, close_to_all, restore},
	/* The child is root's, as others see it: they may read it, and not attach. */
	{"0700: read a child", get, READ(CHILD, "memory.stat"), {0}, close_to_all, restore},
	{"0700: attach to a child", attach, CHILD, {0, 0, 0, 0, A, A, A}, close_to_all, restore},

	/* The owner's bits count for the owner, not the group's; whoever owns the pool above still may. */
	{"0070: attach", attach, OWN, {0, 0, 0, A, 0, 0, A}, close_to_owner, restore},

	/* What nobody writes or reads, and what is not there. */
	{"set what is only read", set, SET(OWN, "memory.stat", "1"), {A, A, A, A, A, A, A}, NULL,
		NULL},
	{"read what is only set", get, READ(OWN, "pool.drain"), {A, A, A, A, A, A, A}, NULL, NULL},
	{"set no file", set, SET(OWN, "memory.no", "1"),
		{-ENOENT, -ENOENT, -ENOENT, -ENOENT, -ENOENT, -ENOENT, -ENOENT}, NULL, NULL},
	{"define an item", define, (void *)"access_test", {0, 0, P, P, P, P, P}, NULL, NULL},
};

static void test_matrix(void **state)
{
	unsigned wrong = 0;

	(void)state;
	harness_need_root();
	keep_own();
	for (size_t i = 0; i < ELEMENTS(cells); i++) {
		const struct cell *c = &cells[i];

		for (enum who who = 0; who < EVERYBODY; who++) {
			int r;

			if (c->before)
				c->before();
			r = as(who, c->fn, c->userdata);
			if (c->after)
				c->after();
			tally_remove(root, OWN "/more", 0);
			tally_remove(root, "/above/beside", 0);
			if (r == c->expected[who])
				continue;
			wrong++;
			print_error("%s, %s: %d, not %d\n", people[who].name, c->what, r,
				c->expected[who]);
		}
	}
	assert_int_equal(wrong, 0);
}

/* ------------------------------------------------------------------ a place for every uid */

#define HOME(uid) "/users/" #uid

static char *owner_of(const char *path)
{
	char *text = harness_get(root, path, "pool.owner");

	text[strcspn(text, "\n")] = '\0';
	return text;
}

static void assert_owner(const char *path, const char *owner)
{
	char *is = owner_of(path);

	assert_string_equal(is, owner);
	free(is);
}

static void assert_no_pool(const char *path)
{
	char *text;

	assert_int_equal(tally_get(root, path, "memory.max", 0, &text), -ENOENT);
}

static void remove_homes(void)
{
	static const char *const paths[] = {HOME(60002) "/a/b", HOME(60002) "/a", HOME(60002),
		HOME(60003), HOME(60005), "/users"};

	for (size_t i = 0; i < ELEMENTS(paths); i++)
		tally_remove(root, paths[i], 0);
	assert_no_pool("/users");
}

static void test_home(void **state)
{
	(void)state;
	harness_need_root();
	assert_no_pool("/users");
	/* On attaching, also without TALLY_CREATE. */
	assert_int_equal(as(OWNER, attach, HOME(60002)), 0);
	assert_owner(HOME(60002), "60002:61001");
	assert_owner("/users", "0:0");
	remove_homes();
	/* What is below has to be made. */
	assert_int_equal(as(OWNER, attach, HOME(60002) "/a"), -ENOENT);
	assert_int_equal(as(OWNER, attach_new, HOME(60002) "/a/b"), 0);
	assert_owner(HOME(60002) "/a/b", "60002:61001");
	remove_homes();
	/* On creating, once. */
	assert_int_equal(as(OWNER, create, HOME(60002)), 0);
	assert_owner(HOME(60002), "60002:61001");
	assert_int_equal(as(OWNER, create, HOME(60002)), -EEXIST);
	assert_int_equal(as(OWNER, create, HOME(60002) "/a"), 0);
	remove_homes();
	/* One level at a time, as everywhere; the place is there for the next try. */
	assert_int_equal(as(OWNER, create, HOME(60002) "/a/b"), -ENOENT);
	assert_int_equal(as(OWNER, create, HOME(60002) "/a"), 0);
	/* Reading and setting make nothing. */
	assert_int_equal(as(MEMBER, get, READ(HOME(60003), "memory.max")), -ENOENT);
	assert_int_equal(as(MEMBER, set, SET(HOME(60003), "memory.max", "1")), -ENOENT);
	assert_no_pool(HOME(60003));
	remove_homes();
}

static void test_home_is_ones_own(void **state)
{
	static const char *const others[] = {HOME(60002), HOME(60002) "/a", HOME(060005),
		"/users/060005", "/users/60005x", "/users/x60005", "/users/+60005", "/users/ 60005",
		"/users/4294967295", "/users/60005.", "/users/0", "/users"};

	(void)state;
	harness_need_root();
	assert_int_equal(as(OWNER, create, HOME(60002)), 0);
	assert_int_equal(as(OWNER, create, HOME(60002) "/a"), 0);
	for (size_t i = 0; i < ELEMENTS(others); i++) {
		int r = as(OTHER, attach_new, (void *)others[i]);

		assert_int_equal(r, -EACCES);
		r = as(OTHER, create, (void *)others[i]);
		assert_true(r == -EACCES || r == -EEXIST);
	}
	assert_int_equal(as(OTHER, attach_new, (void *)"/users/60005/../60002"), -EINVAL);
	assert_int_equal(as(OTHER, attach_new, (void *)"/users//60005"), -EINVAL);
	assert_int_equal(as(OTHER, attach_new, (void *)"/users/./60005"), -EINVAL);
	assert_no_pool(HOME(60005));
	/* Whoever owns it has no say over it, and all below it. */
	assert_int_equal(as(OWNER, remove_pool, HOME(60002) "/a"), 0);
	assert_int_equal(as(OWNER, remove_pool, HOME(60002)), -EPERM);
	assert_int_equal(as(OTHER, remove_pool, HOME(60002)), -EACCES);
	assert_int_equal(as(OWNER, set, SET(HOME(60002), "memory.max", "1G")), -EPERM);
	/* An administrator sets its limit beforehand. */
	assert_int_equal(tally_create(root, HOME(60003)), 0);
	assert_int_equal(tally_set(root, HOME(60003), "memory.max", "1M"), 0);
	assert_int_equal(as(MEMBER, attach, HOME(60003)), 0);
	assert_owner(HOME(60003), "60003:0");
	remove_homes();
}

/* ------------------------------------------------------------------ whose a pool is */

static void test_files(void **state)
{
	static const char *const bad[] = {"", "60002", "60002:", ":61001", "root:root", "1:2:3",
		"-1:0", "4294967295:0", "0:4294967295", "1 :2", "1: 2", "1:2x"};
	static const char *const bad_modes[] = {"", "8", "1000", "rwx", "-1", "0754x"};
	char *text;

	(void)state;
	harness_need_root();
	keep_own();
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		assert_int_equal(tally_set(root, OWN, "pool.owner", bad[i]), -EINVAL);
	for (size_t i = 0; i < ELEMENTS(bad_modes); i++)
		assert_true(tally_set(root, OWN, "pool.mode", bad_modes[i]) < 0);
	assert_owner(OWN, "60002:61001");
	assert_int_equal(tally_set(root, OWN, "pool.owner", " 7:8\n"), 0);
	assert_owner(OWN, "7:8");
	assert_int_equal(tally_set(root, OWN, "pool.mode", "0710"), 0);
	text = harness_get(root, OWN, "pool.mode");
	assert_string_equal(text, "0710\n");
	free(text);
	/* What a client makes is its own. */
	keep_own();
	assert_int_equal(as(OWNER, create, CHILD), 0);
	assert_owner(CHILD, "60002:61001");
	remove_child();
	assert_int_equal(tally_create(root, "/roots"), 0);
	assert_owner("/roots", "0:0");
	assert_int_equal(tally_remove(root, "/roots", 0), 0);
}

static void reload(const char *text)
{
	harness_configure(&h, text);
	assert_int_equal(tally_set(root, "/", "tallyd.reload", "1"), 0);
}

static void test_reload(void **state)
{
	static const char changed[] =
		"[daemon]\nadmin_group = 61003\n[pool own]\npath = /above/own\n"
		"owner = 5:6\nmode = 0700\n"
		"[pool child]\npath = /above/own/child\n";
	char *text;

	(void)state;
	harness_need_root();
	assert_int_equal(tally_set(root, "/", "tallyd.reload", "reset " OWN), 0);
	assert_int_equal(as(OWNER, create, CHILD), 0);
	reload(changed);
	text = harness_get(root, "/", "tallyd.reload");
	assert_non_null(strstr(text, OWN " owner 60002:61001 -> 5:6\n"));
	assert_non_null(strstr(text, OWN " mode 0754 -> 0700\n"));
	assert_non_null(strstr(text, "/above owner 60001:61003 -> 0:0\n"));
	assert_non_null(strstr(text, "admin_group 61002 -> 61003\n"));
	free(text);
	assert_owner(OWN, "5:6");
	/* A section that does not say whose it is leaves it whose it was. */
	assert_owner(CHILD, "60002:61001");
	/* Who is an admin shows at once. */
	assert_int_equal(as(ADMIN, set, SET("/", "memory.max", "max")), 0);
	assert_int_equal(as(OTHER, set, SET("/", "memory.max", "max")), -EPERM);
	reload("[daemon]\nadmin_group =\n");
	assert_int_equal(as(ADMIN, set, SET("/", "memory.max", "max")), -EPERM);
	assert_owner(OWN, "0:0");
	/* What a person has set holds until it is reset. */
	assert_int_equal(tally_set(root, OWN, "pool.owner", "9:9"), 0);
	reload(changed);
	assert_owner(OWN, "9:9");
	assert_int_equal(tally_set(root, "/", "tallyd.reload", "reset " OWN), 0);
	assert_owner(OWN, "5:6");
	remove_child();
	reload(config);
}

static void assert_mode(const char *path, const char *mode)
{
	_cleanup_(freep) char *text = harness_get(root, path, "pool.mode");

	assert_string_equal(text, mode);
}

/* What a client has made is its own again when neither a person nor a section says otherwise. */
static void test_maker(void **state)
{
	char text[sizeof(config) + 200];

	(void)state;
	harness_need_root();
	assert_int_equal(as(OWNER, create, CHILD), 0);
	assert_int_equal(tally_set(root, CHILD, "pool.owner", "9:9"), 0);
	assert_int_equal(tally_set(root, CHILD, "pool.mode", "0700"), 0);
	assert_int_equal(tally_set(root, "/", "tallyd.reload", "reset " CHILD), 0);
	assert_owner(CHILD, "60002:61001");
	assert_mode(CHILD, "0754\n");

	snprintf(text, sizeof(text), "%s[pool child]\npath = %s\nowner = 5:6\nmode = 0710\n",
		config, CHILD);
	reload(text);
	assert_owner(CHILD, "5:6");
	assert_mode(CHILD, "0710\n");
	assert_int_equal(tally_set(root, CHILD, "pool.owner", "9:9"), 0);
	assert_int_equal(tally_set(root, "/", "tallyd.reload", "reset " CHILD), 0);
	assert_owner(CHILD, "5:6");
	reload(config);
	assert_owner(CHILD, "60002:61001");
	assert_mode(CHILD, "0754\n");
	remove_child();
}

/* An owner that is not known leaves everything as it was. */
static void test_unknown_owner(void **state)
{
	char *text;

	(void)state;
	harness_need_root();
	harness_configure(&h, "[pool own]\npath = /above/own\nowner = no-such-user:root\n");
	assert_int_equal(tally_set(root, "/", "tallyd.reload", "1"), -EINVAL);
	text = harness_get(root, "/", "tallyd.reload");
	assert_non_null(strstr(text,
		"tallyd.conf:3: [pool own] owner: there is no user "
		"\"no-such-user\""));
	free(text);
	assert_owner(OWN, "60002:61001");
	harness_configure(&h, config);
}

/* ------------------------------------------------------------------ a process that changes its user */

static int open_then_become_other(void *userdata)
{
	struct tally *t;

	(void)userdata;
	if (tally_open(h.address, 0, &t) != 0 || !become(OTHER_UID, OTHER_GID, OTHER_GID))
		return 254;
	return tally_set(t, OWN, "memory.max", "max") == 0 ? 0 : 1;
}

/* Who one is counts from the connection on. */
static void test_changed_user(void **state)
{
	(void)state;
	harness_need_root();
	harness_join(harness_fork(open_then_become_other, NULL), 0);
}

/* ------------------------------------------------------------------ eviction */

struct guest {
	pid_t pid;
	int fd;
};

/* Becomes that person, attaches to the paths, and says what its charges answer when it is asked. */
static void be_guest(enum who who, const char *const paths[2], int fd)
{
	struct tally_pool *p[2] = {NULL, NULL};
	struct tally *t;
	char byte;
	int r = 0;

	if (!become(people[who].uid, people[who].gid, people[who].extra) ||
		tally_open(h.address, 0, &t) != 0)
		r = -EIO;
	for (int i = 0; r == 0 && i < 2; i++)
		if (paths[i])
			r = tally_attach(t, paths[i], 0, &p[i]);
	if (r == 0 && p[0])
		r = tally_charge(p[0], 1000);
	do {
		if (write(fd, &r, sizeof(r)) != sizeof(r))
			_exit(1);
		if (read(fd, &byte, 1) != 1)
			_exit(0);
		/* Beyond what lies idle here. */
		r = tally_charge(p[0], 1 << 30);
		if (r == 0)
			tally_uncharge(p[0], 1 << 30);
	} while (true);
}

static void guest_start(struct guest *g, enum who who, const char *path, const char *second)
{
	const char *const paths[] = {path, second};
	int fds[2], r;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	g->pid = fork();
	assert_true(g->pid >= 0);
	if (g->pid == 0) {
		close(fds[0]);
		be_guest(who, paths, fds[1]);
	}
	close(fds[1]);
	g->fd = fds[0];
	assert_int_equal(read(g->fd, &r, sizeof(r)), sizeof(r));
	assert_int_equal(r, 0);
}

static int guest_charge(struct guest *g)
{
	int r;

	assert_int_equal(write(g->fd, "", 1), 1);
	assert_int_equal(read(g->fd, &r, sizeof(r)), sizeof(r));
	return r;
}

static void guest_stop(struct guest *g)
{
	close(g->fd);
	assert_int_equal(waitpid(g->pid, NULL, 0), g->pid);
}

static int evict(enum who who, const char *path, const char *how, unsigned long n)
{
	char value[64];

	snprintf(value, sizeof(value), "%s%lu", how, n);
	return as(who, set, SET(path, "pool.evict", value));
}

static void test_evict(void **state)
{
	/* The client is a member's, in the owner's pool. */
	static const int expected[EVERYBODY] = {0, 0, 0, 0, A, A, A};

	(void)state;
	harness_need_root();
	keep_own();
	for (enum who who = 0; who < EVERYBODY; who++) {
		struct guest g;
		int r;

		guest_start(&g, MEMBER, OWN, NULL);
		r = evict(who, "/", "pid=", (unsigned long)g.pid);
		if (r != expected[who])
			print_error("%s: %d\n", people[who].name, r);
		assert_int_equal(r, expected[who]);
		assert_int_equal(guest_charge(&g), r == 0 ? -ENOTCONN : 0);
		if (r == 0)
			assert_int_equal(harness_value(root, OWN, "memory.stat", "held"), 0);
		guest_stop(&g);
	}
	assert_int_equal(harness_log_lines(&h, "is evicted by pid"), 4);
	assert_int_equal(harness_log_lines(&h, "uid 60003, is evicted by pid"), 4);
}

/* A session ends whole: in somebody else's pool too, which one has to be allowed. */
static void test_evict_of_two_pools(void **state)
{
	struct guest g;

	(void)state;
	harness_need_root();
	assert_int_equal(tally_create(root, "/open"), 0);
	assert_int_equal(tally_set(root, "/open", "pool.mode", "0755"), 0);
	guest_start(&g, MEMBER, OWN, "/open");
	assert_int_equal(evict(OWNER, OWN, "pid=", (unsigned long)g.pid), -EACCES);
	assert_int_equal(guest_charge(&g), 0);
	assert_int_equal(evict(ROOT, "/open", "pid=", (unsigned long)g.pid), 0);
	assert_int_equal(guest_charge(&g), -ENOTCONN);
	guest_stop(&g);
	assert_int_equal(tally_remove(root, "/open", 0), 0);
}

static unsigned long session_of(const char *path)
{
	char *text = harness_get(root, path, "pool.clients");
	unsigned long n = 0;

	assert_int_equal(sscanf(text, "session=%lu", &n), 1);
	free(text);
	return n;
}

static void test_evict_whom(void **state)
{
	static const char *const bad[] = {
		"", "x", "pid=", "pid=x", "session=-1", "pid=1 2", "user=1"};
	struct guest g;

	(void)state;
	harness_need_root();
	guest_start(&g, MEMBER, OWN, NULL);
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		assert_int_equal(tally_set(root, "/", "pool.evict", bad[i]), -EINVAL);
	assert_int_equal(evict(ROOT, "/", "pid=", 1), -ESRCH);
	assert_int_equal(evict(ROOT, "/", "session=", 99999999), -ESRCH);
	/* Not attached there. */
	assert_int_equal(tally_create(root, "/empty"), 0);
	assert_int_equal(evict(ROOT, "/empty", "pid=", (unsigned long)g.pid), -ESRCH);
	assert_int_equal(tally_remove(root, "/empty", 0), 0);
	assert_int_equal(guest_charge(&g), 0);
	assert_int_equal(evict(ROOT, OWN, "session=", session_of(OWN)), 0);
	assert_int_equal(guest_charge(&g), -ENOTCONN);
	guest_stop(&g);
	guest_start(&g, MEMBER, OWN, NULL);
	assert_int_equal(evict(ROOT, "/above", "", (unsigned long)g.pid), 0);
	assert_int_equal(guest_charge(&g), -ENOTCONN);
	guest_stop(&g);
	guest_start(&g, MEMBER, OWN, NULL);
	assert_int_equal(evict(ROOT, "/above", "", session_of(OWN)), 0);
	assert_int_equal(guest_charge(&g), -ENOTCONN);
	guest_stop(&g);
}

static int evict_oneself(struct tally *t, void *userdata)
{
	char value[32], *text;
	int r;

	(void)userdata;
	snprintf(value, sizeof(value), "pid=%d", (int)getpid());
	r = tally_set(t, "/", "pool.evict", value);
	if (r == 0 && tally_get(t, "/", "memory.max", 0, &text) != -ENOTCONN)
		r = -EIO;
	return r;
}

/* Who does that hears of it first. */
static void test_evict_oneself(void **state)
{
	(void)state;
	harness_need_root();
	assert_int_equal(as(ROOT, evict_oneself, NULL), 0);
	assert_int_equal(as(OTHER, evict_oneself, NULL), 0);
}

/* ------------------------------------------------------------------ exported files */

struct look {
	const char *path;
	int flags;
};

static int open_file(struct tally *t, void *userdata)
{
	const struct look *l = userdata;
	int fd = open(l->path, l->flags | O_CLOEXEC);

	(void)t;
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int is_there(void *userdata)
{
	return access(userdata, F_OK) == 0;
}

static bool has_mode(const char *path, mode_t mode, gid_t gid)
{
	struct stat st;

	return stat(path, &st) == 0 && (st.st_mode & 0777) == mode && st.st_uid == 0 &&
		(gid == ANY_GID || st.st_gid == gid);
}

struct wanted_mode {
	const char *path;
	mode_t mode;
	gid_t gid;
};

static int is_so(void *userdata)
{
	const struct wanted_mode *w = userdata;

	return has_mode(w->path, w->mode, w->gid);
}

static void await_mode(const char *path, mode_t mode, gid_t gid)
{
	struct wanted_mode w = {path, mode, gid};

	if (!harness_wait(is_so, &w, HARNESS_PATIENCE_MS))
		fail_msg("%s has not got mode %04o", path, (unsigned)mode);
}

static void test_exported_files(void **state)
{
	char dir[256], file[512], child[512];

	(void)state;
	harness_need_root();
	keep_own();
	make_child();
	snprintf(dir, sizeof(dir), "%s/pools" OWN, h.runtime);
	snprintf(file, sizeof(file), "%s/memory.stat", dir);
	snprintf(child, sizeof(child), "%s/child/memory.stat", dir);
	assert_true(harness_wait(is_there, file, HARNESS_PATIENCE_MS));
	assert_true(harness_wait(is_there, child, HARNESS_PATIENCE_MS));
	await_mode(file, 0644, ANY_GID);
	await_mode(dir, 0755, ANY_GID);
	for (enum who who = 0; who < EVERYBODY; who++)
		assert_int_equal(as(who, open_file, (&(struct look){file, O_RDONLY})), 0);

	assert_int_equal(tally_set(root, OWN, "pool.mode", "0750"), 0);
	await_mode(file, 0640, POOL_GID);
	await_mode(dir, 0751, POOL_GID);
	assert_int_equal(as(OWNER, open_file, (&(struct look){file, O_RDONLY})), 0);
	assert_int_equal(as(EXTRA, open_file, (&(struct look){file, O_RDONLY})), 0);
	assert_int_equal(as(OTHER, open_file, (&(struct look){file, O_RDONLY})), -EACCES);
	assert_int_equal(as(OTHER, open_file, (&(struct look){dir, O_RDONLY})), -EACCES);
	/* The pool below is open to all. */
	assert_int_equal(as(OTHER, open_file, (&(struct look){child, O_RDONLY})), 0);
	/* Nobody writes there. */
	assert_int_equal(as(OWNER, open_file, (&(struct look){file, O_WRONLY})), -EACCES);

	assert_int_equal(tally_set(root, OWN, "pool.mode", "0700"), 0);
	await_mode(file, 0600, ANY_GID);
	await_mode(dir, 0711, ANY_GID);
	assert_int_equal(as(EXTRA, open_file, (&(struct look){file, O_RDONLY})), -EACCES);

	assert_int_equal(tally_set(root, OWN, "pool.mode", "0754"), 0);
	await_mode(file, 0644, ANY_GID);
	assert_int_equal(as(OTHER, open_file, (&(struct look){file, O_RDONLY})), 0);
	remove_child();
}

/* It has one user, who may do everything. */
static void test_embedded(void **state)
{
	struct tally *t;
	char *text;

	(void)state;
	assert_int_equal(tally_open("embedded:", 0, &t), 0);
	assert_int_equal(tally_create(t, "/a"), 0);
	assert_int_equal(tally_get(t, "/a", "pool.owner", 0, &text), -ENOENT);
	assert_int_equal(tally_get(t, "/a", "pool.mode", 0, &text), -ENOENT);
	assert_int_equal(tally_set(t, "/a", "pool.owner", "1:1"), -ENOENT);
	assert_int_equal(tally_set(t, "/a", "pool.evict", "1"), -ENOENT);
	assert_int_equal(tally_set(t, "/a", "memory.max", "1G"), 0);
	assert_int_equal(tally_remove(t, "/a", 0), 0);
	tally_close(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_matrix),
		cmocka_unit_test(test_home),
		cmocka_unit_test(test_home_is_ones_own),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_reload),
		cmocka_unit_test(test_maker),
		cmocka_unit_test(test_unknown_owner),
		cmocka_unit_test(test_changed_user),
		cmocka_unit_test(test_evict),
		cmocka_unit_test(test_evict_of_two_pools),
		cmocka_unit_test(test_evict_whom),
		cmocka_unit_test(test_evict_oneself),
		cmocka_unit_test(test_exported_files),
		cmocka_unit_test(test_embedded),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
