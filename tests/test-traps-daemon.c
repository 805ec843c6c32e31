/* SPDX-License-Identifier: MIT */

/*
 * What went wrong in other accounting systems, and must not here: each test is named after its trap.
 * These are about processes, names, files and the daemon itself; those about numbers are in
 * test-traps.c.
 */

#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/util.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * KIB)

static struct harness harness;
static struct tally *tally;

static int is_empty(void *path)
{
	return harness_current(tally, path) == 0;
}

/* ------------------------------------------------------------------ the dead */

static void test_a_dead_clients_slot_still_summed(void **state)
{
	struct actor a;

	(void)state;
	actor_start(&a, &harness, "/traps/dead");
	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(actor_do(&a, ACTOR_CHARGE, MIB + i, 0), 0);
		assert_int_equal(actor_do(&a, ACTOR_UNCHARGE, 10, 0), 0);
	}
	assert_true(harness_current(tally, "/traps/dead") > 0);
	actor_kill(&a);
	assert_true(harness_wait(is_empty, "/traps/dead", HARNESS_PATIENCE_MS));
	assert_int_equal(harness_value(tally, "/traps/dead", "memory.stat", "stock"), 0);
}

/* A process of that very number, which does nothing. -1: not to be had here. */
static pid_t start_with_pid(pid_t pid)
{
	struct clone_args args = {
		.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&pid, .set_tid_size = 1};
	long child = syscall(SYS_clone3, &args, sizeof(args));

	if (child == 0) {
		for (;;)
			pause();
	}
	return (pid_t)child;
}

/* The daemon does not see the death before another has the number. */
static void test_pid_reuse(void **state)
{
	struct actor a;
	pid_t other;

	(void)state;
	actor_start(&a, &harness, "/traps/reuse");
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, 5 * MIB, 0), 0);
	/* Its socket lives on in a child: nothing but the process tells that it is gone. */
	assert_true(actor_do(&a, ACTOR_FORK, 0, 0) > 0);
	assert_int_equal(kill(harness.daemon, SIGSTOP), 0);
	actor_kill(&a);
	other = start_with_pid(a.pid);
	assert_int_equal(kill(harness.daemon, SIGCONT), 0);
	if (other < 0)
		print_message("the number could not be used again here: %s\n", strerror(errno));
	assert_true(harness_wait(is_empty, "/traps/reuse", HARNESS_PATIENCE_MS));
	if (other < 0)
		skip();
	assert_int_equal(other, a.pid);
	kill(other, SIGKILL);
	assert_int_equal(waitpid(other, NULL, 0), other);
}

static void test_the_kill_path_and_the_hang_up_path_each_leave_the_cleaning_to_the_other(
	void **state)
{
	struct actor a;

	(void)state;
	/* Hung up, and killed before `grace` is over. */
	actor_start(&a, &harness, "/traps/hang-up");
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, MIB, 0), 0);
	assert_int_equal(actor_do(&a, ACTOR_CLOSE_FDS, 0, 0), 0);
	assert_int_equal(harness_current(tally, "/traps/hang-up"), MIB);
	actor_kill(&a);
	assert_true(harness_wait(is_empty, "/traps/hang-up", HARNESS_PATIENCE_MS));

	/* Both at once, as the daemon sees it. */
	actor_start(&a, &harness, "/traps/hang-up");
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, MIB, 0), 0);
	assert_int_equal(kill(harness.daemon, SIGSTOP), 0);
	assert_int_equal(actor_do(&a, ACTOR_CLOSE_FDS, 0, 0), 0);
	actor_kill(&a);
	assert_int_equal(kill(harness.daemon, SIGCONT), 0);
	assert_true(harness_wait(is_empty, "/traps/hang-up", HARNESS_PATIENCE_MS));

	/* Killed, while its child keeps the socket open. */
	actor_start(&a, &harness, "/traps/hang-up");
	assert_int_equal(actor_do(&a, ACTOR_CHARGE, MIB, 0), 0);
	assert_true(actor_do(&a, ACTOR_FORK, 0, 0) > 0);
	actor_kill(&a);
	assert_true(harness_wait(is_empty, "/traps/hang-up", HARNESS_PATIENCE_MS));
}

