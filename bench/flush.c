/* SPDX-License-Identifier: MIT */

/*
 * What readers of memory.stat cost those who charge: the load by which the kernel's flushing of a
 * subtree by its own threshold was judged (2023): 5000 workers in 500 pools that allocate and give
 * back, and 1000 readers.
 *
 * Workers are tasks, many on a thread, and the threads one a CPU, for what counts is not how a
 * machine starts threads. Readers are so many on a thread too, each in turn, at a rate that is an
 * option: each reads memory.stat of a pool. Its figures are true because
 *
 * - subtree: it is read by tally_get() as it is, which flushes the pool's subtree if what is pending
 *   there passes the subtree's threshold.
 * - global: as in the kernel before. The workers count their updates all together, and a read flushes
 *   the whole tree first if they have passed one threshold, which is as large as that of a subtree,
 *   and nobody else is just flushing.
 * - always: without any threshold, each read flushes the whole tree first.
 *
 * The time that readers need anyhow is taken out: the figure is run time minus readers' CPU time a
 * CPU, to the run time without readers in the same round. Over a daemon the daemon's CPU time is taken
 * out too, as far as it is more than without readers. On a machine that others use as well run times
 * tell little: there the workers' own CPU time says more.
 */

#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "core/util.h"
#include "flushload.h"
#include "rig.h"
#include "table.h"

static const struct {
	const char *figure, *label;
} ways[FLUSHLOAD_WAYS] = {
	[FLUSHLOAD_NO_READERS] = {"no_readers", "no readers"},
	[FLUSHLOAD_SUBTREE] = {"subtree", "a threshold for each subtree"},
	[FLUSHLOAD_GLOBAL] = {"global", "one threshold, the whole tree"},
	[FLUSHLOAD_ALWAYS] = {"always", "no threshold, the whole tree"},
};

/* ------------------------------------------------------------------ the table */

enum column {
	RUN,
	WORKERS,
	READERS,
	DAEMON,
	READS,
	EACH,
	P50,
	P99,
	COST,
};

static const struct table_column columns[] = {
	[RUN] = {"seconds", "workers", "s"},
	[WORKERS] = {"workers", "workers' CPU", "s"},
	[READERS] = {"readers", "readers' CPU", "s"},
	[DAEMON] = {"daemon", "daemon's CPU", "s"},
	[READS] = {"reads", "reads", "reads"},
	[EACH] = {"each", "CPU a read", "us"},
	[P50] = {"p50", "read, p50", "us"},
	[P99] = {"p99", "read, p99", "us"},
	[COST] = {"cost", "net, to no readers", "ratio"},
};

static void add_sample(struct table_row *r, const struct flushload_result *s,
	const struct flushload_result *without, unsigned n_cpus)
{
	double more = s->daemon > without->daemon ? s->daemon - without->daemon : 0;

	table_add(r, RUN, s->run);
	table_add(r, DAEMON, s->daemon);
	table_add(r, WORKERS, s->workers);
	table_add(r, COST, (s->run - (s->readers + more) / n_cpus) / without->run);
	if (s->latency.n == 0)
		return;
	table_add(r, READERS, s->readers);
	table_add(r, READS, (double)s->latency.n);
	table_add(r, EACH, (s->readers + more) * 1e6 / (double)s->latency.n);
	table_add(r, P50, bench_ticks_to_nsec(latency_quantile(&s->latency, 0.5)) / 1000);
	table_add(r, P99, bench_ticks_to_nsec(latency_quantile(&s->latency, 0.99)) / 1000);
}

static void take_round(
	struct flushload *l, const struct flushload_engine *e, struct table_row *const rows[])
{
	_cleanup_(freep) struct flushload_result *samples =
		bench_allocate(FLUSHLOAD_WAYS, sizeof(*samples));

	for (int v = 0; v < FLUSHLOAD_WAYS; v++) {
		flushload_run(l, e, (enum flushload_way)v, &samples[v]);
		add_sample(rows[v], &samples[v], &samples[FLUSHLOAD_NO_READERS], l->bench->n_cpus);
	}
}

/* The first charges of each pool ask for credit. */
static void warm_up(struct flushload *l, const struct flushload_engine engines[static RIG_MODES])
{
	struct flushload_result *unused = bench_allocate(1, sizeof(*unused));

	for (int mode = 0; mode < RIG_MODES; mode++)
		if (!engines[mode].reason)
			flushload_run(l, &engines[mode], FLUSHLOAD_NO_READERS, unused);
	free(unused);
}

static void open_engine(struct flushload_engine *e, enum rig_mode mode, const struct grove *g)
{
	*e = (struct flushload_engine){.mode = mode};
	e->workers = rig_open(mode, &e->reason);
	if (!e->workers)
		return;
	e->readers = mode == RIG_DAEMON ? rig_open(mode, &e->reason) : e->workers;
	e->charged = rig_item(e->workers, "anon");
	e->moved = rig_item(e->workers, "file");
	grove_create(g, e->workers);
	e->pools = grove_attach(g, e->workers);
}

