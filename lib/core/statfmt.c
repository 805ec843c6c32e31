/* SPDX-License-Identifier: MIT */

/*
 * Every file that the engine itself can answer is one row of a table: its name, what may be done
 * with it, and how. Whoever lists, checks or serves files asks the table, so that a file cannot be
 * known in one place and forgotten in another. Beside it there is one file for each gauge of the
 * table of items: stat.<item>.max.
 */

#include "statfmt.h"

#include <errno.h>
#include <string.h>

#include "itemlimit.h"
#include "limit.h"
#include "pressure.h"
#include "refusal.h"
#include "text.h"
#include "util.h"
#include "value.h"

#define ITEM_PREFIX "stat."
#define ITEM_SUFFIX ".max"

_Static_assert(VALUE_MAX == COUNTER_MAX, "the word max means no limit");

struct file {
	const char *name;
	unsigned access;
	bool figures; /* it shows what the last look found */
	void (*read)(const struct pool *p, struct text *t);
	int (*write)(struct pool *p, const char *value);
};

/* A number as a whole line. */
static void write_line(struct text *t, uint64_t number)
{
	text_add_number(t, number);
	text_add(t, "\n");
}

static void write_limit(struct text *t, uint64_t max)
{
	if (max == VALUE_MAX)
		text_add(t, "max\n");
	else
		write_line(t, max);
}

static void read_current(const struct pool *p, struct text *t)
{
	write_line(t, figures_clamp(p->sum.held));
}

static void read_peak(const struct pool *p, struct text *t)
{
	write_line(t, atomic_load(&p->counter.peak));
}

static int write_peak(struct pool *p, const char *value)
{
	if (!*value)
		return -EINVAL;
	counter_reset_peak(&p->counter);
	pool_change(p);
	return 0;
}

static int write_value(struct pool *p, enum limit l, const char *text)
{
	uint64_t value;
	int r;

	r = limit_kinds[l].parse(text, &value);
	if (r < 0)
		return r;
	limit_set(p, l, value);
	p->set_at_run |= limit_bit(l);
	pool_change(p);
	return 0;
}

/* The two functions of a limit's file. */
#define LIMIT_FILE(name, limit)                                                                    \
	static void read_##name(const struct pool *p, struct text *t)                              \
	{                                                                                          \
		write_limit(t, limit_read(p, limit));                                              \
	}                                                                                          \
	static int write_##name(struct pool *p, const char *text)                                  \
	{                                                                                          \
		return write_value(p, limit, text);                                                \
	}

LIMIT_FILE(max, LIMIT_MAX)
LIMIT_FILE(high, LIMIT_HIGH)
LIMIT_FILE(low, LIMIT_LOW)
LIMIT_FILE(min, LIMIT_MIN)
LIMIT_FILE(depth, LIMIT_DEPTH)
LIMIT_FILE(descendants, LIMIT_DESCENDANTS)

static void write_events(struct text *t, const uint64_t events[static POOL_EVENTS])
{
	for (unsigned e = 0; e < POOL_EVENTS; e++)
		text_add_row(t, pool_event_names[e], events[e]);
}

static void read_events(const struct pool *p, struct text *t)
{
	write_events(t, p->events);
}

static void read_events_local(const struct pool *p, struct text *t)
{
	write_events(t, p->events_local);
}

static void read_stat(const struct pool *p, struct text *t)
{
	const struct item_table *items = p->tree->items;
	const struct figures *sum = &p->sum;

	text_add_row(t, "held", figures_clamp(sum->held));
	text_add_row(t, "stock", figures_clamp(sum->stock));
	text_add_row(t, "persistent", sum->persistent);
	text_add_row(t, "overdraft", sum->overdraft);
	for (uint32_t i = 1; i <= items->n; i++)
		text_add_row(t, items->items[i].name, figures_item(sum, p->tree->n_nodes, i));
}

