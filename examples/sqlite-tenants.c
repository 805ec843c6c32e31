/* SPDX-License-Identifier: MIT */

/*
 * One process, many tenants, one SQLite: the case that the kernel's accounting cannot tell apart. A
 * thread a tenant works on a database of its own, and every byte that SQLite takes for it is
 * charged to the tenant's pool. With --check the daemon's figures are compared, to the byte, with
 * what SQLite and the allocator counted themselves.
 *
 * The order at the start matters: SQLite allocates when it is initialised, so the daemon is opened
 * and the pools are attached before SQLite hears of the allocator.
 */

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sqlite-tenants.h"

#define TENANTS_MAX 999
#define EXIT_CHECK 3

void die(const char *what, const char *why)
{
	fprintf(stderr, "sqlite-tenants: %s: %s\n", what, why);
	exit(EXIT_FAILURE);
}

/* ------------------------------------------------------------------ the run */

static void *tenant_main(void *userdata)
{
	struct tenant *t = userdata;

	for (unsigned step = 0; work_step_name(step); step++) {
		work_run(&t->work, step);
		if (t->run->check) {
			pthread_barrier_wait(&t->run->barrier);
			pthread_barrier_wait(&t->run->barrier);
		}
	}
	return NULL;
}

static void run_tenants(struct run *r)
{
	int e;

	e = pthread_barrier_init(&r->barrier, NULL, r->n_tenants + 1);
	for (struct tenant *t = r->tenants; !e && t < r->tenants + r->n_tenants; t++)
		e = pthread_create(&t->thread, NULL, tenant_main, t);
	if (e)
		die("threads", strerror(e));

	for (unsigned step = 0; r->check && work_step_name(step); step++) {
		pthread_barrier_wait(&r->barrier);
		check_all(r, work_step_name(step), false);
		pthread_barrier_wait(&r->barrier);
	}

	for (struct tenant *t = r->tenants; t < r->tenants + r->n_tenants; t++)
		pthread_join(t->thread, NULL);
	pthread_barrier_destroy(&r->barrier);
}

static void die_of_sqlite(struct run *r, int code)
{
	int error = atomic_load(&r->shared.error);

	die("SQLite", error ? strerror(-error) : sqlite3_errstr(code));
}

/* The main thread has no tenant: what it keeps is charged to the shared pool. */
static void record(struct run *r, const char *sql)
{
	int e = sqlite3_exec(r->results, sql, NULL, NULL, NULL);

	if (e)
		die_of_sqlite(r, e);
}

/* True if no tenant failed. */
static bool report(struct run *r)
{
	bool ok = true;
	char sql[100];

	for (struct tenant *t = r->tenants; t < r->tenants + r->n_tenants; t++) {
		struct owner *o = &t->work.owner;

		printf("%s rows=%" PRIu64 " peak=%" PRIu64 " held=%" PRIu64 " result=%s\n", t->name,
			t->work.rows, atomic_load(&o->peak), atomic_load(&o->bytes),
			work_result_names[t->work.result]);
		snprintf(sql, sizeof(sql), "INSERT INTO result VALUES('%s', %" PRIu64 ")", t->name,
			t->work.rows);
		record(r, sql);
		ok = ok && t->work.result != WORK_FAILED;
	}
	printf("shared peak=%" PRIu64 " held=%" PRIu64 "\n", atomic_load(&r->shared.peak),
		atomic_load(&r->shared.bytes));
	return ok;
}

/* SIGTERM and SIGINT end it early, and properly. */
static void hold(unsigned sec)
{
	struct timespec ts = {.tv_sec = sec};
	sigset_t set;

	if (sec == 0)
		return;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	printf("holding for %u s\n", sec);
	while (sigtimedwait(&set, NULL, &ts) < 0 && errno == EINTR)
		;
}

/* ------------------------------------------------------------------ start */

static struct tally_pool *attach(struct run *r, const char *path)
{
	struct tally_pool *p = NULL;
	int e;

	e = tally_attach(r->tally, path, TALLY_CREATE, &p);
	if (e < 0)
		die(path, strerror(-e));
	return p;
}

static char *path_below(const char *base, const char *name)
{
	size_t size = strlen(base) + strlen(name) + 2;
	char *path = malloc(size);

	if (!path)
		die(name, strerror(ENOMEM));
	snprintf(path, size, "%s/%s", strcmp(base, "/") == 0 ? "" : base, name);
	return path;
}

static void set_limit(struct run *r, const char *limit)
{
	const char *value = strchr(limit, '=');
	size_t n = value ? (size_t)(value - limit) : 0;
	int e;

	for (struct tenant *t = r->tenants; t < r->tenants + r->n_tenants; t++) {
		if (n != strlen(t->name) || strncmp(limit, t->name, n) != 0)
			continue;
		e = tally_set(r->tally, t->path, "memory.max", value + 1);
		if (e < 0)
			die(limit, strerror(-e));
		return;
	}
	die(limit, "not TENANT=BYTES with a tenant of this run (t1, t2 ...)");
}

