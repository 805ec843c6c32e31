/* SPDX-License-Identifier: MIT */

#include "worker.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIGNAL_NSEC 60000 /* from the end of a handler to the next signal, and as much again */
#define WAIT_USEC 3000    /* the deadline of a charge that has one */
#define MUCH UINT64_C(32768)

static __thread struct worker *self;

uint64_t worker_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* ------------------------------------------------------------------ charges */

static uint64_t deadline(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000 + WAIT_USEC;
}

/* By any of the public functions; `how` chooses. */
static int charge(
	struct tally_pool *p, tally_item item, uint64_t bytes, unsigned how, bool may_wait)
{
	struct tally_charge_args args = {.item = item, .bytes = bytes};

	/* Where a limit is to hold, nothing is forced. */
	if (how % 32 == 2 && strcmp(tally_pool_path(p), stress_pools[STRESS_LIMITED]) != 0) {
		tally_charge_force(p, item, bytes);
		return 0;
	}
	if (how % 16 == 0) {
		if (may_wait)
			args.deadline_usec = deadline();
		else
			args.flags = TALLY_NOWAIT;
		return tally_charge_with(p, &args, sizeof(args));
	}
	if (!may_wait || how % 4 == 1)
		return item ? tally_try_charge_item(p, item, bytes) : tally_try_charge(p, bytes);
	return item ? tally_charge_item(p, item, bytes) : tally_charge(p, bytes);
}

static void uncharge(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	if (item)
		tally_uncharge_item(p, item, bytes);
	else
		tally_uncharge(p, bytes);
}

/* True: charged. A guest may be gone by now. */
static bool judge(struct worker *w, int r, bool is_guest)
{
	if (r == 0)
		return true;
	if (r == -ENOMEM || r == -EAGAIN || r == -ETIMEDOUT || (is_guest && r == -ENODEV)) {
		w->shared->refused++;
	} else {
		w->shared->errors++;
		w->shared->last_error = r;
	}
	return false;
}

/* Mostly small ones; now and then what is asked for by itself. */
static uint64_t pick_bytes(uint64_t random)
{
	switch (random % 32) {
	case 0:
		return 1 + (random >> 8) % 20000;
	case 1 ... 3:
		return 1 + (random >> 8) % 3000;
	default:
		return 1 + (random >> 8) % 300;
	}
}

static void step(struct worker *w, uint64_t *seed, struct stress_book *b, bool may_wait)
{
	uint64_t random = worker_random(seed), bytes = pick_bytes(random >> 24);
	unsigned key = (w->first + random % w->spread) % (STRESS_HANDLES * STRESS_ITEMS);
	unsigned handle = key / STRESS_ITEMS, i = key % STRESS_ITEMS, how = random >> 16 & 0xff;
	uint64_t *held = &b->held[handle][i];
	struct tally_pool *p = w->handles[handle];

	if (*held < MUCH && (*held == 0 || random >> 63)) {
		if (judge(w, charge(p, w->items[i], bytes, how, may_wait), false))
			*held += bytes;
		return;
	}
	/* At times all at once. */
	if (bytes > *held || how % 8 == 0)
		bytes = *held;
	*held -= bytes;
	uncharge(p, w->items[i], bytes);
}

/* ------------------------------------------------------------------ guests */

/* What it charges stays charged, but for what it uncharges itself. */
static void charge_guest(struct worker *w, struct guest *g, uint64_t *seed, bool may_wait)
{
	uint64_t random = worker_random(seed), bytes = 1 + (random >> 24) % 2000;
	unsigned i = random % STRESS_ITEMS, how = random >> 16 & 0xff;

	if (!judge(w, charge(g->pool, w->items[i], bytes, how, may_wait), true))
		return;
	if (how % 4 < 3)
		uncharge(g->pool, w->items[i], bytes);
	else
		atomic_fetch_add(&g->held[i], bytes);
}

void worker_visit(struct worker *w, struct guest *g)
{
	w->visits = g;
	for (int n = 0; n < 8; n++) {
		w->inside = true;
		charge_guest(w, g, &w->seed, true);
		w->inside = false;
	}
	w->visits = NULL;
}

/* ------------------------------------------------------------------ the signal */

static void arm(struct worker *w)
{
	long nsec = SIGNAL_NSEC + (long)(w->seed_in_handler % SIGNAL_NSEC);
	struct itimerspec t = {.it_value.tv_nsec = nsec};

	timer_settime(w->timer, 0, &t, NULL);
}

static void on_signal(int signal)
{
	struct worker *w = self;
	struct guest *g = w->visits;
	int saved = errno;

	(void)signal;
	w->shared->signals++;
	w->shared->signals_inside += w->inside;
	for (int n = 0; n < 3; n++)
		step(w, &w->seed_in_handler, &w->shared->in_handler, false);
	if (g)
		charge_guest(w, g, &w->seed_in_handler, false);
	arm(w);
	errno = saved;
}

void worker_handle_signals(void)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	sigaction(SIGUSR1, &sa, NULL);
}

static void mask_signal(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(how, &set, NULL);
}

void worker_begin(struct worker *w)
{
	struct sigevent to_me = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};

	self = w;
	w->spread = 1;
	to_me._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	if (timer_create(CLOCK_MONOTONIC, &to_me, &w->timer) < 0)
		abort();
	mask_signal(SIG_UNBLOCK);
	arm(w);
}

void worker_end(struct worker *w)
{
	mask_signal(SIG_BLOCK);
	timer_delete(w->timer);
}

/* ------------------------------------------------------------------ the thread */

/* To one of the CPUs that the process may use, or to any. */
static void move(struct worker *w, const cpu_set_t *allowed, unsigned which)
{
	cpu_set_t one;

	for (unsigned cpu = 0, n = which % (unsigned)CPU_COUNT(allowed); cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, allowed) && n-- == 0) {
			CPU_ZERO(&one);
			CPU_SET(cpu, &one);
		}
	sched_setaffinity(0, sizeof(one), which % 4 == 3 ? allowed : &one);
	w->shared->moves++;
}

/* What it does now and then, beside charging. */
static void wander(struct worker *w, const cpu_set_t *allowed, uint64_t n)
{
	uint64_t random;
	struct guest *g;

	if (n % 64 == 0 && (g = guests_enter(w->guests))) {
		worker_visit(w, g);
		guest_leave(g);
	}
	if (n % 512 == 0) {
		random = worker_random(&w->seed);
		w->first = (unsigned)(random >> 32);
		w->spread = 1 + (unsigned)random % 12;
		sched_yield();
	}
	if (n % 4096 == 0)
		move(w, allowed, (unsigned)(worker_random(&w->seed) >> 32));
}

void *worker_run(void *arg)
{
	struct worker *w = arg;
	cpu_set_t allowed;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
		abort();
	worker_begin(w);
	move(w, &allowed, w->number);
	for (uint64_t n = 1; !atomic_load_explicit(w->stop, memory_order_relaxed); n++) {
		w->inside = true;
		step(w, &w->seed, &w->shared->own, true);
		w->inside = false;
		w->shared->operations++;
		wander(w, &allowed, n);
	}
	worker_end(w);
	return NULL;
}
