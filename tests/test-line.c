/* SPDX-License-Identifier: MIT */

/*
 * Long lines: a thousand requests of eight processes are served in the order in which they came, those
 * that are cancelled and those of killed processes vanish, and after any mixture of operations
 * nothing is left behind.
 */

#include "harness.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/util.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

static struct harness harness;
static struct tally *tally;

static uint32_t next_random(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*seed >> 33);
}

static void set_max(struct tally *t, const char *path, uint64_t bytes)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
	assert_int_equal(tally_set(t, path, "memory.max", text), 0);
}

static int is_empty(void *path)
{
	tally_set(tally, path, "pool.drain", "1");
	return harness_current(tally, path) == 0 &&
		harness_value(tally, path, "memory.stat", "stock") == 0;
}

/* The counters have nothing any more: the whole limit can be had by one. */
static void assert_nothing_left(const char *path, uint64_t max)
{
	struct tally_pool *p = harness_attach(tally, path);

	assert_true(harness_wait(is_empty, (void *)path, HARNESS_PATIENCE_MS));
	set_max(tally, path, max);
	assert_int_equal(tally_charge(p, max), 0);
	assert_int_equal(tally_charge(p, 1), -ENOMEM);
	tally_detach(p);
}

/* ------------------------------------------------------------------ a thousand in order */

#define PROCESSES 8
#define REQUESTS 1000
#define STEPS 20
#define VICTIM 5 /* this process is killed while it waits */

struct board {
	_Atomic unsigned next; /* whose turn it is to ask */
	_Atomic bool cancel, stop;
	_Atomic unsigned n_cancelled;
	_Atomic uint8_t served[REQUESTS];
	_Atomic unsigned n_served;
};

static struct board *board;

static uint64_t need_of(unsigned i)
{
	return (i * 7919 % 61 + 1) * KIB;
}

static bool is_cancelled(unsigned i)
{
	return i % 7 == 3;
}

static bool is_killed(unsigned i)
{
	return i % PROCESSES == VICTIM;
}

static void on_served(struct tally_request *r _unused_, int result, void *userdata)
{
	unsigned i = (unsigned)(uintptr_t)userdata;

	if (result != 0)
		abort();
	atomic_fetch_add(&board->served[i], 1);
	atomic_fetch_add(&board->n_served, 1);
}

/* Asks in its turn, then serves its queue. */
static int be_waiter(void *userdata)
{
	unsigned me = (unsigned)(uintptr_t)userdata;
	struct tally *t = harness_open(&harness);
	struct tally_pool *p = harness_attach(t, "/line/p");
	static struct tally_request *requests[REQUESTS];
	struct tally_queue *q;
	bool cancelled = false;
	tally_item item;

	if (tally_queue_new(t, &q) < 0)
		return 1;
	for (unsigned i = me; i < REQUESTS; i += PROCESSES) {
		struct tally_charge_args a = {.bytes = need_of(i)};

		while (atomic_load(&board->next) != i)
			sched_yield();
		if (tally_request(
			    q, p, &a, sizeof(a), on_served, (void *)(uintptr_t)i, &requests[i]) < 0)
			return 2;
		/* Who asks for something else has been heard before. */
		if (tally_item_lookup(t, "sock", &item) < 0)
			return 3;
		atomic_store(&board->next, i + 1);
	}
	while (!atomic_load(&board->stop)) {
		struct pollfd fd = {.fd = tally_queue_fd(q), .events = POLLIN};

		poll(&fd, 1, 10);
		if (tally_queue_dispatch(q) < 0)
			return 4;
		if (!atomic_load(&board->cancel) || cancelled)
			continue;
		for (unsigned i = me; i < REQUESTS; i += PROCESSES)
			if (is_cancelled(i))
				tally_request_cancel(requests[i]);
		if (tally_item_lookup(t, "sock", &item) < 0)
			return 5;
		cancelled = true;
		atomic_fetch_add(&board->n_cancelled, 1);
	}
	tally_queue_free(q);
	tally_close(t);
	return 0;
}

static int all_asked(void *userdata _unused_)
{
	return atomic_load(&board->next) == REQUESTS;
}

static int all_cancelled(void *userdata _unused_)
{
	return atomic_load(&board->n_cancelled) == PROCESSES;
}

