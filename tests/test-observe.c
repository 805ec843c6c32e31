/* SPDX-License-Identifier: MIT */

/*
 * A pool that only observes: its limits are shown and refuse nobody, what they would have refused is
 * counted, request by request; limits above it hold as ever.
 */

#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/util.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * KIB)

static const char config[] = "[pool top]\npath = /o\nmemory.max = 8M\n"
			     "[pool tried]\npath = /o/t\nmemory.max = 1M\nmemory.high = 512K\n"
			     "stat.sock.max = 256K\nenforce = observe\n"
			     "[pool firm]\npath = /o/t/firm\nmemory.max = 64K\n";

static struct harness harness;
static struct tally *tally; /* of the daemon, or embedded: the test is the same */
static struct tally_pool *pool;

static uint64_t event(const char *path, const char *key)
{
	return harness_value(tally, path, "memory.events.local", key);
}

static void expect(const char *path, const char *file, const char *text)
{
	_cleanup_(freep) char *got = harness_get(tally, path, file);

	assert_string_equal(got, text);
}

static void attach(const char *path)
{
	pool = harness_attach(tally, path);
}

static void test_max(void **state _unused_)
{
	struct tally_usage u;

	attach("/o/t");
	expect("/o/t", "memory.max", "1048576\n");
	assert_int_equal(tally_charge(pool, 1 * MIB), 0);
	assert_int_equal(event("/o/t", "would_refuse"), 0);
	for (unsigned i = 1; i <= 5; i++) {
		assert_int_equal(tally_charge(pool, 1 * MIB), 0);
		/* one a request: nothing was granted beyond it */
		assert_int_equal(event("/o/t", "would_refuse"), i);
	}
	assert_int_equal(harness_value(tally, "/o/t", "memory.stat", "stock"), 0);
	/* the limit above it refuses, and that is no event of this pool */
	assert_int_equal(tally_charge(pool, 3 * MIB), -ENOMEM);
	assert_int_equal(event("/o/t", "would_refuse"), 5);
	assert_int_equal(event("/o/t", "max"), 0);
	assert_int_equal(event("/o/t", "oom"), 0);
	assert_int_equal(event("/o", "oom"), 1);
	assert_int_equal(event("/o", "would_refuse"), 0);
	assert_int_equal(harness_value(tally, "/", "memory.events", "would_refuse"), 5);
	/* shown as it is set; what is left is what can be had */
	assert_int_equal(tally_usage(pool, sizeof(u), &u), 0);
	assert_int_equal(u.limit, 1 * MIB);
	assert_int_equal(u.headroom, 2 * MIB);
	/* back below it everything is as it was */
	tally_uncharge(pool, 6 * MIB);
	assert_int_equal(tally_set(tally, "/o/t", "pool.drain", "1"), 0);
	assert_int_equal(tally_charge(pool, 512 * KIB), 0);
	assert_int_equal(event("/o/t", "would_refuse"), 5);
	/* a limit that is set meanwhile is not enforced either */
	assert_int_equal(tally_set(tally, "/o/t", "memory.max", "4K"), 0);
	expect("/o/t", "memory.max", "4096\n");
	assert_int_equal(tally_charge(pool, 1 * MIB), 0);
	assert_int_equal(event("/o/t", "would_refuse"), 6);
	tally_detach(pool);
}

/* No wait, and none that is asked for ends in a refusal. */
static void test_other_ways(void **state _unused_)
{
	struct tally_charge_args a = {.bytes = 1 * MIB + 1};
	struct timespec now;
	int r;

	attach("/o/t");
	clock_gettime(CLOCK_MONOTONIC, &now);
	a.deadline_usec = ((uint64_t)now.tv_sec + 600) * 1000000;
	assert_int_equal(tally_charge_with(pool, &a, sizeof(a)), 0);
	assert_int_equal(event("/o/t", "would_refuse"), 1);
	for (unsigned i = 0; i < 100000; i++) {
		r = tally_try_charge(pool, 64 * KIB);
		if (r != -EAGAIN)
			break;
		usleep(1000);
	}
	assert_int_equal(r, 0);
	assert_int_equal(event("/o/t", "would_refuse"), 2);
	tally_detach(pool);
}

