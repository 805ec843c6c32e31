/* SPDX-License-Identifier: MIT */

/*
 * A client may die anywhere. Here it dies everywhere: the library is built so that every place
 * before and after a store to shared memory or a message is known and counted, and a process that
 * charges in all ways is killed at the first of them, at the second, and so on. Each time all that
 * it held goes back, and another that holds bytes in the same pools sees nothing of it.
 */

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "core/step.h"
#include "core/util.h"
#include "harness.h"
#include "key.h"

static const char config[] = "[daemon]\nbatch = 4K\n";

/* More keys than slots. */
static const char *const paths[] = {"/step/a", "/step/a/b", "/step/c/0", "/step/c/1", "/step/c/2",
	"/step/c/3", "/step/c/4", "/step/c/5", "/step/c/6", "/step/c/7"};
#define POOLS ELEMENTS(paths)
#define ITEM "sock"
#define EVENT "alloc"

static void skip_without_sequences(void)
{
	print_message("skipped: the threads of this process have no restartable sequences\n");
	skip();
}

/* ------------------------------------------------------------------ places */

/* All of them, as the linker has them side by side. */
extern const char *const __start_tally_steps[], *const __stop_tally_steps[];

#define PLACES_MAX 256

/* What the process that dies leaves to be read. */
static struct {
	unsigned long fatal; /* the step at which it dies; 0: none */
	unsigned long steps;
	bool reached[PLACES_MAX];
} * shared;

/* In the process that dies, and only while it is at work. */
static bool counts;

/* Looks at something at each step; NULL: nothing. */
static void (*watch)(void);

void tally_step(const char *const *place)
{
	if (watch)
		watch();
	if (!counts)
		return;
	shared->reached[place - __start_tally_steps] = true;
	if (++shared->steps == shared->fatal)
		kill(getpid(), SIGKILL);
}

static size_t count_places(void)
{
	return ((uintptr_t)__stop_tally_steps - (uintptr_t)__start_tally_steps) /
		sizeof(*__start_tally_steps);
}

/* A place in an inline function is there once in each file that has the function. */
static bool was_reached(const char *place)
{
	for (size_t i = 0; i < count_places(); i++)
		if (shared->reached[i] && strcmp(__start_tally_steps[i], place) == 0)
			return true;
	return false;
}

static void test_all_reached(void **state)
{
	unsigned missed = 0;

	(void)state;
	if (!percpu_has_rseq())
		skip_without_sequences();

	for (size_t i = 0; i < count_places(); i++)
		if (!was_reached(__start_tally_steps[i])) {
			print_message("%s was not reached\n", __start_tally_steps[i]);
			missed++;
		}
	assert_int_equal(missed, 0);
}

/* ------------------------------------------------------------------ the one that dies */

struct client {
	struct harness *harness;
	struct tally *tally;
	struct tally_pool *pools[POOLS];
	tally_item item;
};

/* The daemon has done all that it was asked for so far, and what it said was read. */
static void catch_up(struct client *c)
{
	assert_int_equal(tally_item_lookup(c->tally, ITEM, &c->item), 0);
}

static void await_message(struct client *c)
{
	struct pollfd p = {.fd = c->tally->link.fd, .events = POLLIN};

	assert_int_equal(poll(&p, 1, HARNESS_PATIENCE_MS), 1);
}

static void charge(struct tally_pool *p, uint64_t bytes)
{
	assert_int_equal(tally_charge(p, bytes), 0);
}

static void attach(struct client *c)
{
	assert_int_equal(tally_open(c->harness->address, 0, &c->tally), 0);
	catch_up(c);
	for (unsigned i = 0; i < POOLS; i++)
		c->pools[i] = harness_attach(c->tally, paths[i]);
}

/* A miss, hits of both kinds, one at the second attempt, and the same with an item. */
static void charge_and_uncharge(struct client *c)
{
	struct tally_pool *p = c->pools[0];

	charge(p, 1000);
	charge(p, 100);
	tally_uncharge(p, 50);
	assert_true(stock_consume(&p->live->stocks, p->key[0], 20));
	for (int i = 0; i < 2; i++)
		assert_int_equal(tally_charge_item(p, c->item, 500), 0);
	tally_uncharge_item(p, c->item, 300);
}

/* More than the batch, given back at once: above HIGH, into the reserve, and above its mark. Then
 * out of the reserve, until the next batch is asked for ahead. */
static void use_reserve(struct client *c)
{
	struct tally_pool *p = c->pools[0];

	charge(p, 100000);
	tally_uncharge(p, 100000);
	catch_up(c);
	for (int i = 0; i < 12; i++)
		charge(p, 3000);
}

