/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the benchmarks share: options, time, pinned threads, and samples of an operation. Every
 * benchmark measures all its variants in one run and in turns, so that whatever else the machine
 * does meets all of them; what counts are medians and their ratios, not the time of day. Nothing is
 * subtracted: a loop's own cost is in every figure alike.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define BENCH_CPUS_MAX 64

struct bench {
	const char *name;
	bool quick;      /* a smoke run: its figures mean nothing */
	unsigned rounds; /* samples of each variant */
	uint64_t sample_nsec;
	unsigned n_cpus; /* that this process may use ... */
	int cpus[BENCH_CPUS_MAX];
	unsigned n_possible_cpus; /* ... and how many arrays by CPU number need */
};

/* An option beside --quick and --rounds; a list of them ends with a NULL name. */
struct bench_option {
	const char *name;
	const char *value; /* the default, then what the user gave */
	const char *quick; /* the default of a smoke run; NULL: the same */
	const char *help;
};

/* Reads the options and prints what machine this is. */
void bench_begin(
	struct bench *b, const char *name, struct bench_option *options, int argc, char **argv);

uint64_t bench_number(const struct bench_option *o);

/* The numbers of a list that is separated by commas: how many, at most `max`. */
unsigned bench_numbers(const struct bench_option *o, uint64_t *ret, unsigned max);

/* n times `size` bytes of 0, at the begin of a cache line; free() it. */
void *bench_allocate(size_t n, size_t size);

_Noreturn void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ------------------------------------------------------------------ time */

static inline uint64_t bench_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* A time stamp that costs little enough to stand around a single call. */
static inline uint64_t bench_ticks(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return bench_now();
#endif
}

double bench_ticks_to_nsec(double ticks);

void bench_sleep(uint64_t nsec);

/* ------------------------------------------------------------------ threads */

/* The i-th of the CPUs that this process may use, begun again when there are no more. */
void bench_pin(const struct bench *b, unsigned i);

/* Runs fn(arg, i) in n threads, the i-th of them pinned to the i-th CPU, and waits for them. */
void bench_threads(const struct bench *b, unsigned n, void (*fn)(void *arg, unsigned i), void *arg);

/* An operation to be measured. */
struct bench_work {
	/* Does the operation n times. */
	void (*loop)(void *arg, unsigned thread, uint64_t n);
	/* Before each sample, on each thread's CPU; may be NULL. */
	void (*prepare)(void *arg, unsigned thread);
	void *arg;
	unsigned threads;
};

/*
 * One sample: after a warm-up all threads do the operation for sample_nsec, looking at the clock a
 * few times. Returns nanoseconds per operation, the mean of the threads.
 */
double bench_sample(const struct bench *b, const struct bench_work *w);
