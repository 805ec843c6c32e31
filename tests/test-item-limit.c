/* SPDX-License-Identifier: MIT */

/*
 * stat.<item>.max from the outside: that no more of an item is ever had below a pool than its limit
 * says, and nearly all of that; that whoever charges without the item notices nothing; and what
 * becomes of the limit when it is set, lowered, removed, reloaded, or waited for.
 */

#include "harness.h"

#include <errno.h>
#include <inttypes.h>
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

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * KIB)
#define LONG_MS 120000 /* a deadline that no test waits for */

static struct harness harness;
static struct tally *tally; /* the test's own session */
static tally_item sock, anon;

static void create(const char *path, const char *max)
{
	assert_int_equal(tally_create(tally, path), 0);
	assert_int_equal(tally_set(tally, path, "stat.sock.max", max), 0);
}

static void set_limit(const char *path, const char *max)
{
	assert_int_equal(tally_set(tally, path, "stat.sock.max", max), 0);
}

static void assert_limit(const char *path, const char *expected)
{
	_cleanup_(freep) char *text = harness_get(tally, path, "stat.sock.max");

	assert_string_equal(text, expected);
}

static uint64_t stat_of(const char *path, const char *key)
{
	return harness_value(tally, path, "memory.stat", key);
}

static void assert_events(const char *path, const char *file, uint64_t max, uint64_t oom)
{
	assert_int_equal(harness_value(tally, path, file, "max"), max);
	assert_int_equal(harness_value(tally, path, file, "oom"), oom);
}

/* Refused, and it was this pool that did it. */
static void assert_refused(struct tally_pool *p, uint64_t bytes, const char *by)
{
	uint64_t oom = harness_value(tally, by, "memory.events.local", "oom");

	assert_int_equal(tally_charge_item(p, sock, bytes), -ENOMEM);
	assert_int_equal(harness_value(tally, by, "memory.events.local", "oom"), oom + 1);
}

static void await(int (*holds)(void *userdata), void *userdata)
{
	assert_true(harness_wait(holds, userdata, HARNESS_PATIENCE_MS));
}

struct figure {
	const char *path, *key;
	uint64_t value;
};

static int has_come_to(void *userdata)
{
	const struct figure *f = userdata;

	return stat_of(f->path, f->key) == f->value;
}

static void await_stat(const char *path, const char *key, uint64_t value)
{
	struct figure f = {path, key, value};

	await(has_come_to, &f);
}

/* ------------------------------------------------------------------ filling a limit */

#define FILL_PROCESSES 8
#define FILL_MAX (64 * MIB)
#define FILL_CHARGE (4 * KIB)
#define FILL_CHURN 2000

struct fill {
	_Atomic uint64_t held, at_first, most;
	_Atomic unsigned warm, full, done, failed;
};

static struct fill *fill;

static bool charge_sock(struct tally_pool *p)
{
	uint64_t held, most = atomic_load(&fill->most);
	int r = tally_charge_item(p, sock, FILL_CHARGE);

	if (r < 0) {
		atomic_fetch_add(&fill->failed, r != -ENOMEM);
		return false;
	}
	held = atomic_fetch_add(&fill->held, FILL_CHARGE) + FILL_CHARGE;
	while (held > most && !atomic_compare_exchange_weak(&fill->most, &most, held))
		;
	return true;
}

static void uncharge_sock(struct tally_pool *p)
{
	atomic_fetch_sub(&fill->held, FILL_CHARGE);
	tally_uncharge_item(p, sock, FILL_CHARGE);
}

/* Without the item, and with another one. */
static void charge_others(struct tally_pool *beside)
{
	if (tally_charge(beside, FILL_CHARGE) < 0 || tally_charge_item(beside, anon, 100) < 0)
		atomic_fetch_add(&fill->failed, 1);
}

static void await_all(_Atomic unsigned *n)
{
	atomic_fetch_add(n, 1);
	while (atomic_load(n) < FILL_PROCESSES)
		usleep(1000);
}

