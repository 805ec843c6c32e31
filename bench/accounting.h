/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Ways of accounting, under one face, for the benchmarks that replay a whole load: nothing at all,
 * the kernel's stocks, and ours. The call through a pointer is the same for all.
 */

#include <stdint.h>

#include "rig.h"
#include "rivals.h"

struct accounting {
	const char *figure, *label;
	const char *reason; /* why it cannot be measured; NULL: it can */

	/* Charges and uncharges the pool of that number. 0, or negative: charge() may wait until it
	 * succeeds, try_charge() may be called from a signal handler, as uncharge(). *fallbacks
	 * counts how often it had to do without its stock. */
	int (*charge)(struct accounting *a, unsigned pool, uint64_t bytes, uint64_t *fallbacks);
	int (*try_charge)(struct accounting *a, unsigned pool, uint64_t bytes, uint64_t *fallbacks);
	void (*uncharge)(struct accounting *a, unsigned pool, uint64_t bytes, uint64_t *fallbacks);

	struct rival_stocks *stocks;
	struct rival_layers *layers;
	struct rival_counter counter[RIVAL_DEPTH]; /* under the layers */
	struct tally *tally;
	struct tally_pool **pools;
	unsigned n_pools;
	tally_item item;
};

void accounting_init_none(struct accounting *a, const char *figure, const char *label);

void accounting_init_stocks(struct accounting *a, const char *figure, const char *label,
	enum rival_stock_way way, unsigned n_cpus, unsigned n_pools);

/* One pool. */
void accounting_init_layers(struct accounting *a, const char *figure, const char *label,
	bool into_stock, unsigned n_cpus);

/* Pools DIR/000 and so on; `item` NULL: none. */
void accounting_init_ours(struct accounting *a, const char *figure, const char *label,
	enum rig_mode mode, const char *dir, unsigned n_pools, const char *item);

/*
 * Charges and uncharges of the hierarchical counter so far, -1 if nobody knows; over a daemon the
 * grants and the doorbells that it answered.
 */
int64_t accounting_operations(const struct accounting *a);

/* Ends the benchmark unless all that was charged has been uncharged: whoever loses bytes or invents
 * them is not to be compared with. Nobody may charge. */
void accounting_check(struct accounting *a);

void accounting_free(struct accounting *a);
