/* SPDX-License-Identifier: MIT */

/* Pools that go with their last attachment, however that goes; over a daemon, and embedded. */

#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/util.h"

#define EPHEMERAL (TALLY_CREATE | TALLY_EPHEMERAL)

static const char config[] = "[daemon]\nflush_interval = 100ms\ngrace = 100ms\nexport = /*\n";

static struct harness h;
static struct tally *t;
static bool embedded;

static int begin(void **state)
{
	embedded = *state;
	if (!embedded)
		harness_start(&h, config);
	assert_int_equal(tally_open(embedded ? "embedded:" : h.address, 0, &t), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	t = tally_close(t);
	if (!embedded)
		harness_stop(&h);
	return 0;
}

static struct tally_pool *attach(const char *path, uint64_t flags)
{
	struct tally_pool *p;

	assert_int_equal(tally_attach(t, path, flags, &p), 0);
	return p;
}

static int is_there(const char *path)
{
	_cleanup_(freep) char *text = NULL;
	int r = tally_get(t, path, "memory.max", 0, &text);

	assert_true(r == 0 || r == -ENOENT);
	return r == 0;
}

static int is_gone(void *path)
{
	return !is_there(path);
}

static void wait_until_gone(const char *path)
{
	assert_true(harness_wait(is_gone, (void *)path, HARNESS_PATIENCE_MS));
}

/* ------------------------------------------------------------------ both engines */

static void test_flags(void **state)
{
	struct tally_pool *p = (struct tally_pool *)t;

	(void)state;
	assert_int_equal(tally_attach(t, "/a", EPHEMERAL | TALLY_PERSIST, &p), -EINVAL);
	/* It makes nothing by itself. */
	assert_int_equal(tally_attach(t, "/a", TALLY_EPHEMERAL, &p), -ENOENT);
	assert_ptr_equal(p, t);
	assert_false(is_there("/a"));
}

static void test_goes_with_the_last(void **state)
{
	struct tally_pool *first = attach("/e/a/b", EPHEMERAL), *second;

	(void)state;
	second = attach("/e/a/b", TALLY_CREATE);
	assert_int_equal(tally_charge(first, 1000), 0);
	assert_int_equal(tally_charge(second, 1000), 0);
	tally_detach(first);
	assert_true(is_there("/e/a/b"));
	tally_detach(second);
	assert_false(is_there("/e/a/b"));
	assert_false(is_there("/e"));
	assert_int_equal(harness_value(t, "/", "cgroup.stat", "nr_descendants"), 0);
	assert_int_equal(harness_value(t, "/", "cgroup.stat", "nr_dying_descendants"), 0);
	assert_int_equal(harness_current(t, "/"), 0);
}

static void test_only_what_was_made(void **state)
{
	struct tally_pool *p;

	(void)state;
	assert_int_equal(tally_create(t, "/there"), 0);
	p = attach("/there/a/b", EPHEMERAL);
	tally_detach(p);
	assert_false(is_there("/there/a"));
	assert_true(is_there("/there"));
	/* An attach that only finds a pool does not make it another one. */
	tally_detach(attach("/there", EPHEMERAL));
	assert_true(is_there("/there"));
}

static void test_children_keep_it(void **state)
{
	struct tally_pool *p = attach("/k/a", EPHEMERAL), *below;

	(void)state;
	assert_int_equal(tally_create(t, "/k/a/made"), 0);
	below = attach("/k/a/short", EPHEMERAL);
	tally_detach(p);
	assert_true(is_there("/k/a"));
	tally_detach(below);
	assert_false(is_there("/k/a/short"));
	assert_true(is_there("/k/a/made"));
	assert_int_equal(tally_remove(t, "/k/a/made", 0), 0);
	assert_false(is_there("/k"));
}

static void test_setting_does_not_keep_it(void **state)
{
	struct tally_pool *p = attach("/s", EPHEMERAL);

	(void)state;
	assert_int_equal(tally_create(t, "/s"), -EEXIST);
	assert_int_equal(tally_set(t, "/s", "memory.max", "1M"), 0);
	tally_detach(p);
	assert_false(is_there("/s"));
	/* Another pool comes without what the first one was given. */
	p = attach("/s", EPHEMERAL);
	assert_int_equal(tally_charge(p, 2 << 20), 0);
	tally_detach(p);
}

static void test_removed_by_hand(void **state)
{
	struct tally_pool *p = attach("/h/a", EPHEMERAL);

	(void)state;
	assert_int_equal(tally_remove(t, "/h/a", 0), -EBUSY);
	tally_detach(p);
	assert_int_equal(tally_remove(t, "/h/a", 0), -ENOENT);
}

static void test_last_reference(void **state)
{
	struct tally_pool *p = attach("/r", EPHEMERAL);

	(void)state;
	tally_pool_ref(p);
	tally_detach(p);
	/* The handle lives, the attachment does not. */
	assert_false(is_there("/r"));
	assert_int_equal(tally_charge(p, 1), -ENODEV);
	tally_pool_unref(p);
}

/* ------------------------------------------------------------------ over a daemon */

static int attach_and_wait(void *path)
{
	struct tally *own = harness_open(&h);
	struct tally_pool *p;

	if (tally_attach(own, path, EPHEMERAL, &p) < 0 || tally_charge(p, 5000) < 0)
		return 1;
	pause();
	return 0;
}

static int has_bytes(void *path)
{
	return is_there(path) && harness_current(t, path) == 5000;
}

static void test_killed(void **state)
{
	char path[] = "/crash/a/b";
	struct actor killer;

	(void)state;
	killer.pid = harness_fork(attach_and_wait, path);
	killer.fd = -1;
	assert_true(harness_wait(has_bytes, path, HARNESS_PATIENCE_MS));
	actor_kill(&killer);
	wait_until_gone("/crash");
	assert_int_equal(harness_current(t, "/"), 0);
}

static void test_bye(void **state)
{
	struct tally *own = harness_open(&h);
	struct tally_pool *p;

	(void)state;
	assert_int_equal(tally_attach(own, "/bye/a", EPHEMERAL, &p), 0);
	assert_int_equal(tally_charge(p, 5000), 0);
	tally_close(own);
	wait_until_gone("/bye");
	tally_pool_unref(p);
}

static int has_no_file(void *path)
{
	return access(path, F_OK) < 0;
}

static int has_file(void *path)
{
	return !has_no_file(path);
}

static void test_exported_files_go(void **state)
{
	struct tally_pool *p = attach("/files/a", EPHEMERAL);
	char file[160], dir[128];

	(void)state;
	snprintf(dir, sizeof(dir), "%s/pools/files", h.runtime);
	snprintf(file, sizeof(file), "%s/a/memory.current", dir);
	assert_true(harness_wait(has_file, file, HARNESS_PATIENCE_MS));
	tally_detach(p);
	assert_true(harness_wait(has_no_file, dir, HARNESS_PATIENCE_MS));
}

static void test_configuration_keeps_it(void **state)
{
	struct tally_pool *p = attach("/conf/a", EPHEMERAL);

	(void)state;
	harness_configure(&h,
		"[daemon]\nflush_interval = 100ms\ngrace = 100ms\nexport = /*\n"
		"[pool a]\npath = /conf/a\nmemory.max = 1M\n");
	assert_int_equal(tally_set(t, "/", "tallyd.reload", "1"), 0);
	tally_detach(p);
	assert_true(is_there("/conf/a"));
	/* It stays one that stays when its section is gone again. */
	harness_configure(&h, config);
	assert_int_equal(tally_set(t, "/", "tallyd.reload", "1"), 0);
	tally_detach(attach("/conf/a", 0));
	assert_true(is_there("/conf/a"));
}

static void test_many(void **state)
{
	char path[32];

	(void)state;
	for (int i = 0; i < 1000; i++) {
		snprintf(path, sizeof(path), "/many/%d/b", i);
		tally_detach(attach(path, EPHEMERAL));
	}
	assert_false(is_there("/many"));
	assert_int_equal(harness_value(t, "/", "tallyd.status", "pools"), 1);
}

#define TEST(name, engine)                                                                         \
	{                                                                                          \
#name, test_##name, begin, end, engine                                             \
	}
#define DAEMON(name) TEST(name, NULL)
#define BOTH(name) DAEMON(name), TEST(name, "embedded")

int main(void)
{
	const struct CMUnitTest tests[] = {BOTH(flags), BOTH(goes_with_the_last),
		BOTH(only_what_was_made), BOTH(children_keep_it), BOTH(setting_does_not_keep_it),
		BOTH(removed_by_hand), BOTH(last_reference), DAEMON(killed), DAEMON(bye),
		DAEMON(exported_files_go), DAEMON(configuration_keeps_it), DAEMON(many)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
