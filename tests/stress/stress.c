/* SPDX-License-Identifier: MIT */

/*
 * Everything at once, for some seconds: two clients with threads on every CPU, signal handlers that
 * charge, threads that move, more keys than slots, attachments that come and go, and a process that
 * drains without pause. Then all stand still, and what the daemon shows has to be what the programs
 * hold, to the byte; by both kinds of operation.
 *
 *	stress SECONDS		so long with each kind
 */

#include "stress.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Small, so that there are many trips to the daemon. */
static const char config[] = "[daemon]\nbatch = 4K\nflush_interval = 100ms\n";

const char *const stress_pools[STRESS_POOLS] = {
	"/stress", "/stress/a", "/stress/a/b", "/stress/c", "/stress/c/limited", "/other"};
const char *const stress_items[STRESS_ITEMS] = {NULL, "anon", "sock"};

#define LOOK_MS 100 /* whether the processes are still there */

/* The clients, and the process that drains. */
#define PROCESSES (STRESS_CLIENTS + 1)

struct process {
	pid_t pid;
	int fd;
};

struct stage {
	struct harness harness;
	struct stress *stress;
	struct tally *tally;
	struct process processes[PROCESSES];
	const char *kind;
	unsigned failed;
};

/* ------------------------------------------------------------------ orders */

bool stress_next_order(int fd, enum stress_order *ret)
{
	return recv(fd, ret, sizeof(*ret), 0) == sizeof(*ret);
}

void stress_answer(int fd)
{
	send(fd, "", 1, MSG_NOSIGNAL);
}

struct part {
	struct stress *stress;
	unsigned number;
	int fd;
};

static int play(void *userdata)
{
	struct part *p = userdata;

	return p->number < STRESS_CLIENTS ? client_main(p->stress, p->number, p->fd)
					  : drains_main(p->stress, p->fd);
}

static void start_process(struct stage *st, unsigned number)
{
	struct process *p = &st->processes[number];
	struct part part = {.stress = st->stress, .number = number};
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	part.fd = fds[1];
	p->fd = fds[0];
	p->pid = harness_fork(play, &part);
	close(fds[1]);
}

static void report(struct stage *st, bool good, const char *what)
{
	printf("%s - %s: %s\n", good ? "ok" : "not ok", st->kind, what);
	fflush(stdout);
	st->failed += !good;
}

/* A process that died has its end of the socket closed. Why, the daemon may know. */
static _Noreturn void break_off(struct stage *st)
{
	FILE *log = fopen(st->harness.log, "re");
	char line[1024];

	while (log && fgets(line, sizeof(line), log))
		printf("# %s", line);
	report(st, false, "a process of the stress is gone");
	exit(1);
}

static void await_all(struct stage *st)
{
	char c;

	for (unsigned i = 0; i < PROCESSES; i++)
		if (recv(st->processes[i].fd, &c, 1, 0) != 1)
			break_off(st);
}

static void order_all(struct stage *st, enum stress_order order)
{
	for (unsigned i = 0; i < PROCESSES; i++)
		assert_int_equal(send(st->processes[i].fd, &order, sizeof(order), MSG_NOSIGNAL),
			sizeof(order));
	if (order != STRESS_RUN && order != STRESS_END)
		await_all(st);
}

/* ------------------------------------------------------------------ results */

static void print_counts(struct stage *st, const struct stress_thread *sum)
{
	const struct stress *s = st->stress;
	uint64_t guests = 0, visits = 0;

	for (unsigned n = 0; n < STRESS_CLIENTS; n++) {
		guests += s->clients[n].guests;
		visits += s->clients[n].visits;
	}
	printf("# %s: %" PRIu64 " operations, %" PRIu64 " signals (%" PRIu64
	       " inside an operation), %" PRIu64 " refused, %" PRIu64 " moves\n",
		st->kind, sum->operations, sum->signals, sum->signals_inside, sum->refused,
		sum->moves);
	printf("# %s: %" PRIu64 " attachments that came and went, %" PRIu64 " visits, %" PRIu64
	       " drains asked for, %" PRIu64 " looks\n",
		st->kind, guests, visits, s->drains.drains, s->drains.looks);
	printf("# %s: the daemon granted %" PRIu64 " misses, refused %" PRIu64 ", drained %" PRIu64
	       " times %" PRIu64 " bytes, and came too late for %" PRIu64 " words\n",
		st->kind, harness_value(st->tally, "/", "tallyd.status", "grants"),
		harness_value(st->tally, "/", "tallyd.status", "refusals"),
		harness_value(st->tally, "/", "tallyd.status", "drains"),
		harness_value(st->tally, "/", "tallyd.status", "drained_bytes"),
		harness_value(st->tally, "/", "tallyd.status", "steals_missed"));
}

static struct stress_thread add_up(const struct stress *s)
{
	struct stress_thread sum = {0};

	for (unsigned n = 0; n < STRESS_CLIENTS; n++)
		for (unsigned i = 0; i < s->n_threads; i++) {
			const struct stress_thread *t = &s->clients[n].threads[i];

			sum.operations += t->operations;
			sum.refused += t->refused;
			sum.moves += t->moves;
			sum.signals += t->signals;
			sum.signals_inside += t->signals_inside;
			sum.errors += t->errors;
			sum.last_error = t->last_error ? t->last_error : sum.last_error;
		}
	return sum;
}

/* Every guest had a key at least; there are not so many places. */
static bool keys_came_again(const struct stress_client *c)
{
	uint64_t places = UINT64_C(64) * ((UINT64_C(1) << c->extents) - 1);

	return c->guests > places;
}