/* Only one of many that find no slot evicts another. */
static void take_over_slots(struct client *c)
{
	for (unsigned i = 2; i < POOLS; i++)
		charge(c->pools[i], 700);
	for (unsigned i = 0; i < 2 * STOCK_EVICT_ONE_IN; i++)
		tally_uncharge(c->pools[2 + i % (POOLS - 2)], 10);
}

static void charge_without_waiting(struct client *c)
{
	struct tally_pool *p = c->pools[1];
	int r;

	while ((r = tally_try_charge(p, 200)) == -EAGAIN)
		await_message(c);
	assert_int_equal(r, 0);
	assert_int_equal(tally_try_charge(p, 10), 0);
}

/* With a key, and while there is none. */
static void charge_by_force(struct client *c)
{
	struct tally_pool *p = c->pools[1];
	int r;

	tally_charge_force(c->pools[0], 0, 8 << 20);
	tally_charge_force(p, c->item, 400);
	while ((r = tally_try_charge_item(p, c->item, 30)) == -EAGAIN)
		await_message(c);
	assert_int_equal(r, 0);
}

/* Until it is known that something is pending; before the keys have come, and after. */
static void move(struct client *c)
{
	tally_item count;

	assert_int_equal(tally_item_lookup(c->tally, EVENT, &count), 0);
	for (int i = 0; i < 3; i++) {
		tally_stat_add(c->pools[1], c->item, SEGMENT_UPDATES * 4096);
		tally_stat_add(c->pools[2], count, SEGMENT_UPDATES - 1);
		catch_up(c);
	}
	tally_stat_add(c->pools[1], c->item, -700);
	tally_stat_add(c->pools[3], count, 1);
}

static void charge_in_the_queue(struct client *c)
{
	struct tally_charge_args a = {
		.bytes = 5000, .deadline_usec = link_now() + HARNESS_PATIENCE_MS * UINT64_C(1000)};

	assert_int_equal(tally_charge_with(c->pools[0], &a, sizeof(a)), 0);
}

/* Messages that may not wait are not sent: the daemon is stopped, and the socket full. */
static void charge_with_a_full_socket(struct client *c)
{
	struct wire_ring ring = {
		.h = WIRE_HEADER(WIRE_RING, struct wire_ring, 0), .attachment = UINT64_MAX};

	catch_up(c);
	assert_int_equal(kill(c->harness->daemon, SIGSTOP), 0);
	counts = false;
	while (link_send_nowait(&c->tally->link, &ring, sizeof(ring)) == 0)
		;
	counts = true;
	usleep(2000); /* rings are so far apart */
	tally_uncharge(c->pools[0], 7 << 20);
	while (tally_try_charge(c->pools[0], 512 << 10) == 0)
		;
	assert_int_equal(kill(c->harness->daemon, SIGCONT), 0);
}

static void detach(struct client *c)
{
	for (unsigned i = 0; i < POOLS; i++)
		c->pools[i] = tally_detach(c->pools[i]);
	c->tally = tally_close(c->tally);
}

static void pin(void)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
}

static int live(void *userdata)
{
	struct client c = {.harness = userdata};

	pin();
	counts = true;
	attach(&c);
	charge_and_uncharge(&c);
	use_reserve(&c);
	take_over_slots(&c);
	charge_without_waiting(&c);
	charge_by_force(&c);
	move(&c);
	charge_in_the_queue(&c);
	charge_with_a_full_socket(&c);
	detach(&c);
	counts = false;
	return 0;
}

/* True: it lived to the end. */
static bool live_until(struct harness *h, unsigned long step)
{
	pid_t child;
	int status;

	shared->fatal = step;
	shared->steps = 0;
	child = harness_fork(live, h);
	assert_int_equal(waitpid(child, &status, 0), child);
	/* It may have died while the daemon was stopped. */
	assert_int_equal(kill(h->daemon, SIGCONT), 0);
	if (WIFEXITED(status)) {
		assert_int_equal(WEXITSTATUS(status), 0);
		return true;
	}
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
	assert_int_equal(shared->steps, step);
	return false;
}

/* ------------------------------------------------------------------ the one beside it */

struct bystander {
	struct tally *tally;
	struct tally_pool *pools[POOLS];
	tally_item item;
	uint64_t rows;
};

static uint64_t held_without_item(unsigned i)
{
	return 10000 + 1000 * i;
}

static uint64_t held_with_item(unsigned i)
{
	return 100 + 10 * i;
}

static uint64_t moved(unsigned i)
{
	return 3 + i;
}

