/* SPDX-License-Identifier: MIT */

#include "reload.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "access.h"
#include "attachment.h"
#include "core/itemlimit.h"
#include "core/limit.h"
#include "core/value.h"
#include "drain.h"
#include "export.h"
#include "flush.h"
#include "log.h"
#include "owner.h"
#include "queue.h"
#include "request.h"
#include "session.h"
#include "throttle.h"
#include "user.h"

static const struct conf_pool *section_of(const struct conf *c, const char *path)
{
	for (size_t i = 0; i < c->n_pools; i++)
		if (strcmp(c->pools[i].path, path) == 0)
			return &c->pools[i];
	return NULL;
}

/* An item keeps its number for ever, so one that is no longer configured stays, and one that
 * changes its type is refused. */
static bool is_same_item(const struct item *a, const struct conf_item *b)
{
	return a->type == b->type && strcmp(a->unit, b->unit ? b->unit : "") == 0;
}

static int define_items(struct manager *m, const struct conf *c, char **ret_error)
{
	for (size_t i = 0; i < c->n_items; i++) {
		const struct conf_item *item = &c->items[i];
		uint32_t number;
		int r = item_lookup(&m->items, item->name, &number);

		if (r == 0 && !is_same_item(&m->items.items[number], item)) {
			if (asprintf(ret_error,
				    "%s: [stat %s]: its type and unit cannot change while tallyd "
				    "runs (%s, unit \"%s\"); restart tallyd for that",
				    item->where, item->name,
				    m->items.items[number].type == ITEM_EVENT ? "event" : "gauge",
				    m->items.items[number].unit) < 0)
				*ret_error = NULL;
			return -EINVAL;
		}
	}
	for (size_t i = 0; i < c->n_items; i++) {
		const struct conf_item *item = &c->items[i];
		uint32_t number;
		int r = item_lookup(&m->items, item->name, &number);

		if (r == 0)
			continue;
		r = item_define(&m->items, item->name, item->type, item->unit, item->help, &number);
		if (r < 0) {
			if (asprintf(ret_error, "%s: [stat %s]: %s", item->where, item->name,
				    r == -ENOSPC
					    ? "no room for another item; restart tallyd to drop "
					      "those that are no longer configured"
					    : strerror(-r)) < 0)
				*ret_error = NULL;
			return -EINVAL;
		}
	}
	return 0;
}

static void say_set(
	struct pool *p, const char *file, uint64_t before, uint64_t after, FILE *changes)
{
	char path[PATH_MAX_BYTES + 1], before_text[VALUE_TEXT_MAX], after_text[VALUE_TEXT_MAX];

	pool_change(p);
	fprintf(changes, "%s %s %s -> %s\n", pool_path_into(p, path, sizeof(path)), file,
		value_format_limit(before, before_text), value_format_limit(after, after_text));
}

/* Both return whether it is another one now. */
static bool set_value(struct pool *p, enum limit l, uint64_t value, FILE *changes)
{
	uint64_t old = limit_read(p, l);

	limit_set(p, l, value);
	if (old != value)
		say_set(p, limit_kinds[l].file, old, value, changes);
	return old != value;
}

static bool set_item_max(struct pool *p, uint32_t item, uint64_t max, FILE *changes)
{
	uint64_t old = itemlimit_read(p, item);
	char file[ITEM_NAME_MAX + 16];

	itemlimit_set(p, item, max);
	snprintf(file, sizeof(file), "stat.%s.max", p->tree->items->items[item].name);
	if (old != max)
		say_set(p, file, old, max, changes);
	return old != max;
}

static const char *format_threshold(
	uint64_t threshold, const char *unset, char buf[static VALUE_TEXT_MAX])
{
	return threshold ? value_format_limit(threshold, buf) : unset;
}

/* 0: it has none of its own. */
static void set_threshold(struct pool *p, uint64_t threshold, uint64_t by_default, FILE *changes)
{
	char path[PATH_MAX_BYTES + 1], before[VALUE_TEXT_MAX], after[VALUE_TEXT_MAX];
	uint64_t old = p->threshold_is_own ? p->threshold : 0;

	pool_set_threshold(p, threshold, by_default);
	if (old != threshold)
		fprintf(changes, "%s flush_threshold %s -> %s\n",
			pool_path_into(p, path, sizeof(path)),
			format_threshold(old, "inherited", before),
			format_threshold(threshold, "inherited", after));
}

