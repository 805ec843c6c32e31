/* SPDX-License-Identifier: MIT */

/*
 * A stress that finds nothing proves nothing until it was seen to find something. This one has the
 * stock alone, on memory that two processes share: workers in both, timer signals that charge, and
 * drainers that go from CPU to CPU. It is built as it should be, and in three ways that are wrong;
 * those have to lose or make credit, and this one may not.
 *
 *	control SECONDS		status 0: conserved all the time; 1: violated; 77: cannot be tried
 */

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "core/percpu.c"
#include "core/stock.c"

#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27
#endif
#define MM_CID_END 28 /* in struct rseq */

#define STATUS_SKIPPED 77

#define PROCESSES 2
#define WORKERS 16 /* of a process, at most */
#define KEYS 15    /* two for each slot, so that they evict each other */
#define TOTAL UINT64_C(20000)
#define HIGH 1000
#define LOW 250
#define ROUND_USEC 500000
#define SIGNAL_NSEC 50000 /* from the end of a handler to the next signal, and as much again */

struct book {
	uint64_t held[KEYS + 1];
};

struct worker {
	pthread_t thread;
	timer_t timer;
	uint64_t seed, seed_in_handler, signals, operations;
	struct book own, in_handler;
};

/* What both processes see. */
struct shared {
	_Atomic uint64_t reserve[KEYS + 1];
	_Atomic uint64_t drained;
	_Atomic uint32_t stop, strays; /* credit of keys that do not exist */
	struct worker workers[PROCESSES][WORKERS];
	struct stock_page pages[];
};

static struct shared *shared;
static unsigned n_workers; /* of a process */
static size_t shared_size;
static struct percpu_area area;
static __thread struct worker *self;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "control: %s: %s\n", what, strerror(errno));
	exit(2);
}

static uint64_t next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* ------------------------------------------------------------------ charging */

/* A word that was overwritten at the wrong time may name any key. */
static void add_to_reserve(uint32_t key, uint64_t bytes)
{
	if (key > KEYS)
		atomic_fetch_add(&shared->strays, 1);
	else
		atomic_fetch_add(&shared->reserve[key], bytes);
}

static void put_down(uint32_t key, uint64_t bytes)
{
	struct stock_carry carry[2];
	uint32_t cpu;
	unsigned n = stock_put(&area, key, bytes, HIGH, LOW, carry, &cpu);

	for (unsigned i = 0; i < n; i++)
		add_to_reserve(carry[i].key, carry[i].bytes);
}

static bool charge(uint32_t key, uint64_t bytes)
{
	uint64_t have = atomic_load(&shared->reserve[key]), n;

	if (stock_consume(&area, key, bytes))
		return true;
	do {
		if (have < bytes)
			return false;
		n = have < bytes + LOW ? have : bytes + LOW;
	} while (!atomic_compare_exchange_weak(&shared->reserve[key], &have, have - n));
	if (n > bytes)
		put_down(key, n - bytes);
	return true;
}

static void uncharge(uint32_t key, uint64_t bytes)
{
	if (bytes > 0 && !stock_add(&area, key, bytes, HIGH))
		put_down(key, bytes);
}

static void step(uint64_t *seed, struct book *b)
{
	uint64_t random = next_random(seed);
	uint32_t key = 1 + random % KEYS;
	uint64_t bytes = 1 + (random >> 32) % 300;

	if (random >> 20 & 1) {
		b->held[key] += charge(key, bytes) ? bytes : 0;
		return;
	}
	/* At times all at once, above HIGH. */
	if (bytes > b->held[key] || (random >> 21) % 8 == 0)
		bytes = b->held[key];
	b->held[key] -= bytes;
	uncharge(key, bytes);
}

static void arm(struct worker *w)
{
	struct itimerspec t = {
		.it_value.tv_nsec = SIGNAL_NSEC + (long)(w->seed_in_handler % SIGNAL_NSEC)};

	timer_settime(w->timer, 0, &t, NULL);
}

