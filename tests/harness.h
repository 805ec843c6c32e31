/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A private daemon in a directory of its own, for tests that use the real thing: real processes,
 * real sockets, real kills. cmocka's assertions are made here when something that is not under test
 * fails.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "tally.h"

/* How long to wait for what is to happen soon: a bound for broken programs, not a measure of
 * anything. Sanitizers, valgrind and a busy machine are slow. */
#define HARNESS_PATIENCE_MS 60000

struct harness {
	char dir[64]; /* the runtime directory is in it */
	char runtime[96];
	char address[128]; /* unix:… */
	char log[96];      /* what the daemon says */
	pid_t daemon;
};

/* Starts $TALLYD (default ./tallyd) with this text as its configuration, and waits until it serves.
 */
void harness_start(struct harness *h, const char *config);
/* Stops it with SIGTERM, asserts its exit status 0, and removes the directory. */
void harness_stop(struct harness *h);
/* Kills it with SIGKILL; harness_stop() is still to be called. */
void harness_kill(struct harness *h);

/* Another daemon on the same directory, after harness_kill(). */
void harness_restart(struct harness *h);
/* The program that is tested: $TALLYD, default ./tallyd. */
const char *harness_program(void);

/* How many lines of the daemon's log hold this text. */
unsigned harness_log_lines(struct harness *h, const char *text);
/* Whether the daemon runs bare, neither under a sanitizer nor under valgrind or qemu. */
int harness_is_bare(struct harness *h);
/* Skips the test under qemu's user emulation, for something that it does not do as Linux does. */
void harness_skip_emulated(const char *what);

/* Replaces the configuration's text, without a reload. */
void harness_configure(struct harness *h, const char *config);

/* A session; asserts that it opens. */
struct tally *harness_open(struct harness *h);
/* An attachment, the pool made if needed; asserts that it attaches. */
struct tally_pool *harness_attach(struct tally *t, const char *path);

/* The text of a file, to be freed; asserts that it can be read. */
char *harness_get(struct tally *t, const char *path, const char *file);
/* memory.current, exact. */
uint64_t harness_current(struct tally *t, const char *path);
/* The number behind `key` in a file of "key value" lines; asserts that it is there. */
uint64_t harness_value(struct tally *t, const char *path, const char *file, const char *key);

/* How many requests wait at the pool: those of the pool's own attachments. */
unsigned harness_waiting(struct tally *t, const char *path);

/* Runs fn in a forked child, whose exit status is what fn returns. */
pid_t harness_fork(int (*fn)(void *userdata), void *userdata);
/* Waits for the child; asserts that it exited with this status. */
void harness_join(pid_t child, int status);

/* CLOCK_MONOTONIC in microseconds. */
uint64_t harness_now(void);

/* What of the daemon is in memory. */
uint64_t harness_memory_kib(const struct harness *h);

/* Skips a test that becomes other users, unless it is root's. */
void harness_need_root(void);

/* Calls `holds` every 5 ms until it is true; false if it was not within `ms`. */
int harness_wait(int (*holds)(void *userdata), void *userdata, unsigned ms);

/* Memory that children of a fork share with the test, zeroed. */
void *harness_shared(size_t size);
void harness_unshare(void *p, size_t size);

/*
 * A process of its own that does as it is told: one session, one attachment, one order at a time.
 */
struct actor {
	pid_t pid;
	int fd;
};

enum actor_order {
	ACTOR_CHARGE,   /* x bytes; y > 0: with a deadline in y ms */
	ACTOR_TRY,      /* x bytes, without waiting */
	ACTOR_UNCHARGE, /* x bytes */
	ACTOR_MOVE,     /* item x by y, uncharged */
	ACTOR_LOOK,   /* at its pool, without a flush; so what it has moved is on the way no more */
	ACTOR_PIN,    /* to CPU x */
	ACTOR_DETACH, /* from its pool */
	ACTOR_CLOSE,  /* its session */
	ACTOR_CLOSE_FDS, /* all its descriptors, but lives on */
	ACTOR_FORK,      /* a child that does nothing for ten minutes; its process id */
	ACTOR_EXEC,      /* becomes a program that does so; x: and keeps tally_fd() */
};

void actor_start(struct actor *a, struct harness *h, const char *path);
/* Gives an order, and returns what came of it: 0 or negative errno. */
int actor_do(struct actor *a, enum actor_order order, uint64_t x, uint64_t y);
/* The same in two steps. The result is -EPIPE when the actor is gone, or another program. */
void actor_tell(struct actor *a, enum actor_order order, uint64_t x, uint64_t y);
int actor_result(struct actor *a);
/* Whether there is a result; for harness_wait(). */
int actor_has_result(void *actor);
/* Ends it by SIGKILL and waits for that. */
void actor_kill(struct actor *a);
