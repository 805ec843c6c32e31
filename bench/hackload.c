/* SPDX-License-Identifier: MIT */

/*
 * Tasks are threads: the stocks of the rivals lie in process memory, and all tasks of a CPU share
 * one, as all tasks of the kernel do.
 */

#include "hackload.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench.h"
#include "core/util.h"
#include "rig.h"

#define STACK 65536
#define POLL_NSEC 200000

/* ------------------------------------------------------------------ tasks */

struct run {
	const struct hackload *load;
	double long_ticks;
	pthread_barrier_t begin;
	char *text; /* what is sent */
};

struct task {
	alignas(64) struct run *run;
	pthread_t thread;
	struct group *group;
	int fd;     /* a receiver's end */
	char *room; /* a receiver's, for a message */
	uint64_t ticks, long_ticks, n_long;
	uint64_t begin, end;
	_Atomic uint64_t received; /* messages */
};

struct group {
	struct task senders[HACKLOAD_SENDERS], receivers[HACKLOAD_SENDERS];
	int fds[HACKLOAD_SENDERS]; /* the senders' ends */
};

static void add_time(struct task *t, uint64_t ticks)
{
	if (unlikely((double)ticks >= t->run->long_ticks)) {
		t->long_ticks += ticks;
		t->n_long++;
	} else {
		t->ticks += ticks;
	}
}

static void charge(struct task *t)
{
	struct accounting *a = t->run->load->accounting;
	uint64_t start = bench_ticks(), fallbacks = 0;

	rig_check(a->charge(a, 0, t->run->load->charge, &fallbacks), a->label);
	add_time(t, bench_ticks() - start);
}

static void uncharge(struct task *t)
{
	struct accounting *a = t->run->load->accounting;
	uint64_t start = bench_ticks(), fallbacks = 0;

	a->uncharge(a, 0, t->run->load->charge, &fallbacks);
	add_time(t, bench_ticks() - start);
}

static void send_message(const struct run *run, int fd)
{
	for (size_t sent = 0; sent < run->load->size;) {
		ssize_t n = write(fd, run->text + sent, run->load->size - sent);

		if (n < 0 && errno != EINTR)
			bench_die("cannot send: %s", strerror(errno));
		sent += n > 0 ? (size_t)n : 0;
	}
}

static void receive_message(struct task *t)
{
	for (size_t received = 0; received < t->run->load->size;) {
		ssize_t n = read(t->fd, t->room, t->run->load->size - received);

		if (n == 0 || (n < 0 && errno != EINTR))
			bench_die("cannot receive: %s", n == 0 ? "end" : strerror(errno));
		received += n > 0 ? (size_t)n : 0;
	}
}

static void *run_sender(void *userdata)
{
	struct task *t = userdata;

	pthread_barrier_wait(&t->run->begin);
	t->begin = bench_now();
	for (unsigned i = 0; i < t->run->load->messages; i++)
		for (unsigned j = 0; j < HACKLOAD_SENDERS; j++) {
			charge(t);
			send_message(t->run, t->group->fds[j]);
		}
	t->end = bench_now();
	return NULL;
}

static void *run_receiver(void *userdata)
{
	struct task *t = userdata;

	pthread_barrier_wait(&t->run->begin);
	t->begin = bench_now();
	for (unsigned i = 0; i < t->run->load->messages * HACKLOAD_SENDERS; i++) {
		receive_message(t);
		uncharge(t);
		atomic_store_explicit(&t->received, i + 1, memory_order_relaxed);
	}
	t->end = bench_now();
	return NULL;
}

/* ------------------------------------------------------------------ a sample */

static void start(struct run *run, struct group *g, struct task *t, void *(*fn)(void *userdata))
{
	pthread_attr_t attributes;

	t->run = run;
	t->group = g;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK);
	if (pthread_create(&t->thread, &attributes, fn, t) != 0)
		bench_die("cannot make so many threads");
	pthread_attr_destroy(&attributes);
}

