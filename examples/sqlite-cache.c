/* SPDX-License-Identifier: MIT */

/*
 * A cache that takes what nobody else needs: SQLite with a large page cache on a database in a file.
 * Every byte of it is charged to a pool. When another process needs memory under the same limit,
 * tallyd asks for some back; the callback lets SQLite release what it can spare, and the work goes on
 * with less cache. What is read is compared with what was written, in each pass.
 *
 * Callbacks run in a thread of their own, which waits for tally_fd(). The working thread may be in the
 * middle of a statement just then, or wait for memory itself: so the callback does not wait for it.
 * It answers that the bytes come later, and the working thread gives them back between two
 * statements.
 */

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sqlite-alloc.h"

#define NOTE_BYTES 400
/* What is written is not kept: the transaction is too large for that. */
#define WRITE_CACHE (100 << 10)

struct cache {
	struct tally *tally;
	struct owner owner;
	sqlite3 *db;
	sqlite3_stmt *read;
	uint64_t rows, passes_wanted;
	int64_t sum; /* of what was written */
	_Atomic uint64_t asked, given_back;
	_Atomic uint64_t token; /* of the question that is to be answered; 0: none */
	_Atomic bool stop;
	char file[64];
};

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "sqlite-cache: %s: %s\n", what, why);
	exit(EXIT_FAILURE);
}

static void check(struct cache *c, const char *what, int r)
{
	if (r != SQLITE_OK)
		fail(what, c->db ? sqlite3_errmsg(c->db) : sqlite3_errstr(r));
}

/* ------------------------------------------------------------------ giving back */

static uint64_t release(struct cache *c)
{
	uint64_t before = atomic_load(&c->owner.bytes), after;

	sqlite3_db_release_memory(c->db);
	after = atomic_load(&c->owner.bytes);
	if (after >= before)
		return 0;
	atomic_fetch_add(&c->given_back, before - after);
	return before - after;
}

static int64_t on_reclaim(
	struct tally_pool *p, uint64_t want, uint64_t deadline_usec, uint64_t token, void *userdata)
{
	struct cache *c = userdata;

	(void)p;
	(void)want;
	(void)deadline_usec;
	atomic_fetch_add(&c->asked, 1);
	atomic_store(&c->token, token);
	return TALLY_LATER;
}

/* In the working thread, which is in no statement. */
static void answer(struct cache *c)
{
	uint64_t token = atomic_exchange(&c->token, 0);

	if (token != 0)
		tally_reclaim_done(c->tally, token, release(c));
}

static void *dispatch(void *userdata)
{
	struct cache *c = userdata;
	struct pollfd p = {.fd = tally_fd(c->tally), .events = POLLIN};

	while (!atomic_load(&c->stop)) {
		int r = poll(&p, 1, 100);

		if (r > 0)
			r = tally_dispatch(c->tally);
		if (r < 0 && errno != EINTR)
			break;
	}
	return NULL;
}

/* ------------------------------------------------------------------ the work */

static void write_rows(struct cache *c)
{
	sqlite3_stmt *insert;
	char note[NOTE_BYTES];

	memset(note, 'x', sizeof(note));
	check(c, "table",
		sqlite3_exec(c->db,
			"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
			"CREATE TABLE item(id INTEGER PRIMARY KEY, value INTEGER, note TEXT); "
			"BEGIN",
			NULL, NULL, NULL));
	check(c, "insert",
		sqlite3_prepare_v2(
			c->db, "INSERT INTO item VALUES(?1, ?2, ?3)", -1, &insert, NULL));
	for (uint64_t row = 1; row <= c->rows; row++) {
		int64_t value = (int64_t)(row * 2654435761U % 1000003);

		sqlite3_bind_int64(insert, 1, (sqlite3_int64)row);
		sqlite3_bind_int64(insert, 2, value);
		sqlite3_bind_text(insert, 3, note, sizeof(note), SQLITE_STATIC);
		sqlite3_step(insert);
		check(c, "insert", sqlite3_reset(insert));
		c->sum += value;
	}
	sqlite3_finalize(insert);
	check(c, "commit", sqlite3_exec(c->db, "COMMIT", NULL, NULL, NULL));
}

static int read_row(struct cache *c, uint64_t row, int64_t *sum)
{
	int64_t value = 0;
	int r;

	sqlite3_bind_int64(c->read, 1, (sqlite3_int64)row);
	if (sqlite3_step(c->read) == SQLITE_ROW)
		value = sqlite3_column_int64(c->read, 0);
	r = sqlite3_reset(c->read);
	if (r == SQLITE_OK)
		*sum += value;
	return r;
}

/* One row a statement: between two of them the cache can be released. */
static void read_rows(struct cache *c)
{
	int64_t sum = 0;

	for (uint64_t row = 1; row <= c->rows && !atomic_load(&c->stop); row++) {
		int r = read_row(c, row, &sum);

		/* No memory for another page: this process' own cache is the first to shrink. */
		if (r == SQLITE_NOMEM && release(c) > 0)
			r = read_row(c, row, &sum);
		answer(c);
		check(c, "read", r);
	}
	if (!atomic_load(&c->stop) && sum != c->sum)
		fail("read", "not what was written");
}

