/* SPDX-License-Identifier: MIT */

/*
 * What the pools show is what the processes hold: many of them charge and uncharge at random,
 * through stocks, reserves and the daemon, then stand still, and every figure has to be exact. The
 * processes keep books of their own; nothing here asks the library what it thinks.
 */

#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/util.h"

#define N_PROCESSES 6
#define N_THREADS 2
#define N_MAIL 8
#define N_LOTS 48    /* charges that a thread holds at once */
#define SHIFT_MAX 21 /* up to 2 MiB */
#define RUN_MS 2500
#define RELEASE_MS 10000               /* within a second; the rest is for slow machines */
#define LIMIT_ALL (UINT64_C(40) << 20) /* of /t … */
#define LIMIT_A (UINT64_C(12) << 20)   /* … and of /t/a, in the test with limits */
#define ENOUGH 100
#define SMALL_BATCH "[daemon]\nbatch = 64K\n" /* so that all ways of a charge are taken often */

/* Every process attaches to all of them; / and /u hold nothing of their own. */
static const char *const pools[] = {
	"/t", "/t/a", "/t/a/x", "/t/b", "/t/b/y/deep/er", "/u/c", "/u/d"};
static const char *const shown[] = {"/", "/t", "/t/a", "/t/a/x", "/t/b", "/t/b/y", "/t/b/y/deep",
	"/t/b/y/deep/er", "/u", "/u/c", "/u/d"};
static const char *const items[] = {NULL, "anon", "sock"};

#define N_POOLS ELEMENTS(pools)
#define N_ITEMS ELEMENTS(items)

/* What one process held when it stood still. */
struct book {
	_Atomic uint64_t charged, refused;
	_Atomic int still;
	uint64_t held[N_POOLS][N_ITEMS];
};

struct shared {
	_Atomic int ready, stop, leave;
	/* Added to after a charge has succeeded, lowered before an uncharge: never more than what
	 * is held. */
	_Atomic uint64_t all, all_max, a, a_max;
	struct book book[N_PROCESSES];
};

static struct harness harness;
static struct shared *shared;

/* A charge that is held; bytes 0: none. It fits in a word so that threads can exchange it. */
typedef uint64_t lot;

static lot lot_make(unsigned pool, unsigned item, uint64_t bytes)
{
	return bytes << 8 | pool << 4 | item;
}

static unsigned lot_pool(lot l)
{
	return l >> 4 & 15;
}

static unsigned lot_item(lot l)
{
	return l & 15;
}

static uint64_t lot_bytes(lot l)
{
	return l >> 8;
}

/* ------------------------------------------------------------------ the processes */

struct process {
	unsigned number;
	struct tally *tally;
	struct tally_pool *pool[N_POOLS];
	tally_item item[N_ITEMS];
	_Atomic lot mail[N_MAIL]; /* what one thread charges another uncharges */
};

struct worker {
	pthread_t thread;
	struct process *process;
	unsigned seed;
	lot lots[N_LOTS];
};

static void raise_max(_Atomic uint64_t *max, uint64_t now)
{
	uint64_t seen = atomic_load(max);

	while (now > seen && !atomic_compare_exchange_weak(max, &seen, now))
		;
}

static void count(lot l)
{
	const char *path = pools[lot_pool(l)];

	if (strncmp(path, "/t", 2) == 0)
		raise_max(&shared->all_max,
			atomic_fetch_add(&shared->all, lot_bytes(l)) + lot_bytes(l));
	if (strncmp(path, "/t/a", 4) == 0)
		raise_max(
			&shared->a_max, atomic_fetch_add(&shared->a, lot_bytes(l)) + lot_bytes(l));
}

static void discount(lot l)
{
	const char *path = pools[lot_pool(l)];

	if (strncmp(path, "/t", 2) == 0)
		atomic_fetch_sub(&shared->all, lot_bytes(l));
	if (strncmp(path, "/t/a", 4) == 0)
		atomic_fetch_sub(&shared->a, lot_bytes(l));
}

/* All sizes from one byte on are as likely as those twice as large. */
static uint64_t random_size(unsigned *seed)
{
	uint64_t top = UINT64_C(1) << rand_r(seed) % (SHIFT_MAX + 1);

	return top == UINT64_C(1) << SHIFT_MAX ? top : top + (uint64_t)rand_r(seed) % top;
}

