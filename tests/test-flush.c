/* SPDX-License-Identifier: MIT */

/*
 * When what programs move is seen, and by whom: by a read that asks for it always, by one that does not
 * when more than a threshold is pending, and by all after a while; whatever else goes on, whoever
 * else reads, and however the mover ends. Where the periodic flush is an hour away, nothing here
 * depends on time.
 */

#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/util.h"

#define PAGE INT64_C(4096)
#define MIB (UINT64_C(1) << 20)
#define THRESHOLD "100"
#define MUCH (101 * PAGE)  /* at once above the threshold */
#define LITTLE (10 * PAGE) /* not even worth telling */

#define DAEMON(interval, threshold)                                                                \
	"[daemon]\nflush_interval = " interval "\nflush_threshold = " threshold                    \
	"\ngrace = 1s\nexport =\n"
#define POOLS                                                                                      \
	"[pool fine]\npath = /fine\nflush_threshold = 1\n"                                         \
	"[pool coarse]\npath = /coarse\nflush_threshold = 100000\n"                                \
	"[pool inner]\npath = /coarse/inner\nflush_threshold = 1\n"

static struct harness harness;
static struct tally *tally; /* the test's own session, or the engine in its process */
static bool embedded;
static tally_item sock, alloc;

static void look_up_items(void)
{
	assert_int_equal(tally_item_lookup(tally, "sock", &sock), 0);
	assert_int_equal(tally_item_lookup(tally, "alloc", &alloc), 0);
}

/* Of so many pools subtrees are looked at session by session, not pool by pool. */
#define MANY 300

struct setting {
	const char *config;
	bool many;
};

static void make_many(void)
{
	static const char *const tops[] = {"/a", "/s", "/r"};
	char path[32];

	for (unsigned top = 0; top < ELEMENTS(tops); top++) {
		assert_int_equal(tally_create(tally, tops[top]), 0);
		for (unsigned i = 0; i < MANY; i++) {
			snprintf(path, sizeof(path), "%s/many%u", tops[top], i);
			assert_int_equal(tally_create(tally, path), 0);
		}
	}
}

static int begin(void **state)
{
	const struct setting *s = *state;

	embedded = false;
	harness_start(&harness, s->config);
	tally = harness_open(&harness);
	look_up_items();
	if (s->many)
		make_many();
	return 0;
}

static int end(void **state _unused_)
{
	tally = tally_close(tally);
	harness_stop(&harness);
	return 0;
}

static int begin_embedded(void **state)
{
	const struct setting *s = *state;
	char path[] = "/tmp/test-flush-XXXXXX";
	struct tally_options o = {.address = "embedded:", .config = path};
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_true(dprintf(fd, "%s", s->config) > 0);
	close(fd);
	embedded = true;
	assert_int_equal(tally_open_with(&o, sizeof(o), &tally), 0);
	unlink(path);
	look_up_items();
	if (s->many)
		make_many();
	return 0;
}

static int end_embedded(void **state _unused_)
{
	tally = tally_close(tally);
	return 0;
}

/* ------------------------------------------------------------------ reading */

static uint64_t value_in(const char *text, const char *key)
{
	size_t n = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, n) == 0 && line[n] == ' ')
			return strtoull(line + n + 1, NULL, 10);
	}
	return UINT64_MAX;
}

static int read_at(
	struct tally *t, const char *path, const char *key, uint64_t flags, uint64_t *ret)
{
	char *text;
	int r = tally_get(t, path, "memory.stat", flags, &text);

	if (r < 0)
		return r;
	*ret = value_in(text, key);
	free(text);
	return 0;
}

static uint64_t value(const char *path, const char *key, uint64_t flags)
{
	uint64_t n = 0;

	assert_int_equal(read_at(tally, path, key, flags, &n), 0);
	return n;
}

static uint64_t current(const char *path, uint64_t flags)
{
	uint64_t n;
	char *text;

	assert_int_equal(tally_get(tally, path, "memory.current", flags, &text), 0);
	n = strtoull(text, NULL, 10);
	free(text);
	return n;
}

static void move(struct actor *a, tally_item item, int64_t delta)
{
	assert_int_equal(actor_do(a, ACTOR_MOVE, item, (uint64_t)delta), 0);
}

/* An actor whose keys are known, and of which nothing is pending. */
static void start(struct actor *a, const char *path)
{
	actor_start(a, &harness, path);
	move(a, sock, 1);
	move(a, sock, -1);
	/* No count goes back. */
	move(a, alloc, -1);
	assert_int_equal(actor_do(a, ACTOR_LOOK, 0, 0), 0);
	value("/", "sock", TALLY_EXACT);
}

