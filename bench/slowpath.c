/* SPDX-License-Identifier: MIT */

/*
 * What happens beside the hit path, between a program and the daemon: charges that always need it,
 * sessions that come and go, the credit that idle sessions keep from others, and how long it takes
 * to get credit back from a CPU that idles and from one that is busy.
 */

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bench.h"
#include "core/util.h"
#include "latency.h"
#include "rig.h"
#include "table.h"

static struct tally *open_session(void)
{
	const char *reason;

	return rig_open(RIG_DAEMON, &reason);
}

static double microseconds(double ticks)
{
	return bench_ticks_to_nsec(ticks) / 1000;
}

/* ------------------------------------------------------------------ requests */

/* More than any batch and reserve, and in all less than an attachment can hold. */
#define BIG (UINT64_C(4) << 30)
#define REQUESTS 1024
#define REQUESTERS_MAX 8

struct requests {
	struct tally *tally;
	uint64_t n;
	pthread_barrier_t begin;
	uint64_t start[REQUESTERS_MAX], end[REQUESTERS_MAX];
	struct latency latency[REQUESTERS_MAX];
};

/* Detaching gives all back at once: an uncharge would leave credit for the next charge. */
static void request(void *arg, unsigned thread)
{
	struct requests *q = arg;
	struct tally_pool *p;
	char path[64];
	uint64_t now;

	snprintf(path, sizeof(path), "/slow/a/b/%u", thread);
	p = rig_attach(q->tally, path);
	pthread_barrier_wait(&q->begin);
	q->start[thread] = bench_now();
	now = bench_ticks();
	for (uint64_t i = 0; i < q->n; i++) {
		uint64_t before = now;

		rig_check(tally_charge(p, BIG), "a charge");
		now = bench_ticks();
		latency_add(&q->latency[thread], now - before);
	}
	q->end[thread] = bench_now();
	pthread_barrier_wait(&q->begin);
	tally_detach(p);
}

static void take_requests(
	const struct bench *b, struct tally *t, unsigned threads, uint64_t n, struct table_row *r)
{
	struct requests *q = bench_allocate(1, sizeof(*q));
	int64_t grants = rig_value(t, "/", "tallyd.status", "grants");
	uint64_t start = UINT64_MAX, end = 0;
	struct latency all = {.n = 0};

	q->tally = t;
	q->n = n;
	pthread_barrier_init(&q->begin, NULL, threads);
	bench_threads(b, threads, request, q);
	pthread_barrier_destroy(&q->begin);
	for (unsigned i = 0; i < threads; i++) {
		start = q->start[i] < start ? q->start[i] : start;
		end = q->end[i] > end ? q->end[i] : end;
		latency_merge(&all, &q->latency[i]);
	}
	grants = rig_value(t, "/", "tallyd.status", "grants") - grants;
	table_add(r, 0, (double)all.n * 1e9 / (double)(end - start));
	table_add(r, 1, microseconds(latency_quantile(&all, 0.5)));
	table_add(r, 2, microseconds(latency_quantile(&all, 0.99)));
	table_add(r, 3, (double)grants / (double)all.n);
	free(q);
}

static void run_requests(const struct bench *b)
{
	static const struct table_column columns[] = {{"rate", "requests", "1/s"},
		{"p50", "p50", "us"}, {"p99", "p99", "us"}, {"grants", "grants", "1/charge"}};
	static const unsigned threads[] = {1, 2, REQUESTERS_MAX};
	struct table_row *rows[ELEMENTS(threads)];
	struct tally *t = open_session();
	struct table table;

	table_init(&table, "slowpath.requests", "charges that need the daemon", columns,
		ELEMENTS(columns));
	for (unsigned i = 0; i < ELEMENTS(threads); i++) {
		char figure[64];

		snprintf(figure, sizeof(figure), "threads%u", threads[i]);
		rows[i] = table_add_row(&table, figure, "threads, a pool each: %u", threads[i]);
	}
	for (unsigned round = 0; round < b->rounds; round++)
		for (unsigned i = 0; i < ELEMENTS(threads); i++)
			take_requests(
				b, t, threads[i], b->quick ? REQUESTS / 16 : REQUESTS, rows[i]);
	table_print(&table);
	table_free(&table);
	tally_close(t);
}

/* ------------------------------------------------------------------ sessions */

