/* SPDX-License-Identifier: MIT */

/*
 * Every key with the values at its borders, beside them, and with the mistakes that people make.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/setting.h"
#include "core/util.h"
#include "core/value.h"

struct fixture {
	struct conf *conf;
	struct setting setting;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f || conf_new_default(&f->conf) < 0)
		return -1;
	setting_begin(&f->setting, f->conf, "f");
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	conf_free(f->conf);
	free(f);
	return 0;
}

/* As if the key stood in line 3 of a section at line 2 of a new file. */
static int apply(struct fixture *f, const char *section, const char *key, const char *value,
	char **ret_error)
{
	setting_begin(&f->setting, f->conf, "f");
	f->setting.section_line = 2;
	f->setting.line = 3;
	return setting_apply(&f->setting, section, key, value, ret_error);
}

static void accept(struct fixture *f, const char *section, const char *key, const char *value)
{
	_cleanup_(freep) char *error = NULL;

	if (apply(f, section, key, value, &error) != 0)
		fail_msg("%s", error);
	assert_null(error);
}

static void refuse(struct fixture *f, const char *section, const char *key, const char *value,
	const char *what)
{
	_cleanup_(freep) char *error = NULL, *begin = NULL;
	int n = asprintf(&begin, "f:3: [%s] %s: ", section, key);

	if (apply(f, section, key, value, &error) != -EINVAL)
		fail_msg("[%s] %s = %s is accepted", section, key, value);
	if (strncmp(error, begin, (size_t)n) != 0 || !strstr(error, what) || !strchr(error, ';'))
		fail_msg("\"%s\" is not \"%s ... %s\"", error, begin, what);
}

static void test_flush_interval(void **state)
{
	struct fixture *f = *state;

	accept(f, "daemon", "flush_interval", "100ms");
	assert_int_equal(f->conf->flush_interval_usec, 100000);
	accept(f, "daemon", "flush_interval", "1h");
	assert_int_equal(f->conf->flush_interval_usec, 3600000000);
	accept(f, "daemon", "flush_interval", "5");
	assert_int_equal(f->conf->flush_interval_usec, 5000000);
	refuse(f, "daemon", "flush_interval", "99ms", "\"99ms\" is not accepted; it takes");
	refuse(f, "daemon", "flush_interval", "3601s", "from 100ms to 1h");
	refuse(f, "daemon", "flush_interval", "0", "from 100ms to 1h");
	refuse(f, "daemon", "flush_interval", "", "\"\" is not accepted");
	refuse(f, "daemon", "flush_interval", "2 parsecs", "a duration");
	refuse(f, "daemon", "flush_interval", "2s # often", "begins with ' ;', not with ' #'");
	assert_int_equal(f->conf->flush_interval_usec, 5000000);
}

static void test_flush_threshold(void **state)
{
	struct fixture *f = *state;
	struct conf_pool *p;

	assert_int_equal(f->conf->flush_threshold, 0);
	assert_int_equal(conf_flush_threshold(f->conf, 1), 64);
	assert_int_equal(conf_flush_threshold(f->conf, 384), 64 * 384);
	accept(f, "daemon", "flush_threshold", "1");
	assert_int_equal(f->conf->flush_threshold, 1);
	accept(f, "daemon", "flush_threshold", "4294967295");
	assert_true(f->conf->flush_threshold == UINT32_MAX);
	assert_true(conf_flush_threshold(f->conf, 384) == UINT32_MAX);
	refuse(f, "daemon", "flush_threshold", "0", "\"0\" is not accepted; it takes a number of");
	refuse(f, "daemon", "flush_threshold", "4294967296", "from 1 to 4294967295");
	refuse(f, "daemon", "flush_threshold", "-1", "the word auto");
	refuse(f, "daemon", "flush_threshold", "4K", "the word auto");
	refuse(f, "daemon", "flush_threshold", "max", "the word auto");
	refuse(f, "daemon", "flush_threshold", "Auto", "the word auto");
	refuse(f, "daemon", "flush_threshold", "", "the word auto");
	refuse(f, "daemon", "flush_threshold", "auto # 64", "not with ' #'");
	assert_true(f->conf->flush_threshold == UINT32_MAX);
	accept(f, "daemon", "flush_threshold", "auto");
	assert_int_equal(f->conf->flush_threshold, 0);

	accept(f, "pool a", "flush_threshold", "1");
	p = &f->conf->pools[0];
	assert_int_equal(p->flush_threshold, 1);
	accept(f, "pool a", "flush_threshold", "4096");
	assert_int_equal(p->flush_threshold, 4096);
	refuse(f, "pool a", "flush_threshold", "0", "\"0\" is not accepted; it takes a number of");
	refuse(f, "pool a", "flush_threshold", "4294967296", "from 1 to 4294967295");
	refuse(f, "pool a", "flush_threshold", "auto", "\"auto\" is not accepted");
	refuse(f, "pool a", "flush_threshold", "", "such as 4096");
	assert_int_equal(p->flush_threshold, 4096);
	assert_int_equal(f->conf->flush_threshold, 0);
	refuse(f, "stat a", "flush_threshold", "1",
		"unknown key in [stat]; it belongs into [daemon]");
}