/* ------------------------------------------------------------------ thresholds */

static void test_above(void **state _unused_)
{
	static const char *const paths[] = {"/a/b", "/a", "/"};
	int64_t moved = 0;
	struct actor a;

	start(&a, "/a/b");
	for (unsigned i = 0; i < 30; i++) {
		move(&a, sock, MUCH);
		moved += MUCH;
		assert_int_equal(value(paths[i % ELEMENTS(paths)], "sock", 0), moved);
	}
	actor_kill(&a);
}

static void test_below(void **state _unused_)
{
	static const uint64_t not_enough[] = {0, TALLY_CACHED, TALLY_RATELIMITED};
	struct actor a;

	start(&a, "/a/b");
	move(&a, sock, LITTLE);
	move(&a, alloc, 5);
	for (unsigned i = 0; i < ELEMENTS(not_enough); i++) {
		assert_int_equal(value("/a/b", "sock", not_enough[i]), 0);
		assert_int_equal(value("/a/b", "alloc", not_enough[i]), 0);
		assert_int_equal(value("/", "sock", not_enough[i]), 0);
	}
	assert_int_equal(value("/a", "sock", TALLY_EXACT), LITTLE);
	for (unsigned i = 0; i < ELEMENTS(not_enough); i++) {
		assert_int_equal(value("/a/b", "alloc", not_enough[i]), 5);
		assert_int_equal(value("/", "sock", not_enough[i]), LITTLE);
	}
	actor_kill(&a);
}

/* Together it is enough; and what a flush of one pool has seen is pending there no more. */
static void test_adds_up(void **state _unused_)
{
	struct actor a, b;

	start(&a, "/a/b");
	start(&b, "/a/c");
	move(&a, sock, 70 * PAGE);
	assert_int_equal(value("/a", "sock", 0), 0);
	move(&b, sock, -2 * PAGE);
	move(&b, sock, 70 * PAGE);
	assert_int_equal(value("/a/b", "sock", 0), 0);
	assert_int_equal(value("/a/c", "sock", 0), 0);
	assert_int_equal(value("/a", "sock", 0), 138 * PAGE);
	move(&a, sock, 70 * PAGE);
	assert_int_equal(value("/a", "sock", 0), 138 * PAGE);
	/* Its own has been pending since before the flush of the pool above it. */
	assert_int_equal(value("/a/b", "sock", 0), 140 * PAGE);
	assert_int_equal(value("/a", "sock", TALLY_CACHED), 208 * PAGE);
	actor_kill(&a);
	actor_kill(&b);
}

static void test_own_thresholds(void **state _unused_)
{
	struct actor fine, coarse, inner;

	start(&fine, "/fine/x");
	start(&coarse, "/coarse/x");
	start(&inner, "/coarse/inner/x");
	move(&fine, sock, 64 * PAGE);
	assert_int_equal(value("/", "sock", 0), 0);
	assert_int_equal(value("/fine/x", "sock", 0), 64 * PAGE);
	assert_int_equal(value("/", "sock", TALLY_CACHED), 64 * PAGE);

	move(&coarse, sock, 1000 * PAGE);
	assert_int_equal(value("/coarse/x", "sock", 0), 0);
	assert_int_equal(value("/coarse", "sock", 0), 0);
	assert_int_equal(value("/", "sock", 0), 1064 * PAGE);
	assert_int_equal(value("/coarse/x", "sock", 0), 1000 * PAGE);

	move(&inner, sock, 64 * PAGE);
	assert_int_equal(value("/coarse", "sock", 0), 1000 * PAGE);
	assert_int_equal(value("/coarse/inner/x", "sock", 0), 64 * PAGE);
	assert_int_equal(value("/coarse", "sock", TALLY_CACHED), 1064 * PAGE);
	actor_kill(&fine);
	actor_kill(&coarse);
	actor_kill(&inner);
}

/* Clients hear of another threshold, or would stop counting at the old one. */
static void test_reloaded_threshold(void **state _unused_)
{
	struct actor a;

	start(&a, "/a/b");
	move(&a, sock, 64 * PAGE);
	harness_configure(&harness, DAEMON("1h", "1000") POOLS);
	assert_int_equal(tally_set(tally, "/", "tallyd.reload", "1"), 0);
	for (unsigned i = 0; i < 20; i++)
		move(&a, sock, 64 * PAGE);
	assert_int_equal(value("/a/b", "sock", 0), 21 * 64 * PAGE);
	move(&a, sock, 200 * PAGE);
	assert_int_equal(value("/a/b", "sock", 0), 21 * 64 * PAGE);

	harness_configure(&harness, DAEMON("1h", THRESHOLD) POOLS);
	assert_int_equal(tally_set(tally, "/", "tallyd.reload", "1"), 0);
	move(&a, sock, 101 * PAGE);
	assert_int_equal(value("/a/b", "sock", 0), (21 * 64 + 200 + 101) * PAGE);
	actor_kill(&a);
}

