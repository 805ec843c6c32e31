/* SPDX-License-Identifier: MIT */

/*
 * What a charge costs that finds credit at hand, with the uncharge that puts it back: the pair, by
 * two calls into a shared library. Ours in the first and in the last slot of the stock (a stock is
 * searched from the first), with and without an item, over a daemon and embedded; beside it the
 * floors that nothing can pass, the plain ways, and the peers' ways.
 *
 * All threads charge the same pool, as the workers of one tenant do. All of the rivals are in their
 * best case: no limit is near, the peer's slack and reservation are never crossed; one row shows
 * what the crossing costs.
 *
 * And what a statistic costs that charges nothing: tally_stat_add() up and down, beside the same with
 * a thread's counter.
 */

#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "core/util.h"
#include "rig.h"
#include "rivals.h"
#include "table.h"

#define BYTES 256
#define QUANTUM (UINT64_C(1) << 20)
#define SLOTS 7
#define VARIANTS_MAX 64

/* ------------------------------------------------------------------ ours */

/* A session whose pools lie in the stock one behind the other. */
struct ours {
	struct tally *tally;
	struct tally_pool *pools[SLOTS];
	struct tally_pool *used;
	tally_item item; /* 0: none */
};

/* Whoever is charged first on a CPU takes its first slot, and so on. Again before each sample: the
 * daemon may have drained what lay idle. */
static void fill_slots(void *arg, unsigned thread)
{
	struct ours *o = arg;

	(void)thread;
	for (unsigned i = 0; i < SLOTS; i++) {
		rig_check(tally_charge_item(o->pools[i], o->item, BYTES), "tally_charge_item");
		tally_uncharge_item(o->pools[i], o->item, BYTES);
	}
}

static void ours_loop(void *arg, unsigned thread, uint64_t n)
{
	struct tally_pool *p = ((struct ours *)arg)->used;

	(void)thread;
	for (uint64_t i = 0; i < n; i++) {
		if (unlikely(tally_charge(p, BYTES) < 0))
			bench_die("a charge failed");
		tally_uncharge(p, BYTES);
	}
}

static void ours_item_loop(void *arg, unsigned thread, uint64_t n)
{
	struct tally_pool *p = ((struct ours *)arg)->used;
	tally_item item = ((struct ours *)arg)->item;

	(void)thread;
	for (uint64_t i = 0; i < n; i++) {
		if (unlikely(tally_charge_item(p, item, BYTES) < 0))
			bench_die("a charge failed");
		tally_uncharge_item(p, item, BYTES);
	}
}

/* Up and down, as a pair of charge and uncharge. */
static void ours_add_loop(void *arg, unsigned thread, uint64_t n)
{
	struct tally_pool *p = ((struct ours *)arg)->used;
	tally_item item = ((struct ours *)arg)->item;

	(void)thread;
	for (uint64_t i = 0; i < n; i++) {
		tally_stat_add(p, item, BYTES);
		tally_stat_add(p, item, -BYTES);
	}
}

/* ------------------------------------------------------------------ the others */

static void tls_gd_add_loop(void *arg, unsigned thread, uint64_t n)
{
	(void)thread;
	for (uint64_t i = 0; i < n; i++) {
		rival_tls_gd_add(arg, BYTES);
		rival_tls_gd_add(arg, -BYTES);
	}
}

static void tls_ie_add_loop(void *arg, unsigned thread, uint64_t n)
{
	(void)thread;
	for (uint64_t i = 0; i < n; i++) {
		rival_tls_ie_add(arg, BYTES);
		rival_tls_ie_add(arg, -BYTES);
	}
}