static void test_batch(void **state)
{
	struct fixture *f = *state;

	accept(f, "daemon", "batch", "4K");
	assert_int_equal(f->conf->batch, 4096);
	accept(f, "daemon", "batch", "1G");
	assert_int_equal(f->conf->batch, 1 << 30);
	refuse(f, "daemon", "batch", "4095", "from 4K to 1G");
	refuse(f, "daemon", "batch", "1073741825", "from 4K to 1G");
	refuse(f, "daemon", "batch", "max", "from 4K to 1G");
	refuse(f, "daemon", "batch", "-4K", "from 4K to 1G");
	accept(f, "daemon", "batch_max", "1G");
	assert_int_equal(f->conf->batch_max, 1 << 30);
	refuse(f, "daemon", "batch_max", "4095", "from 4K to 1G");
	assert_int_equal(f->conf->batch, 1 << 30);
}

static void test_grace(void **state)
{
	struct fixture *f = *state;

	accept(f, "daemon", "grace", "24h");
	assert_int_equal(f->conf->grace_usec, UINT64_C(86400000000));
	accept(f, "daemon", "grace", "0");
	assert_int_equal(f->conf->grace_usec, 0);
	refuse(f, "daemon", "grace", "86401s", "from 0 to 24h");
	refuse(f, "daemon", "grace", "-1", "from 0 to 24h");
	assert_int_equal(f->conf->grace_usec, 0);
}

/* The members beside the narrow ones stay as they are. */
static void test_narrow(void **state)
{
	struct fixture *f = *state;

	accept(f, "daemon", "socket_mode", "0777");
	assert_int_equal(f->conf->socket_mode, 0777);
	accept(f, "daemon", "socket_mode", "0");
	assert_int_equal(f->conf->socket_mode, 0);
	accept(f, "daemon", "export_max", "4294967295");
	assert_true(f->conf->export_max == UINT32_MAX);
	assert_int_equal(f->conf->socket_mode, 0);
	accept(f, "daemon", "socket_mode", "0660");
	assert_true(f->conf->export_max == UINT32_MAX);
	accept(f, "daemon", "export_max", "0");
	assert_int_equal(f->conf->export_max, 0);
	assert_int_equal(f->conf->socket_mode, 0660);
	assert_int_equal(f->conf->n_export, 1);
	refuse(f, "daemon", "socket_mode", "01777", "octal");
	refuse(f, "daemon", "socket_mode", "0688", "octal");
	refuse(f, "daemon", "socket_mode", "rw", "octal");
	refuse(f, "daemon", "export_max", "4294967296", "from 0 to 4294967295");
	refuse(f, "daemon", "export_max", "4K", "a number of pools");
	accept(f, "daemon", "max_pools_per_uid", "1");
	accept(f, "daemon", "max_queued_per_uid", "4294967295");
	assert_int_equal(f->conf->max_pools_per_uid, 1);
	assert_true(f->conf->max_queued_per_uid == UINT32_MAX);
	refuse(f, "daemon", "max_sessions_per_uid", "0", "a number from 1 to 4294967295");
	refuse(f, "daemon", "max_attachments_per_uid", "4294967296", "such as 65536");
	assert_int_equal(f->conf->socket_mode, 0660);
	assert_int_equal(f->conf->export_max, 0);
}

