/* SPDX-License-Identifier: MIT */

/*
 * What the daemon shows, beside what the books say.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stress.h"

/* Whether `path` is the pool, or below it. */
static bool is_below(const char *path, const char *pool)
{
	size_t n = strlen(pool);

	return strncmp(path, pool, n) == 0 && (path[n] == '\0' || path[n] == '/' || n == 1);
}

static uint64_t sum_of_handle(const struct stress_client *c, unsigned h, unsigned i)
{
	uint64_t sum = 0;

	for (unsigned n = 0; n < STRESS_THREADS; n++)
		sum += c->threads[n].own.held[h][i] + c->threads[n].in_handler.held[h][i];
	return sum;
}

/* What the subtree of the pool holds by the books, with one item. */
static uint64_t sum_of(const struct stress *s, const char *pool, unsigned i)
{
	uint64_t sum = 0;

	for (unsigned n = 0; n < STRESS_CLIENTS; n++) {
		const struct stress_client *c = &s->clients[n];

		for (unsigned h = 0; h < STRESS_HANDLES; h++)
			if (is_below(stress_pools[h % STRESS_POOLS], pool))
				sum += sum_of_handle(c, h, i);
		if (is_below(STRESS_GUEST, pool))
			sum += c->guest_held[i];
	}
	return sum;
}

static unsigned compare(const char *pool, const char *what, uint64_t shown, uint64_t wanted)
{
	if (shown == wanted)
		return 0;
	printf("# %s: %s is %" PRIu64 ", and should be %" PRIu64 "\n", pool, what, shown, wanted);
	return 1;
}

static unsigned compare_pool(
	struct tally *t, const struct stress *s, const char *pool, bool is_zero)
{
	uint64_t held = 0, wanted;
	unsigned differences = 0;

	for (unsigned i = 0; i < STRESS_ITEMS; i++) {
		wanted = is_zero ? 0 : sum_of(s, pool, i);
		held += wanted;
		if (stress_items[i])
			differences += compare(pool, stress_items[i],
				harness_value(t, pool, "memory.stat", stress_items[i]), wanted);
	}
	differences += compare(
		pool, "memory.stat held", harness_value(t, pool, "memory.stat", "held"), held);
	return differences + compare(pool, "memory.current", harness_current(t, pool), held);
}

unsigned audit_held(struct tally *t, const struct stress *s, bool is_zero)
{
	unsigned differences = compare_pool(t, s, "/", is_zero);

	for (unsigned p = 0; p < STRESS_POOLS; p++)
		differences += compare_pool(t, s, stress_pools[p], is_zero);
	return differences + compare_pool(t, s, STRESS_GUEST, is_zero);
}

static unsigned compare_empty(struct tally *t, const char *pool)
{
	unsigned differences = 0;
	uint64_t peak;
	char *text;

	differences += compare(pool, "stock", harness_value(t, pool, "memory.stat", "stock"), 0);
	differences +=
		compare(pool, "overdraft", harness_value(t, pool, "memory.stat", "overdraft"), 0);
	/* The highest since now: what the counter is. */
	assert_int_equal(tally_set(t, pool, "memory.peak", "now"), 0);
	text = harness_get(t, pool, "memory.peak");
	peak = strtoull(text, NULL, 10);
	free(text);
	return differences + compare(pool, "memory.peak", peak, 0);
}

unsigned audit_empty(struct tally *t, const struct stress *s)
{
	unsigned differences = audit_held(t, s, true) + compare_empty(t, "/");

	for (unsigned p = 0; p < STRESS_POOLS; p++)
		differences += compare_empty(t, stress_pools[p]);
	return differences + compare_empty(t, STRESS_GUEST);
}