static void on_signal(int signal _unused_)
{
	struct worker *w = self;
	int saved = errno;

	w->signals++;
	for (int i = 0; i < 3; i++)
		step(&w->seed_in_handler, &w->in_handler);
	arm(w);
	errno = saved;
}

static void *work(void *arg)
{
	struct worker *w = self = arg;
	struct sigevent to_me = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};

	to_me._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	if (timer_create(CLOCK_MONOTONIC, &to_me, &w->timer) < 0)
		die("timer_create");
	arm(w);
	for (; !atomic_load_explicit(&shared->stop, memory_order_relaxed); w->operations++)
		step(&w->seed, &w->own);
	timer_delete(w->timer);
	return NULL;
}

/* ------------------------------------------------------------------ draining */

static bool go_to(unsigned cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	return sched_setaffinity(0, sizeof(one), &one) == 0;
}

static void drain_slot(const struct percpu_area *a, uint32_t cpu, unsigned i)
{
	percpu_word *slot = &shared->pages[cpu].stock.slot[i];
	word w = percpu_load(slot);
	uint64_t bytes = i & 1 ? word_bytes(w) : word_bytes(w) / 2;

	if (bytes == 0 || stock_take(a, slot, cpu, word_key(w), bytes, word_parity(w)) < 0)
		return;
	add_to_reserve(word_key(w), bytes);
	atomic_fetch_add(&shared->drained, bytes);
}

/* As the daemon does it: from CPU to CPU, by the operation of the session. */
static void *drain(void *arg _unused_)
{
	struct percpu_area mine = area;

#if defined(CONTROL_REMOTE)
	mine.kind = PERCPU_ATOMIC;
#endif
	while (!atomic_load(&shared->stop))
		for (uint32_t cpu = 0; cpu < mine.n_cpus; cpu++) {
			if (mine.kind == PERCPU_RSEQ && !go_to(cpu))
				continue;
			for (unsigned n = 0; n < 20 * STOCK_SLOTS; n++)
				drain_slot(&mine, cpu, n % STOCK_SLOTS);
		}
	return NULL;
}

/* ------------------------------------------------------------------ rounds */

static void run_process(unsigned number)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	pthread_t drainer;

	sigaction(SIGUSR1, &sa, NULL);
	for (unsigned i = 0; i < n_workers; i++) {
		struct worker *w = &shared->workers[number][i];

		w->seed = UINT64_C(0x9e3779b97f4a7c15) * (number * WORKERS + i + 1);
		w->seed_in_handler = w->seed ^ UINT64_C(0xd1b54a32d192ed03);
		if (pthread_create(&w->thread, NULL, work, w) != 0)
			die("pthread_create");
	}
	if (pthread_create(&drainer, NULL, drain, NULL) != 0)
		die("pthread_create");
	for (unsigned i = 0; i < n_workers; i++)
		pthread_join(shared->workers[number][i].thread, NULL);
	pthread_join(drainer, NULL);
}

static bool is_conserved(uint64_t sum[static KEYS + 1])
{
	bool conserved = atomic_load(&shared->strays) == 0;

	memset(sum, 0, (KEYS + 1) * sizeof(*sum));
	for (uint32_t n = 0; n < area.n_cpus * STOCK_SLOTS; n++) {
		word w = percpu_load(&shared->pages[n / STOCK_SLOTS].stock.slot[n % STOCK_SLOTS]);

		if (word_key(w) > KEYS)
			conserved = false;
		else
			sum[word_key(w)] += word_bytes(w);
	}
	for (uint32_t k = 1; k <= KEYS; k++) {
		sum[k] += atomic_load(&shared->reserve[k]);
		for (unsigned p = 0; p < PROCESSES; p++)
			for (unsigned i = 0; i < n_workers; i++)
				sum[k] += shared->workers[p][i].own.held[k] +
					shared->workers[p][i].in_handler.held[k];
		conserved = conserved && sum[k] == TOTAL;
	}
	return conserved && sum[0] == 0;
}

