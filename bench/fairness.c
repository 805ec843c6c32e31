/* SPDX-License-Identifier: MIT */

/*
 * Clients at a limit that has room for half of them: whether each gets its share, how long the
 * unlucky ones wait, and what one that never rests leaves to the others. By charges that are refused
 * and tried again, by charges that block in line, and by requests of an event loop.
 */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "core/util.h"
#include "latency.h"
#include "rig.h"
#include "table.h"

#define CLIENTS_MAX 32
#define BYTES (UINT64_C(64) << 10)
#define HOLD_NSEC 200000 /* how long what was charged is in use */
#define RETRY_NSEC 500000

enum way {
	RETRIED,
	BLOCKING,
	REQUESTED,
	WAYS,
};

static const char *const way_names[WAYS] = {"retried", "blocking", "requested"};
static const char *const way_labels[WAYS] = {
	"refused and tried again", "in line, blocking", "in line, by requests"};

struct client {
	_Atomic uint64_t n;
	struct latency latency;
};

struct arena {
	_Atomic unsigned ready;
	_Atomic bool begin, stop;
	struct client clients[CLIENTS_MAX];
};

struct part {
	struct arena *arena;
	enum way way;
	struct tally *tally;
	struct tally_pool *pool;
	struct tally_queue *queue;
	bool greedy; /* it never rests */
	int result;
};

static void on_done(struct tally_request *r, int result, void *userdata)
{
	(void)r;
	*(int *)userdata = result;
}

static int charge(struct part *p)
{
	struct tally_charge_args a = {.bytes = BYTES};
	int result = 1;

	if (p->way == RETRIED) {
		int r = tally_charge(p->pool, BYTES);

		if (r == -ENOMEM && !p->greedy)
			bench_sleep(RETRY_NSEC);
		return r;
	}
	a.deadline_usec = bench_now() / 1000 + 100000;
	if (p->way == BLOCKING)
		return tally_charge_with(p->pool, &a, sizeof(a));
	rig_check(tally_request(p->queue, p->pool, &a, sizeof(a), on_done, &result, NULL),
		"a request");
	while (result > 0) {
		struct pollfd fd = {.fd = tally_queue_fd(p->queue), .events = POLLIN};

		poll(&fd, 1, -1);
		if (tally_queue_dispatch(p->queue) < 0)
			bench_die("a queue cannot be dispatched");
	}
	return result;
}

_Noreturn static void be_client(struct part *p, struct client *c)
{
	const char *reason;

	p->tally = rig_open(RIG_DAEMON, &reason);
	p->pool = rig_attach(p->tally, "/fair/p");
	if (p->way == REQUESTED)
		rig_check(tally_queue_new(p->tally, &p->queue), "a queue");
	atomic_fetch_add(&p->arena->ready, 1);
	while (!atomic_load(&p->arena->begin))
		bench_sleep(100000);
	while (!atomic_load(&p->arena->stop)) {
		uint64_t before = bench_now();
		int r;

		do
			r = charge(p);
		while ((r == -ENOMEM || r == -ETIMEDOUT) && !atomic_load(&p->arena->stop));
		if (r < 0)
			break;
		latency_add(&c->latency, bench_now() - before);
		atomic_fetch_add(&c->n, 1);
		if (!p->greedy)
			bench_sleep(HOLD_NSEC);
		tally_uncharge(p->pool, BYTES);
		if (!p->greedy)
			bench_sleep(HOLD_NSEC);
	}
	_exit(0);
}

/* One sample: all do the same for so long, or the first one never rests. */
static struct arena *compete(const struct bench *b, enum way way, unsigned n, bool greedy)
{
	struct arena *a =
		mmap(NULL, sizeof(*a), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[CLIENTS_MAX];

	if (a == MAP_FAILED)
		bench_die("no memory");
	for (unsigned i = 0; i < n; i++) {
		struct part p = {.arena = a, .way = way, .greedy = greedy && i == 0};

		pids[i] = fork();
		if (pids[i] == 0)
			be_client(&p, &a->clients[i]);
		if (pids[i] < 0)
			bench_die("no process");
	}
	while (atomic_load(&a->ready) < n)
		bench_sleep(1000000);
	atomic_store(&a->begin, true);
	bench_sleep(b->quick ? 100000000 : 2000000000);
	atomic_store(&a->stop, true);
	for (unsigned i = 0; i < n; i++)
		waitpid(pids[i], NULL, 0);
	return a;
}

struct outcome {
	double mean, least;
	double p50, p99, longest;
};

static struct outcome judge(struct arena *a, unsigned first, unsigned n)
{
	struct outcome o = {.least = 1e18};
	struct latency all = {.n = 0};

