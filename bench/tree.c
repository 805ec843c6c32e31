/* SPDX-License-Identifier: MIT */

/*
 * What depends on the size of the tree, and what should not:
 *
 * - pools: making and removing 50,000 pools.
 * - daemon: its memory for each of them, with nothing exported, and its CPU time while nothing
 *   changes: of pools alone, and when a session is attached to each. Once, not in rounds: what an
 *   allocator has given back does not show, and rest is long.
 * - flush: how long it takes to make the figures of a subtree true when few of its pools have changed:
 *   1, 10 or 1000 among 100, 5000 and 50,000, all of them attached to by one session. By writing its
 *   pool.flush, by an exact read of its memory.stat, and by pool.flush of the root, above which there
 *   is nothing else. A pool changes by a charge and a move of another item, or by the way back.
 *
 * Over a daemon each of it is a request: beside it stands one that has nothing to do (the number of an
 * item), and the net time is without that.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "core/util.h"
#include "grove.h"
#include "latency.h"
#include "rig.h"
#include "table.h"

#define PAGE 4096
#define TOP "/grove"
#define SIZES 3
#define CHANGES 3

static const unsigned changes[CHANGES] = {1, 10, 1000};

static void empty_trip(struct tally *t)
{
	rig_item(t, "anon");
}

static double microseconds(const struct latency *l)
{
	return bench_ticks_to_nsec(latency_quantile(l, 0.5)) / 1000;
}

/* ------------------------------------------------------------------ the daemon */

struct footprint {
	uint64_t rss, pss; /* KiB */
};

static struct footprint look_at_memory(void)
{
	_cleanup_(fclosep) FILE *f = NULL;
	struct footprint p = {.rss = 0};
	char path[64], line[128];

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)rig_pid());
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Rss: %" SCNu64, &p.rss) != 1)
			sscanf(line, "Pss: %" SCNu64, &p.pss);
	if (p.rss == 0)
		bench_die("cannot tell what memory the daemon has");
	return p;
}

/* In hundredths of a CPU. */
static double rest(uint64_t nsec)
{
	uint64_t start = bench_now(), before = rig_cpu_nsec();

	bench_sleep(nsec);
	return (double)(rig_cpu_nsec() - before) * 100 / (double)(bench_now() - start);
}

/* What it has come to since `before`, for each of n pools. */
static void look_at_daemon(
	struct table_row *r, const struct footprint *before, unsigned n, uint64_t rest_nsec)
{
	struct footprint now = look_at_memory();

	table_add(r, 0, (double)(int64_t)(now.rss - before->rss) / n);
	table_add(r, 1, (double)(int64_t)(now.pss - before->pss) / n);
	table_add(r, 2, rest(rest_nsec));
}

static void run_daemon(const struct grove *g, uint64_t rest_nsec)
{
	static const struct table_column columns[] = {{"rss", "resident, a pool", "KiB"},
		{"pss", "proportional, a pool", "KiB"}, {"rest", "CPU at rest", "%"}};
	struct footprint before = look_at_memory();
	unsigned n = g->n + g->n_above;
	struct table_row *alone, *attached;
	struct tally_pool **pools;
	const char *reason;
	struct tally *t = rig_open(RIG_DAEMON, &reason);
	struct table table;

	rig_check(tally_create(t, TOP), "tally_create");
	table_init(
		&table, "tree.daemon", "the daemon, nothing exported", columns, ELEMENTS(columns));
	alone = table_add_row(&table, "pools", "%u pools (at most 4 KiB, 1 %%)", n);
	attached = table_add_row(&table, "attached", "%u of them attached to", g->n);
	grove_create(g, t);
	look_at_daemon(alone, &before, n, rest_nsec);
	pools = grove_attach(g, t);
	look_at_daemon(attached, &before, n, rest_nsec);
	grove_detach(g, pools);
	grove_remove(g, t);
	tally_close(t);
	table_print(&table);
	table_free(&table);
}

/* ------------------------------------------------------------------ making and removing */

static void take_pools(const struct grove *g, struct tally *t, struct table_row *r)
{
	uint64_t start = bench_now(), made, trips, removed;
	double n = g->n + g->n_above;

	grove_create(g, t);
	made = bench_now();
	for (unsigned i = 0; i < g->n; i++)
		empty_trip(t);
	trips = bench_now();
	grove_remove(g, t);
	removed = bench_now();
	table_add(r, 0, (double)(made - start) / 1000 / n);
	table_add(r, 1, (double)(removed - trips) / 1000 / n);
	table_add(r, 2, (double)(trips - made) / 1000 / g->n);
}