static void begin(struct bystander *b, struct harness *h)
{
	b->tally = harness_open(h);
	assert_int_equal(tally_item_lookup(b->tally, ITEM, &b->item), 0);
	for (unsigned i = 0; i < POOLS; i++) {
		b->pools[i] = harness_attach(b->tally, paths[i]);
		charge(b->pools[i], held_without_item(i));
		assert_int_equal(tally_charge_item(b->pools[i], b->item, held_with_item(i)), 0);
		tally_stat_add(b->pools[i], b->item, (int64_t)moved(i));
	}
	b->rows = harness_value(b->tally, "/", "tallyd.status", "rows");
}

static void end(struct bystander *b)
{
	for (unsigned i = 0; i < POOLS; i++)
		tally_detach(b->pools[i]);
	tally_close(b->tally);
}

static int is_alone(void *userdata)
{
	struct bystander *b = userdata;

	return harness_value(b->tally, "/", "tallyd.status", "sessions") == 1 &&
		harness_value(b->tally, "/", "tallyd.status", "rows") == b->rows;
}

static uint64_t value_of(const char *text, const char *key)
{
	const char *line = strstr(text, key);

	assert_non_null(line);
	return strtoull(line + strlen(key), NULL, 10);
}

static uint64_t peak_from_now_on(struct tally *t, const char *pool)
{
	uint64_t peak;
	char *text;

	assert_int_equal(tally_set(t, pool, "memory.peak", "now"), 0);
	text = harness_get(t, pool, "memory.peak");
	peak = strtoull(text, NULL, 10);
	free(text);
	return peak;
}

static void expected(const char *pool, uint64_t *ret_held, uint64_t *ret_item)
{
	*ret_held = *ret_item = 0;
	for (unsigned i = 0; i < POOLS; i++)
		if (strncmp(paths[i], pool, strlen(pool)) == 0) {
			*ret_held += held_without_item(i) + held_with_item(i);
			*ret_item += held_with_item(i) + moved(i);
		}
}

/* Returns what lies idle. */
static uint64_t assert_figures(struct bystander *b, const char *pool)
{
	char *text = harness_get(b->tally, pool, "memory.stat");
	uint64_t held, item, stock = value_of(text, "stock ");

	expected(pool, &held, &item);
	assert_int_equal(value_of(text, "held "), held);
	assert_int_equal(value_of(text, ITEM " "), item);
	assert_int_equal(value_of(text, "overdraft "), 0);
	free(text);
	return stock;
}

/* The pool holds what the bystander holds there and below, to the byte, and its counter has that
 * and what lies idle; which may go back at any time, if it is not needed. */
static void assert_pool(struct bystander *b, const char *pool)
{
	uint64_t stock, peak, held, item;

	expected(pool, &held, &item);
	do {
		stock = assert_figures(b, pool);
		peak = peak_from_now_on(b->tally, pool);
	} while (assert_figures(b, pool) != stock);
	assert_int_equal(peak, held + stock);
}

static void assert_undisturbed(struct bystander *b)
{
	assert_true(harness_wait(is_alone, b, HARNESS_PATIENCE_MS));
	for (unsigned i = 0; i < POOLS; i++) {
		charge(b->pools[i], 10);
		tally_uncharge(b->pools[i], 10);
		assert_pool(b, paths[i]);
	}
	assert_pool(b, "/step/c");
	assert_pool(b, "/");
}

/* ------------------------------------------------------------------ the test */

static void test_killed(void **state)
{
	const char *kind = *state;
	struct bystander b;
	struct harness h;
	unsigned long step = 1;

	if (strcmp(kind, "rseq") == 0 && !percpu_has_rseq())
		skip_without_sequences();
	setenv("TALLY_PERCPU", kind, 1);
	harness_start(&h, config);
	begin(&b, &h);
	assert_undisturbed(&b);
	while (!live_until(&h, step)) {
		assert_undisturbed(&b);
		step++;
	}
	assert_undisturbed(&b);
	print_message("killed at each of %lu steps\n", step - 1);
	end(&b);
	harness_stop(&h);
	unsetenv("TALLY_PERCPU");
}

/* ------------------------------------------------------------------ what is owed */

static struct tally_pool *debtor;
static tally_item debt_item;
static unsigned seen_owing, seen_using;

/* Forced bytes are in the word of the key before its credit can be used: or what is uncharged of
 * them lies idle without having been granted, and a drain drops it. */
static void watch_debt(void)
{
	const struct client_key *k = atomic_load(&debtor->items[debt_item].known);
	bool told = k && atomic_load(&k->words->force) > 0;

	seen_owing += !told;
	if (atomic_load(&debtor->key[debt_item]) == WORD_KEY_VOID)
		return;
	seen_using++;
	assert_true(told);
}