static void go_on(struct fixture *f, const char *key, const char *value, int r, const char *what)
{
	_cleanup_(freep) char *error = NULL;

	assert_int_equal(setting_apply(&f->setting, "daemon", key, value, &error), r);
	if (r < 0 && !strstr(error, what))
		fail_msg("\"%s\" has no \"%s\"", error, what);
}

static void test_export(void **state)
{
	struct fixture *f = *state;
	struct conf *c = f->conf;

	accept(f, "daemon", "export", "/a*");
	assert_int_equal(c->n_export, 1);
	assert_string_equal(c->export[0], "/a*");
	go_on(f, "export", "/b/[cd]", 0, NULL);
	assert_int_equal(c->n_export, 2);
	assert_string_equal(c->export[1], "/b/[cd]");
	go_on(f, "export", "", -EINVAL, "before any pattern");

	/* the next file */
	accept(f, "daemon", "export", "/e");
	assert_int_equal(c->n_export, 1);
	assert_string_equal(c->export[0], "/e");
	accept(f, "daemon", "export", "");
	assert_int_equal(c->n_export, 0);
	go_on(f, "export", "/f", 0, NULL);
	assert_int_equal(c->n_export, 1);
	assert_string_equal(c->export[0], "/f");

	refuse(f, "daemon", "export", "*", "begins with '/'");
	refuse(f, "daemon", "export", "/* # all", "not with ' #'");
	/* What no path can match. */
	refuse(f, "daemon", "export", "/a/", "does not end with it");
	refuse(f, "daemon", "export", "/a//b", "such as /a");
	accept(f, "daemon", "export", "/");
}

static void test_export_files(void **state)
{
	struct fixture *f = *state;
	struct conf *c = f->conf;

	accept(f, "daemon", "export_files", "memory.stat \t memory.current");
	assert_int_equal(c->n_export_files, 2);
	assert_string_equal(c->export_files[0], "memory.stat");
	assert_string_equal(c->export_files[1], "memory.current");
	accept(f, "daemon", "export_files",
		"memory.current memory.peak memory.max memory.events memory.events.local");
	assert_int_equal(c->n_export_files, 5);
	accept(f, "daemon", "export_files",
		"memory.stat cgroup.events cgroup.stat pool.children cgroup.procs pool.clients");
	assert_int_equal(c->n_export_files, 6);
	assert_string_equal(c->export_files[5], "pool.clients");
	refuse(f, "daemon", "export_files", "", "\"\" is not accepted; it takes names");
	refuse(f, "daemon", "export_files", "memory.stat memory.statt", "\"memory.statt\" is not");
	refuse(f, "daemon", "export_files", "memory memory.stat", "\"memory\" is not accepted");
	refuse(f, "daemon", "export_files", "memory.stat memory.max memory.stat", "each once");
	refuse(f, "daemon", "export_files", "pool.drain", "cgroup.stat");
	refuse(f, "daemon", "export_files", "stat.sock.min", "\"stat.sock.min\" is not");
	refuse(f, "daemon", "export_files", "stat..max", "stat.ITEM.max");
	refuse(f, "daemon", "export_files", "stat.sock.max stat.sock.max", "each once");
	accept(f, "daemon", "export_files", "stat.sock.max memory.max stat.none.max");
	assert_int_equal(c->n_export_files, 3);
	assert_string_equal(c->export_files_where, "f:3");
	refuse(f, "daemon", "export_files", "memory.stat, memory.max", "\"memory.stat,\"");
	refuse(f, "daemon", "export_files", "memory.stat # x", "not with ' #'");
}

