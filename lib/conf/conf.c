/* SPDX-License-Identifier: MIT */

/*
 * Which files make up the configuration, in which order, and what must hold once all of them are
 * read. Each file is read and measured (measure.c), then given to inih line by line from memory, so
 * that what was measured is what is parsed; what its keys mean is known to setting.c.
 */

#include "conf.h"

#include <dirent.h>
#include <errno.h>
#include <ini.h>
#include <string.h>
#include <sys/stat.h>

#include "core/util.h"
#include "core/value.h"
#include "measure.h"
#include "nearest.h"
#include "setting.h"

#define THRESHOLD_PER_CPU UINT64_C(64)

/* An administrator's files mask those of this boot, and those mask a package's. */
static const char *const places[] = {
	SYSCONFDIR "/tallyd", "/etc/tallyd", "/run/tallyd", "/usr/lib/tallyd"};

/* The defaults in the words of a file, so that they are what a file with these lines gives. */
static const struct {
	const char *section, *key, *value;
} defaults[] = {
	{"daemon", "flush_interval", "2s"},
	{"daemon", "flush_threshold", "auto"},
	{"daemon", "batch", "256K"},
	{"daemon", "batch_max", "16M"},
	{"daemon", "grace", "30s"},
	{"daemon", "socket_mode", "0666"},
	{"daemon", "export", "/*"},
	{"daemon", "export_files", "memory.current memory.stat memory.events"},
	{"daemon", "export_max", "4096"},
	{"daemon", "max_sessions_per_uid", "1024"},
	{"daemon", "max_pools_per_uid", "4096"},
	{"daemon", "max_attachments_per_uid", "65536"},
	{"daemon", "max_queued_per_uid", "65536"},
	{"stat anon", "unit", "bytes"},
	{"stat anon", "help", "Anonymous memory"},
	{"stat file", "unit", "bytes"},
	{"stat file", "help", "Cached file data"},
	{"stat shmem", "unit", "bytes"},
	{"stat shmem", "help", "Shared memory"},
	{"stat sock", "unit", "bytes"},
	{"stat sock", "help", "Socket buffers"},
	{"stat slab", "unit", "bytes"},
	{"stat slab", "help", "Small objects"},
	{"stat hugetlb", "unit", "bytes"},
	{"stat hugetlb", "help", "Huge pages"},
	{"stat alloc", "type", "event"},
	{"stat alloc", "help", "Allocations"},
	{"stat free", "type", "event"},
	{"stat free", "help", "Frees"},
};

struct dropin {
	char *name, *path;
};

struct conf_reader {
	struct conf *conf;
	char **ret_error;
	struct dropin *dropins;
	size_t n_dropins;
	struct setting setting; /* where the reading of the present file stands */
	const char *next, *end; /* what inih has not seen of it */
	int r;                  /* of its keys */
};

static void free_list(char **list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(list[i]);
	free(list);
}

static void clear_pool(struct conf_pool *p)
{
	for (size_t i = 0; i < p->n_limits; i++) {
		free(p->limits[i].item);
		free(p->limits[i].where);
	}
	free(p->limits);
	free(p->name);
	free(p->path);
	free(p->where);
}

struct conf *conf_free(struct conf *c)
{
	if (!c)
		return NULL;
	free_list(c->export, c->n_export);
	free_list(c->export_files, c->n_export_files);
	free(c->export_files_where);
	for (size_t i = 0; i < c->n_items; i++) {
		free(c->items[i].name);
		free(c->items[i].unit);
		free(c->items[i].help);
		free(c->items[i].where);
	}
	free(c->items);
	for (size_t i = 0; i < c->n_pools; i++)
		clear_pool(&c->pools[i]);
	free(c->pools);
	free(c);
	return NULL;
}

uint64_t conf_flush_threshold(const struct conf *c, uint32_t n_cpus)
{
	return c->flush_threshold ? c->flush_threshold : THRESHOLD_PER_CPU * n_cpus;
}

uint64_t conf_item_max(const struct conf_pool *p, const char *item)
{
	for (size_t i = 0; i < p->n_limits; i++)
		if (strcmp(p->limits[i].item, item) == 0)
			return p->limits[i].max;
	return VALUE_MAX;
}

static void conf_freep(struct conf **c)
{
	conf_free(*c);
}

int conf_new_default(struct conf **ret)
{
	_cleanup_(conf_freep) struct conf *c = calloc(1, sizeof(*c));
	_cleanup_(freep) char *error = NULL;
	struct setting setting;

	if (!c)
		return -ENOMEM;
	c->admin_gid = NAMES_NOBODY;
	setting_begin(&setting, c, "built in");
	for (size_t i = 0; i < ELEMENTS(defaults); i++) {
		int r = setting_apply(
			&setting, defaults[i].section, defaults[i].key, defaults[i].value, &error);

		if (r < 0)
			return r;
	}
	*ret = take_ptr(c);
	return 0;
}

static int fail_inih(struct conf_reader *reader, const char *what, int n)
{
	struct measure_place at = {.file = reader->setting.file, .line = reader->setting.line};

	return measure_fail(&at, reader->ret_error,
		"inih %s (%d); use a build of inih with its usual options", what, n);
}

