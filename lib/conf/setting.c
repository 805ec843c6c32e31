/* SPDX-License-Identifier: MIT */

/*
 * Keys and values. A table says what there is; most keys are a number between two bounds and need
 * no code. An error always says what would have been right: whoever reads it has the file open and
 * wants the next keystroke, not a diagnosis.
 */

#include "setting.h"

#include <errno.h>
#include <string.h>

#include "core/path.h"
#include "core/util.h"
#include "core/value.h"
#include "measure.h"
#include "nearest.h"
#include "section.h"

#define SECOND UINT64_C(1000000)
#define HOUR (3600 * SECOND)

/* What export_files may name beside limits of items, separated by blanks. */
#define FILES                                                                                      \
	"memory.current memory.peak memory.min memory.low memory.high memory.max memory.events "   \
	"memory.events.local memory.pressure memory.stat memory.numa_stat cgroup.events "          \
	"cgroup.stat cgroup.procs "                                                                \
	"cgroup.max.depth cgroup.max.descendants pool.children pool.clients pool.refusals"

struct key {
	enum section_kind kind;
	const char *name;
	const char *wants; /* what it takes, for the error about a bad value */
	/* 0, -EINVAL (`wants` tells the user why), -EEXIST (again in the section) or -ENOMEM */
	int (*set)(struct setting *s, const struct key *k, const char *value);
	int (*parse)(const char *text, uint64_t *ret); /* set_number() */
	uint64_t min, max;                             /* set_number(), both included */
	size_t offset, size;                           /* of the member of the section's target */
	bool repeatable;
};

static int parse_mode(const char *text, uint64_t *ret)
{
	unsigned mode;
	int r = value_parse_mode(text, &mode);

	if (r == 0)
		*ret = mode;
	return r;
}

/* The word is 0, which no number may be. */
static int parse_threshold(const char *text, uint64_t *ret)
{
	uint64_t n;

	if (strcmp(text, "auto") == 0)
		n = 0;
	else if (value_parse_number(text, &n) < 0 || n == 0)
		return -EINVAL;
	*ret = n;
	return 0;
}

/* What is said in words is 0 or 1. */
static int parse_bool(const char *text, uint64_t *ret)
{
	if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
		return -EINVAL;
	*ret = strcmp(text, "yes") == 0;
	return 0;
}

static int parse_enforce(const char *text, uint64_t *ret)
{
	if (strcmp(text, "yes") != 0 && strcmp(text, "observe") != 0)
		return -EINVAL;
	*ret = strcmp(text, "observe") == 0;
	return 0;
}

static int set_number(struct setting *s, const struct key *k, const char *value)
{
	char *member = (char *)s->target + k->offset;
	uint64_t v;

	if (k->parse(value, &v) < 0 || v < k->min || v > k->max)
		return -EINVAL;
	if (k->size == sizeof(uint32_t))
		*(uint32_t *)member = (uint32_t)v;
	else
		*(uint64_t *)member = v;
	return 0;
}

/* ' #' begins no comment in a value, and a value that holds one was hardly meant so. */
static const char *find_hash(const char *value)
{
	for (const char *c = strchr(value, '#'); c; c = strchr(c + 1, '#'))
		if (c > value && strchr(" \t", c[-1]))
			return c;
	return NULL;
}

static int set_text(struct setting *s, const struct key *k, const char *value)
{
	char **member = (char **)((char *)s->target + k->offset);
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*member);
	*member = copy;
	return 0;
}

static int set_unit(struct setting *s, const struct key *k, const char *value)
{
	return strpbrk(value, " \t") ? -EINVAL : set_text(s, k, value);
}

static int set_type(struct setting *s, const struct key *k _unused_, const char *value)
{
	struct conf_item *item = s->target;

	if (strcmp(value, "gauge") == 0)
		item->type = ITEM_GAUGE;
	else if (strcmp(value, "event") == 0)
		item->type = ITEM_EVENT;
	else
		return -EINVAL;
	return 0;
}

static int set_path(struct setting *s, const struct key *k, const char *value)
{
	struct conf_pool *pool = s->target;
	int r;

	if (path_check(value) < 0 || find_hash(value))
		return -EINVAL;
	r = section_where(s->file, s->line, &pool->where);
	return r < 0 ? r : set_text(s, k, value);
}