/* What is charged needs no threshold. */
static void test_charged(void **state _unused_)
{
	uint64_t held = 0;
	unsigned seed = 1;
	struct actor a;

	start(&a, "/a/b");
	for (unsigned i = 0; i < 300; i++) {
		uint64_t bytes = (uint64_t)rand_r(&seed) % MIB;

		if (held > 8 * MIB) {
			assert_int_equal(actor_do(&a, ACTOR_UNCHARGE, 7 * MIB + bytes, 0), 0);
			held -= 7 * MIB + bytes;
		} else {
			assert_int_equal(actor_do(&a, ACTOR_CHARGE, bytes, 0), 0);
			held += bytes;
		}
		assert_int_equal(current(i % 2 ? "/a" : "/", 0), held);
		assert_int_equal(current("/a/b", TALLY_CACHED), held);
	}
	actor_kill(&a);
}

static void test_written_flush(void **state _unused_)
{
	struct actor a, b;

	start(&a, "/a");
	start(&b, "/b");
	move(&a, sock, LITTLE);
	move(&b, sock, LITTLE);
	assert_int_equal(tally_set(tally, "/a", "pool.flush", "1"), 0);
	assert_int_equal(value("/a", "sock", TALLY_CACHED), LITTLE);
	assert_int_equal(value("/b", "sock", TALLY_CACHED), 0);
	assert_int_equal(value("/", "sock", TALLY_CACHED), LITTLE);
	assert_int_equal(tally_set(tally, "/", "pool.flush", "1"), 0);
	assert_int_equal(value("/b", "sock", TALLY_CACHED), LITTLE);
	actor_kill(&a);
	actor_kill(&b);
}

static uint64_t on_all_nodes(const char *path, const char *item, uint64_t flags)
{
	char *text, *line, *rest, *word;
	uint64_t sum = 0;

	assert_int_equal(tally_get(tally, path, "memory.numa_stat", flags, &text), 0);
	line = strstr(text, item);
	assert_non_null(line);
	rest = line + strlen(item);
	*strchrnul(rest, '\n') = '\0';
	while ((word = strsep(&rest, " ")))
		if (strchr(word, '='))
			sum += strtoull(strchr(word, '=') + 1, NULL, 10);
	free(text);
	return sum;
}

static void test_numa_stat(void **state _unused_)
{
	struct actor a;

	start(&a, "/a/b");
	move(&a, sock, LITTLE);
	assert_int_equal(on_all_nodes("/a", "sock", 0), 0);
	assert_int_equal(on_all_nodes("/a", "sock", TALLY_EXACT), LITTLE);
	assert_int_equal(on_all_nodes("/", "sock", TALLY_CACHED), LITTLE);
	move(&a, sock, MUCH);
	assert_int_equal(on_all_nodes("/", "sock", 0), LITTLE + MUCH);
	actor_kill(&a);
}

#define DEEP 60 /* all of them, and those above, have a place in a session's first extent */

/* Pending updates go up all the way. */
static void test_deep(void **state _unused_)
{
	char path[4096] = "/d";
	size_t n = strlen(path);
	struct actor a;

	for (unsigned i = 0; i < DEEP; i++)
		n += (size_t)snprintf(path + n, sizeof(path) - n, "/%u", i);
	start(&a, path);
	move(&a, sock, MUCH);
	assert_int_equal(value("/", "sock", 0), MUCH);
	move(&a, sock, MUCH);
	assert_int_equal(value("/d/0/1/2/3", "sock", 0), 2 * MUCH);
	assert_int_equal(value(path, "sock", TALLY_CACHED), 2 * MUCH);
	actor_kill(&a);
}

#define WIDE 1000 /* pools of one session: several extents of its segment */

static const char *wide(unsigned i)
{
	static char path[32];

	snprintf(path, sizeof(path), "/w/%u", i);
	return path;
}

