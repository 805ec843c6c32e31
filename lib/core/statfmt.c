/* SPDX-License-Identifier: MIT */

/*
 * Every file that the engine itself can answer is one row of a table: its name, what may be done
 * with it, and how. Whoever lists, checks or serves files asks the table, so that a file cannot be
 * known in one place and forgotten in another.
 */

#include "statfmt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "util.h"
#include "value.h"

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

static const struct file *find_file(const char *name)
{
	for (size_t i = 0; i < ELEMENTS(files); i++)
		if (strcmp(files[i].name, name) == 0)
			return &files[i];
	return NULL;
}

unsigned statfmt_access(const struct pool *p _unused_, const char *file)
{
	const struct file *found = find_file(file);

	return found ? found->access : 0;
}

int statfmt_read(const struct pool *p, const char *file, char **ret_text)
{
	const struct file *found = find_file(file);
	_cleanup_(freep) char *text = NULL;
	bool failed;
	size_t size;
	FILE *f;

	if (!found)
		return -ENOENT;
	if (!(found->access & STATFMT_READ))
		return -EACCES;

	f = open_memstream(&text, &size);
	if (!f)
		return -ENOMEM;
	found->read(p, f);
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

	if (!found)
		return -ENOENT;
	if (!(found->access & STATFMT_WRITE))
		return -EACCES;
	return found->write(p, value);
}