static int charge_one(struct process *p, unsigned pool, unsigned item, uint64_t bytes, unsigned how)
{
	struct tally_charge_args args = {.item = p->item[item], .bytes = bytes};

	switch (how) {
	case 0:
		args.flags = TALLY_NOWAIT;
		return tally_charge_with(p->pool[pool], &args, sizeof(args));
	case 1:
		return item ? tally_try_charge_item(p->pool[pool], p->item[item], bytes)
			    : tally_try_charge(p->pool[pool], bytes);
	case 2:
		return tally_charge_with(p->pool[pool], &args, sizeof(args));
	default:
		return item ? tally_charge_item(p->pool[pool], p->item[item], bytes)
			    : tally_charge(p->pool[pool], bytes);
	}
}

static lot charge(struct worker *w)
{
	struct book *book = &shared->book[w->process->number];
	unsigned pool = (unsigned)rand_r(&w->seed) % N_POOLS;
	unsigned item = rand_r(&w->seed) % 2 ? (unsigned)rand_r(&w->seed) % N_ITEMS : 0;
	lot l = lot_make(pool, item, random_size(&w->seed));
	int r = charge_one(w->process, pool, item, lot_bytes(l), (unsigned)rand_r(&w->seed) % 8);

	atomic_fetch_add(&book->charged, r == 0);
	atomic_fetch_add(&book->refused, r == -ENOMEM);
	if (r != 0 && r != -ENOMEM && r != -EAGAIN)
		abort();
	if (r < 0)
		return 0;
	count(l);
	return l;
}

static void uncharge(struct process *p, lot l)
{
	struct tally_pool *pool = p->pool[lot_pool(l)];

	if (l == 0)
		return;
	discount(l);
	if (lot_item(l))
		tally_uncharge_item(pool, p->item[lot_item(l)], lot_bytes(l));
	else
		tally_uncharge(pool, lot_bytes(l));
}

static void *work(void *arg)
{
	struct worker *w = arg;

	while (!atomic_load(&shared->stop)) {
		lot *l = &w->lots[(unsigned)rand_r(&w->seed) % N_LOTS];

		if (rand_r(&w->seed) % 8 == 0)
			*l = atomic_exchange(&w->process->mail[rand_r(&w->seed) % N_MAIL], *l);
		if (*l == 0) {
			*l = charge(w);
		} else {
			uncharge(w->process, *l);
			*l = 0;
		}
	}
	return NULL;
}

static void write_down(struct book *b, lot l)
{
	b->held[lot_pool(l)][lot_item(l)] += lot_bytes(l);
}

static void publish(struct process *p, const struct worker *workers)
{
	struct book *b = &shared->book[p->number];

	for (unsigned i = 0; i < N_THREADS; i++)
		for (unsigned l = 0; l < N_LOTS; l++)
			write_down(b, workers[i].lots[l]);
	for (unsigned i = 0; i < N_MAIL; i++)
		write_down(b, atomic_load(&p->mail[i]));
	atomic_store(&b->still, 1);
}

static int open_all(struct process *p)
{
	if (tally_open(harness.address, 0, &p->tally) < 0)
		return -1;
	for (unsigned i = 1; i < N_ITEMS; i++)
		if (tally_item_lookup(p->tally, items[i], &p->item[i]) < 0)
			return -1;
	for (unsigned i = 0; i < N_POOLS; i++)
		if (tally_attach(p->tally, pools[i], TALLY_CREATE, &p->pool[i]) < 0)
			return -1;
	return 0;
}