/* Takes until it is refused; then gives back and takes again, as all the others do. */
static void fill_up(struct tally_pool *p, struct tally_pool *beside)
{
	uint64_t none = 0, held;

	if (!charge_sock(p))
		atomic_fetch_add(&fill->failed, 1);
	await_all(&fill->warm);
	while (charge_sock(p))
		charge_others(beside);
	held = atomic_load(&fill->held);
	atomic_compare_exchange_strong(&fill->at_first, &none, held);
	await_all(&fill->full);

	for (unsigned i = 0; i < FILL_CHURN; i++) {
		uncharge_sock(p);
		charge_others(beside);
		while (!charge_sock(p) && !atomic_load(&fill->failed))
			;
	}
}

static int fill_process(void *userdata)
{
	struct tally_pool *p, *beside;
	struct tally *t;
	char path[32];

	snprintf(path, sizeof(path), "/it/sock/p%u", (unsigned)(uintptr_t)userdata % 7);
	if (tally_open(harness.address, 0, &t) < 0 || tally_attach(t, path, TALLY_CREATE, &p) < 0)
		return 1;
	snprintf(path, sizeof(path), "/it/beside/p%u", (unsigned)(uintptr_t)userdata % 3);
	if (tally_attach(t, path, TALLY_CREATE, &beside) < 0)
		return 1;
	fill_up(p, beside);
	await_all(&fill->done);
	pause();
	return 0;
}

static int have_all_come(void *userdata)
{
	assert_true(stat_of("/it", "sock") <= FILL_MAX);
	return atomic_load((_Atomic unsigned *)userdata) == FILL_PROCESSES;
}

static void test_limit_is_used_up(void **state _unused_)
{
	_cleanup_(freep) char *peak = NULL;
	pid_t pids[FILL_PROCESSES];
	struct tally_pool *p;

	fill = harness_shared(sizeof(*fill));
	create("/it", "64M");
	for (unsigned i = 0; i < FILL_PROCESSES; i++)
		pids[i] = harness_fork(fill_process, (void *)(uintptr_t)i);
	await(have_all_come, &fill->full);
	await(have_all_come, &fill->done);

	/* Below /it/sock everything has the item, so that its peak is that of the item, idle credit
	 * included. */
	peak = harness_get(tally, "/it/sock", "memory.peak");
	print_message("limit used at the first refusal: %.3f %%, at most %.3f %%, with idle credit "
		      "%.3f %%\n",
		100. * (double)fill->at_first / FILL_MAX, 100. * (double)fill->most / FILL_MAX,
		100. * strtod(peak, NULL) / FILL_MAX);
	assert_int_equal(fill->failed, 0);
	assert_true(fill->at_first >= FILL_MAX / 1000 * 999);
	assert_true(fill->most <= FILL_MAX);
	assert_true(strtoull(peak, NULL, 10) <= FILL_MAX);
	assert_int_equal(stat_of("/it", "sock"), fill->held);
	assert_true(stat_of("/it/beside", "anon") > 0);
	assert_true(harness_value(tally, "/it", "memory.events.local", "oom") >= FILL_PROCESSES);
	assert_int_equal(harness_value(tally, "/it/sock", "memory.events", "oom"), 0);
	assert_int_equal(harness_value(tally, "/it/beside", "memory.events", "max"), 0);

	for (unsigned i = 0; i < FILL_PROCESSES; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	await_stat("/it", "held", 0);
	assert_int_equal(stat_of("/it", "stock"), 0);

	/* The counter is at nothing again: all of the limit is there, and not a byte more. */
	p = harness_attach(tally, "/it/sock/p0");
	assert_int_equal(tally_charge_item(p, sock, FILL_MAX), 0);
	assert_int_equal(tally_charge_item(p, sock, 1), -ENOMEM);
	tally_detach(p);
	harness_unshare(fill, sizeof(*fill));
}

/* ------------------------------------------------------------------ whom it concerns */

static void test_others_are_not_concerned(void **state _unused_)
{
	struct tally_pool *p;
	uint64_t drains;

	create("/z", "0");
	p = harness_attach(tally, "/z/a");
	drains = harness_value(tally, "/", "tallyd.status", "drains");
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(tally_charge(p, 1 * MIB), 0);
		assert_int_equal(tally_charge_item(p, anon, 1 * MIB), 0);
	}
	assert_int_equal(harness_value(tally, "/", "tallyd.status", "drains"), drains);
	assert_events("/z", "memory.events", 0, 0);

	assert_int_equal(tally_charge_item(p, sock, 1), -ENOMEM);
	assert_events("/z", "memory.events.local", 1, 1);
	assert_events("/z/a", "memory.events", 0, 0);
	assert_int_equal(harness_log_lines(&harness, "/z: refused 1 bytes to pid "), 1);
	assert_int_equal(
		harness_log_lines(&harness, " in /z/a: stat.sock.max of /z is 0, held 0, idle 0"),
		1);
	assert_int_equal(stat_of("/z", "sock"), 0);
	assert_int_equal(stat_of("/z", "anon"), 100 * MIB);
	assert_int_equal(stat_of("/z", "held"), 200 * MIB);
	tally_detach(p);
}