static struct cache *running;

static void on_signal(int signal)
{
	(void)signal;
	atomic_store(&running->stop, true);
}

static void work(struct cache *c)
{
	check(c, "read",
		sqlite3_prepare_v2(
			c->db, "SELECT value FROM item WHERE id = ?1", -1, &c->read, NULL));
	for (uint64_t pass = 1; !atomic_load(&c->stop); pass++) {
		read_rows(c);
		if (atomic_load(&c->stop))
			break;
		printf("pass=%" PRIu64 " held=%" PRIu64 " asked=%" PRIu64 " given_back=%" PRIu64
		       " refused=%" PRIu64 "\n",
			pass, atomic_load(&c->owner.bytes), atomic_load(&c->asked),
			atomic_load(&c->given_back), atomic_load(&c->owner.refused));
		if (pass == c->passes_wanted)
			break;
	}
	sqlite3_finalize(c->read);
}

/* ------------------------------------------------------------------ start */

static void open_pool(struct cache *c, const char *path)
{
	int r = tally_open(NULL, 0, &c->tally);

	if (r < 0)
		fail("cannot open the daemon", strerror(-r));
	r = tally_attach(c->tally, path, TALLY_CREATE, &c->owner.pool);
	if (r < 0)
		fail(path, strerror(-r));
}

static void open_database(struct cache *c)
{
	const char *dir = getenv("TMPDIR");
	int fd;

	snprintf(c->file, sizeof(c->file), "%s/sqlite-cache.XXXXXX", dir && *dir ? dir : "/tmp");
	fd = mkstemp(c->file);
	if (fd < 0)
		fail(c->file, strerror(errno));
	close(fd);
	check(c, "SQLite", sqlite3_config(SQLITE_CONFIG_MULTITHREAD));
	check(c, "SQLite", sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0));
	check(c, "SQLite", alloc_install(&c->owner));
	check(c, c->file, sqlite3_open(c->file, &c->db));
	/* Once it is open, nobody else need find it, and nobody need remove it. */
	unlink(c->file);
}

static void set_cache_size(struct cache *c, uint64_t bytes)
{
	char pragma[64];

	snprintf(pragma, sizeof(pragma), "PRAGMA cache_size = -%" PRIu64, bytes / 1024);
	check(c, "cache_size", sqlite3_exec(c->db, pragma, NULL, NULL, NULL));
}

static void usage(FILE *f)
{
	fputs("sqlite-cache [--rows N] [--cache BYTES] [--passes N] POOL\n"
	      "Reads a database of N rows again and again through a page cache of at most BYTES,\n"
	      "which is charged to POOL of the tallyd at $TALLY_ADDRESS and given back when "
	      "tallyd\n"
	      "asks for it. Ends after so many passes (0: never), or by SIGTERM or SIGINT.\n",
		f);
}

static uint64_t number(const char *option, const char *text)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);

	if (*end || text[0] < '0' || text[0] > '9' || n > 1000000000)
		fail(option, "not a number up to 1000000000");
	return n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"rows", required_argument, NULL, 'r'},
		{"cache", required_argument, NULL, 'c'},
		{"passes", required_argument, NULL, 'p'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static struct cache cache = {.rows = 20000};
	uint64_t cache_bytes = 64 << 20;
	struct cache *c = &cache;
	struct sigaction sa = {.sa_handler = on_signal};
	pthread_t dispatcher;
	int o, r;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (o) {
		case 'r':
			c->rows = number("--rows", optarg);
			break;
		case 'c':
			cache_bytes = number("--cache", optarg);
			break;
		case 'p':
			c->passes_wanted = number("--passes", optarg);
			break;
		case 'h':
			usage(stdout);
			return EXIT_SUCCESS;
		default:
			usage(stderr);
			return EXIT_FAILURE;
		}
	}
	if (optind != argc - 1) {
		usage(stderr);
		return EXIT_FAILURE;
	}
	running = c;
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	open_pool(c, argv[optind]);
	open_database(c);
	set_cache_size(c, WRITE_CACHE);
	r = tally_on_reclaim(c->owner.pool, on_reclaim, c);
	if (r < 0)
		fail("tally_on_reclaim", strerror(-r));
	r = pthread_create(&dispatcher, NULL, dispatch, c);
	if (r)
		fail("thread", strerror(r));
	write_rows(c);
	set_cache_size(c, cache_bytes);
	work(c);
	atomic_store(&c->stop, true);
	pthread_join(dispatcher, NULL);
	sqlite3_close(c->db);
	sqlite3_shutdown();
	tally_detach(c->owner.pool);
	tally_close(c->tally);
	return EXIT_SUCCESS;
}