static void read_numa_stat(const struct pool *p, struct text *t)
{
	const struct item_table *items = p->tree->items;

	for (uint32_t i = 1; i <= items->n; i++) {
		text_add(t, items->items[i].name);
		for (uint32_t node = 0; node < p->tree->n_nodes; node++) {
			text_add(t, " N");
			text_add_number(t, node);
			text_add(t, "=");
			text_add_number(t, figures_moved(&p->sum, node, i));
		}
		text_add(t, "\n");
	}
}

static void read_cgroup_events(const struct pool *p, struct text *t)
{
	text_add_row(t, "populated", p->n_members_below > 0);
	text_add_row(t, "frozen", 0);
}

static void read_cgroup_stat(const struct pool *p, struct text *t)
{
	text_add_row(t, "nr_descendants", p->n_descendants);
	text_add_row(t, "nr_dying_descendants", p->n_dying);
}

static void read_children(const struct pool *p, struct text *t)
{
	const struct pool *child;

	TAILQ_FOREACH (child, &p->children, sibling) {
		text_add(t, child->name);
		text_add(t, "\n");
	}
}

static void read_standalone(const struct pool *p, struct text *t)
{
	write_line(t, p->standalone);
}

static void read_refusals(const struct pool *p, struct text *t)
{
	_cleanup_(freep) char *text = NULL;

	if (!p->tree->refusals)
		return;
	if (refusals_read(p->tree->refusals, p, &text) < 0)
		t->failed = true;
	else
		text_add(t, text);
}

static const struct file files[] = {
	{"memory.current", STATFMT_READ, true, read_current, NULL},
	{"memory.peak", STATFMT_READ | STATFMT_WRITE, false, read_peak, write_peak},
	{"memory.min", STATFMT_READ | STATFMT_WRITE, false, read_min, write_min},
	{"memory.low", STATFMT_READ | STATFMT_WRITE, false, read_low, write_low},
	{"memory.high", STATFMT_READ | STATFMT_WRITE, false, read_high, write_high},
	{"memory.max", STATFMT_READ | STATFMT_WRITE, false, read_max, write_max},
	{"memory.events", STATFMT_READ, false, read_events, NULL},
	{"memory.events.local", STATFMT_READ, false, read_events_local, NULL},
	{"memory.pressure", STATFMT_READ, false, pressure_read, NULL},
	{"memory.stat", STATFMT_READ, true, read_stat, NULL},
	{"memory.numa_stat", STATFMT_READ, true, read_numa_stat, NULL},
	{"cgroup.events", STATFMT_READ, false, read_cgroup_events, NULL},
	{"cgroup.stat", STATFMT_READ, false, read_cgroup_stat, NULL},
	{"cgroup.max.depth", STATFMT_READ | STATFMT_WRITE, false, read_depth, write_depth},
	{"cgroup.max.descendants", STATFMT_READ | STATFMT_WRITE, false, read_descendants,
		write_descendants},
	{"pool.children", STATFMT_READ, false, read_children, NULL},
	{"pool.standalone", STATFMT_READ, false, read_standalone, NULL},
	{"pool.refusals", STATFMT_READ, false, read_refusals, NULL},
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

static void read_item_max(const struct pool *p, uint32_t item, struct text *t)
{
	write_limit(t, itemlimit_read(p, item));
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
	pool_change(p);
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

bool statfmt_shows_figures(const char *file)
{
	const struct file *found = find_file(file);

	return found && found->figures;
}

int statfmt_read(const struct pool *p, const char *file, char **ret_text)
{
	const struct file *found = find_file(file);
	uint32_t item = found ? 0 : find_limited_item(p, file);
	struct text text = {0};

	if (!found && !item)
		return -ENOENT;
	if (found && !(found->access & STATFMT_READ))
		return -EACCES;

	if (found)
		found->read(p, &text);
	else
		read_item_max(p, item, &text);
	return text_take(&text, ret_text);
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
