/* SPDX-License-Identifier: MIT */

/*
 * Files in the runtime directory, as whoever reads them with a shell or an exporter sees them:
 * always whole, equal to what is asked of the daemon, there as long as the pool is, and no reason
 * for the daemon to fail when they cannot be written.
 */

#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/util.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * KIB)
#define QUICK "[daemon]\nflush_interval = 100ms\n"
#define FAILS "cannot export to"
#define WORKS_AGAIN "exporting works again"

static struct harness harness;
static struct tally *tally;

/* Each test has its own configuration. */
static void start(const char *config)
{
	harness_start(&harness, config);
	tally = harness_open(&harness);
}

static void stop(void)
{
	tally = tally_close(tally);
	harness_stop(&harness);
}

/* ------------------------------------------------------------------ files */

/* An exported file; the root is "" here, and with an empty name it is the directory. */
static const char *file_of(const char *pool, const char *name, char buf[static 512])
{
	snprintf(buf, 512, "%s/pools%s/%s", harness.runtime, pool, name);
	return buf;
}

/* What is in it; NULL: it is not there. */
static char *slurp(const char *path)
{
	_cleanup_(close_fdp) int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *text = calloc(1, 65536);
	ssize_t n;

	assert_non_null(text);
	if (fd < 0) {
		assert_int_equal(errno, ENOENT);
		free(text);
		return NULL;
	}
	n = read(fd, text, 65535);
	assert_true(n >= 0);
	return text;
}

static bool exists(const char *pool, const char *name)
{
	char path[512];

	return access(file_of(pool, name, path), F_OK) == 0;
}

struct wanted {
	const char *pool, *name;
	const char *text; /* NULL: whatever it is */
};

static int is_there(void *userdata)
{
	const struct wanted *w = userdata;
	char path[512], *text = slurp(file_of(w->pool, w->name, path));
	int same = text && (!w->text || strcmp(text, w->text) == 0);

	free(text);
	return same;
}

static int is_gone(void *userdata)
{
	const struct wanted *w = userdata;

	return !exists(w->pool, w->name);
}

static void await_file(const char *pool, const char *name)
{
	struct wanted w = {pool, name, NULL};

	assert_true(harness_wait(is_there, &w, HARNESS_PATIENCE_MS));
}

static void await_text(const char *pool, const char *name, const char *text)
{
	struct wanted w = {pool, name, text};

	assert_true(harness_wait(is_there, &w, HARNESS_PATIENCE_MS));
}

static void await_gone(const char *pool, const char *name)
{
	struct wanted w = {pool, name, NULL};

	assert_true(harness_wait(is_gone, &w, HARNESS_PATIENCE_MS));
}

struct logged {
	const char *text;
	unsigned lines;
};

static int is_logged(void *userdata)
{
	const struct logged *l = userdata;

	return harness_log_lines(&harness, l->text) >= l->lines;
}

static void await_log(const char *text, unsigned lines)
{
	struct logged l = {text, lines};

	assert_true(harness_wait(is_logged, &l, HARNESS_PATIENCE_MS));
}

static uint64_t status(const char *key)
{
	return harness_value(tally, "/", "tallyd.status", key);
}

static int has_flushed_to(void *userdata)
{
	return status("flushes") >= *(uint64_t *)userdata;
}

/* Until the daemon has looked several times at what there is to export. */
static void await_flushes(void)
{
	uint64_t n = status("flushes") + 4;

	assert_true(harness_wait(has_flushed_to, &n, HARNESS_PATIENCE_MS));
}

/* ------------------------------------------------------------------ whole */

static const char *const stat_keys[] = {"held", "stock", "persistent", "overdraft", "anon", "file",
	"shmem", "sock", "slab", "hugetlb", "alloc", "free"};
static const char *const event_keys[] = {
	"low", "high", "max", "oom", "oom_kill", "reclaim", "force", "would_refuse"};