static void test_stat(void **state)
{
	struct fixture *f = *state;
	struct conf_item *item;

	accept(f, "stat gpu", "type", "event");
	item = &f->conf->items[f->conf->n_items - 1];
	assert_string_equal(item->name, "gpu");
	assert_int_equal(item->type, ITEM_EVENT);
	accept(f, "stat gpu", "type", "gauge");
	assert_int_equal(item->type, ITEM_GAUGE);
	accept(f, "stat gpu", "unit", "bytes");
	accept(f, "stat gpu", "help", "Memory of cards, # and all");
	assert_string_equal(item->unit, "bytes");
	assert_string_equal(item->help, "Memory of cards, # and all");
	accept(f, "stat gpu", "unit", "");
	accept(f, "stat gpu", "help", "");
	assert_string_equal(item->unit, "");
	assert_string_equal(item->help, "");
	refuse(f, "stat gpu", "type", "Gauge", "gauge (goes up and down) or event");
	refuse(f, "stat gpu", "type", "", "gauge (goes up and down) or event");
	refuse(f, "stat gpu", "type", "gauge # c", "not with ' #'");
	refuse(f, "stat gpu", "unit", "bytes each", "one word");
	refuse(f, "stat gpu", "unit", "bytes # each", "not with ' #'");
}

static void test_stat_of_built_in(void **state)
{
	struct fixture *f = *state;

	accept(f, "stat anon", "type", "event");
	accept(f, "stat anon", "unit", "pages");
	assert_string_equal(f->conf->items[0].name, "anon");
	assert_int_equal(f->conf->items[0].type, ITEM_EVENT);
	assert_string_equal(f->conf->items[0].unit, "pages");
	assert_string_equal(f->conf->items[0].help, "Anonymous memory");
	assert_string_equal(f->conf->items[0].where, "f:2");
}

static void test_pool(void **state)
{
	struct fixture *f = *state;
	struct conf_pool *p;

	accept(f, "pool a", "memory.max", "1G");
	p = &f->conf->pools[0];
	assert_int_equal(p->values[LIMIT_MAX], 1 << 30);
	assert_string_equal(p->where, "f:2");
	accept(f, "pool a", "path", "/a/b#c");
	assert_string_equal(p->path, "/a/b#c");
	assert_string_equal(p->where, "f:3");
	accept(f, "pool a", "memory.max", "max");
	assert_true(p->values[LIMIT_MAX] == VALUE_MAX);
	accept(f, "pool a", "memory.max", "0");
	assert_int_equal(p->values[LIMIT_MAX], 0);
	accept(f, "pool a", "path", "/");
	assert_string_equal(p->path, "/");
	refuse(f, "pool a", "memory.max", "1GB", "the word max");
	refuse(f, "pool a", "memory.max", "99E", "the word max");
	refuse(f, "pool a", "memory.max", "", "the word max");
	refuse(f, "pool a", "path", "", "the path of a pool");
	refuse(f, "pool a", "path", "a", "the path of a pool");
	refuse(f, "pool a", "path", "/a/", "the path of a pool");
	refuse(f, "pool a", "path", "/a/../b", "none of them '.' or '..'");
	refuse(f, "pool a", "path", "\"/a\"", "the path of a pool");
	refuse(f, "pool a", "path", "/a # tenant a", "not with ' #'");
	refuse(f, "pool a", "path", "/a\t# tenant a", "not with ' #'");
	assert_string_equal(p->path, "/");
	assert_int_equal(p->values[LIMIT_MAX], 0);
}

