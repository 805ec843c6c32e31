/* SPDX-License-Identifier: MIT */

#include "bench.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "core/util.h"
#include "machine.h"

#define LINE 64
#define ROUNDS 7
#define ROUNDS_QUICK 2
#define SAMPLE_NSEC 30000000
#define SAMPLE_QUICK_NSEC 2000000
#define LOOKS 16 /* at the clock in a sample */
#define CALIBRATION_NSEC 20000000

static double nsec_per_tick = 1;

void bench_die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("bench: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

void *bench_allocate(size_t n, size_t size)
{
	size_t bytes = (n * size + LINE - 1) / LINE * LINE;
	void *p = aligned_alloc(LINE, bytes);

	if (!p)
		bench_die("out of memory");
	return memset(p, 0, bytes);
}

/* ------------------------------------------------------------------ options */

static void usage(const char *name, const struct bench_option *options)
{
	printf("usage: %s [--quick] [--rounds N]", name);
	for (const struct bench_option *o = options; o->name; o++)
		printf(" [--%s %s]", o->name, o->value);
	printf("\n\n  %-12s a smoke run of a few seconds; its figures mean nothing\n", "--quick");
	printf("  %-12s samples of each variant (%d)\n", "--rounds", ROUNDS);
	for (const struct bench_option *o = options; o->name; o++)
		printf("  --%-10s %s (%s)\n", o->name, o->help, o->value);
	exit(0);
}

static struct bench_option *find_option(struct bench_option *options, const char *name)
{
	for (struct bench_option *o = options; o->name; o++)
		if (strcmp(o->name, name) == 0)
			return o;
	bench_die("unknown option --%s; see --help", name);
}

static void parse(struct bench *b, struct bench_option *options, int argc, char **argv)
{
	struct bench_option rounds = {.name = "rounds"};

	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--quick") == 0)
			b->quick = true;
	b->rounds = b->quick ? ROUNDS_QUICK : ROUNDS;
	b->sample_nsec = b->quick ? SAMPLE_QUICK_NSEC : SAMPLE_NSEC;
	for (struct bench_option *o = options; b->quick && o->name; o++)
		o->value = o->quick ? o->quick : o->value;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0)
			usage(b->name, options);
		if (strcmp(argv[i], "--quick") == 0)
			continue;
		if (strncmp(argv[i], "--", 2) != 0 || i + 1 == argc)
			bench_die("bad argument %s; see --help", argv[i]);
		if (strcmp(argv[i], "--rounds") == 0) {
			rounds.value = argv[++i];
			b->rounds = (unsigned)bench_number(&rounds);
			continue;
		}
		find_option(options, argv[i] + 2)->value = argv[i + 1];
		i++;
	}
}

uint64_t bench_number(const struct bench_option *o)
{
	uint64_t n;

	if (bench_numbers(o, &n, 1) != 1)
		bench_die("--%s takes a number, not '%s'", o->name, o->value);
	return n;
}

unsigned bench_numbers(const struct bench_option *o, uint64_t *ret, unsigned max)
{
	const char *p = o->value;
	unsigned n = 0;
	char *end;

	do {
		if (n == max || *p < '0' || *p > '9')
			bench_die("--%s: bad value '%s'", o->name, o->value);
		ret[n++] = strtoull(p, &end, 10);
		p = end + 1;
	} while (*end == ',');
	if (*end)
		bench_die("--%s: bad value '%s'", o->name, o->value);
	return n;
}

static void find_cpus(struct bench *b)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		bench_die("cannot tell which CPUs to use: %s", strerror(errno));
	for (int cpu = 0; cpu < CPU_SETSIZE && b->n_cpus < BENCH_CPUS_MAX; cpu++)
		if (CPU_ISSET(cpu, &set))
			b->cpus[b->n_cpus++] = cpu;
	b->n_possible_cpus = (unsigned)get_nprocs_conf();
	if ((unsigned)b->cpus[b->n_cpus - 1] >= b->n_possible_cpus)
		b->n_possible_cpus = (unsigned)b->cpus[b->n_cpus - 1] + 1;
}