/* What lies idle of the item is taken back for who needs it; what lies idle without it stays. */
static void test_drain_takes_the_item(void **state _unused_)
{
	struct tally *t = harness_open(&harness);
	struct tally_pool *idle, *busy;
	uint64_t stock;

	create("/i", "8M");
	idle = harness_attach(t, "/i/idle");
	busy = harness_attach(tally, "/i/busy");
	assert_int_equal(tally_charge(idle, 300 * KIB), 0);
	tally_uncharge(idle, 300 * KIB);
	stock = stat_of("/i/idle", "stock");
	assert_true(stock > 0);
	assert_int_equal(tally_charge_item(idle, sock, 300 * KIB), 0);
	tally_uncharge_item(idle, sock, 300 * KIB);
	assert_true(stat_of("/i/idle", "stock") > stock);

	assert_int_equal(tally_charge_item(busy, sock, 8 * MIB), 0);
	assert_int_equal(stat_of("/i", "sock"), 8 * MIB);
	assert_int_equal(stat_of("/i/idle", "stock"), stock);
	/* The limit was met, and nobody was refused. */
	assert_events("/i", "memory.events.local", 1, 0);
	assert_int_equal(tally_charge_item(idle, sock, 1), -ENOMEM);
	assert_int_equal(stat_of("/i/idle", "stock"), stock);

	/* What goes back at a detach goes back to the item too. */
	tally_detach(busy);
	assert_int_equal(tally_charge_item(idle, sock, 8 * MIB), 0);
	tally_detach(idle);
	tally_close(t);
	await_stat("/i", "held", 0);
	busy = harness_attach(tally, "/i/busy");
	assert_int_equal(tally_charge_item(busy, sock, 8 * MIB), 0);
	tally_detach(busy);
}

#define N_SHARERS 7

/* Near the limit of the item nobody gets more beyond the need than all could get alike. */
static void test_headroom_is_shared(void **state _unused_)
{
	struct tally_pool *p[N_SHARERS];

	create("/h", "512K");
	for (unsigned i = 0; i < N_SHARERS; i++)
		p[i] = harness_attach(tally, "/h/a");
	assert_int_equal(tally_charge_item(p[0], sock, 4 * KIB), 0);
	assert_in_range(stat_of("/h", "stock"), 1, 508 * KIB / N_SHARERS);
	/* Without the item there is as much as ever. */
	assert_int_equal(tally_charge(p[0], 4 * KIB), 0);
	assert_true(stat_of("/h", "stock") > 2 * (508 * KIB / N_SHARERS));
	for (unsigned i = 0; i < N_SHARERS; i++)
		tally_detach(p[i]);
}

