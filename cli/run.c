/* SPDX-License-Identifier: MIT */

/*
 * `run`: charges, then becomes another program. The session lives as long as the process, because
 * the daemon watches the process and not only the socket; that one descriptor is kept open over the
 * exec, so that the daemon knows that the session is meant to go on.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "claim.h"
#include "command.h"
#include "errors.h"
#include "output.h"
#include "text.h"

#define NAME_MAX_BYTES 63 /* of a session's name, see tally.h */
#define ITEM_FILE_MAX 64  /* stat.ITEM.max, the name of an item that there is */

enum {
	STATUS_NOT_EXECUTABLE = 126, /* as shells have it */
	STATUS_NOT_FOUND = 127,
};

struct request {
	uint64_t refused_status, timeout_usec;
	bool waits;
	char **command;
	size_t n;
	struct claim claims[]; /* attached until the exec, or the failure */
};

/* The bytes as they were typed. */
static const char *bytes_text(const struct invocation *inv, size_t claim)
{
	return inv->args[2 * claim + 1];
}

static int parse_bytes(const struct invocation *inv, const char *text, uint64_t *ret)
{
	uint64_t bytes;
	int r = text_parse_bytes(text, &bytes);

	if (r == -EINVAL)
		return command_usage(inv,
			"BYTES wants digits with an optional K, M, G, T, P or E, not '%s'",
			ERROR_CUT(text));
	if (r < 0 || bytes > TALLY_BYTES_MAX)
		return command_usage(inv, "BYTES wants less than 8T, not '%s'", ERROR_CUT(text));
	*ret = bytes;
	return STATUS_DONE;
}

static int parse_options(const struct invocation *inv, struct request *q)
{
	q->refused_status = STATUS_REFUSED;
	if (inv->refused_status &&
		(text_parse_number(inv->refused_status, &q->refused_status) < 0 ||
			q->refused_status > 255))
		return command_usage(inv, "--refused-status wants a number from 0 to 255, not '%s'",
			ERROR_CUT(inv->refused_status));
	q->waits = inv->timeout;
	if (inv->timeout && text_parse_duration(inv->timeout, &q->timeout_usec) < 0)
		return command_usage(inv,
			"--timeout wants seconds, or a number with ms, s, min or h, not '%s'",
			ERROR_CUT(inv->timeout));
	return STATUS_DONE;
}

/* The caller frees it, also on failure. */
static int parse_request(const struct invocation *inv, struct request **ret)
{
	struct request *q;
	int marker = 0, r;

	while (marker < inv->n_args && strcmp(inv->args[marker], "--"))
		marker++;
	if (marker < 2)
		return command_usage(inv, "wants POOL BYTES -- COMMAND");
	if (marker == inv->n_args)
		return command_usage(inv, "no '--' before COMMAND");
	for (int i = 2; i < marker; i++)
		if (*inv->args[i] == '-')
			return command_usage(inv, "options such as '%s' stand before POOL",
				ERROR_CUT(inv->args[i]));
	if (marker % 2)
		return command_usage(inv, "'%s' has no BYTES", ERROR_CUT(inv->args[marker - 1]));
	if (marker + 1 == inv->n_args)
		return command_usage(inv, "no COMMAND behind '--'");
	q = calloc(1, sizeof(*q) + (size_t)marker / 2 * sizeof(q->claims[0]));
	if (!q)
		return error_line(STATUS_ERROR, "out of memory");
	*ret = q;
	q->n = (size_t)marker / 2;
	q->command = inv->args + marker + 1;
	r = parse_options(inv, q);
	for (size_t i = 0; i < q->n && !r; i++) {
		q->claims[i].path = inv->args[2 * i];
		r = parse_bytes(inv, bytes_text(inv, i), &q->claims[i].bytes);
	}
	return r;
}

/* The session is named after the program that it is going to be. */
static int open_as(struct invocation *inv, const char *command)
{
	const char *slash = strrchr(command, '/');
	char name[NAME_MAX_BYTES + 1];

	snprintf(name, sizeof(name), "%s", slash ? slash + 1 : command);
	return command_open(inv, *name ? name : NULL);
}

/* A limit, and what counts under it. How much of an item lies idle no file tells. */
struct limit {
	char file[ITEM_FILE_MAX];
	uint64_t max, held, idle;
	bool has_idle;
};

/* Whether the limit that this file of the pool is leaves no room for that many bytes; `key` is its
 * line of memory.stat. */
static bool is_limiting(const struct invocation *inv, const char *path, const char *stat,
	const char *key, uint64_t bytes, struct limit *l)
{
	_cleanup_(freep) char *max = NULL;

	if (tally_get(inv->tally, path, l->file, TALLY_CACHED, &max) < 0 ||
		text_find_number(stat, key, &l->held) < 0 || text_parse_limit(max, &l->max) < 0)
		return false;
	return l->held >= l->max || bytes > l->max - l->held;
}

