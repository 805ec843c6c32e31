/* SPDX-License-Identifier: MIT */

/*
 * Which files are read, in which order, and that nothing of them is lost on the way: whole trees of
 * configuration are written, loaded and compared.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/conf.h"
#include "core/util.h"
#include "core/value.h"

static char source[4096]; /* where the programs of the project are built from */
static char dir[64];

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int set_up(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/test-conf-XXXXXX");
	return mkdtemp(dir) && chmod(dir, 0755) == 0 && chdir(dir) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	return chdir("/") == 0 ? nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS) : -1;
}

static void make_parents(const char *path)
{
	_cleanup_(freep) char *copy = strdup(path);

	for (char *c = strchr(copy + 1, '/'); c; c = strchr(c + 1, '/')) {
		*c = '\0';
		if (mkdir(copy, 0755) < 0)
			assert_int_equal(errno, EEXIST);
		*c = '/';
	}
}

static void put(const char *path, const char *text)
{
	FILE *f;

	make_parents(path);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void put_link(const char *target, const char *path)
{
	make_parents(path);
	assert_int_equal(symlink(target, path), 0);
}

/* From the named file, or from the standard places below the present directory. */
static struct conf *load(const char *file)
{
	_cleanup_(freep) char *error = NULL;
	struct conf *c = NULL;
	int r = conf_load(file, ".", &c, &error);

	if (r != 0)
		fail_msg("%d: %s", r, error);
	assert_null(error);
	assert_non_null(c);
	return c;
}

static void refuse_with(const char *file, int r, const char *begin, const char *what)
{
	_cleanup_(freep) char *error = NULL;
	struct conf *c = NULL;

	assert_int_equal(conf_load(file, ".", &c, &error), r);
	assert_null(c);
	assert_non_null(error);
	if (strncmp(error, begin, strlen(begin)) != 0 || !strstr(error, what) ||
		!strchr(error, ';') || strchr(error, '\n'))
		fail_msg("\"%s\" is not \"%s ... %s\"", error, begin, what);
}

static void refuse(const char *file, const char *begin, const char *what)
{
	refuse_with(file, -EINVAL, begin, what);
}

static void refuse_text(const char *text, const char *begin, const char *what)
{
	put("f", text);
	refuse("f", begin, what);
}

static void check_list(char **list, size_t n, const char *words)
{
	_cleanup_(freep) char *all = calloc(1, 4096);

	for (size_t i = 0; i < n; i++)
		sprintf(all + strlen(all), "%s%s", i ? " " : "", list[i]);
	assert_string_equal(all, words);
}

static void check_defaults(const struct conf *c)
{
	static const struct {
		const char *name, *unit;
		enum item_type type;
	} items[] = {
		{"anon", "bytes", ITEM_GAUGE},
		{"file", "bytes", ITEM_GAUGE},
		{"shmem", "bytes", ITEM_GAUGE},
		{"sock", "bytes", ITEM_GAUGE},
		{"slab", "bytes", ITEM_GAUGE},
		{"hugetlb", "bytes", ITEM_GAUGE},
		{"alloc", "", ITEM_EVENT},
		{"free", "", ITEM_EVENT},
	};

	assert_int_equal(c->flush_interval_usec, 2000000);
	assert_int_equal(c->flush_threshold, 0);
	assert_int_equal(c->batch, 256 * 1024);
	assert_int_equal(c->batch_max, 16 * 1024 * 1024);
	assert_int_equal(c->grace_usec, 30000000);
	assert_int_equal(c->socket_mode, 0666);
	assert_int_equal(c->export_max, 4096);
	check_list(c->export, c->n_export, "/*");
	check_list(c->export_files, c->n_export_files, "memory.current memory.stat memory.events");
	assert_int_equal(c->n_pools, 0);
	assert_int_equal(c->n_items, ELEMENTS(items));
	for (size_t i = 0; i < ELEMENTS(items); i++) {
		assert_string_equal(c->items[i].name, items[i].name);
		assert_string_equal(c->items[i].unit, items[i].unit);
		assert_int_equal(c->items[i].type, items[i].type);
		assert_true(*c->items[i].help != '\0');
		assert_string_equal(c->items[i].where, "built in");
	}
}

static void test_defaults(void **state)
{
	struct conf *c = NULL;

	(void)state;
	assert_int_equal(conf_new_default(&c), 0);
	check_defaults(c);
	assert_null(conf_free(c));
	assert_null(conf_free(NULL));

	/* no file at all, and files that say nothing */
	c = load(NULL);
	check_defaults(c);
	conf_free(c);
	put("f", "");
	c = load("f");
	check_defaults(c);
	conf_free(c);
	put("f", "\n# nothing\n; here");
	c = load("f");
	check_defaults(c);
	conf_free(c);
}

static void test_every_key(void **state)
{
	struct conf *c;

	(void)state;
	put("f",
		"# everything\n"
		"[daemon]\n"
		"flush_interval = 500ms\n"
		"flush_threshold = 1000 ; updates\n"
		"batch=64K\n"
		"grace\t=\t1min ; comment\n"
		"socket_mode = 0660\n"
		"export = /a*\n"
		"export = /b\n"
		"export_files = memory.stat memory.max\n"
		"export_max = 7\n"
		"\n"
		"[stat sock]\n"
		"help = Buffers;of sockets ; not this\n"
		"[stat gpu] ; new\n"
		"unit = bytes\n"
		"[pool b] \n"
		"path = /b\n"
		"[pool a]\n"
		"memory.max = 1G\n"
		"path = /a/a\n"
		"flush_threshold = 4096\n"
		"[pool root]\n"
		"path = /");
	c = load("f");
	assert_int_equal(c->flush_interval_usec, 500000);
	assert_int_equal(c->flush_threshold, 1000);
	assert_int_equal(c->batch, 65536);
	assert_int_equal(c->grace_usec, 60000000);
	assert_int_equal(c->socket_mode, 0660);
	check_list(c->export, c->n_export, "/a* /b");
	check_list(c->export_files, c->n_export_files, "memory.stat memory.max");
	assert_int_equal(c->export_max, 7);
	assert_int_equal(c->max_sessions_per_uid, 1024);
	assert_int_equal(c->max_pools_per_uid, 4096);
	assert_int_equal(c->max_attachments_per_uid, 65536);
	assert_int_equal(c->max_queued_per_uid, 65536);
	assert_int_equal(c->n_items, 9);
	assert_string_equal(c->items[3].help, "Buffers;of sockets");
	assert_string_equal(c->items[3].unit, "bytes");
	assert_string_equal(c->items[3].where, "f:13");
	assert_string_equal(c->items[8].name, "gpu");
	assert_string_equal(c->items[8].where, "f:15");
	assert_int_equal(c->n_pools, 3);
	assert_string_equal(c->pools[0].path, "/");
	assert_string_equal(c->pools[1].path, "/a/a");
	assert_string_equal(c->pools[1].name, "a");
	assert_string_equal(c->pools[1].where, "f:21");
	assert_int_equal(c->pools[1].values[LIMIT_MAX], 1 << 30);
	assert_int_equal(c->pools[1].flush_threshold, 4096);
	assert_string_equal(c->pools[2].path, "/b");
	assert_true(c->pools[2].values[LIMIT_MAX] == VALUE_MAX);
	assert_int_equal(c->pools[2].flush_threshold, 0);
	conf_free(c);
}

static void test_windows_file(void **state)
{
	struct conf *c;

	(void)state;
	put("f", "\xef\xbb\xbf[pool a]\r\n\r\npath = /a\r\nmemory.max = 5\r\n");
	c = load("f");
	assert_string_equal(c->pools[0].path, "/a");
	assert_string_equal(c->pools[0].where, "f:3");
	assert_int_equal(c->pools[0].values[LIMIT_MAX], 5);
	conf_free(c);
	refuse_text("\xef\xbb\xbf[poll a]\r\npath = /a\r\n", "f:1: [poll a]: ", "unknown section");
}

/* The longest values arrive whole; what would be cut is told. */
static void test_nothing_is_cut(void **state)
{
	char text[512], path[256] = "/";
	struct conf *c;

	(void)state;
	memset(path + 1, 'p', CONF_LINE_MAX - 8);
	sprintf(text, "[pool a]\npath = %s\n", path);
	put("f", text);
	c = load("f");
	assert_string_equal(c->pools[0].path, path);
	conf_free(c);
	sprintf(text, "[pool a]\npath = %sp\n", path);
	refuse_text(text, "f:2: [pool a]: ", "199 bytes");
	sprintf(text, "[pool a]\npath = /a\n# %spath = /b\n", path);
	refuse_text(text, "f:3: [pool a]: ", "comments too");

	sprintf(text, "[pool %.35s]\npath = /a\n", path + 1);
	put("f", text);
	c = load("f");
	assert_int_equal(strlen(c->pools[0].name), 35);
	conf_free(c);
	sprintf(text, "[pool %.36s]\npath = /a\n", path + 1);
	refuse_text(text, "f:1: ", "41 bytes");
}

static void test_nothing_is_joined(void **state)
{
	(void)state;
	refuse_text("[daemon]\nexport = /a\n  /b\n", "f:3: [daemon]: ", "indented");
	refuse_text("[daemon]\nbatch = 4K\n[pool a]\npath = /a\n[daemon]\ngrace = 1\n",
		"f:5: [daemon]: ", "line 1");
	refuse_text("[pool a]\npath = /a\npath = /b\n", "f:3: [pool a] path: ", "already");
	refuse_text("[daemon]\n[pool a]\npath = /a\n", "f:1: [daemon]: ", "empty");
}

/* An error in a key names the key's line, one in a section that section's. */
static void test_lines_of_errors(void **state)
{
	(void)state;
	refuse_text("\n[daemon]\n\n# c\nbatch = 1 ; c\n", "f:5: [daemon] batch: ", "\"1\"");
	refuse_text("[daemon]\nbatch = 4K\n\n[stat Gpu]\n\n\ntype = event\n",
		"f:4: [stat Gpu]: ", "cannot name an item");
	refuse_text("[stat held]\nunit = bytes\n", "f:1: [stat held]: ", "none of held");
	refuse_text("[daemon]\nbatsh = 4K\n", "f:2: [daemon] batsh: ", "perhaps batch is meant");
	/* the first error counts, and nothing behind it */
	refuse_text("[daemon]\nbatch = 1\ngrace = x\n", "f:2: [daemon] batch: ", "\"1\"");
}

static void test_pool_paths(void **state)
{
	(void)state;
	refuse_text("[pool a]\nmemory.max = 1\n", "f:1: [pool a] path: ", "no path");
	refuse_text(
		"[pool a]\npath = /x\n[pool c]\npath = /y\n[pool b]\nmemory.max = 1\npath = /x\n",
		"f:7: [pool b] path: /x is the path of [pool a] at f:2", "another path");
}

static void test_64_items(void **state)
{
	_cleanup_(freep) char *text = calloc(1, 8192);
	struct conf *c;

	(void)state;
	for (int i = 8; i < ITEM_MAX; i++)
		sprintf(text + strlen(text), "[stat i%d]\ntype = event\n", i);
	put("f", text);
	c = load("f");
	assert_int_equal(c->n_items, ITEM_MAX);
	assert_string_equal(c->items[ITEM_MAX - 1].name, "i63");
	conf_free(c);
	strcat(text, "[stat i64]\ntype = event\n");
	refuse_text(text, "f:113: [stat i64]: ", "more than 64");
}

static void test_dropins_of_named_file(void **state)
{
	struct conf *c;

	(void)state;
	put("etc/tallyd/tallyd.conf.d/99.conf", "[daemon]\nexport_max = 9\n");
	put("x/my.conf", "[daemon]\nbatch = 4K\ngrace = 1\nflush_interval = 1\n");
	put("x/my.conf.d/b.conf", "[daemon]\nbatch = 8K\n");
	put("x/my.conf.d/a.conf", "[daemon]\nbatch = 16K\ngrace = 2\n");
	put("x/my.conf.d/10.conf", "[daemon]\ngrace = 10\n");
	put("x/my.conf.d/9.conf", "[daemon]\ngrace = 3\nsocket_mode = 0600\n");
	c = load("x/my.conf");
	assert_int_equal(c->batch, 8192);
	assert_int_equal(c->grace_usec, 2000000);
	assert_int_equal(c->flush_interval_usec, 1000000);
	assert_int_equal(c->socket_mode, 0600);
	assert_int_equal(c->export_max, 4096);
	conf_free(c);
}

/* By bytes, not by numbers or by the language of the user: 10 before 9, B before a. */
static void test_order_of_dropins(void **state)
{
	struct conf *c;

	(void)state;
	put("f", "");
	put("f.d/9.conf", "[daemon]\ngrace = 9\n");
	put("f.d/10.conf", "[daemon]\ngrace = 10\nbatch = 10K\n");
	put("f.d/a.conf", "[daemon]\nexport_max = 1\n");
	put("f.d/B.conf", "[daemon]\nexport_max = 2\n");
	c = load("f");
	assert_int_equal(c->grace_usec, 9000000);
	assert_int_equal(c->batch, 10240);
	assert_int_equal(c->export_max, 1);
	conf_free(c);
}

static void test_names_of_dropins(void **state)
{
	struct conf *c;

	(void)state;
	put("f", "");
	put("f.d/a.conf~", "not a file of ours");
	put("f.d/a.conf.bak", "not a file of ours");
	put("f.d/README", "not a file of ours");
	put("f.d/xconf", "not a file of ours");
	put("f.d/.a.conf", "not a file of ours");
	put_link("user@host.123", "f.d/.#b.conf");
	assert_int_equal(mkdir("f.d/dir", 0755), 0);
	c = load("f");
	check_defaults(c);
	conf_free(c);
	put("f.d/a.conf", "one of ours");
	refuse("f", "f.d/a.conf:1: ", "no '='");
}

static void test_override(void **state)
{
	struct conf *c;

	(void)state;
	put("f",
		"[daemon]\nexport = /a\nexport = /b\nexport_files = memory.max\n"
		"[stat gpu]\ntype = event\nunit = bytes\n"
		"[pool a]\npath = /a\nmemory.max = 1\n"
		"[pool b]\npath = /b\nmemory.max = 2\n");
	put("f.d/1.conf",
		"[pool a]\nmemory.max = 3\n[pool c]\nmemory.max = 4\n[stat gpu]\nhelp = Cards\n");
	put("f.d/2.conf", "[pool b]\npath = /0\n[pool c]\npath = /b\n");
	c = load("f");
	check_list(c->export, c->n_export, "/a /b");
	check_list(c->export_files, c->n_export_files, "memory.max");
	assert_int_equal(c->n_items, 9);
	assert_int_equal(c->items[8].type, ITEM_EVENT);
	assert_string_equal(c->items[8].unit, "bytes");
	assert_string_equal(c->items[8].help, "Cards");
	assert_string_equal(c->items[8].where, "f.d/1.conf:5");
	assert_int_equal(c->n_pools, 3);
	assert_string_equal(c->pools[0].path, "/0");
	assert_string_equal(c->pools[0].name, "b");
	assert_int_equal(c->pools[0].values[LIMIT_MAX], 2);
	assert_string_equal(c->pools[0].where, "f.d/2.conf:2");
	assert_string_equal(c->pools[1].path, "/a");
	assert_int_equal(c->pools[1].values[LIMIT_MAX], 3);
	assert_string_equal(c->pools[1].where, "f:9");
	assert_string_equal(c->pools[2].path, "/b");
	assert_string_equal(c->pools[2].name, "c");
	assert_int_equal(c->pools[2].values[LIMIT_MAX], 4);
	conf_free(c);
}

/* A file's patterns override those of the files before it, as every key does. */
static void test_override_export(void **state)
{
	struct conf *c;

	(void)state;
	put("f", "[daemon]\nexport = /a\nexport = /b\n");
	put("f.d/1.conf", "[daemon]\nexport = /c\nexport = /d\n");
	c = load("f");
	check_list(c->export, c->n_export, "/c /d");
	conf_free(c);
	put("f.d/2.conf", "[daemon]\nexport =\n");
	c = load("f");
	assert_int_equal(c->n_export, 0);
	conf_free(c);
	put("f.d/3.conf", "[daemon]\nbatch = 4K\n");
	c = load("f");
	assert_int_equal(c->n_export, 0);
	conf_free(c);
}

/* An item may be in a later file than the limit. */
static void test_limits_of_items(void **state)
{
	struct conf *c;

	(void)state;
	put("f",
		"[daemon]\nexport_files = memory.max stat.gpu.max\n"
		"[pool a]\npath = /a\nstat.gpu.max = 1M\nstat.sock.max = 2M\n");
	put("f.d/1.conf", "[pool a]\nstat.sock.max = 3M\n[stat gpu]\nunit = bytes\n");
	c = load("f");
	check_list(c->export_files, c->n_export_files, "memory.max stat.gpu.max");
	assert_int_equal(c->pools[0].n_limits, 2);
	assert_int_equal(conf_item_max(&c->pools[0], "gpu"), 1 << 20);
	assert_int_equal(conf_item_max(&c->pools[0], "sock"), 3 << 20);
	conf_free(c);

	put("f.d/1.conf", "");
	refuse("f", "f:2: [daemon] export_files: there is no item gpu; ", "name one");
	put("f.d/1.conf", "[daemon]\nexport_files = memory.max\n");
	refuse("f", "f:5: [pool a] stat.gpu.max: there is no item gpu; ", "name one");
	put("f", "[pool a]\npath = /a\nstat.sok.max = 1M\n");
	refuse("f", "f:3: [pool a] stat.sok.max: ", "no item sok, perhaps sock is meant;");
	put("f", "[pool a]\npath = /a\nstat.alloc.max = 1M\n");
	refuse("f", "f:3: [pool a] stat.alloc.max: ", "alloc is an event (built in)");
}

static void test_errors_across_files(void **state)
{
	(void)state;
	put("f", "[pool a]\npath = /a\n");
	put("f.d/1.conf", "[pool b]\nmemory.max = 1\n");
	refuse("f", "f.d/1.conf:1: [pool b] path: ", "no path");
	put("f.d/2.conf", "\n[pool b]\npath = /a\n");
	refuse("f", "f.d/2.conf:3: [pool b] path: /a is the path of [pool a] at f:2", "another");
	/* a bad value stays an error when a later file overrides it */
	put("f", "[daemon]\nbatch = 1\n");
	put("f.d/1.conf", "[daemon]\nbatch = 4K\n");
	refuse("f", "f:2: [daemon] batch: ", "\"1\"");
}

static void test_places(void **state)
{
	struct conf *c;

	(void)state;
	put("usr/lib/tallyd/tallyd.conf", "[daemon]\nbatch = 4K\ngrace = 1\n");
	c = load(NULL);
	assert_int_equal(c->batch, 4096);
	conf_free(c);
	put("run/tallyd/tallyd.conf", "[daemon]\nbatch = 8K\n");
	c = load(NULL);
	assert_int_equal(c->batch, 8192);
	assert_int_equal(c->grace_usec, 30000000);
	conf_free(c);
	put("etc/tallyd/tallyd.conf", "[daemon]\nbatch = 16K\n");
	c = load(NULL);
	assert_int_equal(c->batch, 16384);
	conf_free(c);
	/* a link to /dev/null masks the files of the other places too */
	assert_int_equal(unlink("etc/tallyd/tallyd.conf"), 0);
	put_link("/dev/null", "etc/tallyd/tallyd.conf");
	c = load(NULL);
	check_defaults(c);
	conf_free(c);
}

static void test_dropins_of_places(void **state)
{
	struct conf *c;

	(void)state;
	put("usr/lib/tallyd/tallyd.conf.d/1.conf", "[daemon]\nbatch = 4K\ngrace = 1\n");
	put("usr/lib/tallyd/tallyd.conf.d/3.conf", "[daemon]\nbatch = 8K\n");
	put("run/tallyd/tallyd.conf.d/2.conf", "[daemon]\nbatch = 16K\nexport_max = 2\n");
	put("etc/tallyd/tallyd.conf", "[daemon]\nbatch = 32K\nsocket_mode = 0600\n");
	c = load(NULL);
	assert_int_equal(c->batch, 8192);
	assert_int_equal(c->grace_usec, 1000000);
	assert_int_equal(c->export_max, 2);
	assert_int_equal(c->socket_mode, 0600);
	conf_free(c);

	/* the same name: only the file of /run, and then only that of /etc, is read */
	put("run/tallyd/tallyd.conf.d/3.conf", "[daemon]\nflush_interval = 3\n");
	c = load(NULL);
	assert_int_equal(c->batch, 16384);
	assert_int_equal(c->flush_interval_usec, 3000000);
	conf_free(c);
	put("etc/tallyd/tallyd.conf.d/3.conf", "");
	put_link("/dev/null", "etc/tallyd/tallyd.conf.d/2.conf");
	c = load(NULL);
	assert_int_equal(c->batch, 4096);
	assert_int_equal(c->flush_interval_usec, 2000000);
	assert_int_equal(c->export_max, 4096);
	conf_free(c);
	refuse_with("etc/tallyd/none.conf", -ENOENT, "etc/tallyd/none.conf: ", "No such file");
}

static void test_files_that_cannot_be_read(void **state)
{
	(void)state;
	refuse_with("none", -ENOENT, "none: the file cannot be read: ", "create it");
	refuse_with(".", -EISDIR, ".: the file cannot be read: ", "directory");
	put("f", "");
	put_link("gone", "f.d/1.conf");
	refuse_with("f", -ENOENT, "f.d/1.conf: the file cannot be read: ", "remove the link");
	assert_int_equal(unlink("f.d/1.conf"), 0);
	assert_int_equal(mkdir("f.d/1.conf", 0755), 0);
	refuse_with("f", -EISDIR, "f.d/1.conf: ", "put a file in its place");
	assert_int_equal(rmdir("f.d/1.conf"), 0);
	assert_int_equal(rmdir("f.d"), 0);
	put("f.d", "");
	refuse_with("f", -ENOTDIR, "f.d: the directory of drop-ins cannot be read: ", "directory");
	put("f\nx", "[daemon]\nbatch = 1\n");
	refuse("f\nx", "f?x:2: [daemon] batch: ", "\"1\"");
}

static void test_places_that_cannot_be_read(void **state)
{
	(void)state;
	put("usr/lib/tallyd/tallyd.conf", "");
	put_link("gone", "etc/tallyd/tallyd.conf");
	refuse_with(NULL, -ENOENT, "./etc/tallyd/tallyd.conf: the file cannot be read: ", "link");
	assert_int_equal(unlink("etc/tallyd/tallyd.conf"), 0);
	assert_int_equal(mkdir("etc/tallyd/tallyd.conf", 0755), 0);
	refuse_with(NULL, -EISDIR, "./etc/tallyd/tallyd.conf: ", "directory");
	assert_int_equal(rmdir("etc/tallyd/tallyd.conf"), 0);
	assert_int_equal(rmdir("etc/tallyd"), 0);
	put("etc/tallyd", "");
	refuse_with(NULL, -ENOTDIR, "./etc/tallyd/tallyd.conf: ", "Not a directory");
}

static void test_permissions(void **state)
{
	uid_t user = geteuid();

	(void)state;
	put("f", "");
	put("f.d/1.conf", "");
	assert_int_equal(chmod("f.d/1.conf", 0), 0);
	if (user == 0)
		assert_int_equal(seteuid(65534), 0);
	refuse_with("f", -EACCES, "f.d/1.conf: the file cannot be read: ", "readable");
	assert_int_equal(seteuid(user), 0);
	assert_int_equal(chmod("f.d", 0), 0);
	if (user == 0)
		assert_int_equal(seteuid(65534), 0);
	refuse_with("f", -EACCES, "f.d: the directory of drop-ins cannot be read: ", "tallyd can");
	assert_int_equal(seteuid(user), 0);
	assert_int_equal(chmod("f.d", 0755), 0);
}

/* The installed file, as it is and with every example in it taken at its word. */
static void test_example(void **state)
{
	_cleanup_(freep) char *path = NULL, *text = NULL;
	size_t size = 0, n;
	ssize_t got;
	char *line = NULL;
	struct conf *c;
	FILE *in, *out;

	(void)state;
	assert_true(asprintf(&path, "%s/conf/tallyd.conf", source) > 0);
	c = load(path);
	check_defaults(c);
	conf_free(c);

	in = fopen(path, "r");
	assert_non_null(in);
	out = open_memstream(&text, &n);
	assert_non_null(out);
	while ((got = getline(&line, &size, in)) > 0)
		fputs(line + (line[0] == '#' && got > 2 && line[1] != ' '), out);
	free(line);
	fclose(in);
	fclose(out);
	put("f", text);
	c = load("f");
	assert_int_equal(c->n_pools, 2);
	assert_int_equal(c->n_items, 9);
	conf_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_defaults, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_every_key, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_windows_file, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nothing_is_cut, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nothing_is_joined, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_lines_of_errors, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_pool_paths, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_64_items, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_dropins_of_named_file, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_order_of_dropins, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_names_of_dropins, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_override, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_override_export, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_limits_of_items, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_errors_across_files, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_places, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_dropins_of_places, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_files_that_cannot_be_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_places_that_cannot_be_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_permissions, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_example, set_up, tear_down),
	};
	const char *srcdir = getenv("srcdir");

	if (!realpath(srcdir ? srcdir : ".", source))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
