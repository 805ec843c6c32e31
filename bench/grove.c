/* SPDX-License-Identifier: MIT */

#include "grove.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "rig.h"

#define PART 5 /* "/NNNN" */
#define SIDE_MAX 9999

void grove_init(struct grove *g, const char *top, unsigned n)
{
	unsigned side = 1;

	if (n == 0 || strlen(top) > GROVE_TOP_MAX)
		bench_die("no such pools");
	while (side * side < n)
		if (++side > SIDE_MAX)
			bench_die("so many pools are too many");
	g->n = n;
	g->top = top;
	g->n_above = (n + side - 1) / side;
	g->paths = bench_allocate(n, sizeof(*g->paths));
	for (unsigned i = 0; i < n; i++)
		snprintf(g->paths[i], sizeof(g->paths[i]), "%s/%04u/%04u", top, i / side % 10000,
			i % side % 10000);
}

void grove_free(struct grove *g)
{
	free(g->paths);
}

/* The first leaf of each pool above them stands for that. */
static bool is_first(const struct grove *g, unsigned i)
{
	return i == 0 || strncmp(g->paths[i], g->paths[i - 1], strlen(g->top) + PART) != 0;
}

static const char *above(const struct grove *g, unsigned i, char path[static GROVE_PATH])
{
	snprintf(path, GROVE_PATH, "%.*s", (int)strlen(g->top) + PART, g->paths[i]);
	return path;
}

void grove_create(const struct grove *g, struct tally *t)
{
	for (unsigned i = 0; i < g->n; i++) {
		char path[GROVE_PATH];

		if (is_first(g, i))
			rig_check(tally_create(t, above(g, i, path)), "tally_create");
		rig_check(tally_create(t, g->paths[i]), "tally_create");
	}
}

void grove_remove(const struct grove *g, struct tally *t)
{
	for (unsigned i = 0; i < g->n; i++) {
		char path[GROVE_PATH];

		rig_check(tally_remove(t, g->paths[i], 0), "tally_remove");
		if (i + 1 == g->n || is_first(g, i + 1))
			rig_check(tally_remove(t, above(g, i, path), 0), "tally_remove");
	}
}

struct tally_pool **grove_attach(const struct grove *g, struct tally *t)
{
	struct tally_pool **pools = bench_allocate(g->n, sizeof(*pools));

	for (unsigned i = 0; i < g->n; i++)
		pools[i] = rig_attach(t, g->paths[i]);
	return pools;
}

void grove_detach(const struct grove *g, struct tally_pool **pools)
{
	for (unsigned i = 0; pools && i < g->n; i++)
		tally_detach(pools[i]);
	free(pools);
}