static void test_item(void **state _unused_)
{
	tally_item sock;

	attach("/o/t");
	assert_int_equal(tally_item_lookup(tally, "sock", &sock), 0);
	expect("/o/t", "stat.sock.max", "262144\n");
	assert_int_equal(tally_charge_item(pool, sock, 200 * KIB), 0);
	assert_int_equal(event("/o/t", "would_refuse"), 0);
	assert_int_equal(tally_charge_item(pool, sock, 100 * KIB), 0);
	assert_int_equal(event("/o/t", "would_refuse"), 1);
	/* who does not name the item is not concerned */
	assert_int_equal(tally_charge(pool, 100 * KIB), 0);
	assert_int_equal(event("/o/t", "would_refuse"), 1);
	/* two limits at once are one request */
	assert_int_equal(tally_charge_item(pool, sock, 2 * MIB), 0);
	assert_int_equal(event("/o/t", "would_refuse"), 2);
	/* a limit of an item that is set later: likewise */
	assert_int_equal(tally_set(tally, "/o/t", "stat.slab.max", "0"), 0);
	assert_int_equal(tally_item_lookup(tally, "slab", &sock), 0);
	assert_int_equal(tally_charge_item(pool, sock, 4 * KIB), 0);
	tally_detach(pool);
}

/* Above its memory.high nobody is slowed, but it counts. */
static void test_high(void **state _unused_)
{
	attach("/o/t");
	assert_int_equal(tally_charge(pool, 5 * MIB), 0);
	assert_int_equal(event("/o/t", "high"), 1);
	assert_int_equal(event("/o/t", "would_refuse"), 1);
	expect("/o/t", "memory.pressure",
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
		"full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
	tally_detach(pool);
}

/* A pool below, and one above, that enforce their own limits do so. */
static void test_below(void **state _unused_)
{
	attach("/o/t/firm");
	assert_int_equal(tally_charge(pool, 64 * KIB), 0);
	assert_int_equal(tally_charge(pool, 1), -ENOMEM);
	assert_int_equal(event("/o/t/firm", "oom"), 1);
	assert_int_equal(event("/o/t", "would_refuse"), 0);
	tally_detach(pool);
}

/* From one to the other, while bytes are charged. */
static void test_reload(void **state _unused_)
{
	_cleanup_(freep) char *said = NULL;

	attach("/o/t");
	assert_int_equal(tally_charge(pool, 2 * MIB), 0);
	harness_configure(&harness,
		"[pool tried]\npath = /o/t\nmemory.max = 1M\nenforce = yes\n"
		"[pool top]\npath = /o\nmemory.max = 2M\nenforce = observe\n");
	assert_int_equal(tally_set(tally, "/", "tallyd.reload", "1"), 0);
	said = harness_get(tally, "/", "tallyd.reload");
	assert_non_null(strstr(said, "/o/t enforce observe -> yes\n"));
	assert_non_null(strstr(said, "/o enforce yes -> observe\n"));
	assert_int_equal(tally_charge(pool, 4 * KIB), -ENOMEM);
	assert_int_equal(event("/o/t", "oom"), 1);
	tally_uncharge(pool, 2 * MIB);
	assert_int_equal(tally_set(tally, "/o/t", "pool.drain", "1"), 0);
	assert_int_equal(tally_charge(pool, 1 * MIB), 0);
	assert_int_equal(tally_charge(pool, 1), -ENOMEM);

	harness_configure(&harness, "[pool tried]\npath = /o/t\nenforce = maybe\n");
	assert_int_equal(tally_set(tally, "/", "tallyd.reload", "1"), -EINVAL);
	tally_detach(pool);
}

/* ------------------------------------------------------------------ both engines */

static int start_daemon(void **state _unused_)
{
	harness_start(&harness, config);
	tally = harness_open(&harness);
	return 0;
}

static int stop_daemon(void **state _unused_)
{
	tally = tally_close(tally);
	harness_stop(&harness);
	return 0;
}

static int start_embedded(void **state _unused_)
{
	char file[] = "/tmp/test-observe-XXXXXX";
	struct tally_options o = {.address = "embedded:", .config = file};
	int fd = mkstemp(file), r;

	if (fd < 0 || write(fd, config, strlen(config)) != (ssize_t)strlen(config))
		return -1;
	close(fd);
	r = tally_open_with(&o, sizeof(o), &tally);
	unlink(file);
	return r;
}

static int stop_embedded(void **state _unused_)
{
	tally = tally_close(tally);
	return 0;
}

#define BOTH(test)                                                                                 \
	cmocka_unit_test_setup_teardown(test, start_daemon, stop_daemon),                          \
		cmocka_unit_test_setup_teardown(test, start_embedded, stop_embedded)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(test_max),
		BOTH(test_other_ways),
		BOTH(test_item),
		BOTH(test_high),
		BOTH(test_below),
		cmocka_unit_test_setup_teardown(test_reload, start_daemon, stop_daemon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
