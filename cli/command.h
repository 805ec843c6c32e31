/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What main.c and the command families have in common: one parsed command line, and the functions
 * that carry it out. A command checks its arguments first and opens the daemon then, so that a bad
 * command line is told whether or not a daemon runs.
 */

#include <stdbool.h>
#include <stddef.h>

#include "tally.h"

/* Exit statuses; `run` has more, see run.c. */
enum {
	STATUS_DONE = 0,
	STATUS_ERROR = 1,
	STATUS_USAGE = 2,
	STATUS_REFUSED = 75,
};

struct invocation {
	const char *command;
	struct tally *tally; /* NULL until command_open() */
	char *address;       /* where the daemon is looked for */
	char **args;         /* the positional arguments; n_args of them, then NULL */
	int n_args;
	bool json, exact, recursive, force;
	const char *depth, *item, *refused_status, *reset, *timeout; /* NULL: not given */
};

/*
 * Opens the daemon as a session of that name (NULL: the program's). Returns STATUS_DONE, or another
 * exit status once the error is told. main() closes it.
 */
int command_open(struct invocation *inv, const char *name);

/* Tells how a command line is wrong; returns STATUS_USAGE. */
int command_usage(const struct invocation *inv, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The commands; each returns an exit status, the error already told. */
int show_status(struct invocation *inv);
int show_tree(struct invocation *inv);
int show_get(struct invocation *inv);
int show_clients(struct invocation *inv);

int change_set(struct invocation *inv);
int change_create(struct invocation *inv);
int change_remove(struct invocation *inv);
int change_reclaim(struct invocation *inv);
int change_drain(struct invocation *inv);
int change_flush(struct invocation *inv);
int change_evict(struct invocation *inv);
int change_reload(struct invocation *inv);

int run_command(struct invocation *inv);
int events_command(struct invocation *inv);
int why_command(struct invocation *inv);
