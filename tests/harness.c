/* SPDX-License-Identifier: MIT */

#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const char *harness_program(void)
{
	const char *p = getenv("TALLYD");

	return p ? p : "./tallyd";
}

void harness_configure(struct harness *h, const char *config)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/tallyd.conf", h->dir);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fputs(config, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* A test that fails because of the daemon is to say why. */
static void show_log(struct harness *h)
{
	FILE *f = fopen(h->log, "re");
	int c;

	while (f && (c = fgetc(f)) != EOF)
		fputc(c, stderr);
	if (f)
		fclose(f);
}

static int serves(void *userdata)
{
	struct harness *h = userdata;
	struct tally *t;

	if (waitpid(h->daemon, NULL, WNOHANG) != 0) {
		show_log(h);
		fail_msg("the daemon ended at its start");
	}
	if (tally_open(h->address, 0, &t) < 0)
		return 0;
	tally_close(t);
	return 1;
}

static void spawn(struct harness *h)
{
	char config[128];

	snprintf(config, sizeof(config), "%s/tallyd.conf", h->dir);
	h->daemon = fork();
	assert_true(h->daemon >= 0);
	if (h->daemon == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!freopen(h->log, "a", stderr))
			_exit(126);
		execlp(harness_program(), harness_program(), "--config", config, "--runtime-dir",
			h->runtime, (char *)NULL);
		_exit(127);
	}
	assert_true(harness_wait(serves, h, HARNESS_PATIENCE_MS));
}

void harness_start(struct harness *h, const char *config)
{
	const char *tmp = getenv("TMPDIR");

	/* The path of a socket has to be short. */
	if (!tmp || strlen(tmp) > 40)
		tmp = "/tmp";
	snprintf(h->dir, sizeof(h->dir), "%s/tally-test-XXXXXX", tmp);
	assert_non_null(mkdtemp(h->dir));
	snprintf(h->runtime, sizeof(h->runtime), "%s/run", h->dir);
	snprintf(h->address, sizeof(h->address), "unix:%s/tallyd.sock", h->runtime);
	snprintf(h->log, sizeof(h->log), "%s/log", h->dir);
	harness_configure(h, config);
	spawn(h);
}

void harness_restart(struct harness *h)
{
	assert_int_equal(h->daemon, -1);
	spawn(h);
}

void harness_kill(struct harness *h)
{
	assert_int_equal(kill(h->daemon, SIGKILL), 0);
	assert_int_equal(waitpid(h->daemon, NULL, 0), h->daemon);
	h->daemon = -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void harness_stop(struct harness *h)
{
	if (h->daemon > 0) {
		int status;

		assert_int_equal(kill(h->daemon, SIGTERM), 0);
		assert_int_equal(waitpid(h->daemon, &status, 0), h->daemon);
		if (status != 0)
			show_log(h);
		assert_int_equal(status, 0);
	}
	assert_int_equal(nftw(h->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

unsigned harness_log_lines(struct harness *h, const char *text)
{
	FILE *f = fopen(h->log, "re");
	char line[8192];
	unsigned n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, text) != NULL;
	fclose(f);
	return n;
}

/* A child goes with the test. What fails in it ends it: cmocka would carry on with the parent's
 * tests there, after a crash too. */
static void begin_child(void)
{
	static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++)
		signal(crashes[i], SIG_DFL);
	setenv("CMOCKA_TEST_ABORT", "1", 1);
}

/* Sanitizers reserve terabytes of addresses; valgrind or qemu is the program, and loads ours. */
int harness_is_bare(struct harness *h)
{
	char path[64], line[256], program[256];
	unsigned long size_kb = 0;
	ssize_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)h->daemon);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		sscanf(line, "VmSize: %lu", &size_kb);
	fclose(f);
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)h->daemon);
	n = readlink(path, program, sizeof(program) - 1);
	assert_true(n > 0);
	program[n] = '\0';
	return size_kb < 1UL << 30 && !strstr(program, "valgrind") && !strstr(program, "qemu");
}