/* Exactly these keys, each with a number, and a newline at the end of each line. */
static bool is_whole_table(const char *text, const char *const *keys, size_t n_keys)
{
	for (size_t i = 0; i < n_keys; i++) {
		size_t n = strlen(keys[i]), digits;

		if (strncmp(text, keys[i], n) != 0 || text[n] != ' ')
			return false;
		text += n + 1;
		digits = strspn(text, "0123456789");
		if (digits == 0 || text[digits] != '\n')
			return false;
		text += digits + 1;
	}
	return *text == '\0';
}

static bool is_whole(const char *name, const char *text)
{
	size_t digits = strspn(text, "0123456789");

	if (strcmp(name, "memory.stat") == 0)
		return is_whole_table(text, stat_keys, ELEMENTS(stat_keys));
	if (strcmp(name, "memory.events") == 0)
		return is_whole_table(text, event_keys, ELEMENTS(event_keys));
	return digits > 0 && strcmp(text + digits, "\n") == 0;
}

static const char *const names[] = {"memory.current", "memory.stat", "memory.events"};

#define MANY_POOLS 40

/* Changes all figures of all pools, without end. */
static int keep_changing(void *userdata _unused_)
{
	struct tally_pool *p[MANY_POOLS];
	struct tally *t;
	char path[32];

	if (tally_open(harness.address, 0, &t) < 0)
		return 1;
	for (unsigned i = 0; i < MANY_POOLS; i++) {
		snprintf(path, sizeof(path), "/many/p%u", i);
		if (tally_attach(t, path, TALLY_CREATE, &p[i]) < 0)
			return 1;
	}
	for (uint64_t n = 1;; n++) {
		for (unsigned i = 0; i < MANY_POOLS; i++) {
			/* Some fail, which changes the events; numbers of many lengths. */
			if (tally_charge(p[i], UINT64_C(1) << (n + i) % 30) == -ENOMEM)
				tally_uncharge(p[i], UINT64_C(1) << (n + i + 15) % 30);
		}
		usleep(10000);
	}
}

static void test_never_seen_half_written(void **state _unused_)
{
	uint64_t exports, reads = 0;
	pid_t child;

	start(QUICK);
	assert_int_equal(tally_create(tally, "/many"), 0);
	assert_int_equal(tally_set(tally, "/many", "memory.max", "1G"), 0);
	child = harness_fork(keep_changing, NULL);
	await_file("/many/p39", "memory.stat");
	for (exports = status("exports"); status("exports") < exports + 2000;)
		for (unsigned i = 0; i < MANY_POOLS * ELEMENTS(names); i++) {
			const char *name = names[i % ELEMENTS(names)];
			char pool[32], path[512], *text;

			snprintf(pool, sizeof(pool), "/many/p%u", i % MANY_POOLS);
			text = slurp(file_of(pool, name, path));
			/* A pool that has its files keeps them. */
			assert_non_null(text);
			if (!is_whole(name, text))
				fail_msg("%s is not whole: '%s'", path, text);
			free(text);
			reads++;
		}
	print_message("%llu reads\n", (unsigned long long)reads);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	stop();
}

/* ------------------------------------------------------------------ the same everywhere */

#define ALL_FILES                                                                                  \
	"memory.current memory.peak memory.low memory.high memory.max memory.events "              \
	"memory.events.local memory.stat memory.numa_stat cgroup.events cgroup.stat cgroup.procs " \
	"pool.children"

static char *from_tallyctl(const char *pool, const char *name)
{
	const char *program = getenv("TALLYCTL");
	char command[1024], *text = calloc(1, 65536);
	FILE *f;

	snprintf(command, sizeof(command), "%s --socket %s get --exact '%s' %s",
		program ? program : "./tallyctl", harness.address + strlen("unix:"), pool, name);
	f = popen(command, "re");
	assert_non_null(f);
	assert_non_null(text);
	assert_true(fread(text, 1, 65535, f) < 65535);
	assert_int_equal(pclose(f), 0);
	return text;
}