static void test_limit(void **state)
{
	struct fixture *f = *state;
	_cleanup_(freep) char *error = NULL;
	char key[32];
	struct conf_pool *p;

	accept(f, "pool a", "stat.sock.max", "64M");
	accept(f, "pool a", "stat.none.max", "0");
	p = &f->conf->pools[0];
	assert_int_equal(p->n_limits, 2);
	assert_string_equal(p->limits[0].item, "sock");
	assert_string_equal(p->limits[0].where, "f:3");
	assert_int_equal(conf_item_max(p, "sock"), 64 << 20);
	assert_int_equal(conf_item_max(p, "none"), 0);
	assert_true(conf_item_max(p, "anon") == VALUE_MAX);
	assert_true(p->values[LIMIT_MAX] == VALUE_MAX);
	/* another file's value replaces it, and so does another's "max" */
	accept(f, "pool a", "stat.sock.max", "1M");
	assert_int_equal(p->n_limits, 2);
	assert_int_equal(conf_item_max(p, "sock"), 1 << 20);
	accept(f, "pool a", "stat.sock.max", "max");
	assert_true(conf_item_max(p, "sock") == VALUE_MAX);

	refuse(f, "pool a", "stat.sock.max", "1GB", "\"1GB\" is not accepted; it takes bytes");
	refuse(f, "pool a", "stat.sock.max", "", "the word max");
	refuse(f, "pool a", "stat.sock.max", "1M # sockets", "not with ' #'");
	refuse(f, "pool a", "stat.sock.min", "1M", "unknown key; [pool] has: path memory.max");
	refuse(f, "pool a", "stat..max", "1M", "unknown key");
	refuse(f, "daemon", "stat.sock.max", "1M",
		"unknown key in [daemon]; it belongs into [pool]");

	/* once a section, for each item */
	accept(f, "pool b", "stat.sock.max", "1M");
	assert_int_equal(setting_apply(&f->setting, "pool b", "stat.anon.max", "1M", &error), 0);
	assert_int_equal(
		setting_apply(&f->setting, "pool b", "stat.sock.max", "1M", &error), -EINVAL);
	assert_non_null(strstr(error, "[pool b] stat.sock.max: the section has this key already"));

	/* no more than there can be items */
	for (unsigned i = 0; i < ITEM_MAX; i++) {
		snprintf(key, sizeof(key), "stat.i%u.max", i);
		accept(f, "pool c", key, "1");
	}
	refuse(f, "pool c", "stat.more.max", "1", "at most 64 items");
}

static void test_values(void **state)
{
	static const struct {
		const char *key;
		enum limit limit;
	} byte_keys[] = {
		{"memory.min", LIMIT_MIN},
		{"memory.low", LIMIT_LOW},
		{"memory.high", LIMIT_HIGH},
		{"memory.max", LIMIT_MAX},
	};
	struct fixture *f = *state;
	struct conf_pool *p;

	accept(f, "pool a", "path", "/a");
	p = &f->conf->pools[0];
	for (unsigned l = 0; l < LIMITS; l++)
		assert_true(p->values[l] == limit_kinds[l].by_default);
	for (size_t i = 0; i < ELEMENTS(byte_keys); i++) {
		accept(f, "pool a", byte_keys[i].key, "3M");
		assert_int_equal(p->values[byte_keys[i].limit], 3 << 20);
		refuse(f, "pool a", byte_keys[i].key, "-1", "the word max");
		accept(f, "pool a", byte_keys[i].key, "max");
		assert_true(p->values[byte_keys[i].limit] == VALUE_MAX);
	}
	accept(f, "pool a", "cgroup.max.depth", "3");
	assert_int_equal(p->values[LIMIT_DEPTH], 3);
	accept(f, "pool a", "cgroup.max.depth", "max");
	assert_true(p->values[LIMIT_DEPTH] == VALUE_MAX);
	refuse(f, "pool a", "cgroup.max.depth", "1K", "a number of levels");
	accept(f, "pool a", "enforce", "observe");
	assert_int_equal(p->observe, 1);
	accept(f, "pool a", "enforce", "yes");
	assert_int_equal(p->observe, 0);
	refuse(f, "pool a", "enforce", "no", "yes, or observe");
	accept(f, "pool a", "cgroup.max.descendants", "0");
	assert_int_equal(p->values[LIMIT_DESCENDANTS], 0);
	refuse(f, "pool a", "cgroup.max.descendants", "many", "a number of pools");
}

