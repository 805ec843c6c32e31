/* SPDX-License-Identifier: MIT */

#include "rig.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "core/util.h"
#include "guard.h"

#define PATIENCE_NSEC UINT64_C(10000000000)
#define POLL_NSEC 5000000
#define LATE_NSEC 300000000

const char *const rig_mode_names[RIG_MODES] = {
	[RIG_DAEMON] = "daemon",
	[RIG_EMBEDDED] = "embedded",
};

#define DAEMONS_MAX 4

static struct daemon {
	pid_t pid;
	char *dir, *config, *runtime, *address;
} daemons[DAEMONS_MAX];

static unsigned n_daemons;
static pid_t owner;
static struct daemon *last; /* NULL: none was started */

static void stop_all(void)
{
	/* A child that calls exit() has no daemon to stop. */
	if (owner != getpid())
		return;
	for (struct daemon *d = daemons; d < daemons + n_daemons; d++) {
		if (d->pid > 0) {
			kill(d->pid, SIGTERM);
			waitpid(d->pid, NULL, 0);
		}
		guard_remove_tree(d->dir);
	}
}

/* A daemon that was killed with this process may not have ended yet, and write. */
static void remove_late(void *dir)
{
	bench_sleep(LATE_NSEC);
	guard_remove_tree(dir);
}

static char *join(const char *a, const char *b, const char *c)
{
	char *text;

	if (asprintf(&text, "%s%s%s", a, b, c) < 0)
		bench_die("out of memory");
	return text;
}

static void make_dir(struct daemon *d)
{
	const char *tmp = getenv("TMPDIR");

	/* The path of a socket has to be short. */
	d->dir = join(tmp && strlen(tmp) <= 40 ? tmp : "/tmp", "/tally-bench-", "XXXXXX");
	if (!mkdtemp(d->dir))
		bench_die("cannot make %s: %s", d->dir, strerror(errno));
	guard_run_at_end(remove_late, d->dir);
	d->config = join(d->dir, "/", "conf");
	d->runtime = join(d->dir, "/", "run");
	d->address = join("unix:", d->runtime, "/tallyd.sock");
}

static void write_config(const struct daemon *d, const char *config)
{
	_cleanup_(fclosep) FILE *f = fopen(d->config, "we");

	if (!f || fputs(config, f) < 0)
		bench_die("cannot write %s: %s", d->config, strerror(errno));
}

static void spawn(struct daemon *d, const char *program)
{
	d->pid = fork();
	if (d->pid < 0)
		bench_die("cannot fork: %s", strerror(errno));
	if (d->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execlp(program, program, "--config", d->config, "--runtime-dir", d->runtime,
			(char *)NULL);
		fprintf(stderr, "bench: cannot run %s: %s\n", program, strerror(errno));
		_exit(127);
	}
}

static void await(struct daemon *d, const char *program)
{
	uint64_t start = bench_now();
	struct tally *t;

	while (tally_open(d->address, 0, &t) < 0) {
		if (waitpid(d->pid, NULL, WNOHANG) != 0) {
			d->pid = 0;
			bench_die("%s ended at its start", program);
		}
		if (bench_now() - start > PATIENCE_NSEC)
			bench_die("%s does not answer", program);
		bench_sleep(POLL_NSEC);
	}
	tally_close(t);
}

/* Which kind of per-CPU operation is measured is the daemon's choice, or that of $TALLY_PERCPU. */
static void print_percpu(const struct daemon *d)
{
	static const char key[] = "\npercpu ";
	_cleanup_(freep) char *text = NULL;
	const char *value;
	struct tally *t;

	rig_check(tally_open(d->address, 0, &t), "tally_open");
	rig_check(tally_get(t, "/", "tallyd.status", 0, &text), "tallyd.status");
	tally_close(t);
	value = strstr(text, key);
	if (value)
		printf("# percpu:   %.*s\n", (int)strcspn(value + strlen(key), "\n"),
			value + strlen(key));
}

void rig_start(const char *config)
{
	const char *program = getenv("TALLYD");
	struct daemon *d = &daemons[n_daemons];

	if (!program)
		bench_die("set TALLYD to the daemon to be measured, or use ./dev bench");
	if (n_daemons == DAEMONS_MAX)
		bench_die("so many daemons are too many");
	make_dir(d);
	if (n_daemons++ == 0) {
		owner = getpid();
		atexit(stop_all);
	}
	write_config(d, config);
	spawn(d, program);
	await(d, program);
	if (!last)
		print_percpu(d);
	last = d;
}

const char *rig_runtime(void)
{
	return last->runtime;
}

pid_t rig_pid(void)
{
	return last->pid;
}

uint64_t rig_cpu_nsec(void)
{
	struct timespec t;
	clockid_t clock;

	if (clock_getcpuclockid(last->pid, &clock) != 0 || clock_gettime(clock, &t) < 0)
		bench_die("cannot tell what CPU time the daemon has had");
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

struct tally *rig_open(enum rig_mode mode, const char **ret_reason)
{
	struct tally_options o = {.address = mode == RIG_DAEMON ? last->address : "embedded:",
		.config = mode == RIG_EMBEDDED && last ? last->config : NULL};
	static char reason[96];
	struct tally *t;
	int r = tally_open_with(&o, sizeof(o), &t);

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