static void run_pools(const struct grove *g, unsigned rounds)
{
	static const struct table_column columns[] = {{"create", "made, each", "us"},
		{"remove", "removed, each", "us"}, {"trip", "an empty request", "us"}};
	struct table_row *rows[RIG_MODES];
	struct tally *tally[RIG_MODES];
	struct table t;
	char title[64];

	snprintf(title, sizeof(title), "%u pools made and removed", g->n + g->n_above);
	table_init(&t, "tree.pools", title, columns, ELEMENTS(columns));
	for (int mode = 0; mode < RIG_MODES; mode++) {
		const char *reason = NULL;

		rows[mode] = table_add_row(&t, rig_mode_names[mode], "%s", rig_mode_names[mode]);
		tally[mode] = rig_open(mode, &reason);
		if (reason)
			table_skip(rows[mode], reason);
		else if (mode == RIG_EMBEDDED)
			rig_check(tally_create(tally[mode], TOP), "tally_create");
	}
	for (unsigned round = 0; round < rounds; round++)
		for (int mode = 0; mode < RIG_MODES; mode++)
			if (!rows[mode]->skipped)
				take_pools(g, tally[mode], rows[mode]);
	table_print(&t);
	table_free(&t);
	for (int mode = 0; mode < RIG_MODES; mode++)
		tally_close(tally[mode]);
}

/* ------------------------------------------------------------------ flushing */

enum column {
	FLUSH,
	EXACT,
	WHOLE,
	TRIP,
	TIMED, /* those above */
	NET = TIMED,
};

/* A tree of a size in an engine of its own. */
struct planted {
	const struct grove *grove;
	struct tally *tally;
	struct tally_pool **pools;
	tally_item charged, moved;
	bool changed; /* the pools that change have been; next is the way back */
};

static void plant(struct planted *e, enum rig_mode mode, const struct grove *g)
{
	const char *reason;
	uint64_t start = bench_now(), made;

	e->grove = g;
	e->tally = rig_open(mode, &reason);
	if (!e->tally)
		return;
	e->charged = rig_item(e->tally, "anon");
	e->moved = rig_item(e->tally, "file");
	rig_check(tally_create(e->tally, TOP), "tally_create");
	grove_create(g, e->tally);
	made = bench_now();
	e->pools = grove_attach(g, e->tally);
	printf("# pools:    %u, %s: made in %.1f s, attached to in %.1f s\n", g->n,
		rig_mode_names[mode], (double)(made - start) / 1e9,
		(double)(bench_now() - made) / 1e9);
}

/* So many, spread over the tree. */
static void change(struct planted *e, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct tally_pool *p = e->pools[(uint64_t)i * e->grove->n / n];

		if (e->changed) {
			tally_stat_add(p, e->moved, -PAGE);
			tally_uncharge_item(p, e->charged, PAGE);
		} else {
			rig_check(tally_charge_item(p, e->charged, PAGE), "a charge");
			tally_stat_add(p, e->moved, PAGE);
		}
	}
	e->changed = !e->changed;
}

static void flush(struct tally *t)
{
	rig_check(tally_set(t, TOP, "pool.flush", "1"), "pool.flush");
}

static void flush_whole(struct tally *t)
{
	rig_check(tally_set(t, "/", "pool.flush", "1"), "pool.flush");
}

static void read_exactly(struct tally *t)
{
	_cleanup_(freep) char *text = NULL;

	rig_check(tally_get(t, TOP, "memory.stat", TALLY_EXACT, &text), "memory.stat");
}

static void measure(struct tally *t, void (*fn)(struct tally *t), struct latency *l)
{
	uint64_t start = bench_ticks();

	fn(t);
	latency_add(l, bench_ticks() - start);
}

static void take_flushes(struct planted *e, unsigned n, uint64_t times, struct table_row *r)
{
	static void (*const fns[TIMED])(struct tally * t) = {[FLUSH] = flush,
		[EXACT] = read_exactly,
		[WHOLE] = flush_whole,
		[TRIP] = empty_trip};
	struct latency *all = bench_allocate(TIMED, sizeof(*all));

	/* One kind behind the other: a flush of everything leaves nothing in the caches. */
	for (unsigned j = 0; j < TIMED; j++)
		for (uint64_t i = 0; i < times; i++) {
			if (j != TRIP)
				change(e, n);
			measure(e->tally, fns[j], &all[j]);
		}
	if (e->changed)
		change(e, n);
	for (unsigned j = 0; j < TIMED; j++)
		table_add(r, j, microseconds(&all[j]));
	table_add(r, NET, microseconds(&all[FLUSH]) - microseconds(&all[TRIP]));
	free(all);
}

