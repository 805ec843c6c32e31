/* SPDX-License-Identifier: MIT */

/*
 * A task charges pages with an item, clears them, as whoever hands out pages does, and moves another
 * item as much; at its next turn it takes all back. Tasks are taken in turn by whichever thread is
 * free, a chunk of them at once, so that a thread that a reader has pushed aside leaves no work behind
 * that others could not do.
 *
 * Flushing the whole tree is writing the root's pool.flush; what follows takes what is there.
 */

#include "flushload.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "core/util.h"

#define PAGE 4096
#define CHUNK 50 /* tasks */

void flushload_init(struct flushload *l)
{
	l->n_chunks = (l->n_tasks + CHUNK - 1) / CHUNK;
	l->passes_done = bench_allocate(l->n_chunks, sizeof(*l->passes_done));
	l->pages = bench_allocate(l->n_tasks, PAGE);
}

void flushload_free(struct flushload *l)
{
	free(l->passes_done);
	free(l->pages);
}

static uint64_t cpu_nsec(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ------------------------------------------------------------------ workers */

static bool is_up(unsigned task, uint64_t pass)
{
	return (task + pass) % 2 == 0;
}

static void allocate(const struct flushload *l, unsigned task)
{
	const struct flushload_engine *e = l->engine;
	struct tally_pool *p = e->pools[task % l->grove.n];

	for (unsigned i = 0; i < l->burst; i++) {
		rig_check(tally_charge_item(p, e->charged, PAGE), "a charge");
		memset(l->pages + (size_t)task * PAGE, (int)i, PAGE);
		tally_stat_add(p, e->moved, PAGE);
	}
}

static void give_back(const struct flushload *l, unsigned task)
{
	const struct flushload_engine *e = l->engine;
	struct tally_pool *p = e->pools[task % l->grove.n];

	for (unsigned i = 0; i < l->burst; i++) {
		tally_stat_add(p, e->moved, -PAGE);
		tally_uncharge_item(p, e->charged, PAGE);
	}
}

/* Those of odd numbers have nothing to give back in the first pass. */
static void work_chunk(
	struct flushload *l, struct flushload_worker *w, unsigned chunk, uint64_t pass)
{
	unsigned end = (chunk + 1) * CHUNK;

	for (unsigned task = chunk * CHUNK; task < end && task < l->n_tasks; task++) {
		if (is_up(task, pass))
			allocate(l, task);
		else if (pass > 0)
			give_back(l, task);
		atomic_store_explicit(&w->updates,
			atomic_load_explicit(&w->updates, memory_order_relaxed) + l->burst,
			memory_order_relaxed);
	}
}

static void work(struct flushload *l, struct flushload_worker *w)
{
	uint64_t n = l->n_chunks * l->passes, ticket, start = cpu_nsec();

	w->begin = bench_now();
	while ((ticket = atomic_fetch_add(&l->ticket, 1)) < n) {
		unsigned chunk = (unsigned)(ticket % l->n_chunks);
		uint64_t pass = ticket / l->n_chunks;

		while (atomic_load(&l->passes_done[chunk]) != pass)
			sched_yield();
		work_chunk(l, w, chunk, pass);
		atomic_store(&l->passes_done[chunk], pass + 1);
	}
	w->end = bench_now();
	w->cpu_nsec = cpu_nsec() - start;
	atomic_fetch_sub(&l->n_working, 1);
}

static void give_back_the_rest(const struct flushload *l)
{
	for (unsigned task = 0; task < l->n_tasks; task++)
		if (is_up(task, l->passes - 1))
			give_back(l, task);
}

/* ------------------------------------------------------------------ readers */

static void flush_all(const struct flushload *l)
{
	rig_check(tally_set(l->engine->readers, "/", "pool.flush", "1"), "pool.flush");
}

static void flush_by_one_threshold(struct flushload *l)
{
	uint64_t threshold = FLUSHLOAD_THRESHOLD_OF_CPU * l->bench->n_possible_cpus, updates = 0;

	for (unsigned i = 0; i < l->bench->n_cpus; i++)
		updates += atomic_load_explicit(&l->workers[i].updates, memory_order_relaxed);
	if (updates - atomic_load(&l->flushed) <= threshold ||
		atomic_flag_test_and_set(&l->flushing))
		return;
	atomic_store(&l->flushed, updates);
	flush_all(l);
	atomic_flag_clear(&l->flushing);
}

static void read_stat(struct flushload *l, const char *path)
{
	_cleanup_(freep) char *text = NULL;

	if (l->way == FLUSHLOAD_GLOBAL)
		flush_by_one_threshold(l);
	if (l->way == FLUSHLOAD_ALWAYS)
		flush_all(l);
	rig_check(tally_get(l->engine->readers, path, "memory.stat",
			  l->way == FLUSHLOAD_SUBTREE ? 0 : TALLY_CACHED, &text),
		"memory.stat");
}

/* As many readers as fall to this thread, one behind the other; who is late does not wait. */
static void read_in_turn(struct flushload *l, struct flushload_reader *r)
{
	uint64_t step = l->interval_nsec * l->n_reader_threads / l->n_readers;
	uint64_t due = bench_now(), start = cpu_nsec();
	unsigned thread = (unsigned)(r - l->readers);

	prctl(PR_SET_TIMERSLACK, 1);
	for (uint64_t i = thread; atomic_load(&l->n_working) > 0;
		i += l->n_reader_threads, due += step) {
		unsigned reader = grove_jump(i, l->n_readers);
		uint64_t now = bench_now();

		if (now < due)
			bench_sleep(due - now);
		now = bench_ticks();
		read_stat(l, l->grove.paths[reader % l->grove.n]);
		latency_add(&r->latency, bench_ticks() - now);
	}
	r->cpu_nsec = cpu_nsec() - start;
}

/* ------------------------------------------------------------------ a sample */

static void take_part(void *arg, unsigned thread)
{
	struct flushload *l = arg;

	pthread_barrier_wait(&l->begin);
	if (thread < l->bench->n_cpus)
		work(l, &l->workers[thread]);
	else
		read_in_turn(l, &l->readers[thread - l->bench->n_cpus]);
}

static void collect(
	const struct flushload *l, unsigned n_reader_threads, struct flushload_result *ret)
{
	uint64_t begin = UINT64_MAX, end = 0;

	for (unsigned i = 0; i < l->bench->n_cpus; i++) {
		begin = l->workers[i].begin < begin ? l->workers[i].begin : begin;
		end = l->workers[i].end > end ? l->workers[i].end : end;
		ret->workers += (double)l->workers[i].cpu_nsec / 1e9;
	}
	ret->run = (double)(end - begin) / 1e9;
	for (unsigned i = 0; i < n_reader_threads; i++) {
		ret->readers += (double)l->readers[i].cpu_nsec / 1e9;
		latency_merge(&ret->latency, &l->readers[i].latency);
	}
}

void flushload_run(struct flushload *l, const struct flushload_engine *e, enum flushload_way way,
	struct flushload_result *ret)
{
	unsigned n_reader_threads = way == FLUSHLOAD_NO_READERS ? 0 : l->n_reader_threads;
	unsigned n_workers = l->bench->n_cpus;
	uint64_t daemon = rig_cpu_nsec();

	*ret = (struct flushload_result){.run = 0};
	l->engine = e;
	l->way = way;
	atomic_store(&l->ticket, 0);
	atomic_store(&l->n_working, n_workers);
	atomic_store(&l->flushed, 0);
	memset(l->workers, 0, sizeof(l->workers));
	memset(l->readers, 0, sizeof(l->readers));
	for (unsigned i = 0; i < l->n_chunks; i++)
		atomic_store(&l->passes_done[i], 0);
	pthread_barrier_init(&l->begin, NULL, n_workers + n_reader_threads);
	bench_threads(l->bench, n_workers + n_reader_threads, take_part, l);
	pthread_barrier_destroy(&l->begin);
	collect(l, n_reader_threads, ret);
	if (e->mode == RIG_DAEMON)
		ret->daemon = (double)(rig_cpu_nsec() - daemon) / 1e9;
	give_back_the_rest(l);
}