static void test_wide(void **state _unused_)
{
	static struct tally_pool *pools[WIDE];
	int64_t sum = 0;

	for (unsigned i = 0; i < WIDE; i++) {
		pools[i] = harness_attach(tally, wide(i));
		tally_stat_add(pools[i], sock, MUCH + i);
		sum += MUCH + i;
	}
	for (unsigned i = 0; i < WIDE; i++)
		assert_int_equal(value(wide(i), "sock", 0), MUCH + i);
	assert_int_equal(value("/", "sock", TALLY_CACHED), sum);
	for (unsigned i = 0; i < WIDE; i++)
		tally_stat_add(pools[i], sock, -(int64_t)i);
	for (unsigned i = 0; i < WIDE; i++)
		assert_int_equal(value(wide(i), "sock", 0), MUCH + i);
	assert_int_equal(value("/w", "sock", TALLY_EXACT), WIDE * MUCH);
	for (unsigned i = 0; i < WIDE; i++)
		assert_int_equal(value(wide(i), "sock", TALLY_CACHED), MUCH);
	for (unsigned i = 0; i < WIDE; i += 2)
		pools[i] = tally_detach(pools[i]);
	assert_int_equal(value("/", "sock", TALLY_CACHED), WIDE / 2 * MUCH);
	/* Others get the keys and places of those that are gone, and nothing of what was there. */
	for (unsigned i = 0; i < WIDE; i += 2) {
		pools[i] = harness_attach(tally, wide(i + 1));
		tally_stat_add(pools[i], sock, 1);
	}
	assert_int_equal(value("/", "sock", TALLY_EXACT), WIDE / 2 * (MUCH + 1));
	for (unsigned i = 0; i < WIDE; i++)
		assert_int_equal(value(wide(i), "sock", TALLY_CACHED), i % 2 ? MUCH + 1 : 0);
	for (unsigned i = 0; i < WIDE; i++)
		tally_detach(pools[i]);
	assert_int_equal(value("/", "sock", TALLY_CACHED), 0);
}

/* An exact read publishes what it has found to all who have the pool. */
static void test_published(void **state _unused_)
{
	struct tally_pool *p = harness_attach(tally, "/a");
	struct tally_usage u;
	struct actor a;

	start(&a, "/a/b");
	for (unsigned i = 1; i < 20; i++) {
		assert_int_equal(actor_do(&a, ACTOR_CHARGE, MIB + i, 0), 0);
		assert_int_equal(current("/a", TALLY_EXACT), i * MIB + i * (i + 1) / 2);
		assert_int_equal(tally_usage(p, sizeof(u), &u), 0);
		assert_int_equal(u.current, i * MIB + i * (i + 1) / 2);
		assert_int_equal(u.held, 0);
		assert_true(u.peak >= u.current);
	}
	assert_int_equal(tally_set(tally, "/a", "memory.max", "100M"), 0);
	assert_int_equal(tally_set(tally, "/", "memory.max", "50M"), 0);
	assert_int_equal(tally_set(tally, "/", "pool.flush", "1"), 0);
	assert_int_equal(tally_set(tally, "/a", "pool.flush", "1"), 0);
	assert_int_equal(tally_usage(p, sizeof(u), &u), 0);
	assert_int_equal(u.limit, 100 * MIB);
	assert_in_range(u.headroom, 1, 50 * MIB - u.current);
	actor_kill(&a);
	tally_detach(p);
}

static void test_flags(void **state _unused_)
{
	static const uint64_t bad[] = {TALLY_EXACT | TALLY_CACHED, TALLY_EXACT | TALLY_RATELIMITED,
		TALLY_RATELIMITED | TALLY_CACHED, 8, UINT64_C(1) << 63};
	char *text = NULL;

	for (unsigned i = 0; i < ELEMENTS(bad); i++)
		assert_int_equal(tally_get(tally, "/", "memory.stat", bad[i], &text), -EINVAL);
	assert_null(text);
}

/* ------------------------------------------------------------------ after a while */

static int shows_little(void *path)
{
	return value(path, "sock", TALLY_CACHED) == LITTLE;
}

static void test_periodic(void **state _unused_)
{
	struct actor a;

	start(&a, "/a/b");
	move(&a, sock, LITTLE);
	assert_true(harness_wait(shows_little, "/a", HARNESS_PATIENCE_MS));
	actor_kill(&a);
}

static int wake_daemon(void *userdata _unused_)
{
	usleep(50000);
	return kill(harness.daemon, SIGCONT);
}

static void test_ratelimited_late(void **state _unused_)
{
	struct actor a;
	pid_t child;

	start(&a, "/a/b");
	for (int64_t n = 1; n < 4; n++) {
		assert_int_equal(kill(harness.daemon, SIGSTOP), 0);
		move(&a, sock, LITTLE);
		usleep(300000);
		child = harness_fork(wake_daemon, NULL);
		assert_int_equal(value("/a", "sock", TALLY_RATELIMITED), n * LITTLE);
		harness_join(child, 0);
	}
	actor_kill(&a);
}