static void open_pools(struct run *r)
{
	int e;

	e = tally_open(NULL, 0, &r->tally);
	if (e < 0)
		die("cannot open the daemon", strerror(-e));

	r->shared_path = path_below(r->base, "shared");
	r->shared.pool = attach(r, r->shared_path);
	for (unsigned i = 0; i < r->n_tenants; i++) {
		struct tenant *t = &r->tenants[i];

		t->run = r;
		snprintf(t->name, sizeof(t->name), "t%u", i + 1);
		t->path = path_below(r->base, t->name);
		t->work.name = t->name;
		t->work.rows_wanted = r->rows;
		t->work.owner.pool = attach(r, t->path);
	}
	for (unsigned i = 0; i < r->n_limits; i++)
		set_limit(r, r->limits[i]);
}

/*
 * SQLite counts its memory under one lock that it also holds while it allocates, so that a tenant
 * who waits for the daemon would make all others wait. It counts only where the check needs it.
 */
static void start_sqlite(struct run *r)
{
	int e;

	if (!sqlite3_threadsafe())
		die("SQLite", "this library is built without threads");

	e = sqlite3_config(SQLITE_CONFIG_MULTITHREAD);
	if (!e)
		e = sqlite3_config(SQLITE_CONFIG_MEMSTATUS, (int)r->check);
	if (!e)
		e = alloc_install(&r->shared);
	if (!e)
		e = sqlite3_initialize();
	if (!e)
		e = sqlite3_open(":memory:", &r->results);
	if (e)
		die_of_sqlite(r, e);
	record(r, "CREATE TABLE result(tenant TEXT, rows INTEGER)");
}

static void close_pools(struct run *r)
{
	for (struct tenant *t = r->tenants; t < r->tenants + r->n_tenants; t++) {
		tally_detach(t->work.owner.pool);
		free(t->path);
	}
	tally_detach(r->shared.pool);
	free(r->shared_path);
	tally_close(r->tally);
}

static unsigned long number(
	const char *option, const char *text, unsigned long min, unsigned long max)
{
	unsigned long n;
	char *end;

	errno = 0;
	n = strtoul(text, &end, 10);
	if (errno || *end || text[0] < '0' || text[0] > '9' || n < min || n > max)
		die(option, "not a number in its range");
	return n;
}

static void usage(FILE *f)
{
	fputs("sqlite-tenants [--base POOL] [--tenants N] [--rows N] [--limit TENANT=BYTES] ...\n"
	      "               [--hold SECONDS] [--check]\n"
	      "Works on N in-memory databases, each charged to its pool (POOL/t1 to POOL/tN) of\n"
	      "the tallyd at $TALLY_ADDRESS. Exit status 0: each tenant finished or was refused "
	      "by\n"
	      "a limit; 1: something failed; 3: a check did.\n",
		f);
}

static void parse(struct run *r, int argc, char **argv)
{
	static const struct option options[] = {
		{"base", required_argument, NULL, 'b'},
		{"tenants", required_argument, NULL, 't'},
		{"rows", required_argument, NULL, 'r'},
		{"limit", required_argument, NULL, 'l'},
		{"hold", required_argument, NULL, 'H'},
		{"check", no_argument, NULL, 'c'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'b':
			r->base = optarg;
			break;
		case 't':
			r->n_tenants = (unsigned)number("--tenants", optarg, 1, TENANTS_MAX);
			break;
		case 'r':
			r->rows = number("--rows", optarg, 1, 100000000);
			break;
		case 'l':
			r->limits[r->n_limits++] = optarg;
			break;
		case 'H':
			r->hold_sec = (unsigned)number("--hold", optarg, 0, 86400);
			break;
		case 'c':
			r->check = true;
			break;
		case 'h':
			usage(stdout);
			exit(EXIT_SUCCESS);
		default:
			usage(stderr);
			exit(EXIT_FAILURE);
		}
	}
	if (optind < argc) {
		usage(stderr);
		exit(EXIT_FAILURE);
	}
}

int main(int argc, char **argv)
{
	static struct run run = {.base = "/sqlite", .n_tenants = 3, .rows = 100000};
	struct run *r = &run;
	bool ok;

	setvbuf(stdout, NULL, _IOLBF, 0);
	r->limits = calloc((size_t)argc, sizeof(*r->limits));
	if (r->limits)
		parse(r, argc, argv);
	r->tenants = calloc(r->n_tenants, sizeof(*r->tenants));
	if (!r->limits || !r->tenants)
		die("start", strerror(ENOMEM));

	open_pools(r);
	start_sqlite(r);
	run_tenants(r);
	ok = report(r);
	hold(r->hold_sec);

	for (struct tenant *t = r->tenants; t < r->tenants + r->n_tenants; t++)
		work_close(&t->work);
	sqlite3_close(r->results);
	if (r->check)
		check_all(r, "closed", true);
	sqlite3_shutdown();
	if (r->check)
		check_shut_down(r);
	close_pools(r);
	free(r->tenants);
	free(r->limits);
	if (!ok)
		return EXIT_FAILURE;
	return r->differences ? EXIT_CHECK : EXIT_SUCCESS;
}