	for (unsigned i = first; i < n; i++) {
		double got = (double)atomic_load(&a->clients[i].n);

		o.mean += got / (n - first);
		o.least = got < o.least ? got : o.least;
		latency_merge(&all, &a->clients[i].latency);
	}
	o.p50 = latency_quantile(&all, 0.5) / 1000;
	o.p99 = latency_quantile(&all, 0.99) / 1000;
	o.longest = latency_quantile(&all, 1) / 1000;
	munmap(a, sizeof(*a));
	return o;
}

static void run(const struct bench *b, struct tally *t, enum way way, unsigned n,
	struct table_row *equal, struct table_row *greedy)
{
	struct outcome o, g;
	char max[32];

	snprintf(max, sizeof(max), "%llu", (unsigned long long)((n + 1) / 2 * BYTES));
	rig_check(tally_set(t, "/fair", "memory.max", max), "a limit");
	o = judge(compete(b, way, n, false), 0, n);
	g = judge(compete(b, way, n, true), 1, n);
	table_add(equal, 0, o.mean > 0 ? o.least / o.mean : 0);
	table_add(equal, 1, o.mean / (b->quick ? 0.1 : 2));
	table_add(equal, 2, o.p50);
	table_add(equal, 3, o.p99);
	table_add(equal, 4, o.longest);
	/* The share of the slowest of those that rest, of what it gets where all do. */
	table_add(greedy, 0, o.mean > 0 ? g.least / o.mean : 0);
	table_add(greedy, 1, g.mean / (b->quick ? 0.1 : 2));
	table_add(greedy, 2, g.p50);
	table_add(greedy, 3, g.p99);
	table_add(greedy, 4, g.longest);
}

int main(int argc, char **argv)
{
	static const struct table_column columns[] = {{"share", "slowest", "of an equal share"},
		{"rate", "each", "1/s"}, {"p50", "p50", "us"}, {"p99", "p99", "us"},
		{"max", "longest", "us"}};
	static const unsigned clients[] = {2, 8, CLIENTS_MAX};
	struct bench_option options[] = {{.name = NULL}};
	struct table_row *rows[WAYS][ELEMENTS(clients)][2];
	struct table table;
	struct tally *t;
	const char *reason;
	struct bench b;

	bench_begin(&b, "fairness", options, argc, argv);
	rig_start("[daemon]\nbatch = 64K\n");
	t = rig_open(RIG_DAEMON, &reason);
	rig_attach(t, "/fair/p");
	table_init(&table, "fairness", "clients at a limit with room for half of them", columns,
		ELEMENTS(columns));
	for (enum way w = 0; w < WAYS; w++)
		for (unsigned i = 0; i < ELEMENTS(clients); i++) {
			char figure[64];

			snprintf(figure, sizeof(figure), "%s%u", way_names[w], clients[i]);
			rows[w][i][0] =
				table_add_row(&table, figure, "%u, %s", clients[i], way_labels[w]);
			snprintf(figure, sizeof(figure), "%s%u.greedy", way_names[w], clients[i]);
			rows[w][i][1] =
				table_add_row(&table, figure, "%u, %s, beside one that never rests",
					clients[i] - 1, way_labels[w]);
		}
	for (unsigned round = 0; round < b.rounds; round++)
		for (enum way w = 0; w < WAYS; w++)
			for (unsigned i = 0; i < ELEMENTS(clients); i++)
				run(&b, t, w, clients[i], rows[w][i][0], rows[w][i][1]);
	table_print(&table);
	table_free(&table);
	return 0;
}
