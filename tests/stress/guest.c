/* SPDX-License-Identifier: MIT */

#include "guest.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker.h"

struct guest *guests_enter(struct guests *gs)
{
	struct guest *g;

	pthread_mutex_lock(&gs->lock);
	g = gs->present;
	if (g) {
		g->refs++;
		tally_pool_ref(g->pool);
		gs->shared->visits++;
	}
	pthread_mutex_unlock(&gs->lock);
	return g;
}

/* Returns whether it was the last one. */
static bool drop(struct guest *g)
{
	bool last;

	pthread_mutex_lock(&g->guests->lock);
	last = --g->refs == 0;
	pthread_mutex_unlock(&g->guests->lock);
	return last;
}

void guest_leave(struct guest *g)
{
	tally_pool_unref(g->pool);
	if (drop(g))
		free(g);
}

static void show(struct guests *gs, struct guest *g)
{
	pthread_mutex_lock(&gs->lock);
	gs->present = g;
	pthread_mutex_unlock(&gs->lock);
}

/* Every extent of the session's keys is a memfd that is mapped, and so is the base. */
static uint64_t count_extents(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[4608];
	uint64_t n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, "memfd:tally-rw") != NULL;
	fclose(f);
	return n > 0 ? n - 1 : 0;
}

static struct guest *arrive(struct guests *gs)
{
	struct guest *g = calloc(1, sizeof(*g));

	if (!g)
		abort();
	g->guests = gs;
	g->refs = 1;
	g->pool = harness_attach(gs->tally, STRESS_GUEST);
	if (gs->shared->guests++ % 32 == 0)
		gs->shared->extents = count_extents();
	show(gs, g);
	return g;
}

/* Others may be in the middle of a charge. */
static void depart(struct guest *g)
{
	show(g->guests, NULL);
	tally_detach(g->pool);
	if (drop(g))
		free(g);
}

void guests_run(struct guests *gs, struct worker *w)
{
	for (;;) {
		struct guest *g = arrive(gs);

		for (uint64_t n = worker_random(&w->seed) % 8; n > 0; n--) {
			worker_visit(w, g);
			sched_yield();
		}
		w->shared->operations++;
		if (atomic_load(w->stop))
			break;
		depart(g);
	}
}

void guests_end(struct guests *gs)
{
	depart(gs->present);
}