static void test_every_ancestor_limits(void **state _unused_)
{
	static const char *const levels[] = {"/g", "/g/p", "/g/p/c"};
	struct tally_pool *p;

	create("/g", "max");
	create("/g/p", "max");
	create("/g/p/c", "max");
	p = harness_attach(tally, "/g/p/c");
	for (size_t i = 0; i < ELEMENTS(levels); i++) {
		set_limit(levels[i], "2M");
		assert_refused(p, 3 * MIB, levels[i]);
		assert_int_equal(tally_charge_item(p, sock, 2 * MIB), 0);
		tally_uncharge_item(p, sock, 2 * MIB);
		set_limit(levels[i], "max");
	}
	/* Pool and item: the one refuses, then the other. */
	set_limit("/g", "4M");
	assert_int_equal(tally_set(tally, "/g/p", "memory.max", "3M"), 0);
	assert_int_equal(tally_charge_item(p, sock, 3 * MIB), 0);
	assert_refused(p, 1 * MIB, "/g/p");
	assert_int_equal(tally_set(tally, "/g/p", "memory.max", "8M"), 0);
	assert_int_equal(tally_charge_item(p, sock, 1 * MIB), 0);
	assert_refused(p, 1, "/g");
	/* What the pool refused left nothing behind in the counter of the item. */
	assert_int_equal(stat_of("/g", "sock"), 4 * MIB);
	tally_detach(p);
}

static void test_force_passes(void **state _unused_)
{
	struct tally_pool *p;

	create("/force", "1M");
	p = harness_attach(tally, "/force/a");
	assert_int_equal(tally_charge_item(p, sock, 512 * KIB), 0);
	tally_charge_force(p, sock, 2 * MIB);
	await_stat("/force", "sock", 2 * MIB + 512 * KIB);
	assert_refused(p, 1 * MIB, "/force");
	tally_uncharge_item(p, sock, 2 * MIB);
	assert_int_equal(tally_set(tally, "/force", "pool.drain", "1"), 0);
	assert_int_equal(tally_charge_item(p, sock, 512 * KIB), 0);
	assert_refused(p, 1, "/force");
	tally_detach(p);
}

/* ------------------------------------------------------------------ setting it */

static void test_set_while_charged(void **state _unused_)
{
	struct tally_pool *p;

	assert_int_equal(tally_create(tally, "/s"), 0);
	assert_limit("/s", "max\n");
	p = harness_attach(tally, "/s/a");
	assert_int_equal(tally_charge_item(p, sock, 10 * MIB), 0);

	set_limit("/s", "10M");
	assert_limit("/s", "10485760\n");
	await_stat("/s", "stock", 0);
	assert_int_equal(tally_charge(p, 10 * MIB), 0);
	assert_int_equal(tally_charge_item(p, sock, 256 * KIB), -ENOMEM);
	tally_uncharge_item(p, sock, 1 * MIB);
	assert_int_equal(tally_charge_item(p, sock, 1 * MIB), 0);

	/* Below it, and above what is there when what lies idle has gone back. */
	set_limit("/s", "4M");
	assert_int_equal(stat_of("/s", "sock"), 10 * MIB);
	assert_int_equal(tally_charge_item(p, sock, 16 * MIB), -ENOMEM);
	tally_uncharge_item(p, sock, 7 * MIB);
	assert_int_equal(tally_set(tally, "/s", "pool.drain", "1"), 0);
	assert_int_equal(tally_charge_item(p, sock, 1 * MIB), 0);
	assert_int_equal(tally_charge_item(p, sock, 1), -ENOMEM);
	set_limit("/s", "5M");
	assert_int_equal(tally_charge_item(p, sock, 1 * MIB), 0);

	/* And no more. */
	set_limit("/s", "max");
	assert_limit("/s", "max\n");
	assert_int_equal(tally_charge_item(p, sock, 100 * MIB), 0);
	set_limit("/s", "200M");
	assert_int_equal(tally_charge_item(p, sock, 95 * MIB), 0);
	assert_int_equal(tally_charge_item(p, sock, 1), -ENOMEM);
	assert_int_equal(stat_of("/s", "sock"), 200 * MIB);
	tally_detach(p);
	assert_int_equal(stat_of("/s", "sock"), 0);
}