/* Whether a request of the subtree waits, perhaps at a limit that will be no limit of it. */
static bool has_requests(struct pool *root)
{
	struct pool_member *m;

	for (struct pool *p = root; p; p = pool_next_preorder(p, root))
		TAILQ_FOREACH (m, &p->members, entry)
			if (request_count(attachment_of(m)) > 0)
				return true;
	return false;
}

static int check_standalone(
	struct pool *p, const struct conf_pool *section, bool standalone, char **ret_error)
{
	int r = p->standalone != standalone && has_requests(p)
		? -EBUSY
		: pool_prepare_standalone(p, standalone);

	if (r != -EBUSY)
		return r;
	if (asprintf(ret_error,
		    "%s: [pool %s] standalone: it cannot change while bytes are charged to %s or "
		    "below, or wait to be (%" PRIu64
		    " with idle credit); keep it as it was until they are gone",
		    section->where, section->name, section->path, counter_read(&p->counter)) < 0)
		*ret_error = NULL;
	return -EINVAL;
}

/* Of pools that are there: with another section, or with none any more. */
static int check_all_standalone(struct manager *m, const struct conf *c, char **ret_error)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < c->n_pools; i++) {
		struct pool *p;

		if (pool_find(m->tree, c->pools[i].path, &p) == 0)
			r = check_standalone(p, &c->pools[i], c->pools[i].standalone, ret_error);
	}
	/* At the start both are the same. */
	for (size_t i = 0; r >= 0 && i < m->conf->n_pools; i++) {
		const struct conf_pool *old = &m->conf->pools[i];
		struct pool *p;

		if (!section_of(c, old->path) && pool_find(m->tree, old->path, &p) == 0)
			r = check_standalone(p, old, false, ret_error);
	}
	return r;
}

static void set_standalone(struct pool *p, bool standalone, FILE *changes)
{
	static const char *const words[] = {"no", "yes"};
	char path[PATH_MAX_BYTES + 1];
	bool old = p->standalone;

	if (old != standalone && pool_set_standalone(p, standalone) == 0)
		fprintf(changes, "%s standalone %s -> %s\n", pool_path_into(p, path, sizeof(path)),
			words[old], words[standalone]);
}

static bool set_observe(struct pool *p, bool observe, FILE *changes)
{
	static const char *const words[] = {"yes", "observe"};
	char path[PATH_MAX_BYTES + 1];
	bool old = p->observe;

	limit_observe(p, observe);
	if (old != observe)
		fprintf(changes, "%s enforce %s -> %s\n", pool_path_into(p, path, sizeof(path)),
			words[old], words[observe]);
	return old != observe;
}

/* Gives a pool the file's values, where no person's hold over them. */
static void set_pool(
	struct manager *m, struct pool *p, const struct conf_pool *section, FILE *changes)
{
	bool changed = set_observe(p, section && section->observe, changes);

	set_standalone(p, section && section->standalone, changes);
	for (unsigned l = 0; l < LIMITS; l++) {
		uint64_t value = section ? section->values[l] : limit_kinds[l].by_default;

		if (!(p->set_at_run & limit_bit(l)))
			changed = set_value(p, l, value, changes) || changed;
	}
	for (uint32_t item = 1; item <= m->items.n; item++) {
		const char *name = m->items.items[item].name;
		uint64_t max = section ? conf_item_max(section, name) : VALUE_MAX;

		if (!(p->items_set_at_run & itemlimit_bit(item)))
			changed = set_item_max(p, item, max, changes) || changed;
	}
	if (changed) {
		drain_above_limits(m->drain, p);
		throttle_check(m, p);
	}
}

/* So that setting its limits cannot fail. One that is not set after all goes again. */
static int prepare_limits(struct pool *p, const struct conf_pool *section)
{
	for (size_t i = 0; i < section->n_limits; i++) {
		uint32_t item;
		int r = item_lookup(p->tree->items, section->limits[i].item, &item);

		if (r == 0 && !(p->items_set_at_run & itemlimit_bit(item)))
			r = itemlimit_prepare(p, item);
		if (r < 0)
			return r;
	}
	return 0;
}

static int make_pool(struct pool_tree *tree, const char *path, struct pool **ret)
{
	struct pool *there, *p;
	size_t missing;
	int r = pool_find_nearest(tree, path, &there, &missing);

	if (r == 0)
		r = pool_create_configured(tree, path, ret);
	if (r < 0)
		return r;
	for (p = *ret; p != there; p = p->parent)
		owner_adopt(p);
	return 0;
}

