/* SPDX-License-Identifier: MIT */

/* Pools whose bytes are no part of their ancestors'; over a daemon, and embedded. */

#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/util.h"

#define DAEMON_SECTION "[daemon]\nflush_interval = 1h\ngrace = 100ms\nexport =\n"
#define HOST "[pool host]\npath = /host\nmemory.max = 1M\nstat.sock.max = 512K\n"
#define GPU "[pool gpu]\npath = /host/gpu\nmemory.max = 100M\n"

static const char config[] = DAEMON_SECTION HOST GPU "standalone = yes\n";

#define MB (UINT64_C(1) << 20)

static struct harness h;
static struct tally *t;
static struct tally_pool *host, *gpu; /* of /host/a and /host/gpu/a */
static tally_item sock, count;
static bool embedded;
static char file[] = "/tmp/tally-standalone-XXXXXX";

static void open_embedded(void)
{
	struct tally_options o = {.address = "embedded:", .config = file};
	int fd = mkstemp(file);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, config, strlen(config)), strlen(config));
	close(fd);
	assert_int_equal(tally_open_with(&o, sizeof(o), &t), 0);
	unlink(file);
	memset(file + strlen(file) - 6, 'X', 6);
}

static int begin(void **state)
{
	embedded = *state;
	if (embedded) {
		open_embedded();
	} else {
		harness_start(&h, config);
		t = harness_open(&h);
	}
	host = harness_attach(t, "/host/a");
	gpu = harness_attach(t, "/host/gpu/a");
	assert_int_equal(tally_item_lookup(t, "sock", &sock), 0);
	assert_int_equal(tally_item_lookup(t, "alloc", &count), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	host = tally_detach(host);
	gpu = tally_detach(gpu);
	t = tally_close(t);
	if (!embedded)
		harness_stop(&h);
	return 0;
}

static uint64_t stat_of(const char *path, const char *key)
{
	return harness_value(t, path, "memory.stat", key);
}

static uint64_t number(const char *path, const char *name)
{
	_cleanup_(freep) char *text = harness_get(t, path, name);

	return strtoull(text, NULL, 10);
}

static struct tally_usage usage(struct tally_pool *p)
{
	struct tally_usage u;

	assert_int_equal(tally_usage(p, sizeof(u), &u), 0);
	return u;
}

/* ------------------------------------------------------------------ both engines */

static void test_not_summed(void **state)
{
	(void)state;
	assert_int_equal(number("/host/gpu", "pool.standalone"), 1);
	assert_int_equal(number("/host", "pool.standalone"), 0);
	assert_int_equal(number("/host/gpu/a", "pool.standalone"), 0);
	assert_int_equal(tally_charge(gpu, 50 * MB), 0);
	assert_int_equal(tally_charge_item(gpu, sock, 10 * MB), 0);
	assert_int_equal(tally_charge(host, 1000), 0);
	tally_stat_add(gpu, sock, 500);
	tally_stat_add(gpu, count, 7);
	/* Children of a standalone pool are part of it. */
	assert_int_equal(harness_current(t, "/host/gpu"), 60 * MB);
	assert_int_equal(stat_of("/host/gpu", "sock"), 10 * MB + 500);
	assert_int_equal(stat_of("/host/gpu", "alloc"), 7);
	assert_int_equal(harness_current(t, "/host"), 1000);
	assert_int_equal(harness_current(t, "/"), 1000);
	assert_int_equal(stat_of("/host", "sock"), 0);
	assert_int_equal(stat_of("/", "alloc"), 0);
	assert_true(number("/host", "memory.peak") < 10 * MB);
	/* The tree itself is as ever. */
	assert_int_equal(harness_value(t, "/host", "cgroup.stat", "nr_descendants"), 3);
	assert_int_equal(harness_value(t, "/host", "cgroup.events", "populated"), 1);
}

static void test_limits_above_do_not_hold(void **state)
{
	(void)state;
	assert_int_equal(tally_charge(gpu, 80 * MB), 0);
	assert_int_equal(tally_charge_item(gpu, sock, 20 * MB), 0);
	assert_int_equal(tally_charge(gpu, 1), -ENOMEM);
	assert_int_equal(harness_value(t, "/host/gpu", "memory.events.local", "oom"), 1);
	/* What has happened below is heard of above. */
	assert_int_equal(harness_value(t, "/host", "memory.events", "oom"), 1);
	assert_int_equal(tally_charge(host, MB), 0);
	assert_int_equal(tally_charge(host, 1), -ENOMEM);
	tally_uncharge_item(gpu, sock, 20 * MB);
	assert_int_equal(tally_charge(host, 1), -ENOMEM);
	assert_int_equal(usage(host).headroom, 0);
	assert_true(usage(gpu).headroom <= 20 * MB);
	gpu = tally_detach(gpu);
	assert_int_equal(harness_current(t, "/host/gpu"), 0);
	assert_int_equal(harness_current(t, "/host"), MB);
	gpu = harness_attach(t, "/host/gpu/a");
	assert_int_equal(usage(gpu).headroom, 100 * MB);
}

/* A limit of an item that comes later has what counts in it, and no more. */
static void test_items(void **state)
{
	(void)state;
	assert_int_equal(tally_charge_item(gpu, sock, 10 * MB), 0);
	assert_int_equal(tally_set(t, "/", "stat.sock.max", "512K"), 0);
	assert_int_equal(tally_set(t, "/host/gpu/a", "stat.sock.max", "11M"), 0);
	assert_int_equal(tally_charge_item(host, sock, MB / 2), 0);
	assert_int_equal(tally_charge_item(host, sock, 1), -ENOMEM);
	assert_int_equal(tally_charge_item(gpu, sock, MB), 0);
	assert_int_equal(tally_charge_item(gpu, sock, 1), -ENOMEM);
	/* Without the one between, the others are as they were. */
	assert_int_equal(tally_set(t, "/host", "stat.sock.max", "max"), 0);
	assert_int_equal(tally_set(t, "/host/gpu/a", "stat.sock.max", "max"), 0);
	assert_int_equal(tally_charge_item(gpu, sock, MB), 0);
	assert_int_equal(tally_charge_item(host, sock, 1), -ENOMEM);
	tally_uncharge_item(gpu, sock, 12 * MB);
	assert_int_equal(tally_charge_item(host, sock, 1), -ENOMEM);
}

static void test_drains(void **state)
{
	uint64_t idle;

	(void)state;
	assert_int_equal(tally_charge(gpu, MB), 0);
	tally_uncharge(gpu, MB);
	idle = stat_of("/host/gpu", "stock");
	assert_true(idle > 0);
	assert_int_equal(stat_of("/host", "stock"), 0);
	/* Nothing of it counts where it does not fit. */
	assert_int_equal(tally_charge(host, 2 * MB), -ENOMEM);
	assert_int_equal(stat_of("/host/gpu", "stock"), idle);
	/* Who says so drains all the same. */
	assert_int_equal(tally_set(t, "/", "pool.drain", "1"), 0);
	assert_int_equal(stat_of("/host/gpu", "stock"), 0);
}

static void test_transfers(void **state)
{
	(void)state;
	assert_int_equal(tally_charge(gpu, 2 * MB), 0);
	assert_int_equal(tally_transfer(gpu, host, 0, 2 * MB), -ENOMEM);
	assert_int_equal(tally_transfer(gpu, host, 0, MB), 0);
	assert_int_equal(harness_current(t, "/host"), MB);
	assert_int_equal(harness_current(t, "/host/gpu"), MB);
	assert_int_equal(tally_transfer(host, gpu, 0, MB), 0);
	assert_int_equal(harness_current(t, "/"), 0);
	assert_int_equal(harness_current(t, "/host/gpu"), 2 * MB);
}

static void test_removal(void **state)
{
	struct tally_pool *p = harness_attach(t, "/host/gpu");

	(void)state;
	assert_int_equal(tally_charge(gpu, MB), 0);
	assert_int_equal(tally_remove(t, "/host/gpu/a", TALLY_FORCE), 0);
	assert_int_equal(harness_current(t, "/host/gpu"), MB);
	/* Its bytes have nowhere to go. */
	assert_int_equal(tally_remove(t, "/host/gpu", TALLY_FORCE), -EBUSY);
	gpu = tally_detach(gpu);
	assert_int_equal(tally_remove(t, "/host/gpu", TALLY_FORCE), 0);
	assert_int_equal(tally_charge(p, 1), -ENODEV);
	tally_detach(p);
}

/* ------------------------------------------------------------------ over a daemon */

static int reload(const char *text)
{
	harness_configure(&h, text);
	return tally_set(t, "/", "tallyd.reload", "1");
}

static void assert_reload_says(const char *text)
{
	_cleanup_(freep) char *said = harness_get(t, "/", "tallyd.reload");

	if (!strstr(said, text))
		fail_msg("\"%s\" is not in \"%s\"", text, said);
}

static void test_reload_refused(void **state)
{
	(void)state;
	assert_int_equal(tally_charge(gpu, 50 * MB), 0);
	assert_int_equal(reload(DAEMON_SECTION HOST GPU), -EINVAL);
	assert_reload_says("tallyd.conf:10: [pool gpu] standalone: it cannot change");
	/* Its section is gone: that is a change too. */
	assert_int_equal(reload(DAEMON_SECTION HOST), -EINVAL);
	assert_reload_says("[pool gpu] standalone: it cannot change");
	assert_int_equal(
		reload(DAEMON_SECTION HOST "standalone = yes\n" GPU "standalone = yes\n"), 0);
	assert_int_equal(harness_current(t, "/host/gpu"), 50 * MB);
	assert_int_equal(harness_current(t, "/host"), 0);
	assert_int_equal(number("/host", "pool.standalone"), 1);
}

static void test_reload(void **state)
{
	(void)state;
	assert_int_equal(tally_charge(gpu, MB), 0);
	tally_uncharge(gpu, MB);
	tally_stat_add(gpu, sock, 500);
	tally_stat_add(gpu, count, 7);
	assert_int_equal(stat_of("/", "sock"), 0);
	assert_int_equal(tally_set(t, "/host/gpu", "pool.drain", "1"), 0);
	assert_int_equal(tally_set(t, "/host/gpu/a", "stat.sock.max", "1M"), 0);
	assert_int_equal(reload(DAEMON_SECTION HOST GPU), 0);
	assert_reload_says("/host/gpu standalone yes -> no");
	assert_int_equal(stat_of("/", "sock"), 500);
	assert_int_equal(stat_of("/host", "alloc"), 7);
	assert_int_equal(tally_charge(gpu, 2 * MB), -ENOMEM);
	assert_int_equal(tally_charge_item(gpu, sock, MB), -ENOMEM);
	assert_int_equal(tally_charge(gpu, MB), 0);
	assert_int_equal(harness_current(t, "/"), MB);
	assert_int_equal(usage(gpu).headroom, 0);
	tally_uncharge(gpu, MB);
	assert_int_equal(tally_set(t, "/", "pool.drain", "1"), 0);
	assert_int_equal(reload(config), 0);
	assert_int_equal(stat_of("/", "sock"), 0);
	assert_int_equal(stat_of("/host/gpu", "sock"), 500);
	assert_int_equal(tally_charge(gpu, 50 * MB), 0);
	assert_int_equal(harness_current(t, "/host"), 0);
}

static void *charge_much(void *p)
{
	struct tally_charge_args a = {.bytes = 2 * MB, .deadline_usec = UINT64_MAX / 2};

	return (void *)(intptr_t)tally_charge_with(p, &a, sizeof(a));
}

static int has_waited(void *userdata)
{
	(void)userdata;
	return harness_value(t, "/host", "memory.events", "max") > 0;
}

/* A request waits at a limit that would be none of its pool. */
static void test_reload_while_waiting(void **state)
{
	struct tally_pool *p = harness_attach(t, "/host/late");
	pthread_t thread;
	void *status;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, charge_much, p), 0);
	assert_true(harness_wait(has_waited, NULL, HARNESS_PATIENCE_MS));
	assert_int_equal(reload(DAEMON_SECTION HOST GPU
				 "standalone = yes\n"
				 "[pool late]\npath = /host/late\nstandalone = yes\n"),
		-EINVAL);
	assert_reload_says("[pool late] standalone: it cannot change");
	assert_int_equal(tally_set(t, "/host", "memory.max", "4M"), 0);
	pthread_join(thread, &status);
	assert_int_equal((int)(intptr_t)status, 0);
	tally_detach(p);
}

#define TEST(name, engine)                                                                         \
	{                                                                                          \
#name, test_##name, begin, end, engine                                             \
	}
#define DAEMON(name) TEST(name, NULL)
#define BOTH(name) DAEMON(name), TEST(name, "embedded")

int main(void)
{
	const struct CMUnitTest tests[] = {BOTH(not_summed), BOTH(limits_above_do_not_hold),
		BOTH(items), BOTH(drains), BOTH(transfers), BOTH(removal), DAEMON(reload_refused),
		DAEMON(reload), DAEMON(reload_while_waiting)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