bool setting_is_item_max(const char *name, char ret_item[static CONF_LINE_MAX + 1])
{
	size_t n = strlen(name), prefix = strlen("stat."), suffix = strlen(".max");

	if (n <= prefix + suffix || n > CONF_LINE_MAX || strncmp(name, "stat.", prefix) != 0 ||
		strcmp(name + n - suffix, ".max") != 0)
		return false;
	n -= prefix + suffix;
	memcpy(ret_item, name + prefix, n);
	ret_item[n] = '\0';
	return true;
}

/* Whether there is such an item shows only when all is read. */
static int find_limit(struct conf_pool *p, const char *item, size_t *ret)
{
	struct conf_limit *limits;
	size_t i = 0;

	while (i < p->n_limits && strcmp(p->limits[i].item, item) != 0)
		i++;
	if (i == ITEM_MAX)
		return -EINVAL;
	if (i == p->n_limits) {
		limits = reallocarray(p->limits, i + 1, sizeof(*limits));
		if (!limits)
			return -ENOMEM;
		p->limits = limits;
		limits[i] = (struct conf_limit){.item = strdup(item)};
		if (!limits[i].item)
			return -ENOMEM;
		p->n_limits++;
	}
	*ret = i;
	return 0;
}

static int set_limit(struct setting *s, const struct key *k _unused_, const char *value)
{
	struct conf_pool *p = s->target;
	char item[CONF_LINE_MAX + 1];
	uint64_t max, bit;
	size_t i;
	int r;

	if (!setting_is_item_max(s->key, item) || value_parse_limit(value, &max) < 0)
		return -EINVAL;
	r = find_limit(p, item, &i);
	if (r < 0)
		return r;
	bit = UINT64_C(1) << i;
	if (s->seen_limits & bit)
		return -EEXIST;
	s->seen_limits |= bit;
	p->limits[i].max = max;
	return section_where(s->file, s->line, &p->limits[i].where);
}

/* Tells what is not known from what cannot be looked up just now. */
static int fail_name(struct setting *s, const char *kind, const char *name, size_t size, int r)
{
	if (r != -ENOENT)
		return r;
	s->unknown = kind;
	s->bad = name;
	s->bad_size = size;
	return -EINVAL;
}

static int set_admin_group(struct setting *s, const struct key *k _unused_, const char *value)
{
	struct conf *c = s->conf;
	gid_t gid = NAMES_NOBODY;
	int r = *value ? names_find_group(value, &gid) : 0;

	if (r < 0)
		return fail_name(s, "group", value, strlen(value), r);
	c->admin_gid = gid;
	c->has_admin_group = true;
	return 0;
}

static int set_owner(struct setting *s, const struct key *k _unused_, const char *value)
{
	struct conf_pool *p = s->target;
	const char *group = strchr(value, ':');
	_cleanup_(freep) char *user = NULL;
	uid_t uid;
	gid_t gid;
	int r;

	if (!group || group == value || !group[1])
		return -EINVAL;
	user = strndup(value, (size_t)(group - value));
	if (!user)
		return -ENOMEM;
	r = names_find_user(user, &uid);
	if (r < 0)
		return fail_name(s, "user", value, strlen(user), r);
	group++;
	r = names_find_group(group, &gid);
	if (r < 0)
		return fail_name(s, "group", group, strlen(group), r);
	p->uid = uid;
	p->gid = gid;
	return 0;
}

static void clear_list(char ***list, size_t *n)
{
	for (size_t i = 0; i < *n; i++)
		free((*list)[i]);
	free(*list);
	*list = NULL;
	*n = 0;
}

static int add_to_list(char ***list, size_t *n, const char *text, size_t size)
{
	char **more = reallocarray(*list, *n + 1, sizeof(*more));

	if (!more)
		return -ENOMEM;
	*list = more;
	more[*n] = strndup(text, size);
	if (!more[*n])
		return -ENOMEM;
	++*n;
	return 0;
}

/* No path of a pool but the root's ends with '/', and none has an empty part. */
static bool may_match(const char *pattern)
{
	size_t n = strlen(pattern);

	return *pattern == '/' && (n == 1 || pattern[n - 1] != '/') && !strstr(pattern, "//");
}

/* The patterns of one file together override those of the files before. An empty value behind them
 * would throw away what stands right above it. */
static int set_export(struct setting *s, const struct key *k _unused_, const char *value)
{
	struct conf *c = s->conf;

	if (!s->again)
		clear_list(&c->export, &c->n_export);
	if (*value == '\0')
		return s->again ? -EINVAL : 0;
	if (!may_match(value) || find_hash(value))
		return -EINVAL;
	return add_to_list(&c->export, &c->n_export, value, strlen(value));
}