static int make_pools(struct manager *m, const struct conf *c, FILE *changes)
{
	for (size_t i = 0; i < c->n_pools; i++) {
		struct pool *p;
		int r = pool_find(m->tree, c->pools[i].path, &p);

		if (r == -ENOENT) {
			r = make_pool(m->tree, c->pools[i].path, &p);
			if (r == 0)
				fprintf(changes, "%s created\n", c->pools[i].path);
		}
		if (r == 0)
			r = prepare_limits(p, &c->pools[i]);
		if (r < 0)
			return r;
		p->configured = true;
	}
	return 0;
}

/* Pools whose section is gone go back to the defaults; they stay, for they may be in use. */
static void set_pools(struct manager *m, const struct conf *c, FILE *changes)
{
	struct pool *root = m->tree->root;
	uint64_t by_default = conf_flush_threshold(c, m->n_cpus);
	char path[PATH_MAX_BYTES + 1];

	if (!root->threshold_is_own)
		pool_set_threshold(root, 0, by_default);
	for (struct pool *p = root; p; p = pool_next_preorder(p, root)) {
		const struct conf_pool *section;

		if (!p->configured)
			continue;
		section = section_of(c, pool_path_into(p, path, sizeof(path)));
		set_pool(m, p, section, changes);
		if (owner_configure(p, section, changes) && m->export)
			export_change_access(m->export, p);
		set_threshold(p, section ? section->flush_threshold : 0, by_default, changes);
		p->configured = section != NULL;
		p->ephemeral = p->ephemeral && !section;
	}
}

/* Everything that can fail comes before the first change of a limit. */
static int apply(struct manager *m, const struct conf *c, FILE *changes, char **ret_error)
{
	int r = define_items(m, c, ret_error);

	if (r < 0)
		return r;
	r = check_all_standalone(m, c, ret_error);
	if (r < 0)
		return r;
	r = make_pools(m, c, changes);
	if (r < 0)
		return r;
	set_pools(m, c, changes);
	return 0;
}

static void say_changed(FILE *changes, const char *key, uint64_t before, uint64_t after)
{
	if (before != after)
		fprintf(changes, "%s %" PRIu64 " -> %" PRIu64 "\n", key, before, after);
}

static void say_changed_usec(FILE *changes, const char *key, uint64_t before, uint64_t after)
{
	char a[VALUE_TEXT_MAX], b[VALUE_TEXT_MAX];

	if (before != after)
		fprintf(changes, "%s %s -> %s\n", key, value_format_usec(before, a),
			value_format_usec(after, b));
}

static bool same_words(char **a, size_t n_a, char **b, size_t n_b)
{
	if (n_a != n_b)
		return false;
	for (size_t i = 0; i < n_a; i++)
		if (strcmp(a[i], b[i]) != 0)
			return false;
	return true;
}

static bool same_patterns(const struct conf *a, const struct conf *b)
{
	return same_words(a->export, a->n_export, b->export, b->n_export);
}

static bool same_files(const struct conf *a, const struct conf *b)
{
	return same_words(a->export_files, a->n_export_files, b->export_files, b->n_export_files);
}

static const char *format_admins(const struct conf *c, char buf[static VALUE_TEXT_MAX])
{
	if (!c->has_admin_group)
		return "the default";
	return c->admin_gid == NAMES_NOBODY ? "none" : value_format_limit(c->admin_gid, buf);
}

static void say_daemon_changes(FILE *f, const struct conf *a, const struct conf *b)
{
	char before[VALUE_TEXT_MAX], after[VALUE_TEXT_MAX];

	say_changed_usec(f, "flush_interval", a->flush_interval_usec, b->flush_interval_usec);
	if (a->flush_threshold != b->flush_threshold)
		fprintf(f, "flush_threshold %s -> %s\n",
			format_threshold(a->flush_threshold, "auto", before),
			format_threshold(b->flush_threshold, "auto", after));
	say_changed(f, "batch", a->batch, b->batch);
	say_changed(f, "batch_max", a->batch_max, b->batch_max);
	say_changed_usec(f, "grace", a->grace_usec, b->grace_usec);
	say_changed(f, "export_max", a->export_max, b->export_max);
	say_changed(f, "max_sessions_per_uid", a->max_sessions_per_uid, b->max_sessions_per_uid);
	say_changed(f, "max_pools_per_uid", a->max_pools_per_uid, b->max_pools_per_uid);
	say_changed(f, "max_attachments_per_uid", a->max_attachments_per_uid,
		b->max_attachments_per_uid);
	say_changed(f, "max_queued_per_uid", a->max_queued_per_uid, b->max_queued_per_uid);
	if (a->has_admin_group != b->has_admin_group || a->admin_gid != b->admin_gid)
		fprintf(f, "admin_group %s -> %s\n", format_admins(a, before),
			format_admins(b, after));
	if (!same_patterns(a, b))
		fprintf(f, "export changed: other patterns of pools\n");
	if (!same_files(a, b))
		fprintf(f, "export_files changed: other files of each pool\n");
	if (a->socket_mode != b->socket_mode)
		fprintf(f, "socket_mode %04o -> %04o (from the next start on)\n",
			(unsigned)a->socket_mode, (unsigned)b->socket_mode);
}