static void test_owed_before_used(void **state)
{
	struct client c;
	struct harness h;
	int r;

	(void)state;
	harness_start(&h, config);
	c = (struct client){.harness = &h, .tally = harness_open(&h)};
	assert_int_equal(tally_item_lookup(c.tally, ITEM, &debt_item), 0);
	debtor = harness_attach(c.tally, "/debt");
	tally_charge_force(debtor, debt_item, 400);
	watch = watch_debt;
	while ((r = tally_try_charge_item(debtor, debt_item, 30)) == -EAGAIN)
		await_message(&c);
	watch = NULL;
	assert_int_equal(r, 0);
	assert_true(seen_owing > 0 && seen_using > 0);
	assert_int_equal(harness_value(c.tally, "/debt", "memory.stat", ITEM), 430);
	tally_uncharge_item(debtor, debt_item, 430);
	assert_int_equal(harness_value(c.tally, "/debt", "memory.stat", ITEM), 0);
	debtor = tally_detach(debtor);
	assert_int_equal(harness_value(c.tally, "/debt", "memory.stat", "overdraft"), 0);
	tally_close(c.tally);
	harness_stop(&h);
}

/* ------------------------------------------------------------------ what is not charged */

static struct tally_pool *leaver;
static tally_item leaver_item;
static uint64_t forced;

/* As a signal handler may, and another thread. Each time more, so that what one charge left idle does
 * not serve the next. */
static void force_and_uncharge(void)
{
	void (*again)(void) = watch;
	const tally_item items[] = {0, leaver_item};

	watch = NULL;
	forced++;
	for (unsigned i = 0; i < ELEMENTS(items); i++) {
		tally_charge_force(leaver, items[i], forced);
		tally_uncharge_item(leaver, items[i], forced);
	}
	watch = again;
}

static void begin_to_leave(struct tally *t)
{
	assert_int_equal(tally_item_lookup(t, ITEM, &leaver_item), 0);
	leaver = harness_attach(t, "/leave");
	assert_int_equal(tally_charge_item(leaver, leaver_item, 0), 0);
	forced = 0;
}

static int has_left(void *userdata)
{
	return harness_value(userdata, "/", "tallyd.status", "sessions") == 1;
}

static void assert_no_overdraft(struct tally *t)
{
	assert_true(forced > 0);
	assert_int_equal(harness_value(t, "/leave", "memory.stat", "overdraft"), 0);
	assert_int_equal(harness_current(t, "/leave"), 0);
}

/* While a handle loses its keys, a charge by force either counts, or its uncharge finds no key: or
 * what nobody granted would lie idle. */
static void test_forced_while_detached(void **state)
{
	struct harness h;
	struct tally *t;

	(void)state;
	harness_start(&h, config);
	t = harness_open(&h);
	begin_to_leave(t);
	tally_pool_ref(leaver);
	watch = force_and_uncharge;
	tally_detach(leaver);
	watch = NULL;
	tally_pool_unref(leaver);
	assert_no_overdraft(t);
	tally_close(t);
	harness_stop(&h);
}

/* The same while the session is closed; of that, what is done before the daemon hears of it. */
static void test_forced_while_closed(void **state)
{
	struct tally *t, *watcher;
	struct harness h;
	uint32_t n_cpus;

	(void)state;
	harness_start(&h, config);
	watcher = harness_open(&h);
	t = harness_open(&h);
	begin_to_leave(t);
	n_cpus = atomic_load(&t->live->stocks.n_cpus);
	atomic_store(&t->closed, true);
	force_and_uncharge();
	atomic_store(&t->live->stocks.n_cpus, 0);
	force_and_uncharge();
	atomic_store(&t->live->stocks.n_cpus, n_cpus);
	atomic_store(&t->closed, false);
	watch = force_and_uncharge;
	tally_close(t);
	watch = NULL;
	tally_pool_unref(leaver);
	assert_true(harness_wait(has_left, watcher, HARNESS_PATIENCE_MS));
	assert_no_overdraft(watcher);
	tally_close(watcher);
	harness_stop(&h);
}

static int set_up(void **state)
{
	(void)state;
	shared = harness_shared(sizeof(*shared));
	return count_places() > PLACES_MAX;
}

static int tear_down(void **state)
{
	(void)state;
	harness_unshare(shared, sizeof(*shared));
	return 0;
}

#define KILLED_BY(how, kind)                                                                       \
	{                                                                                          \
		"test_killed by " how, test_killed, NULL, NULL, (void *)(kind)                     \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		KILLED_BY("atomics", "atomic"),
		KILLED_BY("sequences", "rseq"),
		cmocka_unit_test(test_all_reached),
		cmocka_unit_test(test_owed_before_used),
		cmocka_unit_test(test_forced_while_detached),
		cmocka_unit_test(test_forced_while_closed),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