static int run_process(void *userdata)
{
	struct process p = {.number = (unsigned)(uintptr_t)userdata};
	struct worker workers[N_THREADS] = {0};

	if (open_all(&p) < 0)
		return 1;
	atomic_fetch_add(&shared->ready, 1);
	for (unsigned i = 0; i < N_THREADS; i++) {
		workers[i].process = &p;
		workers[i].seed = p.number * N_THREADS + i + 1;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			return 1;
	}
	for (unsigned i = 0; i < N_THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	publish(&p, workers);
	while (!atomic_load(&shared->leave))
		usleep(2000);

	/* Some detach, some close, some just end. */
	if (p.number % 3 == 0)
		for (unsigned i = 0; i < N_POOLS; i++)
			tally_detach(p.pool[i]);
	if (p.number % 3 < 2)
		tally_close(p.tally);
	return 0;
}

/* ------------------------------------------------------------------ the tests' side */

struct run {
	struct tally *tally;
	pid_t pid[N_PROCESSES]; /* 0: gone */
};

static int all_ready(void *userdata)
{
	(void)userdata;
	return atomic_load(&shared->ready) == N_PROCESSES;
}

static int is_still(void *userdata)
{
	return atomic_load(&((struct book *)userdata)->still);
}

static void begin(struct run *run)
{
	run->tally = harness_open(&harness);
	memset(shared, 0, sizeof(*shared));
	for (unsigned i = 0; i < N_PROCESSES; i++)
		run->pid[i] = harness_fork(run_process, (void *)(uintptr_t)i);
	assert_true(harness_wait(all_ready, NULL, HARNESS_PATIENCE_MS));
}

static void stand_still(struct run *run)
{
	atomic_store(&shared->stop, 1);
	for (unsigned i = 0; i < N_PROCESSES; i++)
		if (run->pid[i])
			assert_true(harness_wait(is_still, &shared->book[i], HARNESS_PATIENCE_MS));
}

static void kill_one(struct run *run, unsigned i)
{
	assert_int_equal(kill(run->pid[i], SIGKILL), 0);
	assert_int_equal(waitpid(run->pid[i], NULL, 0), run->pid[i]);
	run->pid[i] = 0;
}

static bool is_below(const char *path, const char *above)
{
	size_t n = strcmp(above, "/") == 0 ? 0 : strlen(above);

	return strncmp(path, above, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* What the processes that live hold in a subtree; item N_ITEMS: in all. */
static uint64_t held_below(const struct run *run, const char *path, unsigned item)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < N_PROCESSES; i++)
		for (unsigned p = 0; run->pid[i] && p < N_POOLS; p++)
			for (unsigned k = 0; k < N_ITEMS && is_below(pools[p], path); k++)
				if (item == N_ITEMS || item == k)
					sum += shared->book[i].held[p][k];
	return sum;
}

static uint64_t peak_of(struct tally *t, const char *path)
{
	char *text = harness_get(t, path, "memory.peak");
	uint64_t peak = strtoull(text, NULL, 10);

	free(text);
	return peak;
}

/* What the counter of the pool says, which limits are held against. */
static uint64_t granted(struct tally *t, const char *path)
{
	assert_int_equal(tally_set(t, path, "memory.peak", "now"), 0);
	return peak_of(t, path);
}

static void assert_exact(const struct run *run)
{
	struct tally *t = run->tally;

	for (unsigned i = 0; i < ELEMENTS(shown); i++) {
		const char *path = shown[i];
		uint64_t held = held_below(run, path, N_ITEMS);

		assert_int_equal(harness_current(t, path), held);
		assert_int_equal(harness_value(t, path, "memory.stat", "held"), held);
		assert_int_equal(harness_value(t, path, "memory.stat", "overdraft"), 0);
		for (unsigned k = 1; k < N_ITEMS; k++)
			assert_int_equal(harness_value(t, path, "memory.stat", items[k]),
				held_below(run, path, k));
		assert_true(peak_of(t, path) >= held);
		assert_int_equal(
			granted(t, path), held + harness_value(t, path, "memory.stat", "stock"));
	}
	assert_int_equal(
		harness_current(t, "/"), harness_current(t, "/t") + harness_current(t, "/u"));
	assert_int_equal(
		harness_current(t, "/u"), harness_current(t, "/u/c") + harness_current(t, "/u/d"));
}

static int shows_what_is_held(void *userdata)
{
	struct run *run = userdata;

	for (unsigned i = 0; i < ELEMENTS(shown); i++)
		if (harness_current(run->tally, shown[i]) != held_below(run, shown[i], N_ITEMS))
			return 0;
	return 1;
}

static int all_gone(void *userdata)
{
	struct run *run = userdata;

	return harness_value(run->tally, "/", "tallyd.status", "sessions") == 1;
}

/* Everything is 0 when the last of them is gone. */
static void end(struct run *run)
{
	static const char *const keys[] = {"held", "stock", "overdraft", "anon", "sock"};
	struct tally *t = run->tally;

	atomic_store(&shared->leave, 1);
	for (unsigned i = 0; i < N_PROCESSES; i++)
		if (run->pid[i])
			harness_join(run->pid[i], 0);
	assert_true(harness_wait(all_gone, run, HARNESS_PATIENCE_MS));
	for (unsigned i = 0; i < ELEMENTS(shown); i++) {
		assert_int_equal(harness_current(t, shown[i]), 0);
		assert_int_equal(granted(t, shown[i]), 0);
		for (unsigned k = 0; k < ELEMENTS(keys); k++)
			assert_int_equal(harness_value(t, shown[i], "memory.stat", keys[k]), 0);
	}
	assert_int_equal(harness_value(t, "/", "tallyd.status", "rows"), 0);
	run->tally = tally_close(t);
}

static uint64_t refused(void)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < N_PROCESSES; i++)
		n += atomic_load(&shared->book[i].refused);
	return n;
}

