/* SPDX-License-Identifier: MIT */

#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define FTW_FDS 16

/* Nobody writes; the end comes when the last writer is gone. */
static void await_end(int fd)
{
	char c;

	while (read(fd, &c, 1) < 0 && errno == EINTR)
		;
}

/* A session of its own: signals of the terminal do not reach it. */
static _Noreturn void run_guard(int fd, void (*fn)(void *arg), void *arg)
{
	setsid();
	signal(SIGTERM, SIG_IGN);
	close(STDIN_FILENO);
	close(STDOUT_FILENO);
	await_end(fd);
	fn(arg);
	_exit(0);
}

void guard_run_at_end(void (*fn)(void *arg), void *arg)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		bench_die("cannot make a pipe: %s", strerror(errno));
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		bench_die("cannot fork: %s", strerror(errno));
	if (pid == 0) {
		close(fds[1]);
		run_guard(fds[0], fn, arg);
	}
	close(fds[0]);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void guard_remove_tree(const char *dir)
{
	nftw(dir, remove_one, FTW_FDS, FTW_DEPTH | FTW_PHYS);
}
