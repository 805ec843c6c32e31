/* SPDX-License-Identifier: MIT */

/*
 * `run`: charges, then becomes another program. The session lives as long as the process, because
 * the daemon watches the process and not only the socket; that one descriptor is kept open over the
 * exec, so that the daemon knows that the session is meant to go on.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "claim.h"
#include "command.h"
#include "errors.h"
#include "full.h"
#include "text.h"

#define NAME_MAX_BYTES 63 /* of a session's name, see tally.h */

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

static uint64_t deadline_of(const struct request *q)
{
	uint64_t now = claim_now();

	if (!q->waits)
		return 0;
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
	if (r == -ENOMEM || (r == -ETIMEDOUT && q->waits)) {
		full_limit(inv, q->claims[failed].path, bytes_text(inv, failed));
		return (int)q->refused_status;
	}
	if (r == -EINVAL && inv->item)
		return error_line(STATUS_ERROR,
			"the item '%s' counts events and cannot be charged; name a gauge",
			inv->item);
	return r < 0 ? error_charge(inv, q->claims[failed].path, r) : STATUS_DONE;
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