static void test_late_embedded(void **state _unused_)
{
	struct tally_pool *p = harness_attach(tally, "/a/b");

	for (int64_t n = 1; n < 7; n++) {
		tally_stat_add(p, sock, LITTLE);
		usleep(300000);
		assert_int_equal(value("/a", "sock", TALLY_CACHED), (n - 1) * LITTLE);
		assert_int_equal(value("/a", "sock", n % 2 ? TALLY_RATELIMITED : 0), n * LITTLE);
	}
	tally_detach(p);
}

static void test_not_late_embedded(void **state _unused_)
{
	struct tally_pool *p = harness_attach(tally, "/a/b");

	tally_stat_add(p, sock, LITTLE);
	assert_int_equal(value("/a", "sock", 0), 0);
	assert_int_equal(value("/a", "sock", TALLY_RATELIMITED), 0);
	assert_int_equal(value("/a", "sock", TALLY_CACHED), 0);
	assert_int_equal(value("/a", "sock", TALLY_EXACT), LITTLE);
	tally_stat_add(p, sock, MUCH);
	assert_int_equal(value("/a", "sock", TALLY_CACHED), LITTLE);
	assert_int_equal(value("/a", "sock", 0), LITTLE + MUCH);
	tally_detach(p);
}

/* ------------------------------------------------------------------ events before reads */

static void test_event_before_read(void **state _unused_)
{
	struct actor a;

	start(&a, "/a/b");
	for (uint64_t n = 1; n <= 2000; n++) {
		move(&a, alloc, 1);
		assert_int_equal(value(n % 3 ? "/a" : "/", "alloc", TALLY_EXACT), n);
	}
	actor_kill(&a);
}

/* If it is not there. */
static void create(const char *path)
{
	int r = tally_create(tally, path);

	assert_true(r == 0 || r == -EEXIST);
}

/* Several at once: processes with sessions of their own, or threads of the embedded engine. */
struct crew {
	_Atomic uint64_t told[4]; /* by movers, of what they have counted */
	_Atomic uint64_t wrong;
	_Atomic bool stop;
	_Atomic unsigned ready;
};

struct job {
	struct crew *crew;
	int (*fn)(struct job *j, struct tally *t);
	unsigned number;
	const char *path;
	pid_t pid;
	pthread_t thread;
};

static int do_job(void *userdata)
{
	struct job *j = userdata;
	struct tally *t = tally;
	int r;

	if (!embedded && tally_open(harness.address, 0, &t) < 0)
		return 1;
	r = j->fn(j, t);
	if (r != 0)
		atomic_fetch_add(&j->crew->wrong, 1);
	if (!embedded)
		tally_close(t);
	return r;
}

static void *do_job_here(void *userdata)
{
	do_job(userdata);
	return NULL;
}

static void start_job(struct job *j)
{
	if (embedded)
		assert_int_equal(pthread_create(&j->thread, NULL, do_job_here, j), 0);
	else
		j->pid = harness_fork(do_job, j);
}

static void join_job(struct job *j)
{
	if (embedded)
		assert_int_equal(pthread_join(j->thread, NULL), 0);
	else
		harness_join(j->pid, 0);
}

static struct tally_pool *attach_ready(struct job *j, struct tally *t, int64_t base)
{
	struct tally_pool *p;
	uint64_t n;

	if (tally_attach(t, j->path, TALLY_CREATE, &p) < 0)
		return NULL;
	tally_stat_add(p, alloc, -1);
	tally_stat_add(p, sock, base + 1);
	tally_stat_add(p, sock, -1);
	if (read_at(t, j->path, "alloc", TALLY_CACHED, &n) < 0)
		return NULL;
	atomic_fetch_add(&j->crew->ready, 1);
	return p;
}

/* Counts of what all movers told. */
static uint64_t all_told(const struct crew *c)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < ELEMENTS(c->told); i++)
		sum += atomic_load(&c->told[i]);
	return sum;
}

#define MOVES 100000

static int move_and_tell(struct job *j, struct tally *t)
{
	struct tally_pool *p = attach_ready(j, t, 0);

	if (!p)
		return 1;
	for (uint64_t n = 1; n <= MOVES; n++) {
		tally_stat_add(p, alloc, 1);
		tally_stat_add(p, sock, n % 2 ? PAGE : -PAGE);
		atomic_store(&j->crew->told[j->number], n);
	}
	/* What it has moved in gauges goes with it. */
	while (!atomic_load(&j->crew->stop))
		usleep(1000);
	tally_detach(p);
	return 0;
}

