/* SPDX-License-Identifier: MIT */

/*
 * Two layers of caching, one in bytes, one in pages: the construction whose draining made every
 * second allocation of a page and a few bytes hit the shared counter.
 */

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "core/util.h"
#include "rivals.h"

#define PAGE 4096
#define BATCH 32 /* pages */

struct layer {
	alignas(64) pthread_mutex_t mutex;
	bool has_bytes; /* the byte stock is in use: its pool is that of the last uncharge or charge */
	uint32_t bytes;
	uint32_t pages;
	_Atomic uint64_t operations;
};

struct rival_layers {
	bool into_stock;
	unsigned n_cpus;
	struct rival_counter *counter;
	struct layer *cpus;
	alignas(64) _Atomic uint32_t rest; /* bytes of a page that a drained byte stock left over */
};

/* ------------------------------------------------------------------ pages */

/* One writer at a time, so that no atomic addition is needed. */
static void count_operation(struct layer *cpu)
{
	uint64_t n = atomic_load_explicit(&cpu->operations, memory_order_relaxed);

	atomic_store_explicit(&cpu->operations, n + 1, memory_order_relaxed);
}

static void uncharge_counter(struct rival_layers *l, struct layer *cpu, uint64_t pages)
{
	rival_counter_uncharge(l->counter, pages * PAGE);
	count_operation(cpu);
}

static void refill_pages(struct rival_layers *l, struct layer *cpu, uint32_t pages)
{
	cpu->pages += pages;
	if (cpu->pages > BATCH) {
		uncharge_counter(l, cpu, cpu->pages);
		cpu->pages = 0;
	}
}

static int charge_pages(struct rival_layers *l, struct layer *cpu, uint32_t pages)
{
	uint32_t batch = pages < BATCH ? BATCH : pages;

	if (pages <= BATCH && cpu->pages >= pages) {
		cpu->pages -= pages;
		return 0;
	}
	count_operation(cpu);
	if (rival_counter_charge(l->counter, (uint64_t)batch * PAGE) < 0)
		return -ENOMEM;
	if (batch > pages)
		refill_pages(l, cpu, batch - pages);
	return 0;
}

/* ------------------------------------------------------------------ bytes */

static void drain_bytes(struct rival_layers *l, struct layer *cpu)
{
	uint32_t pages = cpu->bytes / PAGE;

	if (pages > 0 && l->into_stock)
		refill_pages(l, cpu, pages);
	else if (pages > 0)
		uncharge_counter(l, cpu, pages);
	if (cpu->bytes % PAGE != 0)
		atomic_fetch_add(&l->rest, cpu->bytes % PAGE);
	cpu->bytes = 0;
	cpu->has_bytes = false;
}

static void refill_bytes(struct rival_layers *l, struct layer *cpu, uint32_t bytes)
{
	if (!cpu->has_bytes) {
		cpu->bytes = atomic_exchange(&l->rest, 0);
		cpu->has_bytes = true;
	}
	cpu->bytes += bytes;
	if (cpu->bytes > PAGE)
		drain_bytes(l, cpu);
}

static int charge_bytes(struct rival_layers *l, struct layer *cpu, uint32_t bytes)
{
	int r;

	if (cpu->has_bytes && cpu->bytes >= bytes) {
		cpu->bytes -= bytes;
		return 0;
	}
	r = charge_pages(l, cpu, (bytes + PAGE - 1) / PAGE);
	if (r == 0 && bytes % PAGE != 0)
		refill_bytes(l, cpu, PAGE - bytes % PAGE);
	return r;
}

/* ------------------------------------------------------------------ to the outside */

static struct layer *lock(struct rival_layers *l)
{
	struct layer *cpu = &l->cpus[sched_getcpu()];

	pthread_mutex_lock(&cpu->mutex);
	return cpu;
}

int rival_layers_charge(struct rival_layers *l, uint64_t bytes)
{
	struct layer *cpu = lock(l);
	int r = charge_bytes(l, cpu, (uint32_t)bytes);

	pthread_mutex_unlock(&cpu->mutex);
	return r;
}

void rival_layers_uncharge(struct rival_layers *l, uint64_t bytes)
{
	struct layer *cpu = lock(l);

	refill_bytes(l, cpu, (uint32_t)bytes);
	pthread_mutex_unlock(&cpu->mutex);
}

uint64_t rival_layers_operations(const struct rival_layers *l)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < l->n_cpus; i++)
		sum += atomic_load_explicit(&l->cpus[i].operations, memory_order_relaxed);
	return sum;
}

struct rival_layers *rival_layers_new(
	bool into_stock, unsigned n_cpus, struct rival_counter *counter)
{
	struct rival_layers *l = aligned_alloc(64, sizeof(*l));
	struct layer *cpus = aligned_alloc(64, n_cpus * sizeof(*cpus));

	if (!l || !cpus) {
		free(l);
		free(cpus);
		return NULL;
	}
	*l = (struct rival_layers){
		.into_stock = into_stock, .n_cpus = n_cpus, .counter = counter, .cpus = cpus};
	for (unsigned i = 0; i < n_cpus; i++) {
		cpus[i] = (struct layer){.bytes = 0};
		pthread_mutex_init(&cpus[i].mutex, NULL);
	}
	return l;
}

struct rival_layers *rival_layers_free(struct rival_layers *l)
{
	if (l)
		free(l->cpus);
	free(l);
	return NULL;
}