static bool same_export(const struct conf *a, const struct conf *b)
{
	return a->export_max == b->export_max && same_patterns(a, b) && same_files(a, b);
}

static void replace_text(struct manager *m, char *text)
{
	free(m->reload_text);
	m->reload_text = text;
}

int reload_apply_first(struct manager *m)
{
	_cleanup_(freep) char *error = NULL, *text = NULL;
	size_t n;
	FILE *changes = open_memstream(&text, &n);
	int r;

	if (!changes)
		return -ENOMEM;
	r = apply(m, m->conf, changes, &error);
	fclose(changes);
	if (r < 0)
		log_error("%s", error ? error : strerror(-r));
	return r;
}

/* The text of tallyd.reload ends like that of any file. */
static int fail(struct manager *m, int r, char *error)
{
	char *text;

	log_error("the configuration was not reloaded, the old one stays: %s",
		error ? error : strerror(-r));
	if (asprintf(&text, "%s\n", error ? error : strerror(-r)) < 0)
		text = NULL;
	replace_text(m, text);
	free(error);
	return r;
}

static void log_changes(const char *text)
{
	log_info("configuration reloaded%s", *text ? "" : ": nothing has changed");
	while (*text) {
		size_t n = strcspn(text, "\n");

		log_info("reload: %.*s", (int)n, text);
		text += n + (text[n] == '\n');
	}
}

int reload_run(struct manager *m)
{
	struct conf *c, *old = m->conf;
	char *error = NULL, *text = NULL;
	struct session *s;
	FILE *changes;
	size_t n;
	int r;

	r = conf_load(m->config, "", &c, &error);
	if (r < 0)
		return fail(m, r, error);
	changes = open_memstream(&text, &n);
	if (!changes) {
		conf_free(c);
		return fail(m, -ENOMEM, NULL);
	}
	r = apply(m, c, changes, &error);
	if (r == 0)
		say_daemon_changes(changes, old, c);
	if (fclose(changes) != 0 && r == 0)
		r = -ENOMEM;
	if (r < 0) {
		free(text);
		conf_free(c);
		return fail(m, r, error);
	}

	m->conf = c;
	users_configure(m->users, c);
	access_configure(m, c);
	export_reconfigure(m->export, !same_export(old, c));
	flush_reconfigure(m->flush);
	TAILQ_FOREACH (s, &m->sessions, entry)
		if (s->segment.n_extents > 0)
			session_publish_marks(s);
	conf_free(old);
	replace_text(m, text);
	queue_kick(m);
	log_changes(text);
	return 0;
}

/* Without surrounding white space; to be freed. */
static char *strip(const char *text)
{
	size_t n;

	text += strspn(text, " \t\n");
	n = strlen(text);
	while (n > 0 && strchr(" \t\n", text[n - 1]))
		n--;
	return strndup(text, n);
}

int reload_reset(struct manager *m, const char *value)
{
	_cleanup_(freep) char *path = strip(value);
	uint64_t items_set_at_run;
	uint32_t set_at_run;
	struct pool *p;
	int r;

	if (!path)
		return -ENOMEM;
	r = pool_find(m->tree, path, &p);
	if (r < 0)
		return r;
	/* A pool that no section names goes back to the defaults like one whose section is gone. */
	set_at_run = p->set_at_run;
	items_set_at_run = p->items_set_at_run;
	p->set_at_run = 0;
	p->items_set_at_run = 0;
	p->configured = true;
	r = reload_run(m);
	if (r < 0) {
		p->set_at_run = set_at_run;
		p->items_set_at_run = items_set_at_run;
	}
	return r;
}