static int flush_on(struct job *j, struct tally *t)
{
	uint64_t before, now, last = 0;

	while (!atomic_load(&j->crew->stop)) {
		before = all_told(j->crew);
		if (read_at(t, j->path, "alloc", TALLY_EXACT, &now) < 0)
			return 1;
		/* Each mover may have counted one that it has not told yet. */
		if (now < before || now < last || now > all_told(j->crew) + 2)
			return 2;
		last = now;
	}
	return 0;
}

static void await_told(const struct crew *c, uint64_t n, const struct crew *failing)
{
	unsigned waited = 0;

	while (all_told(c) < n && atomic_load(&failing->wrong) == 0) {
		usleep(1000);
		assert_true(++waited < 3 * HARNESS_PATIENCE_MS);
	}
}

static void test_flushers(void **state _unused_)
{
	struct crew *crew = harness_shared(sizeof(*crew));
	struct job jobs[] = {
		{crew, move_and_tell, 0, "/a/b", 0, 0},
		{crew, move_and_tell, 1, "/a/c", 0, 0},
		{crew, flush_on, 0, "/a", 0, 0},
		{crew, flush_on, 1, "/", 0, 0},
	};

	create("/a");
	for (unsigned i = 0; i < ELEMENTS(jobs); i++)
		start_job(&jobs[i]);
	await_told(crew, 2 * MOVES, crew);
	assert_int_equal(value("/a/b", "alloc", TALLY_EXACT), MOVES);
	assert_int_equal(value("/a/c", "alloc", TALLY_EXACT), MOVES);
	assert_int_equal(value("/", "sock", TALLY_EXACT), 0);
	atomic_store(&crew->stop, true);
	for (unsigned i = 0; i < ELEMENTS(jobs); i++)
		join_job(&jobs[i]);
	assert_int_equal(crew->wrong, 0);
	harness_unshare(crew, sizeof(*crew));
}

/* Above the threshold, told, and not asked for exactly, while another flushes: the first of two finds
 * room below the threshold, and is flushed, perhaps, while the second is on its way. */
static void test_above_beside_flusher(void **state _unused_)
{
	struct crew *crew = harness_shared(sizeof(*crew));
	struct job flusher = {crew, flush_on, 0, "/a", 0, 0};
	struct actor a;
	struct tally_pool *p = NULL;
	unsigned rounds = embedded ? 100000 : 1000;
	int64_t moved = 0;

	if (embedded)
		p = harness_attach(tally, "/a/b");
	else
		start(&a, "/a/b");
	start_job(&flusher);
	for (unsigned i = 0; i < rounds; i++) {
		for (unsigned n = 0; n < 2; n++) {
			int64_t delta = moved > 1000 * MUCH ? -MUCH : MUCH;

			if (embedded)
				tally_stat_add(p, sock, delta);
			else
				move(&a, sock, delta);
			moved += delta;
		}
		assert_int_equal(value("/a", "sock", 0), moved);
	}
	atomic_store(&crew->stop, true);
	join_job(&flusher);
	if (embedded)
		tally_detach(p);
	else
		actor_kill(&a);
	assert_int_equal(crew->wrong, 0);
	harness_unshare(crew, sizeof(*crew));
}

/* ------------------------------------------------------------------ sums */

#define BASE (INT64_C(1) << 30) /* so that no part is below 0 when it is looked at */

static int move_and_charge(struct job *j, struct tally *t)
{
	struct tally_pool *p = attach_ready(j, t, BASE);
	unsigned seed = j->number;

	if (!p)
		return 1;
	while (!atomic_load(&j->crew->stop)) {
		int64_t delta = rand_r(&seed) % 20000 - 10000;
		uint64_t bytes = (uint64_t)rand_r(&seed) % (300 << 10);

		tally_stat_add(p, sock, delta);
		tally_stat_add(p, alloc, 1);
		if (tally_charge(p, bytes) < 0 || tally_charge_item(p, sock, bytes) < 0)
			return 2;
		tally_uncharge(p, bytes);
		tally_uncharge_item(p, sock, bytes);
		tally_stat_add(p, sock, -delta);
	}
	tally_detach(p);
	return 0;
}

