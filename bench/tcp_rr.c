/* SPDX-License-Identifier: MIT */

/*
 * Requests and responses over many connections of many tenants, with interrupts: what netperf's
 * tcp_rr showed of the kernel's stock. Each thread serves its part of the flows; a transaction
 * charges a received buffer, works, charges a buffer to send, and uncharges both. A timer signal is
 * the interrupt: its handler charges and uncharges the buffers of some packets, and finds the stock
 * in whatever state it interrupted it. The more often it comes, the more often it finds the lock
 * held: that is what the rates are swept for.
 *
 * Against the kernel's stock in three states (rivals.h) stands ours, where a handler finds nothing
 * held. A packet that tally_try_charge_item() has no credit for is dropped; those are ours in the
 * column of fallbacks.
 */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "accounting.h"
#include "bench.h"
#include "core/util.h"
#include "latency.h"
#include "rig.h"
#include "table.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define RATES_MAX 8
#define PACKETS_MAX 64
#define PAYLOAD 256
#define WARM_UP 4 /* a sample's length through this */

/* Sizes of socket buffers with what the kernel adds to the payload, by flow. */
static const uint32_t sizes[] = {768, 2304, 1280, 4352};

/* ------------------------------------------------------------------ a run */

struct run {
	const struct bench *bench;
	struct accounting *accounting;
	unsigned threads, flows, n_pools, packets;
	uint64_t rate; /* interrupts a second and thread; 0: none */
	uint64_t nsec;
	pthread_barrier_t begin;
	struct worker *workers;
};

struct worker {
	alignas(64) struct run *run;
	unsigned first_flow, n_flows;
	uint64_t random, handler_random;
	uint64_t
		fallbacks; /* of the thread; the handler has its own, for it interrupts the adding */
	uint64_t handler_fallbacks, interrupts;
	timer_t timer;
	uint64_t end; /* in ticks; the handler stops the timer then */
	double seconds;
	char request[PAYLOAD], response[PAYLOAD];
	struct latency latency;
};

static __thread struct worker *self;

static uint32_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 32);
}

struct buffer {
	unsigned pool;
	uint32_t bytes;
};

/* A buffer of some flow of this thread. */
static struct buffer next_buffer(const struct worker *w, uint64_t *random)
{
	uint32_t r = next_random(random);
	unsigned flow = w->first_flow + (unsigned)(((uint64_t)r * w->n_flows) >> 32);

	return (struct buffer){flow % w->run->n_pools, sizes[flow % ELEMENTS(sizes)]};
}

static void on_interrupt(int signal)
{
	struct worker *w = self;
	struct accounting *a = w->run->accounting;
	struct buffer packets[PACKETS_MAX];
	unsigned n = 0;

	(void)signal;
	for (unsigned i = 0; i < w->run->packets; i++) {
		packets[n] = next_buffer(w, &w->handler_random);
		n += a->try_charge(a, packets[n].pool, packets[n].bytes, &w->handler_fallbacks) ==
			0;
	}
	for (unsigned i = 0; i < n; i++)
		a->uncharge(a, packets[i].pool, packets[i].bytes, &w->handler_fallbacks);
	w->interrupts++;
	/* At a rate that the machine cannot keep, the thread itself would never see the end. */
	if (bench_ticks() > w->end)
		timer_settime(w->timer, 0, &(struct itimerspec){.it_value = {0}}, NULL);
}

static void start_interrupts(struct worker *w)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
	struct timespec interval = {.tv_sec = 0};

	if (w->run->rate == 0)
		return;
	interval.tv_nsec = (long)(UINT64_C(999999999) / w->run->rate);
	event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
	if (timer_create(CLOCK_MONOTONIC, &event, &w->timer) < 0 ||
		timer_settime(w->timer, 0,
			&(struct itimerspec){.it_interval = interval, .it_value = interval},
			NULL) < 0)
		bench_die("cannot make a timer: %s", strerror(errno));
}

/* What is still pending then ends with the thread. */
static void stop_interrupts(struct worker *w)
{
	sigset_t set;

	if (w->run->rate == 0)
		return;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	timer_delete(w->timer);
}

static void transact(struct worker *w, struct accounting *a)
{
	struct buffer rx = next_buffer(w, &w->random);
	uint32_t tx = rx.bytes / 2 + 512;

	if (unlikely(a->charge(a, rx.pool, rx.bytes, &w->fallbacks) < 0))
		bench_die("%s: a charge failed", a->label);
	memset(w->request, (int)rx.bytes, sizeof(w->request));
	if (unlikely(a->charge(a, rx.pool, tx, &w->fallbacks) < 0))
		bench_die("%s: a charge failed", a->label);
	memcpy(w->response, w->request, sizeof(w->response));
	__asm__ volatile("" : : "r"(w->response) : "memory");
	a->uncharge(a, rx.pool, rx.bytes, &w->fallbacks);
	a->uncharge(a, rx.pool, tx, &w->fallbacks);
}