static int are_served(void *n)
{
	return atomic_load(&board->n_served) >= *(unsigned *)n;
}

static int is_alone(void *n)
{
	return harness_value(tally, "/", "tallyd.status", "sessions") == *(uint64_t *)n;
}

/* The limit has room for those up to i, and nearly for the next one: a small one behind that would
 * fit. */
static uint64_t room_up_to(unsigned i, unsigned *ret_n)
{
	uint64_t sum = 0;

	*ret_n = 0;
	for (unsigned j = 0; j <= i; j++)
		if (!is_cancelled(j) && !is_killed(j)) {
			sum += need_of(j);
			++*ret_n;
		}
	do
		i++;
	while (i < REQUESTS && (is_cancelled(i) || is_killed(i)));
	return i < REQUESTS ? sum + need_of(i) - 1 : sum;
}

static void test_thousand(void **state _unused_)
{
	uint64_t sessions = PROCESSES; /* without the victim's, with the test's */
	pid_t pids[PROCESSES];
	struct tally_pool *holder;

	board = harness_shared(sizeof(*board));
	holder = harness_attach(tally, "/line/p");
	set_max(tally, "/line", 4 * KIB);
	assert_int_equal(tally_charge(holder, 4 * KIB), 0);
	for (unsigned i = 0; i < PROCESSES; i++)
		pids[i] = harness_fork(be_waiter, (void *)(uintptr_t)i);
	assert_true(harness_wait(all_asked, NULL, HARNESS_PATIENCE_MS));
	atomic_store(&board->cancel, true);
	assert_true(harness_wait(all_cancelled, NULL, HARNESS_PATIENCE_MS));
	kill(pids[VICTIM], SIGKILL);
	waitpid(pids[VICTIM], NULL, 0);
	assert_true(harness_wait(is_alone, &sessions, HARNESS_PATIENCE_MS));
	assert_int_equal(board->n_served, 0);

	for (unsigned step = 1; step <= STEPS; step++) {
		unsigned last = REQUESTS / STEPS * step - 1, n;
		uint64_t room = room_up_to(last, &n);

		set_max(tally, "/line", room + 4 * KIB);
		assert_true(harness_wait(are_served, &n, HARNESS_PATIENCE_MS));
		usleep(30000); /* a moment for those that must not be served */
		assert_int_equal(board->n_served, n);
		for (unsigned i = 0; i < REQUESTS; i++)
			assert_int_equal(
				board->served[i], i <= last && !is_cancelled(i) && !is_killed(i));
	}
	atomic_store(&board->stop, true);
	for (unsigned i = 0; i < PROCESSES; i++)
		if (i != VICTIM)
			harness_join(pids[i], 0);
	tally_detach(holder);
	assert_nothing_left("/line", MIB);
	harness_unshare(board, sizeof(*board));
}

/* ------------------------------------------------------------------ anything goes */

#define ROUNDS 3000
#define WAITING_MAX 16

/* One loop, which does at random all that there is. */
struct wild {
	struct tally *t;
	const char *path;
	uint64_t seed;
	struct tally_pool *p;
	struct tally_queue *q;
	struct tally_request *waiting[WAITING_MAX];
	uint64_t bytes[WAITING_MAX];
	uint64_t held;
	unsigned done;
};

struct place {
	struct wild *w;
	unsigned i;
};

static void on_wild(struct tally_request *r, int result, void *userdata)
{
	struct place *place = userdata;
	struct wild *w = place->w;

	if (w->waiting[place->i] != r || (result != 0 && result != -ETIMEDOUT && result != -ENODEV))
		abort();
	w->waiting[place->i] = NULL;
	w->held += result == 0 ? w->bytes[place->i] : 0;
	w->done++;
}

static void ask_wildly(struct wild *w, struct place *places)
{
	unsigned i = next_random(&w->seed) % WAITING_MAX;
	struct tally_charge_args a = {.bytes = next_random(&w->seed) % (96 * KIB)};

	if (w->waiting[i]) {
		w->waiting[i] = tally_request_cancel(w->waiting[i]);
		return;
	}
	if (next_random(&w->seed) % 2)
		a.deadline_usec = harness_now() + next_random(&w->seed) % 20000;
	w->bytes[i] = a.bytes;
	if (tally_request(w->q, w->p, &a, sizeof(a), on_wild, &places[i], &w->waiting[i]) < 0)
		abort();
}