static void test_sums(void **state _unused_)
{
	static const char *const keys[] = {"held", "stock", "sock", "alloc"};
	static const char *const parts[] = {"/s/1", "/s/2", "/s/3"};
	struct crew *crew = harness_shared(sizeof(*crew));
	struct job jobs[ELEMENTS(parts)];

	for (unsigned i = 0; i < ELEMENTS(jobs); i++) {
		jobs[i] = (struct job){crew, move_and_charge, i, parts[i], 0, 0};
		start_job(&jobs[i]);
	}
	while (atomic_load(&crew->ready) < ELEMENTS(parts) && crew->wrong == 0)
		usleep(1000);
	for (unsigned same = 0; same < 1000;) {
		uint64_t sums[ELEMENTS(keys)] = {0};
		char *whole, *again;

		assert_int_equal(tally_get(tally, "/s", "memory.stat", TALLY_EXACT, &whole), 0);
		for (unsigned part = 0; part < ELEMENTS(parts); part++)
			for (unsigned k = 0; k < ELEMENTS(keys); k++)
				sums[k] += value(parts[part], keys[k], TALLY_CACHED);
		assert_int_equal(tally_get(tally, "/s", "memory.stat", TALLY_CACHED, &again), 0);
		/* The daemon looks at credit for itself, now and then. */
		if (strcmp(whole, again) == 0) {
			for (unsigned k = 0; k < ELEMENTS(keys); k++)
				assert_int_equal(value_in(whole, keys[k]), sums[k]);
			same++;
		}
		free(whole);
		free(again);
		assert_int_equal(crew->wrong, 0);
	}
	atomic_store(&crew->stop, true);
	for (unsigned i = 0; i < ELEMENTS(jobs); i++)
		join_job(&jobs[i]);
	assert_int_equal(crew->wrong, 0);
	assert_int_equal(value("/s", "held", TALLY_EXACT), 0);
	assert_int_equal(value("/s", "stock", TALLY_EXACT), 0);
	assert_int_equal(value("/s", "sock", TALLY_EXACT), 0);
	harness_unshare(crew, sizeof(*crew));
}

/* ------------------------------------------------------------------ pools that come and go */

#define COUNTED 7
#define MOVED 1000

static int make_and_remove(struct job *j, struct tally *t)
{
	while (!atomic_load(&j->crew->stop)) {
		struct tally_pool *p;

		if (tally_attach(t, j->path, TALLY_CREATE, &p) < 0)
			return 1;
		tally_stat_add(p, alloc, COUNTED);
		tally_stat_add(p, sock, MOVED);
		tally_detach(p);
		if (tally_remove(t, j->path, 0) < 0)
			return 2;
		atomic_fetch_add(&j->crew->told[j->number], COUNTED);
	}
	return 0;
}

static void test_removed_and_made_again(void **state _unused_)
{
	struct crew *crew = harness_shared(sizeof(*crew));
	struct job job = {crew, make_and_remove, 0, "/r/x", 0, 0};
	uint64_t last = 0, found = 0;

	create("/r");
	start_job(&job);
	while ((found < 1000 || all_told(crew) < UINT64_C(1000) * COUNTED) && crew->wrong == 0) {
		static const uint64_t flags[] = {TALLY_EXACT, 0, TALLY_CACHED};
		uint64_t told = all_told(crew), n;
		char *text;
		int r = tally_get(tally, "/r/x", "memory.stat", flags[found % 3], &text);

		assert_true(r == 0 || r == -ENOENT);
		if (r == 0) {
			n = value_in(text, "alloc");
			assert_true(n == 0 || n == COUNTED);
			n = value_in(text, "sock");
			assert_true(n == 0 || n == MOVED);
			free(text);
			found++;
		}
		n = value("/r", "alloc", TALLY_EXACT);
		assert_true(n >= told && n >= last && n % COUNTED == 0);
		last = n;
	}
	atomic_store(&crew->stop, true);
	join_job(&job);
	assert_int_equal(crew->wrong, 0);
	assert_int_equal(value("/r", "alloc", TALLY_EXACT), all_told(crew));
	assert_int_equal(value("/r", "sock", TALLY_EXACT), 0);
	harness_unshare(crew, sizeof(*crew));
}

/* ------------------------------------------------------------------ killed */

static int move_until_killed(struct job *j, struct tally *t)
{
	struct tally_pool *p = attach_ready(j, t, 0);

	if (!p || tally_charge(p, 5 * MIB) < 0)
		return 1;
	for (;;) {
		tally_stat_add(p, sock, PAGE);
		tally_stat_add(p, alloc, 1);
		atomic_fetch_add(&j->crew->told[0], 1);
		if (tally_charge_item(p, sock, 100000) < 0)
			return 2;
		tally_uncharge_item(p, sock, 100000);
	}
}