/* ------------------------------------------------------------------ the daemon's work */

static void *join_once(void *address)
{
	struct tally_pool *p;
	struct tally *t;

	if (tally_open(address, 0, &t) < 0)
		return address;
	if (tally_attach(t, "/traps/join", TALLY_CREATE, &p) < 0)
		return address;
	tally_detach(p);
	tally_close(t);
	return NULL;
}

static void *join_and_tell(void *arg)
{
	atomic_bool *done = ((void **)arg)[1];
	void *failed = join_once(((void **)arg)[0]);

	atomic_store(done, true);
	return failed;
}

/* System calls of the daemon's loop while a client joins and goes. */
static unsigned count_calls_of_a_join(void)
{
	atomic_bool done = false;
	void *arg[] = {harness.address, &done}, *failed;
	pthread_t joiner;
	unsigned calls = 0;
	int status;

	assert_int_equal(ptrace(PTRACE_SEIZE, harness.daemon, 0, PTRACE_O_TRACESYSGOOD), 0);
	assert_int_equal(ptrace(PTRACE_INTERRUPT, harness.daemon, 0, 0), 0);
	assert_int_equal(waitpid(harness.daemon, &status, 0), harness.daemon);
	assert_int_equal(ptrace(PTRACE_SYSCALL, harness.daemon, 0, 0), 0);
	assert_int_equal(pthread_create(&joiner, NULL, join_and_tell, arg), 0);
	while (!atomic_load(&done)) {
		pid_t r = waitpid(harness.daemon, &status, WNOHANG);

		if (r == 0) {
			usleep(100);
			continue;
		}
		assert_int_equal(r, harness.daemon);
		assert_true(WIFSTOPPED(status));
		calls += WSTOPSIG(status) == (SIGTRAP | 0x80);
		assert_int_equal(ptrace(PTRACE_SYSCALL, harness.daemon, 0, 0), 0);
	}
	assert_int_equal(pthread_join(joiner, &failed), 0);
	assert_null(failed);
	while (waitpid(harness.daemon, &status, WNOHANG) == harness.daemon)
		ptrace(PTRACE_SYSCALL, harness.daemon, 0, 0);
	assert_int_equal(ptrace(PTRACE_INTERRUPT, harness.daemon, 0, 0), 0);
	assert_int_equal(waitpid(harness.daemon, &status, 0), harness.daemon);
	assert_int_equal(ptrace(PTRACE_DETACH, harness.daemon, 0, 0), 0);
	return calls;
}

static unsigned least_calls_of_a_join(void)
{
	unsigned least = UINT32_MAX;

	/* The flush of the whole tree may come in between. */
	for (unsigned i = 0; i < 5; i++) {
		unsigned n = count_calls_of_a_join();

		least = n < least ? n : least;
	}
	return least;
}

static void test_liveness_sweep_of_all_processes_at_every_join(void **state)
{
	static struct actor actors[100];
	unsigned few, many;

	(void)state;
	if (!harness_is_bare(&harness))
		skip();
	few = least_calls_of_a_join();
	for (unsigned i = 0; i < ELEMENTS(actors); i++)
		actor_start(&actors[i], &harness, "/traps/join");
	many = least_calls_of_a_join();
	for (unsigned i = 0; i < ELEMENTS(actors); i++)
		actor_kill(&actors[i]);
	print_message("a join costs the loop %u stops at system calls, with 100 more sessions %u\n",
		few, many);
	/* One call for each of them would be 200 stops. */
	assert_true(few > 0);
	assert_true(many < few + ELEMENTS(actors));
}

static void *charge_until_gone(void *arg)
{
	struct tally_pool *p = ((void **)arg)[0];
	atomic_uint *charges = ((void **)arg)[1];
	intptr_t r;

	while ((r = tally_charge(p, 5000)) == 0) {
		tally_uncharge(p, 5000);
		atomic_fetch_add(charges, 1);
	}
	tally_pool_unref(p);
	return (void *)r;
}