static int all_worked(void *userdata)
{
	const struct run *run = userdata;

	for (unsigned i = 0; i < N_PROCESSES; i++)
		if (run->pid[i] && atomic_load(&shared->book[i].charged) < ENOUGH)
			return 0;
	return 1;
}

static int many_refused(void *userdata)
{
	return refused() >= ENOUGH && all_worked(userdata);
}

static void set_limits(struct tally *t, const char *all, const char *a)
{
	assert_int_equal(tally_set(t, "/t", "memory.max", all), 0);
	assert_int_equal(tally_set(t, "/t/a", "memory.max", a), 0);
}

/* ------------------------------------------------------------------ tests */

static void test_exact_without_limit(void **state _unused_)
{
	struct run run;
	uint64_t idle;

	begin(&run);
	usleep(RUN_MS * 1000);
	assert_true(harness_wait(all_worked, &run, HARNESS_PATIENCE_MS));
	stand_still(&run);
	assert_int_equal(refused(), 0);
	assert_exact(&run);

	/* Idle credit goes back, but for what lies in answers that nobody has read yet; what is
	 * held stays. */
	idle = harness_value(run.tally, "/", "memory.stat", "stock");
	assert_int_equal(tally_set(run.tally, "/", "pool.drain", "1"), 0);
	assert_true(harness_value(run.tally, "/", "memory.stat", "stock") < idle);
	assert_exact(&run);
	end(&run);
}

static void test_limit_never_passed(void **state _unused_)
{
	struct tally *t = harness_open(&harness);
	struct run run;

	tally_detach(harness_attach(t, "/t/a"));
	set_limits(t, "40M", "12M");
	assert_int_equal(tally_set(t, "/t", "memory.peak", "now"), 0);
	assert_int_equal(tally_set(t, "/t/a", "memory.peak", "now"), 0);
	tally_close(t);
	begin(&run);
	for (unsigned i = 0; i < RUN_MS / 10; i++) {
		usleep(10000);
		assert_true(harness_current(run.tally, "/t") <= LIMIT_ALL);
		assert_true(harness_current(run.tally, "/t/a") <= LIMIT_A);
	}
	assert_true(harness_wait(many_refused, &run, HARNESS_PATIENCE_MS));
	stand_still(&run);
	assert_true(peak_of(run.tally, "/t") <= LIMIT_ALL);
	assert_true(peak_of(run.tally, "/t/a") <= LIMIT_A);
	assert_true(shared->all_max <= LIMIT_ALL);
	assert_true(shared->a_max <= LIMIT_A);
	/* … and the limits were what held them. */
	assert_true(shared->all_max > LIMIT_ALL / 10 * 9);
	assert_true(shared->a_max > LIMIT_A / 10 * 9);
	assert_int_equal(shared->all, held_below(&run, "/t", N_ITEMS));
	assert_exact(&run);
	set_limits(run.tally, "max", "max");
	end(&run);
}

/* What a killed process held goes back, all of it and nothing else. */
static void test_killed_while_still(void **state _unused_)
{
	struct run run;
	uint64_t before, part;

	begin(&run);
	assert_true(harness_wait(all_worked, &run, HARNESS_PATIENCE_MS));
	stand_still(&run);
	assert_exact(&run);
	before = harness_current(run.tally, "/");

	kill_one(&run, 2);
	part = before - held_below(&run, "/", N_ITEMS);
	assert_true(part > 0);
	assert_true(harness_wait(shows_what_is_held, &run, RELEASE_MS));
	assert_int_equal(harness_current(run.tally, "/"), before - part);
	assert_exact(&run);
	end(&run);
}

static void test_killed_while_charging(void **state _unused_)
{
	unsigned seed = (unsigned)time(NULL);
	struct run run;

	begin(&run);
	for (unsigned i = 1; i < N_PROCESSES; i += 2) {
		usleep((useconds_t)rand_r(&seed) % (RUN_MS * 1000 / 5));
		kill_one(&run, i);
	}
	assert_true(harness_wait(all_worked, &run, HARNESS_PATIENCE_MS));
	stand_still(&run);
	assert_true(harness_wait(shows_what_is_held, &run, RELEASE_MS));
	assert_exact(&run);
	end(&run);
}

static int set_up(void **state _unused_)
{
	shared = harness_shared(sizeof(*shared));
	harness_start(&harness, SMALL_BATCH);
	return 0;
}

static int tear_down(void **state _unused_)
{
	harness_stop(&harness);
	harness_unshare(shared, sizeof(*shared));
	return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_exact_without_limit),
		TEST(test_limit_never_passed),
		TEST(test_killed_while_still),
		TEST(test_killed_while_charging),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