static void assert_same_everywhere(const char *pool, const char *names_of)
{
	_cleanup_(freep) char *list = strdup(names_of);
	char *save = NULL;

	for (char *name = strtok_r(list, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
		char *asked = harness_get(tally, pool, name), *ctl = from_tallyctl(pool, name);

		assert_string_equal(ctl, asked);
		await_text(strcmp(pool, "/") == 0 ? "" : pool, name, asked);
		free(asked);
		free(ctl);
	}
}

static void test_same_everywhere(void **state _unused_)
{
	struct actor a, b;

	start(QUICK "export_files = " ALL_FILES "\n");
	assert_int_equal(tally_create(tally, "/s"), 0);
	assert_int_equal(tally_set(tally, "/s", "memory.max", "20M"), 0);
	actor_start(&a, &harness, "/s/a b");
	actor_start(&b, &harness, "/s/b/c");
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 3 * MIB + 1, 0), 0);
	assert_int_equal(actor_do(&b, ACTOR_CHARGE, 5 * MIB, 0), 0);
	assert_int_equal(actor_do(&b, ACTOR_CHARGE, 50 * MIB, 0), -ENOMEM);
	actor_do(&a, ACTOR_UNCHARGE, 1 * MIB, 0);
	assert_same_everywhere("/", ALL_FILES);
	assert_same_everywhere("/s", ALL_FILES);
	assert_same_everywhere("/s/a b", ALL_FILES);
	assert_same_everywhere("/s/b/c", ALL_FILES);

	/* Every change arrives: of the limit, of the events, of who is there. */
	assert_int_equal(tally_set(tally, "/s", "memory.max", "21M"), 0);
	await_text("/s", "memory.max", "22020096\n");
	assert_int_equal(actor_do(&b, ACTOR_CHARGE, 50 * MIB, 0), -ENOMEM);
	actor_kill(&b);
	assert_same_everywhere("/s", ALL_FILES);
	assert_same_everywhere("/s/b/c", ALL_FILES);
	await_text("/s/b/c", "cgroup.procs", "");
	actor_kill(&a);
	stop();
}

/* A peak between two flushes leaves every other figure as it was. */
static void test_peak_alone_arrives(void **state _unused_)
{
	struct tally_pool *p;
	uint64_t flushes;
	char *peak;

	start("[daemon]\nflush_interval = 1s\nexport_files = memory.peak\n");
	p = harness_attach(tally, "/p");
	await_text("/p", "memory.peak", "0\n");
	/* Again, with more, until no flush came in between. */
	for (uint64_t bytes = 8 * MIB;; bytes *= 2) {
		flushes = status("flushes");
		assert_int_equal(tally_charge(p, bytes), 0);
		tally_uncharge(p, bytes);
		assert_int_equal(tally_set(tally, "/p", "pool.drain", "1"), 0);
		if (status("flushes") == flushes)
			break;
	}
	peak = harness_get(tally, "/p", "memory.peak");
	await_text("/p", "memory.peak", peak);
	free(peak);
	tally_detach(p);
	stop();
}

/* ------------------------------------------------------------------ there and gone */