/* A transaction lasts from the end of the one before. */
static void serve(struct worker *w, uint64_t nsec)
{
	uint64_t start = bench_ticks(), now = start, before;

	w->end = start + (uint64_t)((double)nsec / bench_ticks_to_nsec(1));
	memset(&w->latency, 0, sizeof(w->latency));
	do {
		before = now;
		transact(w, w->run->accounting);
		now = bench_ticks();
		latency_add(&w->latency, now - before);
	} while (now < w->end);
	w->seconds = bench_ticks_to_nsec((double)(now - start)) / 1e9;
}

/* First every pool once, so that no sample contains a pool's first charge. */
static void touch_pools(struct worker *w)
{
	struct accounting *a = w->run->accounting;

	for (unsigned i = 0; i < w->run->n_pools; i++) {
		if (a->charge(a, i, sizes[0], &w->fallbacks) < 0)
			bench_die("%s: a charge failed", a->label);
		a->uncharge(a, i, sizes[0], &w->fallbacks);
	}
}

static void work(void *arg, unsigned thread)
{
	struct run *run = arg;
	struct worker *w = &run->workers[thread];

	w->run = run;
	w->random = thread + 1;
	w->handler_random = ~w->random;
	w->n_flows = run->flows / run->threads;
	w->first_flow = thread * w->n_flows;
	self = w;
	touch_pools(w);
	serve(w, run->nsec / WARM_UP);
	w->fallbacks = 0;
	w->end = UINT64_MAX;
	pthread_barrier_wait(&run->begin);
	start_interrupts(w);
	serve(w, run->nsec);
	stop_interrupts(w);
}

/* ------------------------------------------------------------------ results */

enum column {
	THROUGHPUT,
	MEAN,
	P50,
	P90,
	P99,
	FALLBACKS,
	INTERRUPTS,
};

static const struct table_column columns[] = {
	[THROUGHPUT] = {"throughput", "transactions", "k/s"},
	[MEAN] = {"mean", "mean", "us"},
	[P50] = {"p50", "p50", "us"},
	[P90] = {"p90", "p90", "us"},
	[P99] = {"p99", "p99", "us"},
	[FALLBACKS] = {"fallbacks", "fallbacks", "1/s"},
	[INTERRUPTS] = {"interrupts", "interrupts", "1/s"},
};

static double microseconds(double ticks)
{
	return bench_ticks_to_nsec(ticks) / 1000;
}

static void add_results(const struct run *run, struct table_row *r)
{
	double throughput = 0, fallbacks = 0, interrupts = 0;
	struct latency all = {.n = 0};

	for (unsigned i = 0; i < run->threads; i++) {
		const struct worker *w = &run->workers[i];

		throughput += (double)w->latency.n / w->seconds;
		fallbacks += (double)(w->fallbacks + w->handler_fallbacks) / w->seconds;
		interrupts += (double)w->interrupts / w->seconds;
		latency_merge(&all, &w->latency);
	}
	table_add(r, THROUGHPUT, throughput / 1000);
	table_add(r, MEAN, microseconds((double)all.sum / (double)all.n));
	table_add(r, P50, microseconds(latency_quantile(&all, 0.5)));
	table_add(r, P90, microseconds(latency_quantile(&all, 0.9)));
	table_add(r, P99, microseconds(latency_quantile(&all, 0.99)));
	table_add(r, FALLBACKS, fallbacks);
	table_add(r, INTERRUPTS, interrupts);
}

static void take_sample(struct run *run, struct table_row *r)
{
	run->workers = bench_allocate(run->threads, sizeof(*run->workers));
	pthread_barrier_init(&run->begin, NULL, run->threads);
	bench_threads(run->bench, run->threads, work, run);
	pthread_barrier_destroy(&run->begin);
	add_results(run, r);
	accounting_check(run->accounting);
	free(run->workers);
}

enum way {
	NONE,
	A,
	B,
	C,
	D,
	E,
	N_WAYS,
};