/* inih's reader: one call a line, which is how the lines are counted. Measured lines fit. */
static char *read_line(char *buf, int size, void *stream)
{
	struct conf_reader *reader = stream;
	size_t left = (size_t)(reader->end - reader->next), n;
	const char *newline;

	if (left == 0 || reader->r < 0)
		return NULL;
	newline = memchr(reader->next, '\n', left);
	n = newline ? (size_t)(newline - reader->next) + 1 : left;
	if (n >= (size_t)size) {
		reader->r = fail_inih(reader, "has no room for a line", size);
		return NULL;
	}
	memcpy(buf, reader->next, n);
	buf[n] = '\0';
	reader->next += n;
	reader->setting.line++;
	if (buf[0] == '[')
		reader->setting.section_line = reader->setting.line;
	return buf;
}

static int handle_key(void *user, const char *section, const char *key, const char *value)
{
	struct conf_reader *reader = user;

	reader->r = setting_apply(&reader->setting, section, key, value, reader->ret_error);
	return 1;
}

static int read_file(struct conf_reader *reader, const char *file)
{
	_cleanup_(freep) char *text = NULL;
	size_t n;
	int r = measure_read(file, &text, &n, reader->ret_error), refused;

	if (r < 0)
		return r;
	setting_begin(&reader->setting, reader->conf, file);
	reader->next = text;
	reader->end = text + n;
	refused = ini_parse_stream(read_line, reader, handle_key, reader);
	if (reader->r == 0 && refused)
		return fail_inih(reader, "gives up", refused);
	return reader->r;
}

static char *join(const char *a, const char *b, const char *c)
{
	char *text;

	return asprintf(&text, "%s%s%s", a, b, c) < 0 ? NULL : text;
}

/* Hidden names are editors' locks and leftovers. */
static int is_dropin(const struct dirent *entry)
{
	size_t n = strlen(entry->d_name);

	return entry->d_name[0] != '.' && n > 5 && strcmp(entry->d_name + n - 5, ".conf") == 0;
}

static int add_dropin(struct conf_reader *reader, const char *dir, const char *name)
{
	struct dropin *more;

	for (size_t i = 0; i < reader->n_dropins; i++)
		if (strcmp(reader->dropins[i].name, name) == 0)
			return 0;
	more = reallocarray(reader->dropins, reader->n_dropins + 1, sizeof(*more));
	if (!more)
		return -ENOMEM;
	reader->dropins = more;
	more += reader->n_dropins++;
	*more = (struct dropin){.name = strdup(name), .path = join(dir, "/", name)};
	return more->name && more->path ? 0 : -ENOMEM;
}

