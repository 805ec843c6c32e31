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
#define ITEM_FILE_MAX 64  /* stat.ITEM.max, the name of an item that there is */

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
static int tell_refusal(const struct invocation *inv, const struct request *q)
{
	_cleanup_(freep) char *path = strdup(q->path);
	struct limit l;

	while (path && !find_limiting(inv, path, q->bytes, &l)) {
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
			q->path, ERROR_CUT(q->bytes_text), l.file, path,
			output_limit(l.max, max_text), output_bytes(l.held, held_text),
			l.has_idle ? ", idle " : "",
			l.has_idle ? output_bytes(l.idle, idle_text) : "", path, l.file);
	} else {
		error_line(0,
			"%s: %s does not fit under a limit of the pool or of one above it; "
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