static void test_files_go_with_the_pool(void **state _unused_)
{
	start(QUICK);
	assert_int_equal(tally_create(tally, "/a"), 0);
	assert_int_equal(tally_create(tally, "/a/b"), 0);
	assert_int_equal(tally_create(tally, "/a/b/c"), 0);
	for (unsigned i = 0; i < ELEMENTS(names); i++) {
		await_file("", names[i]);
		await_file("/a/b/c", names[i]);
	}
	/* Of the files that were asked for, and of no others. */
	assert_false(exists("/a", "memory.max"));
	assert_false(exists("/a", ".memory.stat.new"));

	assert_int_equal(tally_remove(tally, "/a/b/c", 0), 0);
	await_gone("/a/b/c", "");
	await_file("/a/b", "memory.stat");
	/* Gone and made again: they are the new one's. */
	assert_int_equal(tally_create(tally, "/a/b/c"), 0);
	assert_int_equal(tally_remove(tally, "/a/b/c", 0), 0);
	assert_int_equal(tally_create(tally, "/a/b/c"), 0);
	await_text("/a/b/c", "memory.current", "0\n");

	/* They are nobody's when the daemon has stopped, and not left over when it was killed. */
	tally_close(tally);
	harness_kill(&harness);
	assert_true(exists("/a/b/c", "memory.stat"));
	harness_restart(&harness);
	tally = harness_open(&harness);
	await_file("", "memory.stat");
	assert_false(exists("/a", ""));
	tally_close(tally);
	assert_int_equal(kill(harness.daemon, SIGTERM), 0);
	harness_join(harness.daemon, 0);
	harness.daemon = -1;
	assert_false(exists("", ""));
	harness_stop(&harness);
}

static void test_patterns(void **state _unused_)
{
	static const char *const made[] = {"/x", "/x/a", "/x/a/deep", "/x/b", "/y", "/z", "/z/q1"};
	static const char *const not_wanted[] = {"/x", "/z"};

	start(QUICK "export = /x/*\nexport = /y\nexport = /*/q[0-9]\n");
	for (unsigned i = 0; i < ELEMENTS(made); i++)
		assert_int_equal(tally_create(tally, made[i]), 0);
	await_file("/x/a", "memory.stat");
	await_file("/x/a/deep", "memory.stat");
	await_file("/x/b", "memory.stat");
	await_file("/y", "memory.stat");
	await_file("/z/q1", "memory.stat");
	await_flushes();
	assert_false(exists("", "memory.stat"));
	for (unsigned i = 0; i < ELEMENTS(not_wanted); i++)
		assert_false(exists(not_wanted[i], "memory.stat"));

	/* Other patterns and files after a reload: what is no longer wanted goes. */
	harness_configure(&harness, QUICK "export = /z\nexport_files = memory.max\n");
	assert_int_equal(tally_set(tally, "/", "tallyd.reload", "1"), 0);
	await_text("/z", "memory.max", "max\n");
	await_gone("/x", "");
	assert_false(exists("/z", "memory.stat"));
	assert_false(exists("/y", ""));

	harness_configure(&harness, QUICK "export =\n");
	assert_int_equal(tally_set(tally, "/", "tallyd.reload", "1"), 0);
	await_gone("", "");
	await_flushes();
	assert_false(exists("", ""));
	stop();
}

static void test_export_max(void **state _unused_)
{
	char path[32];

	start(QUICK "export_max = 4\n");
	for (unsigned i = 0; i < 6; i++) {
		snprintf(path, sizeof(path), "/m%u", i);
		assert_int_equal(tally_create(tally, path), 0);
	}
	/* The root, and three. */
	await_file("", "memory.stat");
	await_file("/m2", "memory.stat");
	await_log("more than export_max = 4 pools", 1);
	await_flushes();
	for (unsigned i = 0; i < 6; i++) {
		snprintf(path, sizeof(path), "/m%u", i);
		assert_int_equal(exists(path, "memory.stat"), i < 3);
	}
	assert_int_equal(harness_log_lines(&harness, "export_max"), 1);

	/* Where one goes, there is room for another. */
	assert_int_equal(tally_remove(tally, "/m0", 0), 0);
	await_file("/m3", "memory.stat");
	stop();
}