static void test_pool_destroyed_while_charging(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 50; round++) {
		struct tally_pool *p = harness_attach(tally, "/traps/destroyed");
		atomic_uint charges = 0;
		void *arg[] = {p, &charges}, *result;
		pthread_t threads[2];

		for (unsigned i = 0; i < ELEMENTS(threads); i++) {
			tally_pool_ref(p);
			assert_int_equal(
				pthread_create(&threads[i], NULL, charge_until_gone, arg), 0);
		}
		while (atomic_load(&charges) < 10)
			sched_yield();
		tally_detach(p);
		/* Whoever is inside goes on for a moment; then nobody is. */
		while (tally_remove(tally, "/traps/destroyed", 0) == -EBUSY)
			sched_yield();
		for (unsigned i = 0; i < ELEMENTS(threads); i++) {
			assert_int_equal(pthread_join(threads[i], &result), 0);
			assert_int_equal((intptr_t)result, -ENODEV);
		}
	}
}

/* Nobody reads what the daemon prints; it prints at every refusal, and goes on. */
static void test_deadlock_while_printing_an_error(void **state)
{
	char runtime[] = "/tmp/tally-test-log-XXXXXX", address[96], command[64];
	int log[2], size, status;
	struct tally *t = NULL;
	pid_t daemon;

	(void)state;
	assert_non_null(mkdtemp(runtime));
	assert_int_equal(pipe2(log, O_CLOEXEC), 0);
	size = fcntl(log[1], F_SETPIPE_SZ, 4096);
	assert_true(size > 0);
	daemon = fork();
	assert_true(daemon >= 0);
	if (daemon == 0) {
		dup2(log[1], STDERR_FILENO);
		execl(harness_program(), "tallyd", "--runtime-dir", runtime, (char *)NULL);
		_exit(127);
	}
	snprintf(address, sizeof(address), "unix:%s/tallyd.sock", runtime);
	for (unsigned i = 0; i < HARNESS_PATIENCE_MS / 10 && tally_open(address, 0, &t) < 0; i++)
		usleep(10000);
	assert_non_null(t);
	/* Each of these pools logs its first refusal: far more than the pipe holds. */
	for (unsigned i = 0; i < 200; i++) {
		struct tally_pool *p;
		char path[200];

		snprintf(path, sizeof(path), "/%0150u", i);
		assert_int_equal(tally_attach(t, path, TALLY_CREATE, &p), 0);
		assert_int_equal(tally_set(t, path, "memory.max", "1"), 0);
		assert_int_equal(tally_charge(p, MIB), -ENOMEM);
		tally_detach(p);
	}
	tally_close(t);
	assert_int_equal(kill(daemon, SIGTERM), 0);
	assert_int_equal(waitpid(daemon, &status, 0), daemon);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	close(log[0]);
	close(log[1]);
	snprintf(command, sizeof(command), "rm -rf %s", runtime);
	assert_int_equal(system(command), 0);
}

/* ------------------------------------------------------------------ names, files, messages */

static void test_names_cut_by_one_byte_never_match_again(void **state)
{
	char part[256], path[4096], name[64];
	struct tally_options o = {.address = harness.address, .name = name};
	struct tally_pool *p;
	struct tally *t;
	size_t n = 0;

	(void)state;
	memset(name, 'n', 63);
	name[63] = '\0';
	assert_int_equal(tally_open_with(&o, sizeof(o), &t), 0);

	memset(part, 'p', 255);
	part[255] = '\0';
	for (unsigned i = 0; i < 15; i++)
		n += (size_t)snprintf(path + n, sizeof(path) - n, "/%s", part);
	n += (size_t)snprintf(path + n, sizeof(path) - n, "/%.*s", (int)(4095 - n - 1), part);
	assert_int_equal(n, 4095);
	p = harness_attach(t, path);
	assert_string_equal(tally_pool_path(p), path);
	assert_int_equal(tally_charge(p, 1000), 0);
	assert_int_equal(harness_current(tally, path), 1000);
	/* Its neighbours by one byte are others, or none. */
	path[4094] = '\0';
	assert_int_equal(tally_get(tally, path, "memory.current", 0, &(char *){NULL}), -ENOENT);
	path[4094] = 'q';
	assert_int_equal(tally_get(tally, path, "memory.current", 0, &(char *){NULL}), -ENOENT);
	path[4094] = 'p';
	{
		char *clients = harness_get(tally, path, "pool.clients");

		assert_non_null(strstr(clients, name));
		free(clients);
	}
	tally_detach(p);
	for (char *slash; (slash = strrchr(path, '/')) && slash >= path;) {
		assert_int_equal(tally_remove(tally, path, 0), 0);
		*slash = '\0';
		if (slash == path)
			break;
	}
	tally_close(t);
}