static void close_engine(struct flushload_engine *e, const struct grove *g)
{
	grove_detach(g, e->pools);
	if (e->readers != e->workers)
		tally_close(e->readers);
	tally_close(e->workers);
}

static void print_ratios(enum rig_mode mode, struct table_row *const rows[])
{
	static const struct {
		enum flushload_way a, b;
		const char *asked;
	} ratios[] = {
		{FLUSHLOAD_SUBTREE, FLUSHLOAD_NO_READERS, "at most 1.05"},
		{FLUSHLOAD_GLOBAL, FLUSHLOAD_SUBTREE, "more than 1"},
		{FLUSHLOAD_ALWAYS, FLUSHLOAD_SUBTREE, "at least 2"},
	};

	for (unsigned i = 0; i < ELEMENTS(ratios); i++) {
		struct table_row *a = rows[ratios[i].a], *b = rows[ratios[i].b];
		char figure[64];

		snprintf(figure, sizeof(figure), "flush.ratio.%s.%s", rig_mode_names[mode],
			ways[ratios[i].a].figure);
		table_print_ratio(figure, ratios[i].asked, a, b, COST);
		snprintf(figure, sizeof(figure), "flush.ratio.%s.%s.workers", rig_mode_names[mode],
			ways[ratios[i].a].figure);
		table_print_ratio(figure, NULL, a, b, WORKERS);
		if (ratios[i].b == FLUSHLOAD_NO_READERS)
			continue;
		snprintf(figure, sizeof(figure), "flush.ratio.%s.%s.each", rig_mode_names[mode],
			ways[ratios[i].a].figure);
		table_print_ratio(figure, NULL, a, b, EACH);
	}
}

static void run_all(struct flushload *l)
{
	static struct flushload_engine engines[RIG_MODES];
	struct table_row *rows[RIG_MODES][FLUSHLOAD_WAYS];
	struct table t;
	char title[160];

	snprintf(title, sizeof(title),
		"%u workers in %u pools, %u readers of memory.stat, each every %llu ms", l->n_tasks,
		l->grove.n, l->n_readers, (unsigned long long)l->interval_nsec / 1000000);
	table_init(&t, "flush", title, columns, ELEMENTS(columns));
	for (int mode = 0; mode < RIG_MODES; mode++) {
		open_engine(&engines[mode], mode, &l->grove);
		for (unsigned v = 0; v < FLUSHLOAD_WAYS; v++) {
			char figure[64];

			snprintf(figure, sizeof(figure), "%s.%s", rig_mode_names[mode],
				ways[v].figure);
			rows[mode][v] = table_add_row(
				&t, figure, "%s: %s", rig_mode_names[mode], ways[v].label);
			if (engines[mode].reason)
				table_skip(rows[mode][v], engines[mode].reason);
		}
	}
	warm_up(l, engines);
	for (unsigned round = 0; round < l->bench->rounds; round++)
		for (int mode = 0; mode < RIG_MODES; mode++)
			if (!engines[mode].reason)
				take_round(l, &engines[mode], rows[mode]);
	table_print(&t);
	for (int mode = 0; mode < RIG_MODES; mode++) {
		print_ratios(mode, rows[mode]);
		close_engine(&engines[mode], &l->grove);
	}
	table_free(&t);
}

enum option {
	TASKS,
	POOLS,
	BURST,
	PASSES,
	READERS_N,
	THREADS,
	INTERVAL,
};

static struct bench_option options[] = {
	[TASKS] = {"tasks", "5000", NULL, "workers, as many tasks on one thread a CPU"},
	[POOLS] = {"pools", "500", NULL, "pools they are in"},
	[BURST] = {"burst", "16", NULL, "pages that a worker charges, or gives back, in its turn"},
	[PASSES] = {"passes", "200", "10", "turns of each worker"},
	[READERS_N] = {"readers", "1000", NULL, "readers of memory.stat"},
	[THREADS] = {"threads", "2", NULL, "threads of the readers"},
	[INTERVAL] = {"interval", "100", NULL, "milliseconds from a reader's read to its next"},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	static struct flushload load;
	struct bench b;

	bench_begin(&b, "flush", options, argc, argv);
	load.bench = &b;
	load.n_tasks = (unsigned)bench_number(&options[TASKS]);
	load.burst = (unsigned)bench_number(&options[BURST]);
	load.passes = bench_number(&options[PASSES]);
	load.n_readers = (unsigned)bench_number(&options[READERS_N]);
	load.n_reader_threads = (unsigned)bench_number(&options[THREADS]);
	load.interval_nsec = bench_number(&options[INTERVAL]) * 1000000;
	if (load.n_reader_threads == 0 || load.n_reader_threads > FLUSHLOAD_READER_THREADS_MAX ||
		load.n_readers == 0 || load.n_tasks == 0 || load.passes == 0)
		bench_die("these options cannot be; see --help");
	flushload_init(&load);
	grove_init(&load.grove, "", (unsigned)bench_number(&options[POOLS]));
	rig_start("[daemon]\nexport =\n" RIG_NO_LIMITS);
	run_all(&load);
	grove_free(&load.grove);
	flushload_free(&load);
	return 0;
}