static void attach_anew(struct wild *w)
{
	tally_detach(w->p);
	w->held = 0;
	/* What was done is told before the next attachment's can be. */
	for (unsigned i = 0; i < WAITING_MAX; i++)
		w->waiting[i] = tally_request_cancel(w->waiting[i]);
	if (tally_attach(w->t, w->path, 0, &w->p) < 0)
		abort();
}

static void be_wild(struct wild *w, unsigned rounds)
{
	struct place places[WAITING_MAX];

	if (tally_attach(w->t, w->path, 0, &w->p) < 0 || tally_queue_new(w->t, &w->q) < 0)
		abort();
	for (unsigned i = 0; i < WAITING_MAX; i++)
		places[i] = (struct place){w, i};
	for (unsigned n = 0; n < rounds; n++) {
		uint32_t what = next_random(&w->seed) % 100;
		struct tally_charge_args a = {
			.bytes = 32 * KIB, .deadline_usec = harness_now() + 500};

		if (what < 50)
			ask_wildly(w, places);
		else if (what < 80) {
			uint64_t part = w->held ? next_random(&w->seed) % (w->held + 1) : 0;

			tally_uncharge(w->p, part);
			w->held -= part;
		} else if (what < 90)
			w->held += tally_charge(w->p, 8 * KIB) == 0 ? 8 * KIB : 0;
		else if (what < 96)
			w->held += tally_charge_with(w->p, &a, sizeof(a)) == 0 ? 32 * KIB : 0;
		else if (what < 97)
			attach_anew(w);
		else if (what < 98) {
			w->q = tally_queue_free(w->q);
			for (unsigned i = 0; i < WAITING_MAX; i++)
				w->waiting[i] = NULL;
			if (tally_queue_new(w->t, &w->q) < 0)
				abort();
		}
		if (tally_queue_dispatch(w->q) < 0)
			abort();
	}
}

static int be_wild_process(void *userdata)
{
	struct wild w = {
		.t = harness_open(&harness), .path = "/wild/p", .seed = (uintptr_t)userdata + 1};

	be_wild(&w, ROUNDS);
	if (w.done == 0)
		return 1;
	/* Half of them leave all as it is. */
	if ((uintptr_t)userdata % 2)
		raise(SIGKILL);
	tally_queue_free(w.q);
	tally_detach(w.p);
	tally_close(w.t);
	return 0;
}

static void test_wild(void **state _unused_)
{
	pid_t pids[PROCESSES];

	harness_attach(tally, "/wild/p");
	set_max(tally, "/wild", 512 * KIB);
	for (unsigned i = 0; i < PROCESSES; i++)
		pids[i] = harness_fork(be_wild_process, (void *)(uintptr_t)i);
	for (unsigned i = 0; i < PROCESSES; i++) {
		int status;

		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_true(i % 2 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
				  : WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	assert_nothing_left("/wild", 512 * KIB);
}

static void *be_wild_thread(void *userdata)
{
	struct wild *w = userdata;

	be_wild(w, ROUNDS);
	if (w->done == 0)
		abort();
	tally_queue_free(w->q);
	tally_detach(w->p);
	return NULL;
}

static void test_embedded_wild(void **state _unused_)
{
	struct wild wild[4];
	pthread_t threads[4];
	struct tally *daemons = tally;

	assert_int_equal(tally_open("embedded:", 0, &tally), 0);
	tally_detach(harness_attach(tally, "/wild/p"));
	set_max(tally, "/wild", 256 * KIB);
	for (unsigned i = 0; i < 4; i++) {
		wild[i] = (struct wild){.t = tally, .path = "/wild/p", .seed = i + 1};
		assert_int_equal(pthread_create(&threads[i], NULL, be_wild_thread, &wild[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_nothing_left("/wild", 256 * KIB);
	tally_close(tally);
	tally = daemons;
}

static int setup(void **state _unused_)
{
	harness_start(&harness, "");
	tally = harness_open(&harness);
	return 0;
}

static int teardown(void **state _unused_)
{
	tally_close(tally);
	harness_stop(&harness);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_thousand),
		cmocka_unit_test(test_wild),
		cmocka_unit_test(test_embedded_wild),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