static void test_deeper_pools_give_way(void **state _unused_)
{
	start(QUICK "export_max = 3\n");
	assert_int_equal(tally_create(tally, "/a"), 0);
	assert_int_equal(tally_create(tally, "/a/b"), 0);
	assert_int_equal(tally_create(tally, "/a/b/c"), 0);
	await_file("/a/b", "memory.stat");
	assert_int_equal(status("exported_pools"), 3);

	assert_int_equal(tally_create(tally, "/d"), 0);
	await_file("/d", "memory.stat");
	await_gone("/a/b", "");
	await_log("more than export_max = 3 pools", 1);
	assert_int_equal(status("exported_pools"), 3);

	assert_int_equal(tally_remove(tally, "/d", 0), 0);
	await_file("/a/b", "memory.stat");
	await_gone("/d", "");
	assert_false(exists("/a/b/c", ""));
	assert_int_equal(harness_log_lines(&harness, "export_max"), 1);

	/* Other bounds after a reload. */
	harness_configure(&harness, QUICK "export_max = 4\n");
	assert_int_equal(tally_set(tally, "/", "tallyd.reload", "1"), 0);
	await_file("/a/b/c", "memory.stat");
	harness_configure(&harness, QUICK "export_max = 2\n");
	assert_int_equal(tally_set(tally, "/", "tallyd.reload", "1"), 0);
	await_gone("/a/b", "");
	assert_true(exists("/a", "memory.stat"));
	assert_int_equal(status("exported_pools"), 2);
	harness_configure(&harness, QUICK "export_max = 0\n");
	assert_int_equal(tally_set(tally, "/", "tallyd.reload", "1"), 0);
	await_gone("", "");
	assert_int_equal(status("exported_pools"), 0);
	stop();
}

/* What stays wanted is there all the time. */
static int are_without_events(void *userdata _unused_)
{
	static const char *const kept[] = {"/x/a", "/y"};
	bool gone = true;

	for (unsigned i = 0; i < ELEMENTS(kept); i++) {
		assert_true(exists(kept[i], "memory.stat"));
		gone = gone && !exists(kept[i], "memory.events");
	}
	return gone;
}

static void test_reload_takes_only_what_goes(void **state _unused_)
{
	start(QUICK);
	assert_int_equal(tally_create(tally, "/x"), 0);
	assert_int_equal(tally_create(tally, "/x/a"), 0);
	assert_int_equal(tally_create(tally, "/y"), 0);
	await_file("/y", "memory.stat");
	harness_configure(&harness,
		QUICK "export = /x/*\nexport = /y\nexport_files = memory.stat memory.max\n");
	assert_int_equal(tally_set(tally, "/", "tallyd.reload", "1"), 0);
	assert_true(harness_wait(are_without_events, NULL, HARNESS_PATIENCE_MS));
	await_file("/x/a", "memory.max");
	await_gone("/x", "memory.stat");
	await_gone("", "memory.stat");

	/* Directories that hold nothing any more go with the last pool below them. */
	assert_int_equal(tally_remove(tally, "/x/a", 0), 0);
	await_gone("/x", "");
	assert_true(exists("/y", "memory.stat"));
	stop();
}

/* ------------------------------------------------------------------ no more than what has changed */

static struct stat stat_of(const char *pool, const char *name)
{
	char path[512];
	struct stat st;