void harness_skip_emulated(const char *what)
{
	const char *qemu = getenv("TEST_QEMU");

	if (!qemu || !*qemu)
		return;
	print_message("skipped: qemu %s\n", what);
	skip();
}

struct tally *harness_open(struct harness *h)
{
	struct tally *t;

	assert_int_equal(tally_open(h->address, 0, &t), 0);
	return t;
}

struct tally_pool *harness_attach(struct tally *t, const char *path)
{
	struct tally_pool *p;

	assert_int_equal(tally_attach(t, path, TALLY_CREATE, &p), 0);
	return p;
}

char *harness_get(struct tally *t, const char *path, const char *file)
{
	char *text;

	assert_int_equal(tally_get(t, path, file, TALLY_EXACT, &text), 0);
	return text;
}

uint64_t harness_current(struct tally *t, const char *path)
{
	char *text = harness_get(t, path, "memory.current"), *end;
	uint64_t n = strtoull(text, &end, 10);

	assert_string_equal(end, "\n");
	free(text);
	return n;
}

uint64_t harness_value(struct tally *t, const char *path, const char *file, const char *key)
{
	char *text = harness_get(t, path, file), *rest = text, *line;
	size_t n = strlen(key);

	while ((line = strsep(&rest, "\n")))
		if (strncmp(line, key, n) == 0 && line[n] == ' ') {
			uint64_t v = strtoull(line + n + 1, NULL, 10);

			free(text);
			return v;
		}
	fail_msg("%s of %s has no line '%s'", file, path, key);
	return 0;
}

unsigned harness_waiting(struct tally *t, const char *path)
{
	static const char key[] = " waiting=";
	char *text = harness_get(t, path, "pool.clients");
	unsigned n = 0;

	for (char *p = text; (p = strstr(p, key)); p += strlen(key))
		n += (unsigned)atoi(p + strlen(key));
	free(text);
	return n;
}

pid_t harness_fork(int (*fn)(void *userdata), void *userdata)
{
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		begin_child();
		_exit(fn(userdata));
	}
	return child;
}

void harness_join(pid_t child, int status)
{
	int got;

	assert_int_equal(waitpid(child, &got, 0), child);
	assert_true(WIFEXITED(got));
	assert_int_equal(WEXITSTATUS(got), status);
}

uint64_t harness_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

uint64_t harness_memory_kib(const struct harness *h)
{
	char path[64], line[256];
	uint64_t kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)h->daemon);
	f = fopen(path, "re");
	assert_non_null(f);
	while (kib == 0 && fgets(line, sizeof(line), f))
		if (strncmp(line, "VmRSS:", 6) == 0)
			kib = strtoull(line + 6, NULL, 10);
	fclose(f);
	assert_true(kib > 0);
	return kib;
}

void harness_need_root(void)
{
	if (geteuid() == 0)
		return;
	print_message("skipped: only root can become another user\n");
	skip();
}

int harness_wait(int (*holds)(void *userdata), void *userdata, unsigned ms)
{
	for (unsigned waited = 0; !holds(userdata); waited += 5) {
		if (waited >= ms)
			return 0;
		usleep(5000);
	}
	return 1;
}

void *harness_shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

void harness_unshare(void *p, size_t size)
{
	assert_int_equal(munmap(p, size), 0);
}

/* ------------------------------------------------------------------ actors */

struct order {
	uint64_t what; /* enum actor_order */
	uint64_t x, y;
};

struct stage {
	struct tally *tally;
	struct tally_pool *pool;
	int fd;
};

static int charge(struct tally_pool *p, uint64_t bytes, uint64_t wait_ms)
{
	struct tally_charge_args args = {.bytes = bytes};

	if (wait_ms > 0)
		args.deadline_usec = harness_now() + wait_ms * 1000;
	return tally_charge_with(p, &args, sizeof(args));
}