/* Directories come in the order in which they mask. */
static int add_dropins(struct conf_reader *reader, const char *dir)
{
	struct measure_place at = {.file = dir};
	struct dirent **entries;
	int n = scandir(dir, &entries, is_dropin, NULL), r = 0;

	if (n < 0 && errno == ENOENT)
		return 0;
	if (n < 0) {
		r = -errno;
		measure_fail(&at, reader->ret_error,
			"the directory of drop-ins cannot be read: %s; make it one that tallyd can "
			"read",
			strerror(-r));
		return r;
	}
	for (int i = 0; i < n; i++) {
		if (r == 0)
			r = add_dropin(reader, dir, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	return r;
}

static void free_dropins(struct conf_reader *reader)
{
	for (size_t i = 0; i < reader->n_dropins; i++) {
		free(reader->dropins[i].name);
		free(reader->dropins[i].path);
	}
	free(reader->dropins);
}

static int compare_dropins(const void *a, const void *b)
{
	return strcmp(((const struct dropin *)a)->name, ((const struct dropin *)b)->name);
}

static int read_dropins(struct conf_reader *reader)
{
	int r = 0;

	if (reader->n_dropins)
		qsort(reader->dropins, reader->n_dropins, sizeof(*reader->dropins),
			compare_dropins);
	for (size_t i = 0; i < reader->n_dropins && r == 0; i++)
		r = read_file(reader, reader->dropins[i].path);
	return r;
}

static int read_named(struct conf_reader *reader, const char *file)
{
	_cleanup_(freep) char *dir = join(file, ".d", "");
	int r = read_file(reader, file);

	if (r < 0)
		return r;
	return dir ? add_dropins(reader, dir) : -ENOMEM;
}

/* A dangling link in a place is a mistake to be told, so this look does not follow links. */
static bool is_there(const char *file)
{
	struct stat st;

	return lstat(file, &st) == 0 || errno != ENOENT;
}

static int read_places(struct conf_reader *reader, const char *root)
{
	bool found = false;
	int r = 0;

	for (size_t i = 0; i < ELEMENTS(places) && r == 0; i++) {
		_cleanup_(freep) char *file = join(root, places[i], "/tallyd.conf");
		_cleanup_(freep) char *dir = join(root, places[i], "/tallyd.conf.d");

		if (!file || !dir)
			return -ENOMEM;
		if (!found && is_there(file)) {
			found = true;
			r = read_file(reader, file);
		}
		if (r == 0)
			r = add_dropins(reader, dir);
	}
	return r;
}

static int compare_pools(const void *a, const void *b)
{
	const struct conf_pool *p = a, *q = b;
	int order = strcmp(p->path, q->path);

	return order ? order : strcmp(p->name, q->name);
}

static int fail_path(const struct conf_pool *p, const struct conf_pool *other, char **ret_error)
{
	char section[CONF_SECTION_MAX + 1];
	struct measure_place at = {.file = p->where, .section = section, .key = "path"};

	snprintf(section, sizeof(section), "pool %s", p->name);
	if (!other)
		return measure_fail(&at, ret_error, "the pool has no path; add path = /...");
	return measure_fail(&at, ret_error,
		"%s is the path of [pool %s] at %s too; give one of them another path", p->path,
		other->name, other->where);
}

static const struct conf_item *find_item(const struct conf *c, const char *name)
{
	for (size_t i = 0; i < c->n_items; i++)
		if (strcmp(c->items[i].name, name) == 0)
			return &c->items[i];
	return NULL;
}

/* What has a limit must be a gauge. */
static int check_gauge(
	const struct conf *c, const char *name, const struct measure_place *at, char **ret_error)
{
	const struct conf_item *item = find_item(c, name);
	struct nearest nearest = {.typed = name};

	if (item && item->type == ITEM_GAUGE)
		return 0;
	if (item)
		return measure_fail(at, ret_error,
			"%s is an event (%s), and only gauges have limits; name a gauge", name,
			item->where);
	for (size_t i = 0; i < c->n_items; i++)
		if (c->items[i].type == ITEM_GAUGE)
			nearest_consider(&nearest, c->items[i].name);
	return measure_fail(at, ret_error, "there is no item %s%s%s%s; name one that there is",
		name, nearest.name ? ", perhaps " : "", nearest.name ? nearest.name : "",
		nearest.name ? " is meant" : "");
}

/* There is nothing above it. */
static int check_standalone(const struct conf_pool *p, char **ret_error)
{
	char section[CONF_SECTION_MAX + 1];
	struct measure_place at = {.file = p->where, .section = section, .key = "standalone"};

	if (!p->standalone || strcmp(p->path, "/") != 0)
		return 0;
	snprintf(section, sizeof(section), "pool %s", p->name);
	return measure_fail(&at, ret_error,
		"the root pool is part of no other; leave the key out, or name a pool below");
}

static int check_limits(const struct conf *c, const struct conf_pool *p, char **ret_error)
{
	char section[CONF_SECTION_MAX + 1], key[CONF_LINE_MAX + 1];
	int r = 0;

	snprintf(section, sizeof(section), "pool %s", p->name);
	for (size_t i = 0; i < p->n_limits && r == 0; i++) {
		struct measure_place at = {
			.file = p->limits[i].where, .section = section, .key = key};

		snprintf(key, sizeof(key), "stat.%s.max", p->limits[i].item);
		r = check_gauge(c, p->limits[i].item, &at, ret_error);
	}
	return r;
}

static int check_export_files(const struct conf *c, char **ret_error)
{
	const struct measure_place at = {
		.file = c->export_files_where, .section = "daemon", .key = "export_files"};
	int r = 0;

	for (size_t i = 0; i < c->n_export_files && r == 0; i++) {
		char item[CONF_LINE_MAX + 1];

		if (setting_is_item_max(c->export_files[i], item))
			r = check_gauge(c, item, &at, ret_error);
	}
	return r;
}

/* A path, or an item, may come from any of the files, so that what concerns them waits for the last
 * one. */
static int finish_pools(struct conf *c, char **ret_error)
{
	for (size_t i = 0; i < c->n_pools; i++) {
		int r;

		if (!c->pools[i].path)
			return fail_path(&c->pools[i], NULL, ret_error);
		r = check_standalone(&c->pools[i], ret_error);
		if (r == 0)
			r = check_limits(c, &c->pools[i], ret_error);
		if (r < 0)
			return r;
	}
	if (c->n_pools)
		qsort(c->pools, c->n_pools, sizeof(*c->pools), compare_pools);
	for (size_t i = 1; i < c->n_pools; i++)
		if (strcmp(c->pools[i].path, c->pools[i - 1].path) == 0)
			return fail_path(&c->pools[i], &c->pools[i - 1], ret_error);
	return 0;
}

int conf_load(const char *file, const char *root, struct conf **ret, char **ret_error)
{
	_cleanup_(conf_freep) struct conf *conf = NULL;
	struct conf_reader reader = {.ret_error = ret_error};
	int r;

	*ret_error = NULL;
	r = conf_new_default(&conf);
	if (r < 0)
		return r;
	reader.conf = conf;
	r = file ? read_named(&reader, file) : read_places(&reader, root);
	if (r == 0)
		r = read_dropins(&reader);
	free_dropins(&reader);
	if (r == 0)
		r = check_export_files(conf, ret_error);
	if (r == 0)
		r = finish_pools(conf, ret_error);
	if (r == 0)
		*ret = take_ptr(conf);
	return r;
}
