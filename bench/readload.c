/* SPDX-License-Identifier: MIT */

/*
 * Paced readers sleep before each read. The writers wake up every millisecond and charge, move an item
 * and uncharge in some of the pools. They work in the engine that is read; while the kernel's files
 * are read in the embedded one, so that they cost the same CPU time.
 */

#include "readload.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "core/util.h"

#define PAGE 4096
#define TICK_NSEC 1000000 /* of the writers */

static void read_text(struct tally *t, const char *path)
{
	char *text;

	rig_check(tally_get(t, path, "memory.stat", 0, &text), "memory.stat");
	free(text);
}

static void read_usage(struct tally_pool *p)
{
	struct tally_usage usage;
	int r;

	do
		r = tally_usage(p, sizeof(usage), &usage);
	while (unlikely(r == -EAGAIN));
	rig_check(r, "tally_usage");
}

static void read_once(const struct readload *l, const struct readload_reader *r, unsigned reader)
{
	unsigned pool = reader % l->grove.n;

	switch (l->way) {
	case READLOAD_EMBEDDED_TEXT:
		read_text(l->tally[RIG_EMBEDDED], l->grove.paths[pool]);
		break;
	case READLOAD_EMBEDDED_USAGE:
		read_usage(l->pools[RIG_EMBEDDED][pool]);
		break;
	case READLOAD_DAEMON_TEXT:
		read_text(r->tally, l->grove.paths[pool]);
		break;
	case READLOAD_DAEMON_USAGE:
		read_usage(l->pools[RIG_DAEMON][pool]);
		break;
	case READLOAD_EXPORTED:
		kernstat_read_file(l->files[reader % l->n_files]);
		break;
	case READLOAD_KERNEL:
		kernstat_read(&l->kernel, reader % l->kernel.n);
		break;
	case READLOAD_KERNEL_OPEN:
		kernstat_open_and_read(&l->kernel, reader % l->kernel.n);
		break;
	case READLOAD_WAYS:
		break;
	}
}

/* ------------------------------------------------------------------ readers and writers */

static void read_for_a_while(struct readload *l, struct readload_reader *r)
{
	uint64_t start = bench_now(), due = start, now = start;
	uint64_t step = l->pace == READLOAD_PACED ? 1000000000 / l->rate : 0;

	prctl(PR_SET_TIMERSLACK, 1);
	for (; now - start < l->nsec; r->next += l->bench->n_cpus, now = bench_now()) {
		unsigned reader = grove_jump(r->next, l->n_readers);
		uint64_t ticks;

		due += step;
		if (step > 0 && now < due)
			bench_sleep(due - now);
		ticks = bench_ticks();
		read_once(l, r, reader);
		latency_add(&r->latency, bench_ticks() - ticks);
	}
	r->seconds = (double)(now - start) / 1e9;
	atomic_fetch_sub(&l->n_reading, 1);
}

static void write_until_the_end(struct readload *l, unsigned thread)
{
	bool daemon = l->way == READLOAD_DAEMON_TEXT || l->way == READLOAD_DAEMON_USAGE ||
		l->way == READLOAD_EXPORTED;
	struct tally_pool **pools = l->pools[daemon ? RIG_DAEMON : RIG_EMBEDDED];
	uint64_t n = l->writes * TICK_NSEC / 1000000000, due = bench_now();

	for (uint64_t i = thread; atomic_load(&l->n_reading) > 0;) {
		uint64_t now = bench_now();

		for (uint64_t j = 0; pools && j < n; j++, i += l->bench->n_cpus) {
			struct tally_pool *p = pools[grove_jump(i % l->n_written, l->grove.n)];

			rig_check(tally_charge_item(p, l->charged, PAGE), "a charge");
			tally_stat_add(p, l->moved, i / l->n_written % 2 ? -PAGE : PAGE);
			tally_uncharge_item(p, l->charged, PAGE);
		}
		due += TICK_NSEC;
		if (now < due)
			bench_sleep(due - now);
	}
}

static void take_part(void *arg, unsigned thread)
{
	struct readload *l = arg;

	pthread_barrier_wait(&l->begin);
	if (thread < l->bench->n_cpus)
		read_for_a_while(l, &l->readers[thread]);
	else
		write_until_the_end(l, thread - l->bench->n_cpus);
}

void readload_run(struct readload *l, enum readload_way way, enum readload_pace pace,
	struct readload_result *ret)
{
	unsigned n = l->bench->n_cpus;

	*ret = (struct readload_result){.rate = 0};
	l->way = way;
	l->pace = pace;
	atomic_store(&l->n_reading, n);
	for (unsigned i = 0; i < n; i++)
		memset(&l->readers[i].latency, 0, sizeof(l->readers[i].latency));
	pthread_barrier_init(&l->begin, NULL, 2 * n);
	bench_threads(l->bench, 2 * n, take_part, l);
	pthread_barrier_destroy(&l->begin);
	for (unsigned i = 0; i < n; i++) {
		latency_merge(&ret->latency, &l->readers[i].latency);
		ret->rate += (double)l->readers[i].latency.n / l->readers[i].seconds;
	}
}