static void add_rows(struct table *t, enum rig_mode mode, const struct planted *e,
	struct table_row *rows[static CHANGES])
{
	for (unsigned i = 0; i < CHANGES; i++) {
		char figure[64];

		snprintf(figure, sizeof(figure), "%s.changed%u.of%u", rig_mode_names[mode],
			changes[i], e->grove->n);
		rows[i] = table_add_row(t, figure, "%s: %u of %u pools changed",
			rig_mode_names[mode], changes[i], e->grove->n);
		if (!e->tally)
			table_skip(rows[i], "there is no embedded engine");
		else if (changes[i] > e->grove->n)
			table_skip(rows[i], "there are not so many pools");
	}
}

/* Of the largest tree to the smallest. */
static void print_ratios(enum rig_mode mode, struct table_row *rows[static SIZES][CHANGES])
{
	static const struct {
		const char *figure, *asked;
		enum column column;
	} ratios[] = {{"flush", "at most 1.5", FLUSH}, {"exact", "at most 1.5", EXACT},
		{"whole", NULL, WHOLE}, {"net", NULL, NET}};

	for (unsigned i = 0; i < CHANGES; i++)
		for (unsigned j = 0; j < ELEMENTS(ratios); j++) {
			char figure[64];

			snprintf(figure, sizeof(figure), "tree.ratio.%s.changed%u.%s",
				rig_mode_names[mode], changes[i], ratios[j].figure);
			table_print_ratio(figure, changes[i] == 10 ? ratios[j].asked : NULL,
				rows[SIZES - 1][i], rows[0][i], ratios[j].column);
		}
}

static void run_flushes(const struct bench *b, const struct grove groves[static SIZES],
	const char *config, uint64_t times)
{
	static const struct table_column columns[] = {[FLUSH] = {"flush", "pool.flush", "us"},
		[EXACT] = {"exact", "exact memory.stat", "us"},
		[WHOLE] = {"whole", "the root's pool.flush", "us"},
		[TRIP] = {"trip", "an empty request", "us"},
		[NET] = {"net", "pool.flush, net", "us"}};
	static struct planted trees[RIG_MODES][SIZES];
	struct table_row *rows[RIG_MODES][SIZES][CHANGES];
	struct table t;

	table_init(&t, "tree.flush", "a flush of few changed pools", columns, ELEMENTS(columns));
	for (unsigned size = 0; size < SIZES; size++) {
		rig_start(config);
		for (int mode = 0; mode < RIG_MODES; mode++)
			plant(&trees[mode][size], mode, &groves[size]);
	}
	for (int mode = 0; mode < RIG_MODES; mode++)
		for (unsigned size = 0; size < SIZES; size++)
			add_rows(&t, mode, &trees[mode][size], rows[mode][size]);
	for (unsigned round = 0; round < b->rounds; round++)
		for (int mode = 0; mode < RIG_MODES; mode++)
			for (unsigned i = 0; i < CHANGES; i++)
				for (unsigned size = 0; size < SIZES; size++)
					if (!rows[mode][size][i]->skipped)
						take_flushes(&trees[mode][size], changes[i], times,
							rows[mode][size][i]);
	table_print(&t);
	for (int mode = 0; mode < RIG_MODES; mode++) {
		print_ratios(mode, rows[mode]);
		for (unsigned size = 0; size < SIZES; size++) {
			grove_detach(trees[mode][size].grove, trees[mode][size].pools);
			tally_close(trees[mode][size].tally);
		}
	}
	table_free(&t);
}

enum option {
	POOLS,
	TIMES,
	POOL_ROUNDS,
	REST,
};

static struct bench_option options[] = {
	[POOLS] = {"pools", "100,5000,50000", "100,500,2000", "pools of three trees"},
	[TIMES] = {"times", "20", "5", "flushes of a sample"},
	[POOL_ROUNDS] = {"pool-rounds", "3", "1", "rounds of making and removing the most of them"},
	[REST] = {"rest", "10", "1", "seconds in which nothing changes"},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	static const char config[] = "[daemon]\nexport =\n" RIG_NO_LIMITS;
	struct grove groves[SIZES];
	uint64_t sizes[SIZES];
	struct bench b;

	bench_begin(&b, "tree", options, argc, argv);
	if (bench_numbers(&options[POOLS], sizes, SIZES) != SIZES)
		bench_die("--pools takes three numbers");
	for (unsigned i = 0; i < SIZES; i++)
		grove_init(&groves[i], TOP, (unsigned)sizes[i]);
	rig_start(config);
	run_daemon(&groves[SIZES - 1], bench_number(&options[REST]) * 1000000000);
	run_pools(&groves[SIZES - 1], (unsigned)bench_number(&options[POOL_ROUNDS]));
	run_flushes(&b, groves, config, bench_number(&options[TIMES]));
	for (unsigned i = 0; i < SIZES; i++)
		grove_free(&groves[i]);
	return 0;
}
