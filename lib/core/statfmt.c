/* SPDX-License-Identifier: MIT */

/*
 * Every file that the engine itself can answer is one row of a table: its name, what may be done
 * with it, and how. Whoever lists, checks or serves files asks the table, so that a file cannot be
 * known in one place and forgotten in another. Beside it there is one file for each gauge of the
 * table of items: stat.<item>.max.
 */

#include "statfmt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "itemlimit.h"
#include "util.h"
#include "value.h"

#define ITEM_PREFIX "stat."
#define ITEM_SUFFIX ".max"

_Static_assert(VALUE_MAX == COUNTER_MAX, "the word max means no limit");

struct file {
	const char *name;
	unsigned access;
	void (*read)(const struct pool *p, FILE *f);
	int (*write)(struct pool *p, const char *value);
};

static void write_row(FILE *f, const char *key, uint64_t value)
{
	fprintf(f, "%s %" PRIu64 "\n", key, value);
}

static void read_current(const struct pool *p, FILE *f)
{
	fprintf(f, "%" PRIu64 "\n", p->sum.held);
}

static void read_peak(const struct pool *p, FILE *f)
{
	fprintf(f, "%" PRIu64 "\n", atomic_load(&p->counter.peak));
}

static int write_peak(struct pool *p, const char *value)
{
	if (!*value)
		return -EINVAL;
	counter_reset_peak(&p->counter);
	p->version++;
	return 0;
}

static void read_max(const struct pool *p, FILE *f)
{
	char text[VALUE_TEXT_MAX];

	fprintf(f, "%s\n", value_format_limit(atomic_load(&p->counter.max), text));
}

static int write_max(struct pool *p, const char *value)
{
	uint64_t max;
	int r;

	r = value_parse_limit(value, &max);
	if (r < 0)
		return r;
	counter_set_max(&p->counter, max);
	p->set_at_run |= POOL_SET_MAX;
	p->version++;
	return 0;
}

static void write_events(FILE *f, const uint64_t events[static POOL_EVENTS])
{
	for (unsigned e = 0; e < POOL_EVENTS; e++)
		write_row(f, pool_event_names[e], events[e]);
}

static void read_events(const struct pool *p, FILE *f)
{
	write_events(f, p->events);
}

static void read_events_local(const struct pool *p, FILE *f)
{
	write_events(f, p->events_local);
}

static void read_stat(const struct pool *p, FILE *f)
{
	const struct item_table *items = p->tree->items;
	const struct figures *sum = &p->sum;

	write_row(f, "held", sum->held);
	write_row(f, "stock", sum->stock);
	write_row(f, "persistent", sum->persistent);
	write_row(f, "overdraft", sum->overdraft);
	for (uint32_t i = 1; i <= items->n; i++)
		write_row(f, items->items[i].name, sum->items ? sum->items[i] : 0);
}

static void read_cgroup_events(const struct pool *p, FILE *f)
{
	write_row(f, "populated", p->n_members_below > 0);
	write_row(f, "frozen", 0);
}

static void read_cgroup_stat(const struct pool *p, FILE *f)
{
	write_row(f, "nr_descendants", p->n_descendants);
	write_row(f, "nr_dying_descendants", 0);
}

static void read_children(const struct pool *p, FILE *f)
{
	const struct pool *child;

	TAILQ_FOREACH (child, &p->children, sibling)
		fprintf(f, "%s\n", child->name);
}

static const struct file files[] = {
	{"memory.current", STATFMT_READ, read_current, NULL},
	{"memory.peak", STATFMT_READ | STATFMT_WRITE, read_peak, write_peak},
	{"memory.max", STATFMT_READ | STATFMT_WRITE, read_max, write_max},
	{"memory.events", STATFMT_READ, read_events, NULL},
	{"memory.events.local", STATFMT_READ, read_events_local, NULL},
	{"memory.stat", STATFMT_READ, read_stat, NULL},
	{"cgroup.events", STATFMT_READ, read_cgroup_events, NULL},
	{"cgroup.stat", STATFMT_READ, read_cgroup_stat, NULL},
	{"pool.children", STATFMT_READ, read_children, NULL},
};

/* The gauge whose limit the file is; 0: it is none. */
static uint32_t find_limited_item(const struct pool *p, const char *file)
{
	const struct item_table *items = p->tree->items;
	size_t prefix = strlen(ITEM_PREFIX), suffix = strlen(ITEM_SUFFIX), n = strlen(file);
	char name[ITEM_NAME_MAX + 1];
	uint32_t item;

	if (n <= prefix + suffix || n - prefix - suffix > ITEM_NAME_MAX ||
		memcmp(file, ITEM_PREFIX, prefix) != 0 ||
		strcmp(file + n - suffix, ITEM_SUFFIX) != 0)
		return 0;
	n -= prefix + suffix;
	memcpy(name, file + prefix, n);
	name[n] = '\0';
	if (item_lookup(items, name, &item) < 0 || items->items[item].type != ITEM_GAUGE)
		return 0;
	return item;
}

static void read_item_max(const struct pool *p, uint32_t item, FILE *f)
{
	char text[VALUE_TEXT_MAX];

	fprintf(f, "%s\n", value_format_limit(itemlimit_read(p, item), text));
}

static int write_item_max(struct pool *p, uint32_t item, const char *value)
{
	uint64_t max;
	int r;

	r = value_parse_limit(value, &max);
	if (r < 0)
		return r;
	r = itemlimit_set(p, item, max);
	if (r < 0)
		return r;
	p->items_set_at_run |= itemlimit_bit(item);
	p->version++;
	return 0;
}

static const struct file *find_file(const char *name)
{
	for (size_t i = 0; i < ELEMENTS(files); i++)
		if (strcmp(files[i].name, name) == 0)
			return &files[i];
	return NULL;
}

unsigned statfmt_access(const struct pool *p, const char *file)
{
	const struct file *found = find_file(file);

	if (!found)
		return find_limited_item(p, file) ? STATFMT_READ | STATFMT_WRITE : 0;
	return found->access;
}

int statfmt_read(const struct pool *p, const char *file, char **ret_text)
{
	const struct file *found = find_file(file);
	uint32_t item = found ? 0 : find_limited_item(p, file);
	_cleanup_(freep) char *text = NULL;
	bool failed;
	size_t size;
	FILE *f;

	if (!found && !item)
		return -ENOENT;
	if (found && !(found->access & STATFMT_READ))
		return -EACCES;

	f = open_memstream(&text, &size);
	if (!f)
		return -ENOMEM;
	if (found)
		found->read(p, f);
	else
		read_item_max(p, item, f);
	failed = ferror(f);
	failed |= fclose(f) != 0;
	if (failed)
		return -ENOMEM;
	*ret_text = take_ptr(text);
	return 0;
}

int statfmt_write(struct pool *p, const char *file, const char *value)
{
	const struct file *found = find_file(file);
	uint32_t item = found ? 0 : find_limited_item(p, file);

	if (item)
		return write_item_max(p, item, value);
	if (!found)
		return -ENOENT;
	if (!(found->access & STATFMT_WRITE))
		return -EACCES;
	return found->write(p, value);
}
