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
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "errors.h"
#include "output.h"
#include "text.h"

#define NAME_MAX_BYTES 63 /* of a session's name, see tally.h */

enum {
	STATUS_NOT_EXECUTABLE = 126, /* as shells have it */
	STATUS_NOT_FOUND = 127,
};

struct request {
	const char *path, *bytes_text;
	uint64_t bytes, refused_status;
	char **command;
	struct tally_pool *pool; /* attached until the exec, or the failure */
};

static int parse_request(const struct invocation *inv, struct request *ret)
{
	struct request q = {.refused_status = STATUS_REFUSED};
	int marker = 0;

	while (marker < inv->n_args && strcmp(inv->args[marker], "--"))
		marker++;
	if (marker < 2)
		return command_usage(inv, "wants POOL BYTES -- COMMAND");
	if (marker == inv->n_args)
		return command_usage(inv, "no '--' before COMMAND");
	if (marker > 2 && *inv->args[2] == '-')
		return command_usage(
			inv, "options such as '%s' stand before POOL", ERROR_CUT(inv->args[2]));
	if (marker > 2)
		return command_usage(
			inv, "more than one POOL BYTES is not available in this version");
	if (marker + 1 == inv->n_args)
		return command_usage(inv, "no COMMAND behind '--'");
	if (inv->refused_status &&
		(text_parse_number(inv->refused_status, &q.refused_status) < 0 ||
			q.refused_status > 255))
		return command_usage(inv, "--refused-status wants a number from 0 to 255, not '%s'",
			ERROR_CUT(inv->refused_status));
	q.path = inv->args[0];
	q.bytes_text = inv->args[1];
	q.command = inv->args + 3;
	if (text_parse_bytes(q.bytes_text, &q.bytes) == -EINVAL)
		return command_usage(inv,
			"BYTES wants digits with an optional K, M, G, T, P or E, not '%s'",
			ERROR_CUT(q.bytes_text));
	if (text_parse_bytes(q.bytes_text, &q.bytes) < 0 || q.bytes > TALLY_BYTES_MAX)
		return command_usage(
			inv, "BYTES wants less than 8T, not '%s'", ERROR_CUT(q.bytes_text));
	*ret = q;
	return STATUS_DONE;
}

/* The session is named after the program that it is going to be. */
static int open_as(struct invocation *inv, const char *command)
{
	const char *slash = strrchr(command, '/');
	char name[NAME_MAX_BYTES + 1];

	snprintf(name, sizeof(name), "%s", slash ? slash + 1 : command);
	return command_open(inv, *name ? name : NULL);
}

/* Whether the limit of this pool leaves no room for that many bytes. */
static bool is_limiting(const struct invocation *inv, const char *path, uint64_t bytes,
	uint64_t *ret_held, uint64_t *ret_idle, uint64_t *ret_limit)
{
	_cleanup_(freep) char *stat = NULL, *max = NULL;

	if (tally_get(inv->tally, path, "memory.stat", 0, &stat) < 0 ||
		tally_get(inv->tally, path, "memory.max", 0, &max) < 0 ||
		text_find_number(stat, "held", ret_held) < 0 ||
		text_find_number(stat, "stock", ret_idle) < 0 ||
		text_parse_limit(max, ret_limit) < 0)
		return false;
	return *ret_held >= *ret_limit || bytes > *ret_limit - *ret_held;
}

/* Which limit it was is asked for afterwards, so it may have got room again; then none is named. */
static int tell_refusal(const struct invocation *inv, const struct request *q)
{
	_cleanup_(freep) char *path = strdup(q->path);
	uint64_t held, idle, limit;

	while (path && !is_limiting(inv, path, q->bytes, &held, &idle, &limit)) {
		char *parent = strcmp(path, "/") ? text_parent_path(path) : NULL;

		free(path);
		path = parent;
	}
	if (path) {
		char held_text[OUTPUT_TEXT_MAX], idle_text[OUTPUT_TEXT_MAX],
			max_text[OUTPUT_TEXT_MAX];

		error_line(0,
			"%s: %s does not fit: memory.max of %s is %s, held %s, idle %s; "
			"end a client ('tallyctl clients %s') or raise memory.max",
			q->path, ERROR_CUT(q->bytes_text), path, output_limit(limit, max_text),
			output_bytes(held, held_text), output_bytes(idle, idle_text), path);
	} else {
		error_line(0,
			"%s: %s does not fit under memory.max of the pool or of one above it; "
			"try again, or see 'tallyctl tree'",
			q->path, ERROR_CUT(q->bytes_text));
	}
	return (int)q->refused_status;
}

static int charge(const struct invocation *inv, struct request *q)
{
	tally_item item = 0;
	int r;

	r = tally_attach(inv->tally, q->path, 0, &q->pool);
	if (r < 0)
		return error_get(inv, q->path, NULL, r);
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
	r = tally_charge_item(q->pool, item, q->bytes);
	if (r == -ENOMEM)
		return tell_refusal(inv, q);
	if (r == -EINVAL && inv->item)
		return error_line(STATUS_ERROR,
			"the item '%s' counts events and cannot be charged; name a gauge",
			inv->item);
	return r < 0 ? error_plain(inv, q->path, r) : STATUS_DONE;
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
	struct request q;
	int r = parse_request(inv, &q);

	if (!r)
		r = open_as(inv, q.command[0]);
	if (r)
		return r;
	r = charge(inv, &q);
	if (!r)
		r = become(inv, q.command);
	tally_detach(q.pool);
	return r;
}