static bool find_limiting(
	const struct invocation *inv, const char *path, uint64_t bytes, struct limit *ret)
{
	_cleanup_(freep) char *stat = NULL;

	if (tally_get(inv->tally, path, "memory.stat", 0, &stat) < 0)
		return false;
	ret->has_idle = false;
	if (inv->item) {
		snprintf(ret->file, sizeof(ret->file), "stat.%s.max", inv->item);
		if (is_limiting(inv, path, stat, inv->item, bytes, ret))
			return true;
	}
	snprintf(ret->file, sizeof(ret->file), "memory.max");
	ret->has_idle = text_find_number(stat, "stock", &ret->idle) == 0;
	return is_limiting(inv, path, stat, "held", bytes, ret);
}

/* Which limit it was is asked for afterwards, so it may have got room again; then none is named. */
static int tell_refusal(const struct invocation *inv, const struct request *q, size_t refused)
{
	const struct claim *c = &q->claims[refused];
	const char *typed = bytes_text(inv, refused);
	_cleanup_(freep) char *path = strdup(c->path);
	struct limit l;

	while (path && !find_limiting(inv, path, c->bytes, &l)) {
		char *parent = strcmp(path, "/") ? text_parent_path(path) : NULL;

		free(path);
		path = parent;
	}
	if (path) {
		char held_text[OUTPUT_TEXT_MAX], idle_text[OUTPUT_TEXT_MAX],
			max_text[OUTPUT_TEXT_MAX];

		error_line(0,
			"%s: %s does not fit: %s of %s is %s, held %s%s%s; "
			"end a client ('tallyctl clients %s') or raise %s",
			c->path, ERROR_CUT(typed), l.file, path, output_limit(l.max, max_text),
			output_bytes(l.held, held_text), l.has_idle ? ", idle " : "",
			l.has_idle ? output_bytes(l.idle, idle_text) : "", path, l.file);
	} else {
		error_line(0,
			"%s: %s does not fit under a limit of the pool or of one above it; "
			"try again, or see 'tallyctl tree'",
			c->path, ERROR_CUT(typed));
	}
	return (int)q->refused_status;
}

static uint64_t deadline_of(const struct request *q)
{
	struct timespec t;
	uint64_t now;

	if (!q->waits)
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &t);
	now = (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
	return q->timeout_usec < UINT64_MAX - now ? now + q->timeout_usec : UINT64_MAX;
}

static int charge(const struct invocation *inv, struct request *q)
{
	tally_item item = 0;
	size_t failed = 0;
	int r;

	for (size_t i = 0; i < q->n; i++) {
		struct claim *c = &q->claims[i];

		r = tally_attach(inv->tally, c->path, 0, &c->pool);
		if (r < 0)
			return error_attach(inv, c->path, r);
	}
	if (inv->item) {
		r = tally_item_lookup(inv->tally, inv->item, &item);
		if (r == -ENOENT || r == -EINVAL || r == -E2BIG)
			return error_line(STATUS_ERROR,
				"there is no item '%s'; 'tallyctl get / memory.stat' shows those "
				"that there are",
				ERROR_CUT(inv->item));
		if (r < 0)
			return error_plain(inv, inv->item, r);
	}
	r = claim_all(q->claims, q->n, item, deadline_of(q), &failed);
	if (r == -ENOMEM || (r == -ETIMEDOUT && q->waits))
		return tell_refusal(inv, q, failed);
	if (r == -EINVAL && inv->item)
		return error_line(STATUS_ERROR,
			"the item '%s' counts events and cannot be charged; name a gauge",
			inv->item);
	return r < 0 ? error_plain(inv, q->claims[failed].path, r) : STATUS_DONE;
}

static int become(const struct invocation *inv, char **command)
{
	int fd = tally_fd(inv->tally), flags = fcntl(fd, F_GETFD);

	if (flags < 0 || fcntl(fd, F_SETFD, flags & ~FD_CLOEXEC) < 0)
		return error_plain(inv, inv->args[0], -errno);
	execvp(command[0], command);
	if (errno == ENOENT || errno == ENOTDIR)
		return error_line(STATUS_NOT_FOUND,
			"%s: no such command; give its path, or see PATH", command[0]);
	return error_line(STATUS_NOT_EXECUTABLE,
		"%s: cannot be run: %s; see its mode and interpreter", command[0], strerror(errno));
}

int run_command(struct invocation *inv)
{
	_cleanup_(freep) struct request *q = NULL;
	int r = parse_request(inv, &q);

	if (!r)
		r = open_as(inv, q->command[0]);
	if (r)
		return r;
	r = charge(inv, q);
	if (!r)
		r = become(inv, q->command);
	for (size_t i = 0; i < q->n; i++)
		tally_detach(q->claims[i].pool);
	return r;
}