static void open_loop(void *arg, unsigned thread, uint64_t n)
{
	(void)arg;
	(void)thread;
	for (uint64_t i = 0; i < n; i++)
		tally_close(open_session());
}

static void use_loop(void *arg, unsigned thread, uint64_t n)
{
	(void)arg;
	(void)thread;
	for (uint64_t i = 0; i < n; i++) {
		struct tally *t = open_session();
		struct tally_pool *p = rig_attach(t, "/slow/a/b/session");

		rig_check(tally_charge(p, 4096), "a charge");
		tally_detach(p);
		tally_close(t);
	}
}

static void run_sessions(const struct bench *b)
{
	static const struct table_column columns[] = {{NULL, "sessions", "1/s"}};
	const struct {
		const char *figure, *label;
		struct bench_work work;
	} variants[] = {
		{"open", "open, close", {.loop = open_loop, .threads = 1}},
		{"use", "open, attach, charge, detach, close", {.loop = use_loop, .threads = 1}},
	};
	struct table_row *rows[ELEMENTS(variants)];
	struct table t;

	table_init(&t, "slowpath.sessions", "sessions set up and ended, one after the other",
		columns, 1);
	for (unsigned i = 0; i < ELEMENTS(variants); i++)
		rows[i] = table_add_row(&t, variants[i].figure, "%s", variants[i].label);
	for (unsigned round = 0; round < b->rounds; round++)
		for (unsigned i = 0; i < ELEMENTS(variants); i++)
			table_add(rows[i], 0, 1e9 / bench_sample(b, &variants[i].work));
	table_print(&t);
	table_free(&t);
}

/* ------------------------------------------------------------------ idle credit */

struct idle {
	uint64_t n;
	struct tally **sessions;
	struct tally_pool **pools;
};

static void use_once(void *arg, unsigned thread)
{
	struct idle *idle = arg;

	(void)thread;
	for (uint64_t i = 0; i < idle->n; i++) {
		rig_check(tally_charge(idle->pools[i], 4096), "a charge");
		tally_uncharge(idle->pools[i], 4096);
	}
}

static double stock_of_each(const struct idle *idle)
{
	return (double)rig_value(idle->sessions[0], "/slow/idle", "memory.stat", "stock") / 1024 /
		(double)idle->n;
}

/* Once, not in rounds: nothing here is a matter of time. */
static void run_idle(const struct bench *b, uint64_t n, uint64_t seconds)
{
	static const struct table_column columns[] = {{NULL, "of each session", "KiB"}};
	struct idle idle = {.n = n,
		.sessions = bench_allocate(n, sizeof(*idle.sessions)),
		.pools = bench_allocate(n, sizeof(*idle.pools))};
	struct table_row *at_once, *later;
	struct table t;

	if (n == 0)
		bench_die("of no sessions nothing can be said");
	table_init(&t, "slowpath.idle", "idle credit of sessions that charged once on each CPU",
		columns, 1);
	at_once = table_add_row(&t, "at_once", "%llu sessions, at once", (unsigned long long)n);
	later = table_add_row(&t, "later", "%llu sessions, after %llu s", (unsigned long long)n,
		(unsigned long long)seconds);
	for (uint64_t i = 0; i < n; i++) {
		idle.sessions[i] = open_session();
		idle.pools[i] = rig_attach(idle.sessions[i], "/slow/idle");
	}
	/* All of it on the first CPU, then all of it on the next. */
	for (unsigned i = 0; i < b->n_cpus; i++) {
		bench_pin(b, i);
		use_once(&idle, i);
	}
	table_add(at_once, 0, stock_of_each(&idle));
	bench_sleep(seconds * 1000000000);
	table_add(later, 0, stock_of_each(&idle));
	table_print(&t);
	table_free(&t);
	for (uint64_t i = 0; i < n; i++) {
		tally_detach(idle.pools[i]);
		tally_close(idle.sessions[i]);
	}
	free(idle.sessions);
	free(idle.pools);
}

/* ------------------------------------------------------------------ drains */

#define DRAINS_PAUSE_NSEC 1000000

/* The thread on the target CPU: holds credit there, idle or busy. */
struct target {
	const struct bench *bench;
	struct tally_pool *pool;
	bool busy;
	sem_t charge, charged; /* idle: do it once more; done */
	_Atomic int stop;
};

static void charge_once(struct target *t)
{
	rig_check(tally_charge(t->pool, 4096), "a charge");
	tally_uncharge(t->pool, 4096);
}