static void set_up(struct accounting ways[static N_WAYS], unsigned n_cpus, unsigned n_pools)
{
	static const char dir[] = "/rr/a/b";

	accounting_init_none(&ways[NONE], "none", "    no accounting");
	accounting_init_stocks(
		&ways[A], "a", "(a) lock, uncharge under it", RIVAL_UNDER_LOCK, n_cpus, n_pools);
	accounting_init_stocks(
		&ways[B], "b", "(b) lock, uncharge after it", RIVAL_AFTER_UNLOCK, n_cpus, n_pools);
	accounting_init_stocks(
		&ways[C], "c", "(c) as (b), statistic batched", RIVAL_BATCHED, n_cpus, n_pools);
	accounting_init_ours(&ways[D], "d", "(d) ours, daemon", RIG_DAEMON, dir, n_pools, "sock");
	accounting_init_ours(
		&ways[E], "e", "(e) ours, embedded", RIG_EMBEDDED, dir, n_pools, "sock");
}

static void print_ratios(struct table_row *const rows[static N_WAYS], uint64_t rate)
{
	static const char *const asked[N_WAYS] = {[D] = "at least 1.36", [E] = "at least 1.36"};
	static const char *const asked_p99[N_WAYS] = {[D] = "at most 0.62", [E] = "at most 0.62"};
	static const char *const names[N_WAYS] = {[B] = "b", [C] = "c", [D] = "d", [E] = "e"};

	for (enum way way = B; way <= E; way++) {
		char figure[64];

		snprintf(figure, sizeof(figure), "tcp_rr.ratio.rate%llu.%s.throughput",
			(unsigned long long)rate, names[way]);
		table_print_ratio(figure, asked[way], rows[way], rows[A], THROUGHPUT);
		snprintf(figure, sizeof(figure), "tcp_rr.ratio.rate%llu.%s.p99",
			(unsigned long long)rate, names[way]);
		table_print_ratio(figure, asked_p99[way], rows[way], rows[A], P99);
	}
}

enum option {
	RATES,
	FLOWS,
	POOLS,
	PACKETS,
	THREADS,
	MSEC,
};

static struct bench_option options[] = {
	[RATES] = {"rates", "1000,10000,50000", "1000,10000", "interrupts a second and thread"},
	[FLOWS] = {"flows", "10000", NULL, "flows of all threads together"},
	[POOLS] = {"pools", "200", NULL, "pools that they belong to"},
	[PACKETS] = {"packets", "8", NULL, "packets an interrupt brings, at most 64"},
	[THREADS] = {"threads", "0", NULL, "threads; 0: as many as CPUs"},
	[MSEC] = {"msec", "400", "20", "length of a sample"},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	static struct accounting ways[N_WAYS];
	struct table_row *rows[RATES_MAX][N_WAYS];
	uint64_t rates[RATES_MAX];
	unsigned n_rates;
	struct bench b;
	struct run run;
	struct table t;

	bench_begin(&b, "tcp_rr", options, argc, argv);
	n_rates = bench_numbers(&options[RATES], rates, RATES_MAX);
	run = (struct run){.bench = &b,
		.flows = (unsigned)bench_number(&options[FLOWS]),
		.n_pools = (unsigned)bench_number(&options[POOLS]),
		.packets = (unsigned)bench_number(&options[PACKETS]),
		.threads = (unsigned)bench_number(&options[THREADS]),
		.nsec = bench_number(&options[MSEC]) * 1000000};
	if (run.threads == 0)
		run.threads = b.n_cpus;
	if (run.packets > PACKETS_MAX || run.n_pools == 0 || run.flows < run.threads)
		bench_die("these options cannot be; see --help");
	sigaction(SIGRTMIN, &(struct sigaction){.sa_handler = on_interrupt, .sa_flags = SA_RESTART},
		NULL);
	rig_start("");
	set_up(ways, b.n_possible_cpus, run.n_pools);

	table_init(&t, "tcp_rr", "requests and responses, by the rate of interrupts", columns,
		ELEMENTS(columns));
	for (unsigned i = 0; i < n_rates; i++)
		for (unsigned j = 0; j < N_WAYS; j++) {
			char figure[64];

			snprintf(figure, sizeof(figure), "rate%llu.%s",
				(unsigned long long)rates[i], ways[j].figure);
			rows[i][j] = table_add_row(&t, figure, "%6llu: %s",
				(unsigned long long)rates[i], ways[j].label);
			if (ways[j].reason)
				table_skip(rows[i][j], ways[j].reason);
		}
	for (unsigned round = 0; round < b.rounds; round++)
		for (unsigned i = 0; i < n_rates; i++)
			for (unsigned j = 0; j < N_WAYS; j++) {
				run.accounting = &ways[j];
				run.rate = rates[i];
				if (!rows[i][j]->skipped)
					take_sample(&run, rows[i][j]);
			}

	table_print(&t);
	for (unsigned i = 0; i < n_rates; i++)
		print_ratios(rows[i], rates[i]);
	table_free(&t);
	for (unsigned j = 0; j < N_WAYS; j++)
		accounting_free(&ways[j]);
	return 0;
}