static void count(uint64_t *operations, uint64_t *signals)
{
	for (unsigned p = 0; p < PROCESSES; p++)
		for (unsigned i = 0; i < n_workers; i++) {
			*operations += shared->workers[p][i].operations;
			*signals += shared->workers[p][i].signals;
		}
}

static pid_t fork_process(unsigned number)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_process(number);
		_exit(0);
	}
	return pid;
}

/* True when nothing was lost, and nothing came from nowhere. */
static bool run_round(uint64_t *drained, uint64_t sum[static KEYS + 1])
{
	const struct timespec t = {.tv_nsec = ROUND_USEC * 1000L};
	pid_t pids[PROCESSES];
	int status;

	memset(shared, 0, shared_size);
	for (uint32_t k = 1; k <= KEYS; k++)
		atomic_store(&shared->reserve[k], TOTAL);
	for (unsigned p = 0; p < PROCESSES; p++)
		pids[p] = fork_process(p);
	nanosleep(&t, NULL);
	atomic_store(&shared->stop, 1);
	for (unsigned p = 0; p < PROCESSES; p++)
		if (waitpid(pids[p], &status, 0) != pids[p] || status != 0) {
			fprintf(stderr, "control: a process ended with status %d\n", status);
			exit(2);
		}
	*drained += atomic_load(&shared->drained);
	return is_conserved(sum);
}

/* A page for each CPU up to the highest that a worker may come to. */
static void make_shared(void)
{
	int fd = memfd_create("control", MFD_CLOEXEC);
	uint32_t n_cpus = CPU_SETSIZE;
	cpu_set_t allowed;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
		die("sched_getaffinity");
	while (!CPU_ISSET(n_cpus - 1, &allowed))
		n_cpus--;
	n_workers = CPU_COUNT(&allowed) < WORKERS ? (unsigned)CPU_COUNT(&allowed) + 1 : WORKERS;
	shared_size = sizeof(*shared) + n_cpus * sizeof(*shared->pages);
	if (fd < 0 || ftruncate(fd, (off_t)shared_size) < 0)
		die("memfd_create");
	shared = mmap(NULL, shared_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		die("mmap");
	close(fd);
	area = percpu_area_make(shared->pages, n_cpus, PERCPU_RSEQ);
}

/* NULL, or why it cannot be tried. */
static const char *why_not(void)
{
	if (!percpu_has_rseq())
		return "the threads of this process have no restartable sequences";
#if defined(PERCPU_CONTROL_MM_CID)
	if (getauxval(AT_RSEQ_FEATURE_SIZE) < MM_CID_END)
		return "this kernel has no mm_cid";
#endif
#if defined(PERCPU_CONTROL_MM_CID) || defined(CONTROL_REMOTE)
	if (n_workers <= 2)
		return "with one CPU nothing is wrong with it";
#endif
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t operations = 0, signals = 0, drained = 0, sum[KEYS + 1];
	const char *reason;
	long rounds = 0, seconds;
	bool conserved = true;

	if (argc != 2 || (seconds = atol(argv[1])) <= 0) {
		fprintf(stderr, "usage: control SECONDS\n");
		return 2;
	}
	make_shared();
	reason = why_not();
	if (reason) {
		printf("# %s\n", reason);
		return STATUS_SKIPPED;
	}
	while (conserved && rounds < seconds * 1000000 / ROUND_USEC) {
		rounds++;
		conserved = run_round(&drained, sum);
		count(&operations, &signals);
	}
	printf("# %ld rounds: %" PRIu64 " operations, %" PRIu64 " signals, %" PRIu64
	       " bytes drained\n",
		rounds, operations, signals, drained);
	if (conserved)
		return 0;
	printf("# %" PRIu32 " strays, of %" PRIu64 " bytes each key has now:", shared->strays,
		TOTAL);
	for (uint32_t k = 0; k <= KEYS; k++)
		printf(" %" PRIu64, sum[k]);
	printf("\n");
	return 1;
}