static void *run_target(void *userdata)
{
	struct target *t = userdata;

	bench_pin(t->bench, 1);
	if (t->busy) {
		charge_once(t);
		sem_post(&t->charged);
		while (!atomic_load_explicit(&t->stop, memory_order_relaxed))
			charge_once(t);
		return NULL;
	}
	while (sem_wait(&t->charge) == 0 && !atomic_load(&t->stop)) {
		charge_once(t);
		sem_post(&t->charged);
	}
	return NULL;
}

static void drain(struct tally *t, struct target *target, uint64_t n, struct latency *ret)
{
	for (uint64_t i = 0; i < n; i++) {
		uint64_t start;

		if (!target->busy)
			sem_post(&target->charge);
		if (!target->busy || i == 0)
			sem_wait(&target->charged);
		start = bench_ticks();
		rig_check(tally_set(t, "/slow/a/b/drain", "pool.drain", "1"), "pool.drain");
		latency_add(ret, bench_ticks() - start);
		bench_sleep(DRAINS_PAUSE_NSEC);
	}
}

static void take_drains(
	const struct bench *b, struct tally *t, bool busy, uint64_t n, struct table_row *r)
{
	struct tally *other = open_session();
	struct target target = {.bench = b, .busy = busy};
	struct latency latency = {.n = 0};
	int64_t drained;
	pthread_t thread;

	target.pool = rig_attach(other, "/slow/a/b/drain");
	sem_init(&target.charge, 0, 0);
	sem_init(&target.charged, 0, 0);
	drained = rig_value(t, "/", "tallyd.status", "drained_bytes");
	if (pthread_create(&thread, NULL, run_target, &target) != 0)
		bench_die("cannot make a thread");
	drain(t, &target, n, &latency);
	atomic_store(&target.stop, 1);
	sem_post(&target.charge);
	pthread_join(thread, NULL);
	drained = rig_value(t, "/", "tallyd.status", "drained_bytes") - drained;
	table_add(r, 0, microseconds(latency_quantile(&latency, 0.5)));
	table_add(r, 1, microseconds(latency_quantile(&latency, 0.9)));
	table_add(r, 2, microseconds(latency_quantile(&latency, 1)));
	table_add(r, 3, (double)drained / 1024 / (double)n);
	sem_destroy(&target.charge);
	sem_destroy(&target.charged);
	tally_detach(target.pool);
	tally_close(other);
}

static void run_drains(const struct bench *b, uint64_t n)
{
	static const struct table_column columns[] = {{"p50", "p50", "us"}, {"p90", "p90", "us"},
		{"max", "longest", "us"}, {"drained", "taken by one", "KiB"}};
	struct tally *t = open_session();
	struct table_row *rows[2];
	struct table table;

	table_init(&table, "slowpath.drain", "a drain of a pool with credit on another CPU",
		columns, ELEMENTS(columns));
	rows[0] = table_add_row(&table, "idle", "that CPU idle");
	rows[1] = table_add_row(&table, "busy", "that CPU busy, charging");
	for (unsigned i = 0; i < ELEMENTS(rows); i++)
		if (b->n_cpus < 2)
			table_skip(rows[i], "there is one CPU only");
	bench_pin(b, 0);
	for (unsigned round = 0; round < b->rounds; round++)
		for (unsigned i = 0; i < ELEMENTS(rows); i++)
			if (!rows[i]->skipped)
				take_drains(b, t, i == 1, n, rows[i]);
	table_print(&table);
	table_free(&table);
	tally_close(t);
}

/* ------------------------------------------------------------------ all */

/* Many descriptors a session, here and in the daemon, which inherits this. */
static void raise_limit(void)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

enum option {
	SESSIONS,
	WAIT,
	DRAINS,
};

static struct bench_option options[] = {
	[SESSIONS] = {"sessions", "1000", "50", "idle sessions"},
	[WAIT] = {"wait", "10", "1", "seconds until their credit is looked at again"},
	[DRAINS] = {"drains", "50", "5", "drains of a sample"},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	struct bench b;

	bench_begin(&b, "slowpath", options, argc, argv);
	raise_limit();
	rig_start("");
	run_requests(&b);
	run_sessions(&b);
	run_drains(&b, bench_number(&options[DRAINS]));
	run_idle(&b, bench_number(&options[SESSIONS]), bench_number(&options[WAIT]));
	return 0;
}