static bool has_word(const char *words, const char *word, size_t n)
{
	for (const char *c = words; *c; c += strspn(c, " ")) {
		size_t size = strcspn(c, " ");

		if (size == n && memcmp(c, word, n) == 0)
			return true;
		c += size;
	}
	return false;
}

static bool is_file(const char *word, size_t n)
{
	char name[CONF_LINE_MAX + 1], item[CONF_LINE_MAX + 1];

	if (n >= sizeof(name))
		return false;
	memcpy(name, word, n);
	name[n] = '\0';
	return has_word(FILES, word, n) || setting_is_item_max(name, item);
}

static int set_export_files(struct setting *s, const struct key *k _unused_, const char *value)
{
	struct conf *c = s->conf;
	const char *word = value;
	size_t n;

	clear_list(&c->export_files, &c->n_export_files);
	for (; (n = strcspn(word, " \t")) > 0; word += strspn(word, " \t")) {
		bool again = false;
		int r;

		for (size_t i = 0; i < c->n_export_files && !again; i++)
			again = has_word(c->export_files[i], word, n);
		s->bad = word;
		s->bad_size = n;
		if (again || !is_file(word, n))
			return -EINVAL;
		r = add_to_list(&c->export_files, &c->n_export_files, word, n);
		if (r < 0)
			return r;
		word += n;
	}
	if (c->n_export_files == 0)
		return -EINVAL;
	return section_where(s->file, s->line, &c->export_files_where);
}

#define MEMBER(type, member)                                                                       \
	.offset = offsetof(struct type, member), .size = sizeof(((struct type *)NULL)->member)