#define RIVAL_LOOP(way, type)                                                                      \
	static void way##_loop(void *arg, unsigned thread, uint64_t n)                             \
	{                                                                                          \
		type *x = arg;                                                                     \
                                                                                                   \
		(void)thread;                                                                      \
		for (uint64_t i = 0; i < n; i++) {                                                 \
			if (unlikely(rival_##way##_charge(x, BYTES) < 0))                          \
				bench_die("a charge failed");                                      \
			rival_##way##_uncharge(x, BYTES);                                          \
		}                                                                                  \
	}

RIVAL_LOOP(empty, void)
RIVAL_LOOP(tls_gd, void)
RIVAL_LOOP(tls_ie, void)
RIVAL_LOOP(percpu, struct rival_word)
RIVAL_LOOP(shared, struct rival_single)
RIVAL_LOOP(mutex, struct rival_single)
RIVAL_LOOP(counter, struct rival_counter)
RIVAL_LOOP(slack_gd, struct rival_counter)
RIVAL_LOOP(slack_ie, struct rival_counter)
RIVAL_LOOP(cas, struct rival_tracker)
RIVAL_LOOP(quanta, struct rival_quanta)

static struct rival_word words[BENCH_CPUS_MAX * 16];
static struct rival_single single;
static struct rival_counter counter[RIVAL_DEPTH], slack[RIVAL_DEPTH];
static struct rival_tracker tracker;
static struct rival_quanta inside[RIVAL_DEPTH], crossing[RIVAL_DEPTH];

static void set_up_rivals(const struct bench *b)
{
	if (b->n_possible_cpus > ELEMENTS(words))
		bench_die("too many CPUs");
	for (unsigned i = 0; i < b->n_possible_cpus; i++)
		atomic_init(&words[i].left, INT64_MAX / 2);
	rival_single_init(&single);
	rival_counter_init_chain(counter);
	rival_counter_init_chain(slack);
	rival_tracker_init(&tracker);
	rival_quanta_init_chain(inside);
	rival_quanta_init_chain(crossing);
	/* In the middle of a quantum, and at its very end. */
	rig_check(rival_quanta_charge(inside, QUANTUM / 2), "charge");
	rig_check(rival_quanta_charge(crossing, QUANTUM), "charge");
}

/* ------------------------------------------------------------------ variants */

struct variant {
	struct bench_work work;
	struct table_row *row;
};

static struct variant variants[VARIANTS_MAX];
static unsigned n_variants;

static struct variant *add(struct table *t, const char *figure, const char *label,
	struct bench_work work, const struct bench *b)
{
	struct variant *v = &variants[n_variants++];
	char name[64];

	snprintf(name, sizeof(name), "%s.threads%u", figure, work.threads);
	v->work = work;
	v->row = table_add_row(
		t, name, "%s, %u thread%s", label, work.threads, work.threads == 1 ? "" : "s");
	if (work.threads > b->n_cpus)
		table_skip(v->row, "there are not so many CPUs");
	return v;
}

static struct table_row *find(const char *figure, unsigned threads)
{
	char name[64];

	snprintf(name, sizeof(name), "%s.threads%u", figure, threads);
	for (unsigned i = 0; i < n_variants; i++)
		if (strcmp(variants[i].row->figure, name) == 0)
			return variants[i].row;
	bench_die("no row %s", name);
}

static struct ours *open_ours(enum rig_mode mode, bool item, unsigned slot, const char **ret_reason)
{
	static struct ours all[RIG_MODES * 5];
	static unsigned n;
	struct ours *o = &all[n++];

	o->tally = rig_open(mode, ret_reason);
	if (!o->tally)
		return o;
	o->item = item ? rig_item(o->tally, "sock") : 0;
	for (unsigned i = 0; i < SLOTS; i++) {
		char path[64];

		snprintf(path, sizeof(path), "/hot/a/b/%u-%d-%u", slot, item, i);
		o->pools[i] = rig_attach(o->tally, path);
	}
	o->used = o->pools[slot];
	return o;
}

static void add_ours(
	struct table *t, const struct bench *b, enum rig_mode mode, bool item, unsigned slot)
{
	const char *reason = NULL;
	struct ours *o = open_ours(mode, item, slot, &reason);
	char figure[64], label[64];

	snprintf(figure, sizeof(figure), "%s.%sslot%u", rig_mode_names[mode], item ? "item." : "",
		slot);
	snprintf(label, sizeof(label), "ours, %s, slot %u%s", rig_mode_names[mode], slot,
		item ? ", item" : "");
	for (unsigned threads = 1; threads <= 2; threads++) {
		struct variant *v = add(t, figure, label,
			(struct bench_work){.loop = item ? ours_item_loop : ours_loop,
				.prepare = fill_slots,
				.arg = o,
				.threads = threads},
			b);

		if (reason)
			table_skip(v->row, reason);
	}
}

static void add_statistic(struct table *t, const struct bench *b, enum rig_mode mode)
{
	const char *reason = NULL;
	struct ours *o = open_ours(mode, true, 0, &reason);
	char figure[64], label[64];

	snprintf(figure, sizeof(figure), "%s.stat_add", rig_mode_names[mode]);
	snprintf(label, sizeof(label), "ours, %s, tally_stat_add", rig_mode_names[mode]);
	for (unsigned threads = 1; threads <= 2; threads++) {
		struct variant *v = add(t, figure, label,
			(struct bench_work){.loop = ours_add_loop, .arg = o, .threads = threads},
			b);

		if (reason)
			table_skip(v->row, reason);
	}
}

static void add_rivals(struct table *t, const struct bench *b)
{
	static const struct {
		const char *figure, *label;
		void (*loop)(void *arg, unsigned thread, uint64_t n);
		void *arg;
	} rivals[] = {
		{"empty", "empty functions", empty_loop, NULL},
		{"tls_ie", "__thread, initial-exec", tls_ie_loop, NULL},
		{"tls_gd", "__thread, global-dynamic", tls_gd_loop, NULL},
		{"tls_ie_add", "__thread, initial-exec, additions", tls_ie_add_loop, NULL},
		{"tls_gd_add", "__thread, global-dynamic, additions", tls_gd_add_loop, NULL},
		{"percpu", "a word a CPU, lock cmpxchg", percpu_loop, words},
		{"shared", "one shared atomic", shared_loop, &single},
		{"mutex", "one mutex", mutex_loop, &single},
		{"atomic4", "hierarchical atomics, depth 4", counter_loop, counter},
		{"clickhouse_ie", "slack a thread (ClickHouse), in a program", slack_ie_loop,
			slack},
		{"clickhouse", "slack a thread (ClickHouse), in a library", slack_gd_loop, slack},
		{"impala", "cmpxchg a level (Impala)", cas_loop, &tracker},
		{"velox", "mutexes, quanta (Velox), inside", quanta_loop, inside},
		{"velox_crossing", "mutexes, quanta (Velox), crossing", quanta_loop, crossing},
	};

	for (unsigned i = 0; i < ELEMENTS(rivals); i++)
		for (unsigned threads = 1; threads <= 2; threads++)
			add(t, rivals[i].figure, rivals[i].label,
				(struct bench_work){.loop = rivals[i].loop,
					.arg = rivals[i].arg,
					.threads = threads},
				b);
}

/* ------------------------------------------------------------------ ratios */

static void print_ratios(enum rig_mode mode)
{
	static const struct {
		const char *name, *rival, *asked;
		unsigned threads;
		bool inverse; /* ours on top */
	} ratios[] = {
		{"tls_gd", "tls_gd", "at most 1.0", 1, true},
		{"tls_ie", "tls_ie", "at most 1.6", 1, true},
		{"atomic4", "atomic4", "at least 100", 2, false},
		{"clickhouse_ie", "clickhouse_ie", NULL, 2, false},
		{"clickhouse", "clickhouse", "at least 1.0", 2, false},
		{"impala", "impala", "at least 10", 2, false},
		{"velox", "velox", "at least 10", 2, false},
		{"mutex", "mutex", NULL, 2, false},
		{"shared", "shared", NULL, 2, false},
	};
	const char *ours = rig_mode_names[mode];
	char slot0[64], other[64], name[96];

	snprintf(slot0, sizeof(slot0), "%s.slot0", ours);
	for (unsigned i = 0; i < ELEMENTS(ratios); i++) {
		struct table_row *rival = find(ratios[i].rival, ratios[i].threads);
		struct table_row *own = find(slot0, ratios[i].threads);

		snprintf(name, sizeof(name), "hotpath.ratio.%s.%s.threads%u", ours, ratios[i].name,
			ratios[i].threads);
		table_print_ratio(name, ratios[i].asked, ratios[i].inverse ? own : rival,
			ratios[i].inverse ? rival : own, 0);
	}
	snprintf(other, sizeof(other), "%s.slot6", ours);
	snprintf(name, sizeof(name), "hotpath.ratio.%s.slot6.threads1", ours);
	table_print_ratio(name, "at most 2", find(other, 1), find(slot0, 1), 0);
	snprintf(other, sizeof(other), "%s.item.slot0", ours);
	snprintf(name, sizeof(name), "hotpath.ratio.%s.item.threads1", ours);
	table_print_ratio(name, "at most 1.05", find(other, 1), find(slot0, 1), 0);
	snprintf(other, sizeof(other), "%s.stat_add", ours);
	for (unsigned threads = 1; threads <= 2; threads++) {
		snprintf(name, sizeof(name), "hotpath.ratio.%s.stat_add.threads%u", ours, threads);
		table_print_ratio(
			name, "at most 1.5", find(other, threads), find("tls_gd_add", threads), 0);
	}
}

int main(int argc, char **argv)
{
	static const struct table_column columns[] = {{NULL, "a pair", "ns"}};
	struct bench_option options[] = {{.name = NULL}};
	struct bench b;
	struct table t;

	bench_begin(&b, "hotpath", options, argc, argv);
	rig_start("");
	set_up_rivals(&b);
	table_init(&t, "hotpath.pair", "charge and uncharge 256 bytes, or two additions of as many",
		columns, 1);
	add_rivals(&t, &b);
	for (int mode = 0; mode < RIG_MODES; mode++)
		for (int item = 0; item < 2; item++)
			for (unsigned slot = 0; slot < SLOTS; slot += SLOTS - 1)
				add_ours(&t, &b, mode, item, slot);
	for (int mode = 0; mode < RIG_MODES; mode++)
		add_statistic(&t, &b, mode);

	for (unsigned round = 0; round < b.rounds; round++)
		for (unsigned i = 0; i < n_variants; i++)
			if (!variants[i].row->skipped)
				table_add(variants[i].row, 0, bench_sample(&b, &variants[i].work));

	table_print(&t);
	printf("\n");
	for (int mode = 0; mode < RIG_MODES; mode++)
		print_ratios(mode);
	table_free(&t);
	return 0;
}