static int pin(uint64_t cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) < 0 ? -errno : 0;
}

static int close_all_but(int fd)
{
	return close_range(3, (unsigned)fd - 1, 0) < 0 || close_range((unsigned)fd + 1, ~0U, 0) < 0
		? -errno
		: 0;
}

static int fork_idler(void)
{
	pid_t child = fork();

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, 0);
		sleep(600);
		_exit(0);
	}
	return child;
}

static int become_idler(struct tally *t, bool keep)
{
	if (keep && fcntl(tally_fd(t), F_SETFD, 0) < 0)
		return -errno;
	execlp("sleep", "sleep", "600", (char *)NULL);
	return -errno;
}

/* All that waits for the daemon sends what has been moved before the item's key was known. */
static int look(struct stage *s)
{
	char *text;
	int r = tally_get(s->tally, tally_pool_path(s->pool), "memory.stat", TALLY_CACHED, &text);

	if (r == 0)
		free(text);
	return r;
}

static int obey(struct stage *s, const struct order *o)
{
	switch ((enum actor_order)o->what) {
	case ACTOR_CHARGE:
		return charge(s->pool, o->x, o->y);
	case ACTOR_TRY:
		return tally_try_charge(s->pool, o->x);
	case ACTOR_UNCHARGE:
		tally_uncharge(s->pool, o->x);
		return 0;
	case ACTOR_MOVE:
		tally_stat_add(s->pool, (tally_item)o->x, (int64_t)o->y);
		return 0;
	case ACTOR_LOOK:
		return look(s);
	case ACTOR_PIN:
		return pin(o->x);
	case ACTOR_DETACH:
		s->pool = tally_detach(s->pool);
		return 0;
	case ACTOR_CLOSE:
		s->tally = tally_close(s->tally);
		return 0;
	case ACTOR_CLOSE_FDS:
		return close_all_but(s->fd);
	case ACTOR_FORK:
		return fork_idler();
	case ACTOR_EXEC:
		return become_idler(s->tally, o->x);
	}
	return -EINVAL;
}

static void act(struct harness *h, const char *path, int fd)
{
	struct stage s = {.fd = fd};
	int r = tally_open(h->address, 0, &s.tally);
	struct order o;

	if (r == 0)
		r = tally_attach(s.tally, path, TALLY_CREATE, &s.pool);
	do {
		if (send(fd, &r, sizeof(r), MSG_NOSIGNAL) != sizeof(r) ||
			recv(fd, &o, sizeof(o), 0) != sizeof(o))
			return;
		r = obey(&s, &o);
	} while (true);
}

void actor_start(struct actor *a, struct harness *h, const char *path)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	a->pid = fork();
	assert_true(a->pid >= 0);
	if (a->pid == 0) {
		begin_child();
		close(fds[0]);
		act(h, path, fds[1]);
		_exit(0);
	}
	close(fds[1]);
	a->fd = fds[0];
	assert_int_equal(actor_result(a), 0);
}

void actor_tell(struct actor *a, enum actor_order order, uint64_t x, uint64_t y)
{
	struct order o = {order, x, y};

	assert_int_equal(send(a->fd, &o, sizeof(o), MSG_NOSIGNAL), sizeof(o));
}

int actor_result(struct actor *a)
{
	int result;

	return recv(a->fd, &result, sizeof(result), 0) == sizeof(result) ? result : -EPIPE;
}

int actor_do(struct actor *a, enum actor_order order, uint64_t x, uint64_t y)
{
	actor_tell(a, order, x, y);
	return actor_result(a);
}

int actor_has_result(void *actor)
{
	struct actor *a = actor;
	struct pollfd p = {.fd = a->fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

void actor_kill(struct actor *a)
{
	kill(a->pid, SIGKILL);
	assert_int_equal(waitpid(a->pid, NULL, 0), a->pid);
	close(a->fd);
}
