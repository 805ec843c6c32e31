/* SPDX-License-Identifier: MIT */

/*
 * A storm of events: processes hit a limit as fast as they can, one watches, one watches and never
 * dispatches. Who watches is told at most a hundred times a second, and in the end the last state;
 * every refusal is counted once; and the daemon is no bigger afterwards.
 *
 *	events SECONDS
 *
 * Prints lines of TAP without numbers, and what it has measured.
 */

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../harness.h"

#define HITTERS 2
#define BIG (UINT64_C(1024) * 1024)
/* The daemon's caches and records are full by then. */
#define WARM_UP_SECONDS 2
#define GROWTH_KIB 1024

struct storm {
	char address[128];
	_Atomic bool stop;
	_Atomic uint64_t refused[HITTERS];
	_Atomic uint64_t errors;
};

struct hitter {
	struct storm *storm;
	unsigned number;
};

struct heard {
	uint64_t told, max, oom; /* messages with MAX; the last counts */
};

static unsigned failed;

static void report(bool good, const char *what)
{
	printf("%s - events: %s\n", good ? "ok" : "not ok", what);
	fflush(stdout);
	failed += !good;
}

static int hit(void *userdata)
{
	struct hitter *me = userdata;
	struct storm *s = me->storm;
	struct tally_pool *p;
	struct tally *t;

	if (tally_open(s->address, 0, &t) < 0 || tally_attach(t, "/storm/below", 0, &p) < 0)
		return 1;
	while (!atomic_load(&s->stop)) {
		int r = tally_charge(p, BIG);

		if (r == -ENOMEM)
			atomic_fetch_add(&s->refused[me->number], 1);
		else
			atomic_fetch_add(&s->errors, 1);
	}
	tally_detach(p);
	tally_close(t);
	return 0;
}

static void on_event(const char *path, const struct tally_event *e, void *userdata)
{
	struct heard *heard = userdata;

	(void)path;
	if (e->type == TALLY_EVENT_MAX) {
		heard->told++;
		heard->max = e->count;
	} else if (e->type == TALLY_EVENT_OOM)
		heard->oom = e->count;
}

static void listen_until(struct tally *t, uint64_t end_usec)
{
	struct pollfd p = {.fd = tally_fd(t), .events = POLLIN};

	for (uint64_t now = harness_now(); now < end_usec; now = harness_now()) {
		poll(&p, 1, (int)((end_usec - now) / 1000) + 1);
		assert_true(tally_dispatch(t) >= 0);
	}
}

static void run(struct harness *h, struct storm *s, unsigned seconds)
{
	struct tally *t = harness_open(h), *deaf = harness_open(h);
	struct heard heard = {0}, unheard = {0};
	struct tally_watch *w, *unheard_w;
	uint64_t before, after, began, took, told, refused = 0, oom, max;
	pid_t pids[HITTERS];

	tally_detach(harness_attach(t, "/storm/below"));
	assert_int_equal(tally_set(t, "/storm", "memory.max", "64K"), 0);
	assert_int_equal(tally_watch(t, "/storm", on_event, &heard, &w), 0);
	assert_int_equal(tally_watch(deaf, "/storm", on_event, &unheard, &unheard_w), 0);
	for (unsigned i = 0; i < HITTERS; i++)
		pids[i] = harness_fork(hit, &(struct hitter){s, i});
	listen_until(t, harness_now() + WARM_UP_SECONDS * UINT64_C(1000000));

	before = harness_memory_kib(h);
	told = heard.told;
	began = harness_now();
	listen_until(t, began + seconds * UINT64_C(1000000));
	told = heard.told - told;
	took = harness_now() - began;
	after = harness_memory_kib(h);

	atomic_store(&s->stop, true);
	for (unsigned i = 0; i < HITTERS; i++) {
		harness_join(pids[i], 0);
		refused += atomic_load(&s->refused[i]);
	}
	listen_until(t, harness_now() + 100000);
	oom = harness_value(t, "/storm", "memory.events", "oom");
	max = harness_value(t, "/storm", "memory.events", "max");

	printf("# events: %" PRIu64 " refusals in %u s; %" PRIu64
	       " notifications in %.1f s, %.1f a "
	       "second; the daemon: %" PRIu64 " KiB before, %" PRIu64 " KiB after\n",
		refused, seconds + WARM_UP_SECONDS, told, (double)took / 1e6,
		(double)told / ((double)took / 1e6), before, after);
	report(told > 0 && told <= took / 10000 + 2, "at most 100 notifications a second");
	report(heard.max == max && heard.oom == oom, "the last state is told");
	report(oom == refused && atomic_load(&s->errors) == 0, "oom counts each refusal once");
	if (harness_is_bare(h))
		report(after < before + GROWTH_KIB, "the daemon grows by less than 1 MiB");
	report(tally_dispatch(deaf) > 0 && unheard.told < 100,
		"who never dispatched has a few of the notifications");
	listen_until(deaf, harness_now() + 100000);
	report(unheard.max == max && unheard.oom == oom, "and the last state too");
	tally_unwatch(w);
	tally_unwatch(unheard_w);
	tally_close(deaf);
	tally_close(t);
}

int main(int argc, char **argv)
{
	unsigned seconds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 3;
	struct storm *s = harness_shared(sizeof(*s));
	struct harness h;

	harness_start(&h, "");
	snprintf(s->address, sizeof(s->address), "%s", h.address);
	run(&h, s, seconds);
	harness_stop(&h);
	harness_unshare(s, sizeof(*s));
	return failed > 0;
}