static void test_an_exported_file_seen_empty(void **state)
{
	char path[160];
	struct actor a;
	unsigned seen = 0;

	(void)state;
	actor_start(&a, &harness, "/traps");
	snprintf(path, sizeof(path), "%s/pools/traps/memory.stat", harness.runtime);
	for (unsigned i = 0; i < 3000; i++) {
		char text[4096];
		ssize_t n;
		int fd;

		if (i % 30 == 0)
			assert_int_equal(actor_do(&a, ACTOR_CHARGE, 1000, 0), 0);
		usleep(500);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
		assert_true(n > 0);
		text[n] = '\0';
		assert_memory_equal(text, "held ", 5);
		assert_int_equal(text[n - 1], '\n');
		assert_non_null(strstr(text, "\nfree "));
		seen++;
	}
	assert_true(seen > 0);
	actor_kill(&a);
}

static void test_limit_errors_that_do_not_name_the_limit_the_pool_and_the_idle_credit(void **state)
{
	struct tally_pool *p = harness_attach(tally, "/traps/told/tenant");

	(void)state;
	assert_int_equal(tally_set(tally, "/traps/told", "memory.max", "1M"), 0);
	assert_int_equal(tally_charge(p, 1000000), 0);
	assert_int_equal(tally_charge(p, 777777), -ENOMEM);
	assert_int_equal(harness_log_lines(&harness, "memory.max of /traps/told is 1048576"), 1);
	assert_int_equal(harness_log_lines(&harness, "777777"), 1);
	assert_int_equal(harness_log_lines(&harness, "held 1000000"), 1);
	assert_int_equal(harness_log_lines(&harness, "idle "), 1);
	tally_detach(p);
}

/* The bell is a message to the daemon: there is nothing that a client could read away. It keeps more
 * in its reserve than it may, reads all that it is sent, and others get that credit all the same. */
static void test_a_client_that_drains_the_doorbell(void **state)
{
	struct actor a, b;

	(void)state;
	actor_start(&a, &harness, "/traps/bell/a");
	actor_start(&b, &harness, "/traps/bell/b");
	assert_int_equal(tally_set(tally, "/traps/bell", "memory.max", "64M"), 0);
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(actor_do(&a, ACTOR_CHARGE, 64 * MIB, 0), 0);
		assert_int_equal(actor_do(&a, ACTOR_UNCHARGE, 64 * MIB, 0), 0);
		/* From here on it does nothing, not even look at its sockets. */
		assert_int_equal(kill(a.pid, SIGSTOP), 0);
		assert_int_equal(actor_do(&b, ACTOR_CHARGE, 64 * MIB, 0), 0);
		assert_int_equal(actor_do(&b, ACTOR_UNCHARGE, 64 * MIB, 0), 0);
		assert_int_equal(kill(a.pid, SIGCONT), 0);
	}
	actor_kill(&a);
	actor_kill(&b);
}

static int setup(void **state)
{
	(void)state;
	harness_start(&harness, "[daemon]\nflush_interval = 100ms\ngrace = 60s\n");
	tally = harness_open(&harness);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	tally = tally_close(tally);
	harness_stop(&harness);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_dead_clients_slot_still_summed),
		cmocka_unit_test(test_pid_reuse),
		cmocka_unit_test(
			test_the_kill_path_and_the_hang_up_path_each_leave_the_cleaning_to_the_other),
		cmocka_unit_test(test_liveness_sweep_of_all_processes_at_every_join),
		cmocka_unit_test(test_pool_destroyed_while_charging),
		cmocka_unit_test(test_deadlock_while_printing_an_error),
		cmocka_unit_test(test_names_cut_by_one_byte_never_match_again),
		cmocka_unit_test(test_an_exported_file_seen_empty),
		cmocka_unit_test(
			test_limit_errors_that_do_not_name_the_limit_the_pool_and_the_idle_credit),
		cmocka_unit_test(test_a_client_that_drains_the_doorbell),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