/* What lies idle is no reserve against a limit that was lowered below it. */
static void test_lowered_limit_drains(void **state _unused_)
{
	struct tally_pool *p;
	uint64_t stock;

	assert_int_equal(tally_create(tally, "/l"), 0);
	p = harness_attach(tally, "/l/a");
	assert_int_equal(tally_charge(p, 4096), 0);
	tally_uncharge(p, 4096);
	stock = stat_of("/l", "stock");
	assert_int_equal(tally_charge_item(p, sock, 4096), 0);
	tally_uncharge_item(p, sock, 4096);
	assert_true(stat_of("/l", "stock") > stock);
	set_limit("/l", "1");
	await_stat("/l", "stock", stock);
	assert_int_equal(tally_charge_item(p, sock, 2), -ENOMEM);
	assert_int_equal(tally_charge_item(p, sock, 1), 0);
	tally_detach(p);
}

/* One above or between, set or removed while the others are charged. */
static void test_limits_come_and_go(void **state _unused_)
{
	struct tally_pool *p, *other;

	create("/c", "max");
	create("/c/b", "max");
	create("/c/b/a", "4M");
	p = harness_attach(tally, "/c/b/a");
	other = harness_attach(tally, "/c/o");
	assert_int_equal(tally_charge_item(p, sock, 3 * MIB), 0);
	assert_int_equal(tally_charge_item(other, sock, 1 * MIB), 0);
	set_limit("/c", "6M");
	set_limit("/c/b", "5M");
	set_limit("/c/b/a", "max");
	assert_int_equal(tally_charge_item(p, sock, 2 * MIB), 0);
	assert_refused(p, 1, "/c/b");
	set_limit("/c/b", "max");
	assert_refused(p, 1, "/c");
	tally_uncharge_item(p, sock, 5 * MIB);
	assert_int_equal(tally_charge_item(other, sock, 5 * MIB), 0);
	assert_int_equal(tally_charge_item(other, sock, 1), -ENOMEM);
	tally_detach(p);
	tally_detach(other);
	assert_int_equal(stat_of("/c", "held"), 0);
}

static void test_file(void **state _unused_)
{
	char *text;

	create("/f", "1M");
	assert_limit("/f", "1048576\n");
	assert_int_equal(tally_set(tally, "/f", "stat.sock.max", "1X"), -EINVAL);
	assert_int_equal(tally_set(tally, "/f", "stat.sock.max", "99E"), -ERANGE);
	assert_limit("/f", "1048576\n");
	assert_int_equal(tally_get(tally, "/f", "stat.alloc.max", 0, &text), -ENOENT);
	assert_int_equal(tally_set(tally, "/f", "stat.alloc.max", "1"), -ENOENT);
	assert_int_equal(tally_set(tally, "/f", "stat.none.max", "1"), -ENOENT);
	/* It goes with its pool. */
	assert_int_equal(tally_remove(tally, "/f", 0), 0);
	assert_int_equal(tally_create(tally, "/f"), 0);
	assert_limit("/f", "max\n");
}

/* ------------------------------------------------------------------ waiting */

struct waiter {
	pthread_t thread;
	struct tally_pool *pool;
	tally_item item;
	uint64_t bytes;
	_Atomic int done;
	int result;
};

static void *wait_in_thread(void *arg)
{
	struct waiter *w = arg;
	struct tally_charge_args args = {.item = w->item,
		.bytes = w->bytes,
		.deadline_usec = harness_now() + LONG_MS * UINT64_C(1000)};

	w->result = tally_charge_with(w->pool, &args, sizeof(args));
	atomic_store(&w->done, 1);
	return NULL;
}

static void start_waiting(struct waiter *w, const char *path, tally_item item, uint64_t bytes)
{
	*w = (struct waiter){.pool = harness_attach(tally, path), .item = item, .bytes = bytes};
	assert_int_equal(pthread_create(&w->thread, NULL, wait_in_thread, w), 0);
}

static int is_over(void *waiter)
{
	return atomic_load(&((struct waiter *)waiter)->done);
}

