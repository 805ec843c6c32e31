/* SPDX-License-Identifier: MIT */

/*
 * Whoever watches an exported memory.events sees it renamed into place when a limit is hit, long
 * before the periodic flush; a storm of hits does not become a storm of files, and the last state is
 * there in the end.
 */

#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "core/util.h"

#define M (UINT64_C(1024) * 1024)

static struct harness h;
static struct tally *t;
static int inotify;

static int start(void **state)
{
	(void)state;
	harness_start(
		&h, "[daemon]\nflush_interval = 1h\n[pool a]\npath = /a/b\nmemory.max = 1M\n");
	t = harness_open(&h);
	inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	assert_true(inotify >= 0);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	inotify = close_fd(inotify);
	t = tally_close(t);
	harness_stop(&h);
	return 0;
}

static void path_of(const char *pool, const char *file, char buf[static 512])
{
	snprintf(buf, 512, "%s/pools%s/%s", h.runtime, pool, file);
}

static int is_exported(void *pool)
{
	char path[512];

	path_of(pool, "memory.events", path);
	return access(path, R_OK) == 0;
}

static int watch(const char *pool)
{
	char path[512];
	int w;

	assert_true(harness_wait(is_exported, (void *)pool, HARNESS_PATIENCE_MS));
	path_of(pool, "", path);
	w = inotify_add_watch(inotify, path, IN_MOVED_TO);
	assert_true(w >= 0);
	return w;
}

/* How often memory.events came into the watched directory, up to now; waits for the first. */
static unsigned arrivals(int watched, int ms)
{
	struct pollfd p = {.fd = inotify, .events = POLLIN};
	unsigned n = 0;

	while (poll(&p, 1, n > 0 ? 0 : ms) > 0) {
		char buf[4096] __attribute__((aligned(8)));
		ssize_t size = read(inotify, buf, sizeof(buf));

		for (char *at = buf; at < buf + size;) {
			const struct inotify_event *e = (void *)at;

			n += e->wd == watched && strcmp(e->name, "memory.events") == 0;
			at += sizeof(*e) + e->len;
		}
	}
	return n;
}

struct shown {
	const char *pool;
	char key[32];
	uint64_t count;
};

static int is_shown(void *userdata)
{
	const struct shown *s = userdata;
	char path[512], line[64], wanted[64];
	int found = 0;
	FILE *f;

	path_of(s->pool, "memory.events", path);
	snprintf(wanted, sizeof(wanted), "%s %llu\n", s->key, (unsigned long long)s->count);
	f = fopen(path, "re");
	assert_non_null(f);
	while (!found && fgets(line, sizeof(line), f))
		found = strcmp(line, wanted) == 0;
	fclose(f);
	return found;
}

static void wait_for(const char *pool, const char *key, uint64_t count)
{
	struct shown s = {.pool = pool, .count = count};

	snprintf(s.key, sizeof(s.key), "%s", key);
	assert_true(harness_wait(is_shown, &s, HARNESS_PATIENCE_MS));
}

static void test_a_hit_shows(void **state)
{
	struct tally_pool *p = harness_attach(t, "/a/b/c");
	int own = watch("/a/b");

	(void)state;
	arrivals(own, 0);
	assert_int_equal(tally_charge(p, 2 * M), -ENOMEM);
	assert_true(arrivals(own, HARNESS_PATIENCE_MS) >= 1);
	wait_for("/a/b", "oom", 1);
	wait_for("/a/b", "max", 1);
	/* and up the tree, not down */
	wait_for("/a", "oom", 1);
	wait_for("", "oom", 1);
	tally_detach(p);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void test_a_storm(void **state)
{
	struct tally_pool *p = harness_attach(t, "/a/b");
	int own = watch("/a/b");
	unsigned n = 0;
	uint64_t began;

	(void)state;
	arrivals(own, 0);
	began = now_ms();
	for (unsigned i = 1; i <= 3000; i++) {
		assert_int_equal(tally_charge(p, 2 * M), -ENOMEM);
		if (i % 100 == 0)
			n += arrivals(own, 0);
	}
	wait_for("/a/b", "oom", 3000);
	wait_for("", "oom", 3000);
	n += arrivals(own, 0);
	assert_in_range(n, 1, (now_ms() - began) / 10 + 2);
	tally_detach(p);
}

/* A pool that goes while it is in a hurry, and one that comes. */
static void test_come_and_gone(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 50; i++) {
		struct tally_pool *p = harness_attach(t, "/a/b/new");

		assert_int_equal(tally_charge(p, 2 * M), -ENOMEM);
		tally_charge_force(p, 0, 1000);
		tally_detach(p);
		assert_int_equal(tally_remove(t, "/a/b/new", 0), 0);
	}
	wait_for("/a/b", "oom", 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_hit_shows, start, stop),
		cmocka_unit_test_setup_teardown(test_a_storm, start, stop),
		cmocka_unit_test_setup_teardown(test_come_and_gone, start, stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