	assert_int_equal(stat(file_of(pool, name, path), &st), 0);
	return st;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
		a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void test_what_has_not_changed_is_not_written(void **state _unused_)
{
	struct stat still[ELEMENTS(names)], events, now;
	struct tally_pool *busy;
	uint64_t exports, bytes;

	start(QUICK);
	busy = harness_attach(tally, "/busy");
	assert_int_equal(tally_create(tally, "/still"), 0);
	await_file("/still", "memory.events");
	await_file("/busy", "memory.events");
	await_flushes();
	for (unsigned i = 0; i < ELEMENTS(names); i++)
		still[i] = stat_of("/still", names[i]);
	events = stat_of("/busy", "memory.events");

	for (uint64_t n = 1; n < 4; n++) {
		char text[32];

		exports = status("exports");
		bytes = status("export_bytes");
		assert_int_equal(tally_charge(busy, 3 * MIB), 0);
		snprintf(text, sizeof(text), "%llu\n", (unsigned long long)(n * 3 * MIB));
		await_text("/busy", "memory.current", text);
		await_flushes();
		assert_true(status("exports") > exports);
		assert_true(status("export_bytes") > bytes);
	}
	for (unsigned i = 0; i < ELEMENTS(names); i++) {
		now = stat_of("/still", names[i]);
		assert_true(is_same_file(&now, &still[i]));
	}
	/* Of the one that has changed, not that file. */
	now = stat_of("/busy", "memory.events");
	assert_true(is_same_file(&now, &events));

	/* Nothing at all. */
	await_flushes();
	exports = status("exports");
	await_flushes();
	assert_int_equal(status("exports"), exports);
	assert_int_equal(status("export_errors"), 0);
	tally_detach(busy);
	stop();
}

static uint64_t row_of(const char *text, const char *key)
{
	const char *row = strstr(text, key);

	assert_non_null(row);
	return strtoull(row + strlen(key), NULL, 10);
}

/* Whether the last flush of the whole tree is still the one that was at *usec, of the daemon's time. */
static bool is_last_flush(uint64_t *usec)
{
	char *text = harness_get(tally, "/", "tallyd.status");
	uint64_t last = row_of(text, "uptime_usec ") - row_of(text, "flush_age_usec ");
	bool same = last < *usec + 1000000;

	free(text);
	*usec = last;
	return same;
}

static int shows_much(void *line)
{
	char path[512], *text = slurp(file_of("/much", "memory.stat", path));
	int there = text && strstr(text, line);

	free(text);
	return there;
}

/* A subtree that has changed a lot does not wait for the flush of the whole tree; one that has changed a
 * little does. */
static void test_threshold(void **state _unused_)
{
	struct tally_pool *much, *little;
	tally_item sock;
	uint64_t flushed = 0;
	unsigned tries = 0;
	int64_t sum = 0;

	start("[daemon]\nflush_interval = 8s\nexport = /much\nexport = /little\n"
	      "export_files = memory.stat\n");
	much = harness_attach(tally, "/much/below");
	little = harness_attach(tally, "/little");
	assert_int_equal(tally_item_lookup(tally, "sock", &sock), 0);
	await_file("/much", "memory.stat");
	await_file("/little", "memory.stat");
	for (bool done = false; !done;) {
		struct stat before, now;
		char line[64];

		assert_true(tries++ < 20);
		is_last_flush(&flushed);
		before = stat_of("/little", "memory.stat");

		tally_stat_add(little, sock, 1);
		for (unsigned i = 0; i < 100000; i++, sum += 4096)
			tally_stat_add(much, sock, 4096);
		snprintf(line, sizeof(line), "sock %lld\n", (long long)sum);
		assert_true(harness_wait(shows_much, line, HARNESS_PATIENCE_MS));
		/* Again, until no flush of the whole tree came in between. */
		now = stat_of("/little", "memory.stat");
		done = is_last_flush(&flushed);
		if (done)
			assert_true(is_same_file(&now, &before));
	}
	tally_detach(much);
	tally_detach(little);
	stop();
}

static void test_pool_with_the_name_of_a_file(void **state _unused_)
{
	static const char *const unfit[] = {"/memory.stat", "/a/memory.current",
		"/a/memory.current/below", "/.memory.events.new"};
	char path[512], *text;

	start(QUICK);
	assert_int_equal(tally_create(tally, "/a"), 0);
	for (unsigned i = 0; i < ELEMENTS(unfit); i++)
		assert_int_equal(tally_create(tally, unfit[i]), 0);
	assert_int_equal(tally_create(tally, "/memory.max"), 0);
	await_file("/memory.max", "memory.stat");
	await_file("/a", "memory.current");
	await_flushes();
	text = slurp(file_of("", "memory.stat", path));
	assert_true(is_whole("memory.stat", text));
	free(text);
	text = slurp(file_of("/a", "memory.current", path));
	assert_true(is_whole("memory.current", text));
	free(text);
	assert_int_equal(harness_log_lines(&harness, "not exported"), 1);
	assert_int_equal(harness_log_lines(&harness, FAILS), 0);

	/* They are pools like others. */
	for (unsigned i = 0; i < ELEMENTS(unfit); i++) {
		struct tally_pool *p = harness_attach(tally, unfit[i]);

		assert_int_equal(tally_charge(p, 1 * MIB), 0);
		assert_int_equal(harness_value(tally, unfit[i], "memory.stat", "held"), MIB);
		tally_detach(p);
	}
	assert_int_equal(tally_remove(tally, "/a/memory.current/below", 0), 0);
	assert_int_equal(tally_remove(tally, "/a/memory.current", 0), 0);
	assert_int_equal(tally_remove(tally, "/memory.stat", 0), 0);
	await_flushes();
	await_text("/a", "memory.current", "0\n");
	assert_true(exists("", "memory.stat"));
	stop();
}

/* ------------------------------------------------------------------ what cannot be written */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path) < 0 && errno != ENOENT ? -1 : 0;
}