static void start_group(struct run *run, struct group *g)
{
	for (unsigned i = 0; i < HACKLOAD_SENDERS; i++) {
		int pair[2];

		g->receivers[i].room = bench_allocate(1, run->load->size);
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
			bench_die("cannot make a pair of sockets: %s", strerror(errno));
		g->receivers[i].fd = pair[0];
		g->fds[i] = pair[1];
	}
	for (unsigned i = 0; i < HACKLOAD_SENDERS; i++) {
		start(run, g, &g->receivers[i], run_receiver);
		start(run, g, &g->senders[i], run_sender);
	}
}

/* Where a run was when somebody looked. */
struct look {
	uint64_t received;
	int64_t operations;
};

/*
 * Waits until a part of the messages has come, in hundredths, and looks. Runs that are over so soon
 * are seen when they are.
 */
static struct look look_after(const struct run *run, const struct group *groups, unsigned part)
{
	uint64_t all = (uint64_t)run->load->groups * HACKLOAD_SENDERS * HACKLOAD_SENDERS *
		run->load->messages;
	struct look l = {.received = 0};

	for (;; bench_sleep(POLL_NSEC)) {
		l.received = 0;
		for (unsigned i = 0; i < run->load->groups * HACKLOAD_SENDERS; i++)
			l.received += atomic_load_explicit(&groups[i / HACKLOAD_SENDERS]
								    .receivers[i % HACKLOAD_SENDERS]
								    .received,
				memory_order_relaxed);
		if (l.received >= all * part / 100)
			break;
	}
	l.operations = accounting_operations(run->load->accounting);
	return l;
}

static void join(struct task *t, struct task *ret_sum)
{
	pthread_join(t->thread, NULL);
	ret_sum->ticks += t->ticks;
	ret_sum->long_ticks += t->long_ticks;
	ret_sum->n_long += t->n_long;
	ret_sum->begin = t->begin < ret_sum->begin ? t->begin : ret_sum->begin;
	ret_sum->end = t->end > ret_sum->end ? t->end : ret_sum->end;
}

static void end_group(struct group *g, struct task *ret_sum)
{
	for (unsigned i = 0; i < HACKLOAD_SENDERS; i++) {
		join(&g->senders[i], ret_sum);
		join(&g->receivers[i], ret_sum);
		free(g->receivers[i].room);
		close(g->receivers[i].fd);
		close(g->fds[i]);
	}
}

void hackload_run(const struct hackload *l, struct hackload_result *ret)
{
	struct group *groups = bench_allocate(l->groups, sizeof(*groups));
	double allocations = (double)l->groups * HACKLOAD_SENDERS * HACKLOAD_SENDERS * l->messages;
	int64_t before = accounting_operations(l->accounting), after;
	struct run run = {.load = l,
		.long_ticks = HACKLOAD_LONG_NSEC / bench_ticks_to_nsec(1),
		.text = bench_allocate(1, l->size)};
	struct task sum = {.run = &run, .begin = UINT64_MAX};
	struct look first, last;

	pthread_barrier_init(&run.begin, NULL, l->groups * HACKLOAD_SENDERS * 2 + 1);
	for (unsigned i = 0; i < l->groups; i++)
		start_group(&run, &groups[i]);
	pthread_barrier_wait(&run.begin);
	first = look_after(&run, groups, 25);
	last = look_after(&run, groups, 75);
	for (unsigned i = 0; i < l->groups; i++)
		end_group(&groups[i], &sum);
	*ret = (struct hackload_result){.seconds = (double)(sum.end - sum.begin) / 1e9,
		.accounting = bench_ticks_to_nsec((double)sum.ticks) / 1e9,
		.in_long = bench_ticks_to_nsec((double)sum.long_ticks) / 1e9,
		.n_long = (double)sum.n_long,
		.operations = -1,
		.steady_operations = -1};
	after = accounting_operations(l->accounting);
	if (before >= 0 && after >= 0)
		ret->operations = (double)(after - before) / allocations;
	if (first.operations >= 0 && last.operations >= 0 && last.received > first.received)
		ret->steady_operations = (double)(last.operations - first.operations) /
			(double)(last.received - first.received);
	pthread_barrier_destroy(&run.begin);
	free(groups);
	free(run.text);
	accounting_check(l->accounting);
}
