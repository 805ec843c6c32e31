/* SPDX-License-Identifier: MIT */

#include "accounting.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

/* ------------------------------------------------------------------ the ways */

static int no_charge(struct accounting *a, unsigned pool, uint64_t bytes, uint64_t *fallbacks)
{
	(void)a;
	(void)pool;
	(void)bytes;
	(void)fallbacks;
	return 0;
}

static void no_uncharge(struct accounting *a, unsigned pool, uint64_t bytes, uint64_t *fallbacks)
{
	no_charge(a, pool, bytes, fallbacks);
}

static int stocks_charge(struct accounting *a, unsigned pool, uint64_t bytes, uint64_t *fallbacks)
{
	return rival_stocks_charge(a->stocks, pool, bytes, fallbacks);
}

static void stocks_uncharge(
	struct accounting *a, unsigned pool, uint64_t bytes, uint64_t *fallbacks)
{
	rival_stocks_uncharge(a->stocks, pool, bytes, fallbacks);
}

static int layers_charge(struct accounting *a, unsigned pool, uint64_t bytes, uint64_t *fallbacks)
{
	(void)pool;
	(void)fallbacks;
	return rival_layers_charge(a->layers, bytes);
}

static void layers_uncharge(
	struct accounting *a, unsigned pool, uint64_t bytes, uint64_t *fallbacks)
{
	(void)pool;
	(void)fallbacks;
	rival_layers_uncharge(a->layers, bytes);
}

static int our_charge(struct accounting *a, unsigned pool, uint64_t bytes, uint64_t *fallbacks)
{
	(void)fallbacks;
	return tally_charge_item(a->pools[pool], a->item, bytes);
}

static int our_try_charge(struct accounting *a, unsigned pool, uint64_t bytes, uint64_t *fallbacks)
{
	int r = tally_try_charge_item(a->pools[pool], a->item, bytes);

	*fallbacks += r < 0;
	return r;
}

static void our_uncharge(struct accounting *a, unsigned pool, uint64_t bytes, uint64_t *fallbacks)
{
	(void)fallbacks;
	tally_uncharge_item(a->pools[pool], a->item, bytes);
}

/* ------------------------------------------------------------------ setting up */

void accounting_init_none(struct accounting *a, const char *figure, const char *label)
{
	*a = (struct accounting){.figure = figure,
		.label = label,
		.charge = no_charge,
		.try_charge = no_charge,
		.uncharge = no_uncharge};
}

void accounting_init_stocks(struct accounting *a, const char *figure, const char *label,
	enum rival_stock_way way, unsigned n_cpus, unsigned n_pools)
{
	*a = (struct accounting){.figure = figure,
		.label = label,
		.charge = stocks_charge,
		.try_charge = stocks_charge,
		.uncharge = stocks_uncharge,
		.stocks = rival_stocks_new(way, n_cpus, n_pools)};
	if (!a->stocks)
		bench_die("out of memory");
}

void accounting_init_layers(struct accounting *a, const char *figure, const char *label,
	bool into_stock, unsigned n_cpus)
{
	*a = (struct accounting){.figure = figure,
		.label = label,
		.charge = layers_charge,
		.try_charge = layers_charge,
		.uncharge = layers_uncharge};
	rival_counter_init_chain(a->counter);
	a->layers = rival_layers_new(into_stock, n_cpus, a->counter);
	if (!a->layers)
		bench_die("out of memory");
}

void accounting_init_ours(struct accounting *a, const char *figure, const char *label,
	enum rig_mode mode, const char *dir, unsigned n_pools, const char *item)
{
	*a = (struct accounting){.figure = figure,
		.label = label,
		.charge = our_charge,
		.try_charge = our_try_charge,
		.uncharge = our_uncharge,
		.pools = bench_allocate(n_pools, sizeof(*a->pools))};
	a->tally = rig_open(mode, &a->reason);
	if (!a->tally)
		return;
	a->item = item ? rig_item(a->tally, item) : 0;
	for (; a->n_pools < n_pools; a->n_pools++) {
		char path[128];

		snprintf(path, sizeof(path), "%s/%03u", dir, a->n_pools);
		a->pools[a->n_pools] = rig_attach(a->tally, path);
	}
}

void accounting_free(struct accounting *a)
{
	for (unsigned i = 0; i < a->n_pools; i++)
		tally_detach(a->pools[i]);
	tally_close(a->tally);
	free(a->pools);
	rival_stocks_free(a->stocks);
	rival_layers_free(a->layers);
}

/* ------------------------------------------------------------------ looking at it */

int64_t accounting_operations(const struct accounting *a)
{
	int64_t grants, rings;

	if (a->layers)
		return (int64_t)rival_layers_operations(a->layers);
	if (!a->tally)
		return -1;
	grants = rig_value(a->tally, "/", "tallyd.status", "grants");
	rings = rig_value(a->tally, "/", "tallyd.status", "rings");
	return grants < 0 || rings < 0 ? -1 : grants + rings;
}

static int64_t left_in(struct accounting *a)
{
	int64_t left = 0;

	if (a->stocks)
		return rival_stocks_drain(a->stocks);
	for (unsigned i = 0; i < a->n_pools; i++)
		left += rig_value(a->tally, tally_pool_path(a->pools[i]), "memory.stat", "held");
	return left;
}

void accounting_check(struct accounting *a)
{
	int64_t left = a->reason ? 0 : left_in(a);

	if (left != 0)
		bench_die("%s: %lld bytes left", a->label, (long long)left);
}