static void end_waiting(struct waiter *w)
{
	await(is_over, w);
	pthread_join(w->thread, NULL);
	assert_int_equal(w->result, 0);
	tally_detach(w->pool);
}

static int waits_one(void *path)
{
	return harness_waiting(tally, path) == 1;
}

static int waits_none(void *path)
{
	return harness_waiting(tally, path) == 0;
}

static int has_drained_to(void *userdata)
{
	return harness_value(tally, "/", "tallyd.status", "drains") >= *(uint64_t *)userdata;
}

/* Long enough for whoever could be served to be served: queues have been looked at several times.
 */
static void await_ticks(void)
{
	uint64_t n = harness_value(tally, "/", "tallyd.status", "drains") + 4;

	await(has_drained_to, &n);
}

static void test_waiter_gets_what_is_uncharged(void **state _unused_)
{
	char first_path[] = "/w/first", second_path[] = "/w/second";
	struct waiter first, second, other;
	struct tally_pool *p;

	create("/w", "1M");
	p = harness_attach(tally, "/w/holder");
	assert_int_equal(tally_charge_item(p, sock, 1 * MIB), 0);
	start_waiting(&first, first_path, sock, 512 * KIB);
	await(waits_one, first_path);
	start_waiting(&second, second_path, sock, 4 * KIB);
	await(waits_one, second_path);

	/* Who comes without the item does not stand behind them, and has credit as ever. */
	start_waiting(&other, "/w/other", 0, 64 * MIB);
	end_waiting(&other);
	start_waiting(&other, "/w/other", anon, 64 * MIB);
	end_waiting(&other);
	assert_int_equal(tally_charge(p, 4 * KIB), 0);
	assert_true(stat_of("/w/holder", "stock") > 0);

	/* In their order, as what is given back lies in a stock. */
	tally_uncharge_item(p, sock, 256 * KIB);
	await_ticks();
	assert_false(is_over(&first));
	assert_false(is_over(&second));
	tally_uncharge_item(p, sock, 256 * KIB);
	end_waiting(&first);
	end_waiting(&second);
	tally_detach(p);
}

static void test_waiter_gets_a_raised_limit(void **state _unused_)
{
	char path[] = "/r/a";
	struct waiter w;

	create("/r", "1M");
	start_waiting(&w, path, sock, 2 * MIB);
	await(waits_one, path);
	set_limit("/r", "2M");
	end_waiting(&w);

	start_waiting(&w, path, sock, 4 * MIB);
	await(waits_one, path);
	set_limit("/r", "max");
	end_waiting(&w);
}

/* First it is the item that refuses, then the pool above. */
static void test_waiter_meets_another_limit(void **state _unused_)
{
	char path[] = "/m/a/w";
	struct tally_pool *holder, *p;
	struct waiter w;

	assert_int_equal(tally_create(tally, "/m"), 0);
	create("/m/a", "1M");
	holder = harness_attach(tally, "/m/holder");
	p = harness_attach(tally, "/m/a/p");
	assert_int_equal(tally_charge_item(p, sock, 1 * MIB), 0);
	assert_int_equal(tally_charge(holder, 4 * MIB), 0);
	start_waiting(&w, path, sock, 512 * KIB);
	await(waits_one, path);
	assert_int_equal(tally_set(tally, "/m", "memory.max", "4M"), 0);
	tally_uncharge_item(p, sock, 1 * MIB);
	await_ticks();
	assert_false(is_over(&w));
	tally_uncharge(holder, 512 * KIB);
	end_waiting(&w);
	tally_detach(p);
	tally_detach(holder);
}

static void test_deadline_passes(void **state _unused_)
{
	struct tally_charge_args args = {.item = sock, .bytes = 2 * MIB};
	char path[] = "/t";
	struct tally_pool *p;

	create("/t", "1M");
	p = harness_attach(tally, "/t");
	args.deadline_usec = harness_now() + 150000;
	assert_int_equal(tally_charge_with(p, &args, sizeof(args)), -ETIMEDOUT);
	await(waits_none, path);
	assert_events("/t", "memory.events.local", 1, 1);
	assert_int_equal(harness_log_lines(&harness, "stat.sock.max of /t is 1048576, held 0"), 1);
	assert_int_equal(tally_charge_item(p, sock, 1 * MIB), 0);
	tally_detach(p);
}

