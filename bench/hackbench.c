/* SPDX-License-Identifier: MIT */

/*
 * hackbench, the load that showed what two layers of caching cost. For a message a buffer is charged
 * that is the message rounded up to pages and a few bytes more, as objects carry a pointer to their
 * owner; another task uncharges it, mostly on another CPU. The two ways in which the layers drained
 * stand against ours, which has one layer, in bytes.
 *
 * The time spent in accounting is summed up over all tasks, call by call, without those calls that
 * were so long that their task was not running; these have columns of their own. For ours that is
 * also where waiting for the daemon shows.
 */

#include <stdio.h>
#include <sys/resource.h>

#include "accounting.h"
#include "bench.h"
#include "core/util.h"
#include "hackload.h"
#include "rig.h"
#include "table.h"

#define PAGE 4096
#define POINTER 8
#define SIZES_MAX 8
#define DESCRIPTORS_SPARE 64

enum column {
	SECONDS,
	ACCOUNTING,
	LONG,
	N_LONG,
	OPERATIONS,
	STEADY,
};

static const struct table_column columns[] = {
	[SECONDS] = {"seconds", "all", "s"},
	[ACCOUNTING] = {"accounting", "accounting", "s"},
	[LONG] = {"long", "in long calls", "s"},
	[N_LONG] = {"long_calls", "long calls", "calls"},
	[OPERATIONS] = {"operations", "counter ops", "1/alloc"},
	[STEADY] = {"steady_operations", "in the middle", "1/alloc"},
};

static void take_sample(const struct hackload *l, struct table_row *r)
{
	struct hackload_result result;

	hackload_run(l, &result);
	table_add(r, SECONDS, result.seconds);
	table_add(r, ACCOUNTING, result.accounting);
	table_add(r, LONG, result.in_long);
	table_add(r, N_LONG, result.n_long);
	if (result.operations >= 0)
		table_add(r, OPERATIONS, result.operations);
	if (result.steady_operations >= 0)
		table_add(r, STEADY, result.steady_operations);
}

enum way {
	NONE,
	INTO_COUNTER,
	INTO_STOCK,
	DAEMON,
	EMBEDDED,
	N_WAYS,
};

static void set_up(struct accounting ways[static N_WAYS], unsigned n_cpus)
{
	static const char dir[] = "/hack/a/b";

	accounting_init_none(&ways[NONE], "none", "no accounting");
	accounting_init_layers(&ways[INTO_COUNTER], "into_counter",
		"two layers, draining into the counter", false, n_cpus);
	accounting_init_layers(&ways[INTO_STOCK], "into_stock",
		"two layers, draining into the page stock", true, n_cpus);
	accounting_init_ours(&ways[DAEMON], "daemon", "ours, daemon", RIG_DAEMON, dir, 1, NULL);
	accounting_init_ours(
		&ways[EMBEDDED], "embedded", "ours, embedded", RIG_EMBEDDED, dir, 1, NULL);
}

/* Two descriptors a receiver. */
static void raise_limit(unsigned groups)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_max < groups * HACKLOAD_SENDERS * 2 + DESCRIPTORS_SPARE)
		bench_die("too few descriptors for so many groups: see ulimit -n");
}

static void print_ratios(struct table_row *const rows[static N_WAYS], uint64_t size)
{
	static const enum way of[] = {INTO_STOCK, DAEMON, EMBEDDED};

	for (unsigned i = 0; i < ELEMENTS(of); i++) {
		char figure[64];

		snprintf(figure, sizeof(figure), "hackbench.ratio.size%llu.%s.accounting",
			(unsigned long long)size, rows[of[i]]->figure);
		table_print_ratio(figure, of[i] == INTO_STOCK ? NULL : "at most 0.85", rows[of[i]],
			rows[INTO_COUNTER], ACCOUNTING);
		snprintf(figure, sizeof(figure), "hackbench.ratio.size%llu.%s.seconds",
			(unsigned long long)size, rows[of[i]]->figure);
		table_print_ratio(figure, NULL, rows[of[i]], rows[INTO_COUNTER], SECONDS);
	}
}

/* All ways with messages of one size. */
static void run_size(
	const struct bench *b, struct hackload *load, struct accounting ways[static N_WAYS])
{
	struct table_row *rows[N_WAYS];
	char name[64], title[128];
	struct table t;

	snprintf(name, sizeof(name), "hackbench.size%zu", load->size);
	snprintf(title, sizeof(title),
		"%u groups of %d tasks, %u messages of %zu bytes from each to each, %llu charged",
		load->groups, 2 * HACKLOAD_SENDERS, load->messages, load->size,
		(unsigned long long)load->charge);
	table_init(&t, name, title, columns, ELEMENTS(columns));
	for (unsigned i = 0; i < N_WAYS; i++) {
		rows[i] = table_add_row(&t, ways[i].figure, "%s", ways[i].label);
		if (ways[i].reason)
			table_skip(rows[i], ways[i].reason);
	}
	for (unsigned round = 0; round < b->rounds; round++)
		for (unsigned i = 0; i < N_WAYS; i++) {
			load->accounting = &ways[i];
			if (!rows[i]->skipped)
				take_sample(load, rows[i]);
		}
	table_print(&t);
	print_ratios(rows, load->size);
	table_free(&t);
}

enum option {
	GROUPS,
	SIZES,
	MESSAGES,
	BIG,
};

static struct bench_option options[] = {
	[GROUPS] = {"groups", "10", "1", "groups of 40 tasks"},
	[SIZES] = {"sizes", "100000,32,16", NULL, "bytes of a message"},
	[MESSAGES] = {"messages", "100", "5", "messages of each sender to each receiver"},
	[BIG] = {"big", "10", "1", "the same for messages of more than a page, which take long"},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	static struct accounting ways[N_WAYS];
	uint64_t sizes[SIZES_MAX];
	unsigned n_sizes;
	struct bench b;

	bench_begin(&b, "hackbench", options, argc, argv);
	n_sizes = bench_numbers(&options[SIZES], sizes, SIZES_MAX);
	raise_limit((unsigned)bench_number(&options[GROUPS]));
	rig_start("");
	set_up(ways, b.n_possible_cpus);
	for (unsigned i = 0; i < n_sizes; i++) {
		struct hackload load = {.groups = (unsigned)bench_number(&options[GROUPS]),
			.messages =
				(unsigned)bench_number(&options[sizes[i] > PAGE ? BIG : MESSAGES]),
			.size = sizes[i],
			.charge = (sizes[i] + PAGE - 1) / PAGE * PAGE + POINTER};

		if (load.size == 0)
			bench_die("a message of no bytes");
		run_size(&b, &load, ways);
	}
	for (unsigned i = 0; i < N_WAYS; i++)
		accounting_free(&ways[i]);
	return 0;
}