static void remove_pools(void)
{
	char path[512];

	/* The daemon may write into it meanwhile. */
	file_of("", "", path);
	while (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) < 0 && errno != ENOENT)
		assert_int_equal(errno, ENOTEMPTY);
}

static void assert_serves(struct tally_pool *p)
{
	uint64_t before = harness_current(tally, "/e");

	assert_int_equal(tally_charge(p, 3 * MIB), 0);
	assert_int_equal(harness_current(tally, "/e"), before + 3 * MIB);
	tally_close(harness_open(&harness));
}

/* As /e shows it when it holds `n` times what assert_serves() charges. */
static void await_current(unsigned n)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu\n", (unsigned long long)(n * 3 * MIB));
	await_text("/e", "memory.current", text);
}

static void test_directory_vanishes(void **state _unused_)
{
	struct tally_pool *p;

	start(QUICK);
	p = harness_attach(tally, "/e");
	assert_int_equal(tally_create(tally, "/still"), 0);
	await_file("/e", "memory.stat");
	await_file("/still", "memory.stat");
	remove_pools();
	assert_serves(p);
	/* All of it comes back, not only what changes. */
	await_current(1);
	await_file("/still", "memory.stat");
	assert_true(harness_log_lines(&harness, FAILS) <= 1);
	tally_detach(p);
	stop();
}

/* Somebody else's by now: nothing is written there. */
static void test_runtime_dir_is_replaced(void **state _unused_)
{
	struct tally_pool *p;
	char away[128];

	start(QUICK);
	p = harness_attach(tally, "/e");
	await_file("/e", "memory.stat");
	snprintf(away, sizeof(away), "%s.away", harness.runtime);
	assert_int_equal(rename(harness.runtime, away), 0);
	assert_int_equal(mkdir(harness.runtime, 0755), 0);
	assert_int_equal(tally_charge(p, 3 * MIB), 0);
	await_log("was removed or replaced", 1);
	await_flushes();
	assert_int_equal(tally_charge(p, 3 * MIB), 0);
	assert_int_equal(harness_current(tally, "/e"), 6 * MIB);
	await_flushes();
	assert_int_equal(harness_log_lines(&harness, "was removed or replaced"), 1);
	assert_int_equal(rmdir(harness.runtime), 0); /* it is empty */
	tally_detach(p);
	stop();
}

/* Whatever keeps the directory from being written is said once, and once that it is over. */
static void assert_outlived(struct tally_pool *p, void (*end)(void))
{
	assert_serves(p);
	await_log(FAILS, 1);
	await_flushes();
	assert_serves(p);
	await_flushes();
	assert_int_equal(harness_log_lines(&harness, FAILS), 1);
	assert_int_equal(harness_log_lines(&harness, WORKS_AGAIN), 0);
	assert_true(status("export_errors") > 0);
	end();
	await_log(WORKS_AGAIN, 1);
	await_current(2);
	await_file("/still", "memory.stat");
	assert_int_equal(harness_log_lines(&harness, FAILS), 1);
	assert_int_equal(harness_log_lines(&harness, WORKS_AGAIN), 1);
}

