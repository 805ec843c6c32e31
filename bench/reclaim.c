/* SPDX-License-Identifier: MIT */

/*
 * Eight processes cache all that a limit allows, and a ninth needs most of it: how long it waits until
 * they have given it back; and where one of them hangs in its callback, or lies.
 */

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "core/util.h"
#include "rig.h"
#include "table.h"

#define CACHES 8
#define CHUNK (UINT64_C(1) << 20)
#define OF_EACH (UINT64_C(100) << 20)

enum mood {
	GIVES,
	HANGS,
	LIES,
	MOODS,
};

struct cache {
	enum mood mood;
	struct tally_pool *pool;
	_Atomic uint64_t held;
	_Atomic bool ready;
};

static int64_t on_reclaim(
	struct tally_pool *p, uint64_t want, uint64_t deadline, uint64_t token, void *userdata)
{
	struct cache *c = userdata;
	uint64_t held = atomic_load(&c->held), bytes = want < held ? want : held;

	(void)deadline;
	(void)token;
	if (c->mood == HANGS)
		pause();
	if (c->mood == LIES)
		return (int64_t)want;
	tally_uncharge(p, bytes);
	atomic_store(&c->held, held - bytes);
	return (int64_t)bytes;
}

_Noreturn static void be_cache(struct cache *c, unsigned i)
{
	const char *reason;
	struct tally *t = rig_open(RIG_DAEMON, &reason);
	struct pollfd fd = {.fd = tally_fd(t), .events = POLLIN};
	char path[32];

	snprintf(path, sizeof(path), "/cache/%u", i);
	c->pool = rig_attach(t, path);
	rig_check(tally_on_reclaim(c->pool, on_reclaim, c), "a callback");
	while (atomic_load(&c->held) < OF_EACH) {
		rig_check(tally_charge(c->pool, CHUNK), "a charge");
		atomic_fetch_add(&c->held, CHUNK);
	}
	atomic_store(&c->ready, true);
	while (poll(&fd, 1, -1) >= 0 && tally_dispatch(t) >= 0)
		;
	_exit(0);
}

/* One wait of the ninth, in milliseconds. */
static double wait_of_ninth(struct tally *t, struct cache *caches, enum mood first)
{
	struct tally_pool *ninth;
	pid_t pids[CACHES];
	uint64_t before;
	double msec;

	rig_check(tally_set(t, "/cache", "memory.max", "800M"), "a limit");
	for (unsigned i = 0; i < CACHES; i++) {
		caches[i] = (struct cache){.mood = i == 0 ? first : GIVES};
		pids[i] = fork();
		if (pids[i] == 0)
			be_cache(&caches[i], i);
		if (pids[i] < 0)
			bench_die("no process");
	}
	for (unsigned i = 0; i < CACHES; i++)
		while (!atomic_load(&caches[i].ready))
			bench_sleep(1000000);
	ninth = rig_attach(t, "/cache/ninth");
	before = bench_now();
	rig_check(tally_charge(ninth, CACHES * OF_EACH / 5 * 4), "the ninth's charge");
	msec = (double)(bench_now() - before) / 1e6;
	tally_detach(ninth);
	for (unsigned i = 0; i < CACHES; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	while (rig_value(t, "/cache", "cgroup.events", "populated") != 0)
		bench_sleep(1000000);
	return msec;
}

int main(int argc, char **argv)
{
	static const struct table_column columns[] = {{"wait", "wait", "ms"}};
	static const char *const figures[MOODS] = {"all_give", "one_hangs", "one_lies"};
	static const char *const labels[MOODS] = {
		"all eight give", "one of them hangs", "one of them lies"};
	struct bench_option options[] = {{.name = NULL}};
	struct table_row *rows[MOODS];
	struct cache *caches = mmap(NULL, CACHES * sizeof(*caches), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct table table;
	const char *reason;
	struct tally *t;
	struct bench b;

	if (caches == MAP_FAILED)
		bench_die("no memory");
	bench_begin(&b, "reclaim", options, argc, argv);
	rig_start("");
	t = rig_open(RIG_DAEMON, &reason);
	rig_check(tally_create(t, "/cache"), "a pool");
	table_init(&table, "reclaim", "a ninth needs 80 % of what eight cache", columns,
		ELEMENTS(columns));
	for (unsigned m = 0; m < MOODS; m++)
		rows[m] = table_add_row(&table, figures[m], "%s", labels[m]);
	for (unsigned round = 0; round < b.rounds; round++)
		for (unsigned m = 0; m < MOODS; m++)
			table_add(rows[m], 0, wait_of_ninth(t, caches, m));
	table_print(&table);
	table_free(&table);
	return 0;
}