/* A stress in which nothing happened is none. */
static bool was_hard(struct stage *st)
{
	const struct stress *s = st->stress;
	struct stress_thread sum = add_up(s);
	bool hard = sum.operations > 0 && sum.moves > 0 && sum.signals > 0 &&
		s->drains.drains > 0 &&
		harness_value(st->tally, "/", "tallyd.status", "refusals") > 0 &&
		harness_value(st->tally, "/", "tallyd.status", "drained_bytes") > 0;

	/* That sanitizer puts signals off until the thread does something else. */
#if !defined(__SANITIZE_THREAD__)
	hard = hard && sum.signals_inside > 0;
#endif
	for (unsigned n = 0; n < STRESS_CLIENTS; n++)
		hard = hard && s->clients[n].visits > 0 && keys_came_again(&s->clients[n]);
	return hard;
}

/* On a slow machine for longer than was asked for. */
static void run_for(struct stage *st, unsigned seconds)
{
	uint64_t ms = UINT64_C(1000) * seconds, most = ms + HARNESS_PATIENCE_MS;
	struct pollfd p[PROCESSES];

	for (unsigned i = 0; i < PROCESSES; i++)
		p[i] = (struct pollfd){.fd = st->processes[i].fd, .events = POLLIN};
	order_all(st, STRESS_RUN);
	for (uint64_t n = 0; n < ms || (n < most && !was_hard(st)); n += LOOK_MS)
		if (poll(p, PROCESSES, LOOK_MS) != 0)
			break_off(st);
	atomic_store(&st->stress->stop, true);
	order_all(st, STRESS_STAND);
}

static void judge(struct stage *st)
{
	struct stress_thread sum = add_up(st->stress);

	print_counts(st, &sum);
	report(st, was_hard(st),
		"signals, drains, refusals, moves, and keys that came round again");
	if (sum.errors > 0)
		printf("# %" PRIu64 " errors, the last one: %s\n", sum.errors,
			strerror(-sum.last_error));
	report(st, sum.errors == 0, "no charge failed as none may");
	report(st, st->stress->drains.above_limit == 0, "the limit held all the time");
	report(st, audit_held(st->tally, st->stress, false) == 0,
		"what is shown is what the programs hold");
	assert_int_equal(tally_set(st->tally, "/", "pool.drain", "1"), 0);
	report(st, audit_held(st->tally, st->stress, false) == 0, "a drain changes none of it");
	order_all(st, STRESS_GIVE_BACK);
	report(st, audit_held(st->tally, st->stress, true) == 0,
		"with all given back nothing is held");
	order_all(st, STRESS_DETACH);
	report(st, audit_empty(st->tally, st->stress) == 0,
		"with all detached nothing is idle, and the counters are 0");
}

/* ------------------------------------------------------------------ the whole */

static unsigned count_threads(void)
{
	cpu_set_t allowed;
	unsigned n;

	assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
	n = (unsigned)CPU_COUNT(&allowed) + 2;
	if (n < 4)
		n = 4;
	return n < STRESS_THREADS ? n : STRESS_THREADS;
}

static bool has_kind(struct stage *st)
{
	char *text = harness_get(st->tally, "/", "tallyd.status"), wanted[32];
	bool has;

	snprintf(wanted, sizeof(wanted), "percpu %s\n", st->kind);
	has = strstr(text, wanted) != NULL;
	free(text);
	return has;
}

static void run_processes(struct stage *st, unsigned seconds)
{
	char limit[24];

	snprintf(limit, sizeof(limit), "%" PRIu64, STRESS_LIMIT);
	tally_create(st->tally, "/stress");
	tally_create(st->tally, "/stress/c");
	assert_int_equal(tally_create(st->tally, stress_pools[STRESS_LIMITED]), 0);
	assert_int_equal(
		tally_set(st->tally, stress_pools[STRESS_LIMITED], "memory.max", limit), 0);
	setenv("TALLY_PERCPU", st->kind, 1);
	for (unsigned i = 0; i < PROCESSES; i++)
		start_process(st, i);
	await_all(st);
	run_for(st, seconds);
	judge(st);
	order_all(st, STRESS_END);
	for (unsigned i = 0; i < PROCESSES; i++) {
		harness_join(st->processes[i].pid, 0);
		close(st->processes[i].fd);
	}
}

/* Returns how many cases failed. */
static unsigned run_kind(const char *kind, unsigned seconds)
{
	struct stage st = {.kind = kind, .stress = harness_shared(sizeof(*st.stress))};

	/* rseq is what the daemon takes where it can. */
	if (strcmp(kind, "atomic") == 0)
		setenv("TALLY_PERCPU", kind, 1);
	else
		unsetenv("TALLY_PERCPU");
	harness_start(&st.harness, config);
	memcpy(st.stress->address, st.harness.address, sizeof(st.stress->address));
	st.stress->n_threads = count_threads();
	st.tally = harness_open(&st.harness);
	if (has_kind(&st))
		run_processes(&st, seconds);
	else
		report(&st, true, "conserved # SKIP the daemon cannot use that here");
	tally_close(st.tally);
	harness_stop(&st.harness);
	harness_unshare(st.stress, sizeof(*st.stress));
	return st.failed;
}

int main(int argc, char **argv)
{
	char *end = NULL;
	unsigned long seconds = argc == 2 ? strtoul(argv[1], &end, 10) : 0;
	unsigned failed;

	if (seconds == 0 || seconds > 1000000 || *end) {
		fprintf(stderr, "usage: stress SECONDS\n");
		return 2;
	}
	/* What the harness finds wrong outside of cmocka's tests is to be seen. */
	setenv("CMOCKA_TEST_ABORT", "1", 1);
	failed = run_kind("rseq", (unsigned)seconds);
	failed += run_kind("atomic", (unsigned)seconds);
	return failed != 0;
}