static const struct key keys[] = {
	{
		.kind = SECTION_DAEMON,
		.name = "flush_interval",
		.wants = "a duration from 100ms to 1h, such as 2s",
		.set = set_number,
		.parse = value_parse_usec,
		.min = SECOND / 10,
		.max = HOUR,
		MEMBER(conf, flush_interval_usec),
	},
	{
		.kind = SECTION_DAEMON,
		.name = "flush_threshold",
		.wants = "a number of updates from 1 to 4294967295, such as 4096, or the word auto",
		.set = set_number,
		.parse = parse_threshold,
		.max = UINT32_MAX,
		MEMBER(conf, flush_threshold),
	},
	{
		.kind = SECTION_DAEMON,
		.name = "batch",
		.wants = "bytes from 4K to 1G, such as 256K",
		.set = set_number,
		.parse = value_parse_bytes,
		.min = UINT64_C(4) << 10,
		.max = UINT64_C(1) << 30,
		MEMBER(conf, batch),
	},
	{
		.kind = SECTION_DAEMON,
		.name = "batch_max",
		.wants = "bytes from 4K to 1G, such as 16M",
		.set = set_number,
		.parse = value_parse_bytes,
		.min = UINT64_C(4) << 10,
		.max = UINT64_C(1) << 30,
		MEMBER(conf, batch_max),
	},
	{
		.kind = SECTION_DAEMON,
		.name = "grace",
		.wants = "a duration from 0 to 24h, such as 30s",
		.set = set_number,
		.parse = value_parse_usec,
		.max = 24 * HOUR,
		MEMBER(conf, grace_usec),
	},
	{
		.kind = SECTION_DAEMON,
		.name = "socket_mode",
		.wants = "octal permission bits from 0 to 0777, such as 0666",
		.set = set_number,
		.parse = parse_mode,
		.max = 0777,
		MEMBER(conf, socket_mode),
	},
	{
		.kind = SECTION_DAEMON,
		.name = "export",
		.wants = "a pattern of pool paths, which begins with '/' and does not end with it, "
			 "such as /a or /a/*, or, before any pattern, nothing",
		.set = set_export,
		.repeatable = true,
	},
	{
		.kind = SECTION_DAEMON,
		.name = "export_files",
		.wants = "names separated by blanks, each once, of: " FILES " stat.ITEM.max",
		.set = set_export_files,
	},
	{
		.kind = SECTION_DAEMON,
		.name = "export_max",
		.wants = "a number of pools from 0 to 4294967295, such as 4096",
		.set = set_number,
		.parse = value_parse_number,
		.max = UINT32_MAX,
		MEMBER(conf, export_max),
	},
	{
		.kind = SECTION_DAEMON,
		.name = "admin_group",
		.wants = "the name or the number of a group, or nothing",
		.set = set_admin_group,
	},
	{
		.kind = SECTION_DAEMON,
		.name = "max_sessions_per_uid",
		.wants = "a number from 1 to 4294967295, such as 1024",
		.set = set_number,
		.parse = value_parse_number,
		.min = 1,
		.max = UINT32_MAX,
		MEMBER(conf, max_sessions_per_uid),
	},
	{
		.kind = SECTION_DAEMON,
		.name = "max_pools_per_uid",
		.wants = "a number from 1 to 4294967295, such as 4096",
		.set = set_number,
		.parse = value_parse_number,
		.min = 1,
		.max = UINT32_MAX,
		MEMBER(conf, max_pools_per_uid),
	},
	{
		.kind = SECTION_DAEMON,
		.name = "max_attachments_per_uid",
		.wants = "a number from 1 to 4294967295, such as 65536",
		.set = set_number,
		.parse = value_parse_number,
		.min = 1,
		.max = UINT32_MAX,
		MEMBER(conf, max_attachments_per_uid),
	},
	{
		.kind = SECTION_DAEMON,
		.name = "max_queued_per_uid",
		.wants = "a number from 1 to 4294967295, such as 65536",
		.set = set_number,
		.parse = value_parse_number,
		.min = 1,
		.max = UINT32_MAX,
		MEMBER(conf, max_queued_per_uid),
	},
	{
		.kind = SECTION_STAT,
		.name = "type",
		.wants = "gauge (goes up and down) or event (only up)",
		.set = set_type,
	},
	{
		.kind = SECTION_STAT,
		.name = "unit",
		.wants = "one word, such as bytes, or nothing",
		.set = set_unit,
		MEMBER(conf_item, unit),
	},
	{
		.kind = SECTION_STAT,
		.name = "help",
		.set = set_text,
		MEMBER(conf_item, help),
	},
	{
		.kind = SECTION_POOL,
		.name = "path",
		.wants = "the path of a pool: '/', or parts each begun by '/', none of them '.' or "
			 "'..'",
		.set = set_path,
		MEMBER(conf_pool, path),
	},
	{
		.kind = SECTION_POOL,
		.name = "memory.max",
		.wants = "bytes such as 64M or 1G, or the word max",
		.set = set_number,
		.parse = value_parse_limit,
		.max = UINT64_MAX,
		MEMBER(conf_pool, values[LIMIT_MAX]),
	},
	{
		.kind = SECTION_POOL,
		.name = "memory.high",
		.wants = "bytes such as 64M or 1G, or the word max",
		.set = set_number,
		.parse = value_parse_limit,
		.max = UINT64_MAX,
		MEMBER(conf_pool, values[LIMIT_HIGH]),
	},
	{
		.kind = SECTION_POOL,
		.name = "memory.low",
		.wants = "bytes such as 64M or 1G, or the word max",
		.set = set_number,
		.parse = value_parse_limit,
		.max = UINT64_MAX,
		MEMBER(conf_pool, values[LIMIT_LOW]),
	},
	{
		.kind = SECTION_POOL,
		.name = "memory.min",
		.wants = "bytes such as 64M or 1G, or the word max",
		.set = set_number,
		.parse = value_parse_limit,
		.max = UINT64_MAX,
		MEMBER(conf_pool, values[LIMIT_MIN]),
	},
	{
		.kind = SECTION_POOL,
		.name = "cgroup.max.depth",
		.wants = "a number of levels such as 3, or the word max",
		.set = set_number,
		.parse = value_parse_count,
		.max = UINT64_MAX,
		MEMBER(conf_pool, values[LIMIT_DEPTH]),
	},
	{
		.kind = SECTION_POOL,
		.name = "cgroup.max.descendants",
		.wants = "a number of pools such as 100, or the word max",
		.set = set_number,
		.parse = value_parse_count,
		.max = UINT64_MAX,
		MEMBER(conf_pool, values[LIMIT_DESCENDANTS]),
	},
	{
		.kind = SECTION_POOL,
		.name = "enforce",
		.wants = "yes, or observe (count what its limits would refuse, and grant it)",
		.set = set_number,
		.parse = parse_enforce,
		.max = 1,
		MEMBER(conf_pool, observe),
	},
	{
		.kind = SECTION_POOL,
		.name = "standalone",
		.wants = "yes (what it has is not summed into the pools above it) or no",
		.set = set_number,
		.parse = parse_bool,
		.max = 1,
		MEMBER(conf_pool, standalone),
	},
	{
		.kind = SECTION_POOL,
		.name = "stat.ITEM.max",
		.wants = "bytes such as 64M or 1G, or the word max, for at most 64 items",
		.set = set_limit,
		.repeatable = true,
	},
	{
		.kind = SECTION_POOL,
		.name = "flush_threshold",
		.wants = "a number of updates from 1 to 4294967295, such as 4096",
		.set = set_number,
		.parse = value_parse_number,
		.min = 1,
		.max = UINT32_MAX,
		MEMBER(conf_pool, flush_threshold),
	},
	{
		.kind = SECTION_POOL,
		.name = "owner",
		.wants = "a user and a group, such as www-data:www-data or 33:33",
		.set = set_owner,
	},
	{
		.kind = SECTION_POOL,
		.name = "mode",
		.wants = "octal permission bits from 0 to 0777, such as 0750",
		.set = set_number,
		.parse = parse_mode,
		.max = 0777,
		MEMBER(conf_pool, mode),
	},
};