/* ------------------------------------------------------------------ configuration */

static void reload(const char *what)
{
	assert_int_equal(tally_set(tally, "/", "tallyd.reload", what), 0);
}

static void assert_reload_says(const char *text)
{
	_cleanup_(freep) char *changes = harness_get(tally, "/", "tallyd.reload");

	assert_non_null(strstr(changes, text));
}

static void test_configuration(void **state _unused_)
{
	static const char with_limit[] = "[stat gpu]\nunit = bytes\n"
					 "[pool a]\npath = /conf\nstat.sock.max = 2M\n"
					 "stat.gpu.max = 0\n";
	struct tally_pool *p;
	tally_item gpu;

	harness_configure(&harness, with_limit);
	p = harness_attach(tally, "/conf");
	assert_int_equal(tally_charge_item(p, sock, 1 * MIB), 0);
	reload("1");
	assert_reload_says("/conf stat.sock.max max -> 2097152\n");
	assert_limit("/conf", "2097152\n");
	assert_int_equal(tally_item_lookup(tally, "gpu", &gpu), 0);
	assert_int_equal(tally_charge_item(p, gpu, 1), -ENOMEM);
	/* What was charged before counts. */
	assert_int_equal(tally_charge_item(p, sock, 1 * MIB), 0);
	assert_int_equal(tally_charge_item(p, sock, 1), -ENOMEM);

	/* A person's value holds over the file's, "max" too, and for that item alone. */
	set_limit("/conf", "max");
	reload("1");
	assert_limit("/conf", "max\n");
	harness_configure(&harness,
		"[stat gpu]\nunit = bytes\n[pool a]\npath = /conf\n"
		"stat.sock.max = 1M\n");
	reload("1");
	assert_reload_says("/conf stat.gpu.max 0 -> max\n");
	assert_limit("/conf", "max\n");
	assert_int_equal(tally_charge_item(p, gpu, 1), 0);
	reload("reset /conf");
	assert_limit("/conf", "1048576\n");
	assert_int_equal(tally_charge_item(p, sock, 1), -ENOMEM);

	/* A bad one changes nothing; one that is gone goes. */
	harness_configure(&harness, "[pool a]\npath = /conf\nstat.gpus.max = 1M\n");
	assert_int_equal(tally_set(tally, "/", "tallyd.reload", "1"), -EINVAL);
	assert_reload_says("[pool a] stat.gpus.max: there is no item gpus");
	assert_limit("/conf", "1048576\n");
	harness_configure(&harness, "");
	reload("1");
	assert_limit("/conf", "max\n");
	assert_int_equal(tally_charge_item(p, sock, 1 * MIB), 0);
	tally_detach(p);
}

static int set_up(void **state _unused_)
{
	harness_start(&harness, "");
	tally = harness_open(&harness);
	assert_int_equal(tally_item_lookup(tally, "sock", &sock), 0);
	assert_int_equal(tally_item_lookup(tally, "anon", &anon), 0);
	return 0;
}

static int tear_down(void **state _unused_)
{
	tally = tally_close(tally);
	harness_stop(&harness);
	return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_limit_is_used_up),
		TEST(test_others_are_not_concerned),
		TEST(test_drain_takes_the_item),
		TEST(test_headroom_is_shared),
		TEST(test_every_ancestor_limits),
		TEST(test_force_passes),
		TEST(test_set_while_charged),
		TEST(test_lowered_limit_drains),
		TEST(test_limits_come_and_go),
		TEST(test_file),
		TEST(test_waiter_gets_what_is_uncharged),
		TEST(test_waiter_gets_a_raised_limit),
		TEST(test_waiter_meets_another_limit),
		TEST(test_deadline_passes),
		TEST(test_configuration),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
