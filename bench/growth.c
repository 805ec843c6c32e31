/* SPDX-License-Identifier: MIT */

/*
 * Charges that the stock alone cannot serve, because credit goes one way:
 *
 * - growth: a pool that fills, 4 KiB by 4 KiB, without giving anything back, and then gives back
 *   all. Each round begins with an attachment of its own, so that it contains the small first
 *   batches. Beside it the charge of a hierarchical counter that nobody else uses.
 * - crossing: buffers that one CPU charges and another gives back, through a ring, so that credit
 *   runs dry on one CPU and overflows on the other.
 * - keys: more pools in turn on a CPU than a stock has slots, so that each pair of charge and
 *   uncharge evicts another pool's credit.
 */

#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "core/util.h"
#include "rig.h"
#include "rivals.h"
#include "table.h"

#define BYTES 4096
#define KEYS_MAX 256
#define RING 1024

/* ------------------------------------------------------------------ who is measured */

/* What charges: ours if there is a pool, else the hierarchical counter, else nothing. */
struct target {
	struct tally_pool *pool;
	struct rival_counter *counter;
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

static inline void charge(const struct target *t)
{
	int r = 0;

	if (t->pool)
		r = tally_charge(t->pool, BYTES);
	else if (t->counter)
		r = rival_counter_charge(t->counter, BYTES);
	if (unlikely(r < 0))
		rig_check(r, "a charge");
}

static inline void uncharge(const struct target *t)
{
	if (t->pool)
		tally_uncharge(t->pool, BYTES);
	else if (t->counter)
		rival_counter_uncharge(t->counter, BYTES);
}

struct session {
	struct tally *tally;
	const char *reason; /* why there is none */
};

static struct session sessions[RIG_MODES];

/* ------------------------------------------------------------------ growth */

struct growth {
	struct target target;
	uint64_t charges;
	double charge_nsec, uncharge_nsec;
};

static void grow(void *arg, unsigned thread)
{
	struct growth *g = arg;
	uint64_t start = bench_now(), middle;

	(void)thread;
	for (uint64_t i = 0; i < g->charges; i++)
		charge(&g->target);
	middle = bench_now();
	for (uint64_t i = 0; i < g->charges; i++)
		uncharge(&g->target);
	g->charge_nsec = (double)(middle - start) / (double)g->charges;
	g->uncharge_nsec = (double)(bench_now() - middle) / (double)g->charges;
}

static void take_growth(
	const struct bench *b, struct target target, uint64_t charges, struct table_row *r)
{
	struct growth g = {.target = target, .charges = charges};

	bench_threads(b, 1, grow, &g);
	table_add(r, 0, g.charge_nsec);
	table_add(r, 1, g.uncharge_nsec);
}

static void run_growth(const struct bench *b, uint64_t mib)
{
	static const struct table_column columns[] = {
		{"charge", "charge", "ns"}, {"uncharge", "uncharge", "ns"}};
	static struct rival_counter counter[RIVAL_DEPTH];
	struct table_row *ours[RIG_MODES], *atomic;
	uint64_t charges = (mib << 20) / BYTES;
	struct table t;
	char title[96];

	snprintf(title, sizeof(title), "%llu MiB in charges of 4 KiB, then all given back",
		(unsigned long long)mib);
	table_init(&t, "growth.grow", title, columns, ELEMENTS(columns));
	atomic = table_add_row(&t, "atomic4", "hierarchical atomics, depth 4");
	for (int mode = 0; mode < RIG_MODES; mode++) {
		ours[mode] =
			table_add_row(&t, rig_mode_names[mode], "ours, %s", rig_mode_names[mode]);
		if (!sessions[mode].tally)
			table_skip(ours[mode], sessions[mode].reason);
	}

	for (unsigned round = 0; round < b->rounds; round++) {
		/* Anew, as ours: a pool that grows raises its peak at every charge. */
		rival_counter_init_chain(counter);
		take_growth(b, (struct target){.counter = counter}, charges, atomic);
		for (int mode = 0; mode < RIG_MODES; mode++) {
			struct tally_pool *p;

			if (ours[mode]->skipped)
				continue;
			p = rig_attach(sessions[mode].tally, "/growth/a/b/grow");
			take_growth(b, (struct target){.pool = p}, charges, ours[mode]);
			tally_detach(p);
		}
	}
	table_print(&t);
	table_print_ratio("growth.ratio.daemon.charge", "at most 1.0", ours[RIG_DAEMON], atomic, 0);
	table_print_ratio(
		"growth.ratio.embedded.charge", "at most 1.0", ours[RIG_EMBEDDED], atomic, 0);
	table_free(&t);
}

/* ------------------------------------------------------------------ crossing CPUs */

/* One writes, one reads; a place is full if it holds 1. */
struct ring {
	struct {
		alignas(64) _Atomic int full;
	} places[RING];
	struct target target;
	uint64_t nsec; /* how long to go on */
	_Atomic int ended;
	uint64_t buffers;
	double taken_nsec;
};

static void produce(struct ring *ring)
{
	uint64_t start = bench_now(), now, n = 0;

	do {
		for (unsigned i = 0; i < RING; i++, n++) {
			while (atomic_load_explicit(&ring->places[i].full, memory_order_acquire))
				relax();
			charge(&ring->target);
			atomic_store_explicit(&ring->places[i].full, 1, memory_order_release);
		}
		now = bench_now();
	} while (now - start < ring->nsec);
	atomic_store(&ring->ended, 1);
	ring->buffers = n;
	ring->taken_nsec = (double)(now - start);
}

static void consume(struct ring *ring)
{
	for (unsigned i = 0;; i = (i + 1) % RING) {
		while (!atomic_load_explicit(&ring->places[i].full, memory_order_acquire)) {
			if (atomic_load(&ring->ended) &&
				!atomic_load_explicit(&ring->places[i].full, memory_order_acquire))
				return;
			relax();
		}
		uncharge(&ring->target);
		atomic_store_explicit(&ring->places[i].full, 0, memory_order_release);
	}
}

static void cross(void *arg, unsigned thread)
{
	if (thread == 0)
		produce(arg);
	else
		consume(arg);
}

static void take_crossing(const struct bench *b, struct target target, struct table_row *r)
{
	struct ring *ring = bench_allocate(1, sizeof(*ring));

	ring->target = target;
	ring->nsec = b->sample_nsec;
	bench_threads(b, 2, cross, ring);
	table_add(r, 0, ring->taken_nsec / (double)ring->buffers);
	free(ring);
}

static void run_crossing(const struct bench *b)
{
	static const struct table_column columns[] = {{NULL, "a buffer", "ns"}};
	static struct rival_counter counter[RIVAL_DEPTH];
	struct target targets[2 + RIG_MODES] = {{.pool = NULL}, {.counter = counter}};
	struct table_row *rows[2 + RIG_MODES];
	struct table t;

	table_init(&t, "growth.crossing",
		"4 KiB buffers, charged on one CPU, given back on another", columns, 1);
	rival_counter_init_chain(counter);
	rows[0] = table_add_row(&t, "none", "the ring alone");
	rows[1] = table_add_row(&t, "atomic4", "hierarchical atomics, depth 4");
	for (int mode = 0; mode < RIG_MODES; mode++) {
		rows[2 + mode] =
			table_add_row(&t, rig_mode_names[mode], "ours, %s", rig_mode_names[mode]);
		if (sessions[mode].tally)
			targets[2 + mode].pool =
				rig_attach(sessions[mode].tally, "/growth/a/b/cross");
		else
			table_skip(rows[2 + mode], sessions[mode].reason);
	}
	for (unsigned i = 0; i < ELEMENTS(rows); i++)
		if (b->n_cpus < 2)
			table_skip(rows[i], "there is one CPU only");

	for (unsigned round = 0; round < b->rounds; round++)
		for (unsigned i = 0; i < ELEMENTS(rows); i++)
			if (!rows[i]->skipped)
				take_crossing(b, targets[i], rows[i]);
	table_print(&t);
	table_print_ratio("growth.ratio.daemon.crossing", NULL, rows[1], rows[2 + RIG_DAEMON], 0);
	table_print_ratio(
		"growth.ratio.embedded.crossing", NULL, rows[1], rows[2 + RIG_EMBEDDED], 0);
	for (int mode = 0; mode < RIG_MODES; mode++)
		tally_detach(targets[2 + mode].pool);
	table_free(&t);
}

/* ------------------------------------------------------------------ many keys */

struct keys {
	struct target targets[KEYS_MAX];
	struct rival_counter leaves[KEYS_MAX];
	unsigned n, next;
};

static void keys_loop(void *arg, unsigned thread, uint64_t n)
{
	struct keys *k = arg;
	unsigned next = k->next;

	(void)thread;
	for (uint64_t i = 0; i < n; i++) {
		const struct target *t = &k->targets[next];

		charge(t);
		uncharge(t);
		next = next + 1 < k->n ? next + 1 : 0;
	}
	k->next = next;
}

/* No sample contains the first charge of a pool. */
static void charge_all_once(void *arg, unsigned thread)
{
	struct keys *k = arg;

	k->next = 0;
	keys_loop(k, thread, k->n);
}

static void attach_keys(struct keys *k, struct tally *t)
{
	for (unsigned i = 0; i < KEYS_MAX; i++) {
		char path[64];

		snprintf(path, sizeof(path), "/growth/a/b/key-%u", i);
		k->targets[i].pool = rig_attach(t, path);
	}
}

static void set_up_leaves(struct keys *k)
{
	static struct rival_counter above[RIVAL_DEPTH];

	rival_counter_init_chain(above);
	for (unsigned i = 0; i < KEYS_MAX; i++) {
		rival_counter_init(&k->leaves[i], &above[1]);
		k->targets[i].counter = &k->leaves[i];
	}
}

static void run_keys(const struct bench *b)
{
	static const struct table_column columns[] = {{NULL, "a pair", "ns"}};
	static const unsigned counts[] = {1, 8, 32, KEYS_MAX};
	static struct keys keys[1 + RIG_MODES];
	struct table_row *rows[1 + RIG_MODES][ELEMENTS(counts)];
	struct table t;

	table_init(
		&t, "growth.keys", "charge and uncharge 4 KiB, pools in turn on a CPU", columns, 1);
	set_up_leaves(&keys[0]);
	for (unsigned i = 0; i < ELEMENTS(keys); i++) {
		const char *name = i == 0 ? "atomic4" : rig_mode_names[i - 1];
		const struct session *s = i == 0 ? NULL : &sessions[i - 1];

		if (s && s->tally)
			attach_keys(&keys[i], s->tally);
		for (unsigned j = 0; j < ELEMENTS(counts); j++) {
			char figure[64];

			snprintf(figure, sizeof(figure), "%s.keys%u", name, counts[j]);
			rows[i][j] = table_add_row(&t, figure, "%s, %u pool%s",
				i == 0 ? "hierarchical atomics, depth 4" : name, counts[j],
				counts[j] == 1 ? "" : "s");
			if (s && !s->tally)
				table_skip(rows[i][j], s->reason);
		}
	}

	for (unsigned round = 0; round < b->rounds; round++)
		for (unsigned i = 0; i < ELEMENTS(keys); i++)
			for (unsigned j = 0; j < ELEMENTS(counts); j++) {
				struct bench_work work = {.loop = keys_loop,
					.prepare = charge_all_once,
					.arg = &keys[i],
					.threads = 1};

				keys[i].n = counts[j];
				if (!rows[i][j]->skipped)
					table_add(rows[i][j], 0, bench_sample(b, &work));
			}
	table_print(&t);
	for (int mode = 0; mode < RIG_MODES; mode++)
		for (unsigned j = 1; j < ELEMENTS(counts); j++) {
			char figure[64];

			snprintf(figure, sizeof(figure), "growth.ratio.%s.keys%u",
				rig_mode_names[mode], counts[j]);
			table_print_ratio(figure, counts[j] == 32 ? "at most 8" : NULL,
				rows[1 + mode][j], rows[1 + mode][0], 0);
		}
	table_free(&t);
}

int main(int argc, char **argv)
{
	struct bench_option options[] = {
		{"mib", "4096", "16", "how far the pool grows, in MiB"}, {.name = NULL}};
	struct bench b;

	bench_begin(&b, "growth", options, argc, argv);
	rig_start("");
	for (int mode = 0; mode < RIG_MODES; mode++)
		sessions[mode].tally = rig_open(mode, &sessions[mode].reason);
	run_growth(&b, bench_number(&options[0]));
	run_crossing(&b);
	run_keys(&b);
	for (int mode = 0; mode < RIG_MODES; mode++)
		tally_close(sessions[mode].tally);
	return 0;
}