static void calibrate_ticks(void)
{
	uint64_t start = bench_now(), ticks = bench_ticks(), now;

	do
		now = bench_now();
	while (now - start < CALIBRATION_NSEC);
	nsec_per_tick = (double)(now - start) / (double)(bench_ticks() - ticks);
}

void bench_begin(
	struct bench *b, const char *name, struct bench_option *options, int argc, char **argv)
{
	*b = (struct bench){.name = name};
	setvbuf(stdout, NULL, _IOLBF, 0);
	parse(b, options, argc, argv);
	find_cpus(b);
	calibrate_ticks();
	machine_print(b);
	for (const struct bench_option *o = options; o->name; o++)
		printf("# option:   %s %s (%s)\n", o->name, o->value, o->help);
}

/* ------------------------------------------------------------------ time */

double bench_ticks_to_nsec(double ticks)
{
	return ticks * nsec_per_tick;
}

void bench_sleep(uint64_t nsec)
{
	struct timespec t = {
		.tv_sec = (time_t)(nsec / 1000000000), .tv_nsec = (long)(nsec % 1000000000)};

	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

/* ------------------------------------------------------------------ threads */

struct thread {
	pthread_t id;
	const struct bench *bench;
	unsigned number;
	void (*fn)(void *arg, unsigned i);
	void *arg;
};

void bench_pin(const struct bench *b, unsigned i)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(b->cpus[i % b->n_cpus], &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		bench_die("cannot pin a thread to CPU %d: %s", b->cpus[i % b->n_cpus],
			strerror(errno));
}

static void *run_thread(void *userdata)
{
	struct thread *t = userdata;

	bench_pin(t->bench, t->number);
	t->fn(t->arg, t->number);
	return NULL;
}

void bench_threads(const struct bench *b, unsigned n, void (*fn)(void *arg, unsigned i), void *arg)
{
	_cleanup_(freep) struct thread *threads = bench_allocate(n, sizeof(*threads));

	for (unsigned i = 0; i < n; i++) {
		threads[i] = (struct thread){.bench = b, .number = i, .fn = fn, .arg = arg};
		if (pthread_create(&threads[i].id, NULL, run_thread, &threads[i]) != 0)
			bench_die("cannot make a thread");
	}
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i].id, NULL);
}

struct sample {
	const struct bench *bench;
	const struct bench_work *work;
	pthread_barrier_t begin;
	double nsec[BENCH_CPUS_MAX];
};

/* How often the operation goes between two looks at the clock; warms up by the way. */
static uint64_t calibrate(const struct sample *s, unsigned thread)
{
	const struct bench_work *w = s->work;

	for (uint64_t n = 1;; n *= 2) {
		uint64_t start = bench_now();

		w->loop(w->arg, thread, n);
		if (bench_now() - start >= s->bench->sample_nsec / LOOKS)
			return n;
	}
}

static void take_sample(void *arg, unsigned thread)
{
	struct sample *s = arg;
	const struct bench_work *w = s->work;
	uint64_t n, done = 0, start, now;

	if (w->prepare)
		w->prepare(w->arg, thread);
	n = calibrate(s, thread);
	pthread_barrier_wait(&s->begin);
	start = bench_now();
	do {
		w->loop(w->arg, thread, n);
		done += n;
		now = bench_now();
	} while (now - start < s->bench->sample_nsec);
	s->nsec[thread] = (double)(now - start) / (double)done;
}

double bench_sample(const struct bench *b, const struct bench_work *w)
{
	struct sample s = {.bench = b, .work = w};
	double sum = 0;

	if (w->threads > BENCH_CPUS_MAX)
		bench_die("%u threads are too many", w->threads);
	pthread_barrier_init(&s.begin, NULL, w->threads);
	bench_threads(b, w->threads, take_sample, &s);
	pthread_barrier_destroy(&s.begin);
	for (unsigned i = 0; i < w->threads; i++)
		sum += s.nsec[i];
	return sum / w->threads;
}
