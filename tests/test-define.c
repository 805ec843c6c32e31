/* SPDX-License-Identifier: MIT */

/* Items that are defined at run time. */

#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/item.h"
#include "core/util.h"

#define DAEMON_SECTION "[daemon]\nflush_interval = 100ms\nsocket_mode = 0666\n"

static struct harness h;
static struct tally *t;

static int begin(void **state)
{
	(void)state;
	harness_start(&h, DAEMON_SECTION);
	t = harness_open(&h);
	return 0;
}

static int end(void **state)
{
	(void)state;
	t = tally_close(t);
	harness_stop(&h);
	return 0;
}

static int define(struct tally *by, const char *name, uint64_t type, const char *unit,
	const char *help, tally_item *ret)
{
	struct tally_item_def d = {.name = name, .type = type, .unit = unit, .help = help};

	return tally_item_define(by, &d, sizeof(d), ret);
}

static void test_seen_by_all(void **state)
{
	struct tally *other = harness_open(&h);
	struct tally_pool *p = harness_attach(other, "/a/b");
	tally_item item, again;
	char *missing;

	(void)state;
	assert_int_equal(tally_charge(p, 1000), 0);
	assert_int_equal(tally_get(t, "/a", "stat.gpu.max", 0, &missing), -ENOENT);
	assert_int_equal(define(t, "gpu", TALLY_GAUGE, "bytes", "Device memory", &item), 0);
	assert_int_equal(tally_item_lookup(other, "gpu", &again), 0);
	assert_int_equal(item, again);
	/* Sessions and pools that were there before. */
	assert_int_equal(harness_value(other, "/a", "memory.stat", "gpu"), 0);
	assert_int_equal(tally_set(t, "/a", "stat.gpu.max", "1000"), 0);
	assert_int_equal(tally_charge_item(p, item, 500), 0);
	tally_stat_add(p, item, 50);
	assert_int_equal(harness_value(t, "/a", "memory.stat", "gpu"), 550);
	assert_int_equal(harness_value(t, "/", "memory.stat", "gpu"), 550);
	assert_int_equal(tally_charge_item(p, item, 501), -ENOMEM);
	assert_int_equal(tally_charge_item(p, item, 500), 0);
	tally_detach(p);
	tally_close(other);
}

static void test_again(void **state)
{
	tally_item item = 77, again;

	(void)state;
	assert_int_equal(define(t, "x", TALLY_GAUGE, NULL, NULL, &item), 0);
	assert_int_equal(define(t, "x", TALLY_GAUGE, "", "", &again), 0);
	assert_int_equal(item, again);
	assert_int_equal(define(t, "x", TALLY_EVENT, "", "", &again), -EEXIST);
	assert_int_equal(define(t, "x", TALLY_GAUGE, "bytes", "", &again), -EEXIST);
	assert_int_equal(define(t, "x", TALLY_GAUGE, "", "help", &again), -EEXIST);
	assert_int_equal(define(t, "sock", TALLY_EVENT, "", "", &again), -EEXIST);
	assert_int_equal(define(t, "Bad", TALLY_GAUGE, "", "", &again), -EINVAL);
	assert_int_equal(define(t, "held", TALLY_GAUGE, "", "", &again), -EINVAL);
	assert_int_equal(item, again);
}

static void test_full(void **state)
{
	tally_item item = 0;
	char name[16];
	int r = 0;

	(void)state;
	for (unsigned i = 0; r == 0 && i <= ITEM_MAX; i++) {
		snprintf(name, sizeof(name), "i%u", i);
		r = define(t, name, TALLY_GAUGE, "", "", &item);
	}
	assert_int_equal(r, -ENOSPC);
	assert_int_equal(item, ITEM_MAX);
	/* What is there is still found. */
	assert_int_equal(define(t, "i0", TALLY_GAUGE, "", "", &item), 0);
}

static int define_as_another(void *userdata)
{
	struct tally *own;
	tally_item item;
	int r;

	(void)userdata;
	if (setgid(60001) < 0 || setuid(60001) < 0 || tally_open(h.address, 0, &own) < 0)
		return 1;
	r = define(own, "theirs", TALLY_GAUGE, "", "", &item);
	if (r == -EPERM && tally_item_lookup(own, "theirs", &item) != -ENOENT)
		r = 0;
	tally_close(own);
	return r == -EPERM ? 0 : 2;
}

static void test_others(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	assert_int_equal(chmod(h.dir, 0755), 0);
	assert_int_equal(chmod(h.runtime, 0755), 0);
	harness_join(harness_fork(define_as_another, NULL), 0);
}

static int reload(const char *text)
{
	harness_configure(&h, text);
	return tally_set(t, "/", "tallyd.reload", "1");
}

static void test_reload(void **state)
{
	tally_item item, again;

	(void)state;
	assert_int_equal(define(t, "gpu", TALLY_GAUGE, "bytes", "Device memory", &item), 0);
	/* The same is fine, and the item's limit can be configured by that. */
	assert_int_equal(reload(DAEMON_SECTION "[stat gpu]\nunit = bytes\nhelp = Device memory\n"
					       "[pool a]\npath = /a\nstat.gpu.max = 1M\n"),
		0);
	assert_int_equal(tally_item_lookup(t, "gpu", &again), 0);
	assert_int_equal(item, again);
	assert_int_equal(reload(DAEMON_SECTION "[stat gpu]\ntype = event\n"), -EINVAL);
	assert_int_equal(reload(DAEMON_SECTION "[stat gpu]\nunit = pages\n"), -EINVAL);
	/* One that the file does not name stays. */
	assert_int_equal(reload(DAEMON_SECTION), 0);
	assert_int_equal(harness_value(t, "/", "memory.stat", "gpu"), 0);
}

struct export_of {
	char file[160];
};

static int shows_it(void *userdata)
{
	struct export_of *e = userdata;
	char line[256];
	FILE *f = fopen(e->file, "re");
	int found = 0;

	while (f && fgets(line, sizeof(line), f))
		found = found || strcmp(line, "later 0\n") == 0;
	if (f)
		fclose(f);
	return found;
}

static void test_exported(void **state)
{
	struct export_of e;
	tally_item item;

	(void)state;
	assert_int_equal(tally_create(t, "/quiet"), 0);
	snprintf(e.file, sizeof(e.file), "%s/pools/quiet/memory.stat", h.runtime);
	assert_int_equal(define(t, "later", TALLY_EVENT, "", "", &item), 0);
	assert_true(harness_wait(shows_it, &e, HARNESS_PATIENCE_MS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_seen_by_all, begin, end),
		cmocka_unit_test_setup_teardown(test_again, begin, end),
		cmocka_unit_test_setup_teardown(test_full, begin, end),
		cmocka_unit_test_setup_teardown(test_others, begin, end),
		cmocka_unit_test_setup_teardown(test_reload, begin, end),
		cmocka_unit_test_setup_teardown(test_exported, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
