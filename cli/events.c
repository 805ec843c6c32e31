/* SPDX-License-Identifier: MIT */

/*
 * Following the events of a pool, a line each, until somebody says stop. Signals come in only while
 * it waits, so that no line is cut, and what was told is out before the next wait.
 */

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "errors.h"
#include "output.h"
#include "text.h"

struct follow {
	bool json, removed;
	int error, output_error;
};

static volatile sig_atomic_t stopped;

static void on_stop(int signal)
{
	(void)signal;
	stopped = 1;
}

static const char *name_of(int type)
{
	static const char *const names[] = {
		[TALLY_EVENT_LOW] = "low",
		[TALLY_EVENT_HIGH] = "high",
		[TALLY_EVENT_MAX] = "max",
		[TALLY_EVENT_OOM] = "oom",
		[TALLY_EVENT_RECLAIM] = "reclaim",
		[TALLY_EVENT_FORCE] = "force",
		[TALLY_EVENT_REMOVED] = "removed",
	};

	if (type <= 0 || type > TALLY_EVENT_REMOVED)
		return NULL;
	return names[type];
}

static int print_json(const char *path, const char *name, uint64_t count)
{
	_cleanup_(json_decrefp) json_t *line = json_pack("{s:o,s:s,s:o}", "pool",
		output_json_string(path), "event", name, "count", output_json_number(count));

	if (!line)
		return -ENOMEM;
	/* Whether it gets out shows when it is flushed. */
	json_dumpf(line, stdout, JSON_COMPACT);
	putchar('\n');
	return 0;
}

static void on_event(const char *path, const struct tally_event *e, void *userdata)
{
	const char *name = name_of(e->type);
	struct follow *f = userdata;

	if (!name || f->error < 0)
		return;
	f->removed |= e->type == TALLY_EVENT_REMOVED;
	if (f->json)
		f->error = print_json(path, name, e->count);
	else
		printf("%s %s %" PRIu64 "\n", ERROR_CUT(path), name, e->count);
}

/* 0: go on; 1: stop; an error. */
static int follow_once(struct invocation *inv, struct follow *f, const sigset_t *waiting)
{
	struct pollfd p = {.fd = tally_fd(inv->tally), .events = POLLIN};
	int r;

	if (ppoll(&p, 1, NULL, waiting) < 0 && errno != EINTR)
		return -errno;
	r = tally_dispatch(inv->tally);
	if (r < 0)
		return r;
	if (f->error < 0)
		return f->error;
	f->output_error = output_flush();
	return f->removed || stopped || f->output_error < 0;
}

int events_command(struct invocation *inv)
{
	const char *path = inv->n_args > 0 ? inv->args[0] : "/";
	const struct sigaction stop = {.sa_handler = on_stop};
	struct follow follow = {.json = inv->json};
	struct tally_watch *w;
	sigset_t ours, before;
	int r = command_open(inv, NULL);

	if (r)
		return r;
	sigemptyset(&ours);
	sigaddset(&ours, SIGINT);
	sigaddset(&ours, SIGTERM);
	sigprocmask(SIG_BLOCK, &ours, &before);
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGTERM, &stop, NULL);
	r = tally_watch(inv->tally, path, on_event, &follow, &w);
	if (r < 0)
		return error_watch(inv, path, r);
	while ((r = follow_once(inv, &follow, &before)) == 0)
		;
	tally_unwatch(w);
	if (r < 0)
		return error_plain(inv, inv->command, r);
	return follow.output_error < 0 ? error_output(follow.output_error) : STATUS_DONE;
}