static void take_file_away(void)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/pools", harness.runtime);
	assert_int_equal(unlink(path), 0);
}

static void test_a_file_in_its_place(void **state _unused_)
{
	struct tally_pool *p;
	char path[512];
	int fd;

	start(QUICK);
	p = harness_attach(tally, "/e");
	assert_int_equal(tally_create(tally, "/still"), 0);
	await_file("/still", "memory.stat");
	snprintf(path, sizeof(path), "%s/pools", harness.runtime);
	do {
		remove_pools();
		fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	} while (fd < 0 && errno == EEXIST);
	assert_true(fd >= 0);
	close(fd);
	assert_outlived(p, take_file_away);
	tally_detach(p);
	stop();
}

static void unlock(void)
{
	char path[512];

	assert_int_equal(chmod(file_of("/e", "", path), 0755), 0);
	assert_int_equal(chmod(file_of("/still", "", path), 0755), 0);
}

static void test_directory_may_not_be_written(void **state _unused_)
{
	struct tally_pool *p;
	char path[512];

	if (geteuid() == 0) {
		print_message("skipped: no permission stops root\n");
		skip();
	}
	start(QUICK);
	p = harness_attach(tally, "/e");
	assert_int_equal(tally_create(tally, "/still"), 0);
	await_file("/e", "memory.stat");
	await_file("/still", "memory.stat");
	assert_int_equal(chmod(file_of("/e", "", path), 0555), 0);
	assert_int_equal(chmod(file_of("/still", "", path), 0555), 0);
	assert_outlived(p, unlock);
	tally_detach(p);
	stop();
}

static void unmount(void)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/pools", harness.runtime);
	assert_int_equal(umount2(path, MNT_DETACH), 0);
}

/* A file system of a few pages over the directory, seen by this program and its daemon alone. */
static bool mount_over(const char *options, unsigned long flags)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/pools", harness.runtime);
	return mount("tally", path, "tmpfs", flags, options) == 0;
}

static void test_with_mount(const char *options, unsigned long flags)
{
	struct tally_pool *p;

	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) < 0) {
		print_message("skipped: no mount namespace: %s\n", strerror(errno));
		skip();
	}
	start(QUICK);
	p = harness_attach(tally, "/e");
	assert_int_equal(tally_create(tally, "/still"), 0);
	await_file("/e", "memory.stat");
	await_file("/still", "memory.stat");
	if (!mount_over(options, flags)) {
		print_message("skipped: no tmpfs can be mounted: %s\n", strerror(errno));
		tally_detach(p);
		stop();
		skip();
	}
	assert_outlived(p, unmount);
	tally_detach(p);
	stop();
}

static void test_file_system_full(void **state _unused_)
{
	test_with_mount("size=4k", 0);
}

static void test_file_system_read_only(void **state _unused_)
{
	test_with_mount("size=1m", MS_RDONLY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_never_seen_half_written),
		cmocka_unit_test(test_same_everywhere),
		cmocka_unit_test(test_peak_alone_arrives),
		cmocka_unit_test(test_files_go_with_the_pool),
		cmocka_unit_test(test_patterns),
		cmocka_unit_test(test_export_max),
		cmocka_unit_test(test_deeper_pools_give_way),
		cmocka_unit_test(test_reload_takes_only_what_goes),
		cmocka_unit_test(test_what_has_not_changed_is_not_written),
		cmocka_unit_test(test_threshold),
		cmocka_unit_test(test_pool_with_the_name_of_a_file),
		cmocka_unit_test(test_directory_vanishes),
		cmocka_unit_test(test_runtime_dir_is_replaced),
		cmocka_unit_test(test_a_file_in_its_place),
		cmocka_unit_test(test_directory_may_not_be_written),
		cmocka_unit_test(test_file_system_full),
		cmocka_unit_test(test_file_system_read_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
