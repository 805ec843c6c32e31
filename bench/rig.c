/* SPDX-License-Identifier: MIT */

#include "rig.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "core/util.h"

#define PATIENCE_NSEC UINT64_C(10000000000)
#define POLL_NSEC 5000000

const char *const rig_mode_names[RIG_MODES] = {
	[RIG_DAEMON] = "daemon",
	[RIG_EMBEDDED] = "embedded",
};

static struct {
	pid_t owner, pid;
	char dir[64], config[80], runtime[80], address[112];
} daemon_of;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void stop(void)
{
	/* A child that calls exit() has no daemon to stop. */
	if (daemon_of.owner != getpid())
		return;
	if (daemon_of.pid > 0) {
		kill(daemon_of.pid, SIGTERM);
		waitpid(daemon_of.pid, NULL, 0);
	}
	nftw(daemon_of.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void write_config(const char *config)
{
	_cleanup_(fclosep) FILE *f = fopen(daemon_of.config, "we");

	if (!f || fputs(config, f) < 0)
		bench_die("cannot write %s: %s", daemon_of.config, strerror(errno));
}

static void spawn(const char *program)
{
	daemon_of.pid = fork();
	if (daemon_of.pid < 0)
		bench_die("cannot fork: %s", strerror(errno));
	if (daemon_of.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execlp(program, program, "--config", daemon_of.config, "--runtime-dir",
			daemon_of.runtime, (char *)NULL);
		fprintf(stderr, "bench: cannot run %s: %s\n", program, strerror(errno));
		_exit(127);
	}
}

static void await(const char *program)
{
	uint64_t start = bench_now();
	struct tally *t;

	while (tally_open(daemon_of.address, 0, &t) < 0) {
		if (waitpid(daemon_of.pid, NULL, WNOHANG) != 0) {
			daemon_of.pid = 0;
			bench_die("%s ended at its start", program);
		}
		if (bench_now() - start > PATIENCE_NSEC)
			bench_die("%s does not answer", program);
		bench_sleep(POLL_NSEC);
	}
	tally_close(t);
}

/* Which kind of per-CPU operation is measured is the daemon's choice, or that of $TALLY_PERCPU. */
static void print_percpu(void)
{
	static const char key[] = "\npercpu ";
	_cleanup_(freep) char *text = NULL;
	const char *value;
	struct tally *t;

	rig_check(tally_open(daemon_of.address, 0, &t), "tally_open");
	rig_check(tally_get(t, "/", "tallyd.status", 0, &text), "tallyd.status");
	tally_close(t);
	value = strstr(text, key);
	if (value)
		printf("# percpu:   %.*s\n", (int)strcspn(value + strlen(key), "\n"),
			value + strlen(key));
}

void rig_start(const char *config)
{
	const char *program = getenv("TALLYD"), *tmp = getenv("TMPDIR");

	if (!program)
		bench_die("set TALLYD to the daemon to be measured, or use ./dev bench");
	/* The path of a socket has to be short. */
	if (!tmp || strlen(tmp) > 40)
		tmp = "/tmp";
	snprintf(daemon_of.dir, sizeof(daemon_of.dir), "%s/tally-bench-XXXXXX", tmp);
	if (!mkdtemp(daemon_of.dir))
		bench_die("cannot make %s: %s", daemon_of.dir, strerror(errno));
	daemon_of.owner = getpid();
	atexit(stop);
	snprintf(daemon_of.config, sizeof(daemon_of.config), "%s/conf", daemon_of.dir);
	snprintf(daemon_of.runtime, sizeof(daemon_of.runtime), "%s/run", daemon_of.dir);
	snprintf(daemon_of.address, sizeof(daemon_of.address), "unix:%s/tallyd.sock",
		daemon_of.runtime);
	write_config(config);
	spawn(program);
	await(program);
	print_percpu();
}

struct tally *rig_open(enum rig_mode mode, const char **ret_reason)
{
	static char reason[96];
	struct tally *t;
	int r = tally_open(mode == RIG_DAEMON ? daemon_of.address : "embedded:", 0, &t);

	if (r == 0)
		return t;
	if (mode == RIG_DAEMON)
		rig_check(r, "tally_open");
	snprintf(reason, sizeof(reason), "tally_open(\"embedded:\"): %s", strerror(-r));
	*ret_reason = reason;
	return NULL;
}

struct tally_pool *rig_attach(struct tally *t, const char *path)
{
	struct tally_pool *p = NULL;

	rig_check(tally_attach(t, path, TALLY_CREATE, &p), "tally_attach");
	return p;
}

tally_item rig_item(struct tally *t, const char *name)
{
	tally_item item = 0;

	rig_check(tally_item_lookup(t, name, &item), "tally_item_lookup");
	return item;
}

int64_t rig_value(struct tally *t, const char *path, const char *file, const char *key)
{
	_cleanup_(freep) char *text = NULL;
	size_t n = strlen(key);

	if (tally_get(t, path, file, TALLY_EXACT, &text) < 0)
		return -1;
	for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
		if (strncmp(line, key, n) == 0 && line[n] == ' ')
			return strtoll(line + n + 1, NULL, 10);
	return -1;
}

void rig_check(int r, const char *what)
{
	if (r < 0)
		bench_die("%s: %s", what, strerror(-r));
}