static int is_deserted(void *path)
{
	char *text;
	bool deserted;

	assert_int_equal(tally_get(tally, path, "cgroup.events", 0, &text), 0);
	deserted = value_in(text, "populated") == 0;
	free(text);
	return deserted;
}

static void test_killed(void **state _unused_)
{
	struct crew *crew = harness_shared(sizeof(*crew));
	struct job job = {crew, move_until_killed, 0, "/a/b", 0, 0};
	unsigned seed = 1;

	for (unsigned round = 1; round <= 40; round++) {
		uint64_t n;

		start_job(&job);
		while (atomic_load(&crew->ready) < round && crew->wrong == 0)
			usleep(1000);
		usleep((useconds_t)rand_r(&seed) % 5000);
		if (round % 2)
			value("/", "alloc", TALLY_EXACT);
		assert_int_equal(kill(job.pid, SIGKILL), 0);
		assert_int_equal(waitpid(job.pid, NULL, 0), job.pid);
		assert_true(harness_wait(is_deserted, "/a", HARNESS_PATIENCE_MS));
		n = value("/a/b", "alloc", TALLY_CACHED);
		assert_in_range(n, all_told(crew), all_told(crew) + round);
		assert_int_equal(value("/", "alloc", TALLY_CACHED), n);
		assert_int_equal(value("/a", "sock", TALLY_CACHED), 0);
		assert_int_equal(current("/a", TALLY_CACHED), 0);
		assert_int_equal(value("/", "stock", TALLY_CACHED), 0);
		assert_int_equal(value("/a/b", "alloc", TALLY_EXACT), n);
		assert_int_equal(value("/", "sock", TALLY_EXACT), 0);
	}
	assert_int_equal(crew->wrong, 0);
	harness_unshare(crew, sizeof(*crew));
}

/* ------------------------------------------------------------------ all of it */

#define CONFIG_OF_ENGINE(interval)                                                                 \
	"[daemon]\nflush_interval = " interval "\nflush_threshold = " THRESHOLD "\n"

static struct setting rare = {DAEMON("1h", THRESHOLD) POOLS, false};
static struct setting often = {DAEMON("100ms", THRESHOLD) POOLS, false};
static struct setting of_many = {DAEMON("1h", THRESHOLD) POOLS, true};
static struct setting rare_embedded = {CONFIG_OF_ENGINE("1h"), false};
static struct setting often_embedded = {CONFIG_OF_ENGINE("100ms"), false};
static struct setting of_many_embedded = {CONFIG_OF_ENGINE("1h"), true};

#define SERVED(fn, setting)                                                                        \
	{                                                                                          \
#fn " " #setting, fn, begin, end, &setting                                         \
	}
#define EMBEDDED(fn, setting)                                                                      \
	{                                                                                          \
#fn " " #setting, fn, begin_embedded, end_embedded, &setting                       \
	}
#define EVERYWHERE(fn)                                                                             \
	SERVED(fn, rare), SERVED(fn, of_many), EMBEDDED(fn, rare_embedded),                        \
		EMBEDDED(fn, of_many_embedded)

int main(void)
{
	const struct CMUnitTest tests[] = {
		SERVED(test_above, rare),
		SERVED(test_above, of_many),
		SERVED(test_below, rare),
		SERVED(test_adds_up, rare),
		SERVED(test_adds_up, of_many),
		SERVED(test_own_thresholds, rare),
		SERVED(test_reloaded_threshold, rare),
		SERVED(test_charged, rare),
		SERVED(test_charged, of_many),
		SERVED(test_written_flush, rare),
		SERVED(test_numa_stat, rare),
		SERVED(test_deep, rare),
		SERVED(test_wide, rare),
		EMBEDDED(test_wide, rare_embedded),
		SERVED(test_published, rare),
		SERVED(test_published, of_many),
		SERVED(test_flags, rare),
		EMBEDDED(test_flags, rare_embedded),
		SERVED(test_periodic, often),
		SERVED(test_ratelimited_late, often),
		EMBEDDED(test_late_embedded, often_embedded),
		EMBEDDED(test_not_late_embedded, rare_embedded),
		SERVED(test_event_before_read, rare),
		SERVED(test_event_before_read, of_many),
		EVERYWHERE(test_flushers),
		EVERYWHERE(test_above_beside_flusher),
		EVERYWHERE(test_sums),
		EVERYWHERE(test_removed_and_made_again),
		SERVED(test_killed, rare),
		SERVED(test_killed, of_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