static bool is_meant(const struct key *k, enum section_kind kind, const char *key)
{
	char item[CONF_LINE_MAX + 1];

	if (k->kind != kind)
		return false;
	if (k->set == set_limit)
		return setting_is_item_max(key, item);
	return strcmp(k->name, key) == 0;
}

/* The section in which the key is known; NULL: in none. */
static const char *find_home(const char *key)
{
	for (size_t i = 0; i < ELEMENTS(keys); i++)
		if (is_meant(&keys[i], keys[i].kind, key))
			return section_words[keys[i].kind];
	return NULL;
}

static int fail_unknown_key(const struct setting *s, const char *key, char **ret_error)
{
	struct measure_place at = {s->file, s->line, s->section, key};
	struct nearest nearest = {.typed = key};
	const char *home = find_home(key);
	char known[1024] = "";

	if (home)
		return measure_fail(&at, ret_error, "unknown key in [%s]; it belongs into [%s]",
			section_words[s->kind], home);
	for (size_t i = 0, n = 0; i < ELEMENTS(keys) && n < sizeof(known); i++) {
		if (keys[i].kind != s->kind)
			continue;
		nearest_consider(&nearest, keys[i].name);
		n += (size_t)snprintf(known + n, sizeof(known) - n, " %s", keys[i].name);
	}
	return measure_fail(&at, ret_error, "unknown key%s%s%s; [%s] has:%s",
		nearest.name ? ", perhaps " : "", nearest.name ? nearest.name : "",
		nearest.name ? " is meant" : "", section_words[s->kind], known);
}

static int fail_value(
	const struct setting *s, const struct key *k, const char *value, char **ret_error)
{
	struct measure_place at = {s->file, s->line, s->section, s->key};

	if (find_hash(value))
		return measure_fail(&at, ret_error,
			"\"%s\" is not accepted; a comment behind a value begins with ' ;', not "
			"with ' #'",
			value);
	if (s->unknown)
		return measure_fail(&at, ret_error,
			"there is no %s \"%.*s\"; make one, or name one that 'getent' shows, or a "
			"number",
			s->unknown, (int)s->bad_size, s->bad);
	return measure_fail(&at, ret_error, "\"%.*s\" is not accepted; it takes %s",
		(int)s->bad_size, s->bad, k->wants);
}

void setting_begin(struct setting *s, struct conf *conf, const char *file)
{
	*s = (struct setting){.conf = conf, .file = file};
}

int setting_apply(struct setting *s, const char *section, const char *key, const char *value,
	char **ret_error)
{
	struct measure_place at;
	size_t i = 0;
	int r;

	*ret_error = NULL;
	if (strcmp(s->section, section) != 0) {
		r = section_find(s->conf, section, s->file, s->section_line, &s->kind, &s->target,
			ret_error);
		if (r < 0)
			return r;
		snprintf(s->section, sizeof(s->section), "%s", section);
		s->seen = s->seen_limits = 0;
	}
	while (i < ELEMENTS(keys) && !is_meant(&keys[i], s->kind, key))
		i++;
	if (i == ELEMENTS(keys))
		return fail_unknown_key(s, key, ret_error);
	s->key = key;
	s->again = s->seen & (UINT64_C(1) << i);
	s->seen |= UINT64_C(1) << i;
	s->bad = value;
	s->bad_size = strlen(value);
	s->unknown = NULL;
	r = s->again && !keys[i].repeatable ? -EEXIST : keys[i].set(s, &keys[i], value);
	at = (struct measure_place){s->file, s->line, s->section, key};
	if (r == -EEXIST)
		return measure_fail(&at, ret_error,
			"the section has this key already; remove one of the two lines");
	return r == -EINVAL ? fail_value(s, &keys[i], value, ret_error) : r;
}