static void test_owners(void **state)
{
	struct fixture *f = *state;
	struct conf_pool *p;

	accept(f, "pool a", "path", "/a");
	p = &f->conf->pools[0];
	assert_true(p->uid == NAMES_NOBODY && p->gid == NAMES_NOBODY && p->mode == CONF_NO_MODE);
	accept(f, "pool a", "owner", "root:root");
	assert_int_equal(p->uid, 0);
	assert_int_equal(p->gid, 0);
	accept(f, "pool a", "mode", "0750");
	assert_int_equal(p->mode, 0750);
	accept(f, "pool a", "owner", "4000000000:65534");
	assert_true(p->uid == UINT32_C(4000000000));
	assert_int_equal(p->gid, 65534);
	refuse(f, "pool a", "owner", "no-such-user:root", "there is no user \"no-such-user\"");
	refuse(f, "pool a", "owner", "root:no-such-group", "there is no group \"no-such-group\"");
	refuse(f, "pool a", "owner", "4294967295:0", "there is no user \"4294967295\"");
	refuse(f, "pool a", "owner", "root", "it takes a user and a group");
	refuse(f, "pool a", "owner", ":root", "it takes a user and a group");
	refuse(f, "pool a", "owner", "root:", "it takes a user and a group");
	refuse(f, "pool a", "mode", "1000", "octal permission bits");
	assert_true(p->uid == UINT32_C(4000000000));

	assert_false(f->conf->has_admin_group);
	accept(f, "daemon", "admin_group", "root");
	assert_int_equal(f->conf->admin_gid, 0);
	assert_true(f->conf->has_admin_group);
	accept(f, "daemon", "admin_group", "");
	assert_true(f->conf->has_admin_group && f->conf->admin_gid == NAMES_NOBODY);
	refuse(f, "daemon", "admin_group", "no-such-group", "there is no group \"no-such-group\"");
}

static void test_unknown_key(void **state)
{
	struct fixture *f = *state;

	refuse(f, "daemon", "flushinterval", "2s",
		"unknown key, perhaps flush_interval is meant; [daemon] has: flush_interval "
		"flush_threshold batch batch_max grace socket_mode export export_files export_max "
		"admin_group max_sessions_per_uid max_pools_per_uid max_attachments_per_uid "
		"max_queued_per_uid");
	refuse(f, "daemon", "memory.max", "1", "unknown key in [daemon]; it belongs into [pool]");
	refuse(f, "daemon", "path", "/", "unknown key in [daemon]; it belongs into [pool]");
	refuse(f, "pool a", "memory.maxx", "1",
		"perhaps memory.max is meant; [pool] has: path mem");
	refuse(f, "pool a", "memory.swap", "1",
		"unknown key; [pool] has: path memory.max memory.high memory.low memory.min");
	refuse(f, "pool a", "colour", "red", "unknown key");
	refuse(f, "pool a", "Path", "/", "perhaps path is meant");
	refuse(f, "stat a", "types", "event", "perhaps type is meant; [stat] has: type unit help");
}

static void test_unknown_section(void **state)
{
	struct fixture *f = *state;
	_cleanup_(freep) char *error = NULL;

	assert_int_equal(apply(f, "metrics", "pools", "/", &error), -EINVAL);
	assert_int_equal(strncmp(error, "f:2: [metrics]: unknown section", 31), 0);
}

static void test_again(void **state)
{
	struct fixture *f = *state;
	_cleanup_(freep) char *error = NULL;

	accept(f, "daemon", "batch", "8K");
	go_on(f, "grace", "1s", 0, NULL);
	go_on(f, "batch", "8K", -EINVAL, "f:3: [daemon] batch: the section has this key already");
	go_on(f, "grace", "1s", -EINVAL, "already");
	/* another section has keys of its own, and so has another file */
	assert_int_equal(setting_apply(&f->setting, "pool a", "path", "/a", &error), 0);
	assert_int_equal(setting_apply(&f->setting, "pool b", "path", "/b", &error), 0);
	assert_int_equal(setting_apply(&f->setting, "pool b", "path", "/b", &error), -EINVAL);
	accept(f, "daemon", "batch", "16K");
	assert_int_equal(f->conf->batch, 16384);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_flush_interval, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_flush_threshold, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_batch, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_grace, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_narrow, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_export, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_export_files, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_stat, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_stat_of_built_in, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_pool, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_limit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_values, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_owners, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_unknown_key, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_unknown_section, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_again, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
