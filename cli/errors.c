/* SPDX-License-Identifier: MIT */

/*
 * The sentences for what can go wrong. A helper that knows the errno's meaning for its call handles
 * it; everything that any call may answer ends in error_plain().
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "errors.h"
#include "text.h"

int error_line(int status, const char *format, ...)
{
	_cleanup_(freep) char *line = NULL;
	va_list ap;

	va_start(ap, format);
	if (vasprintf(&line, format, ap) < 0)
		line = NULL;
	va_end(ap);
	if (line)
		text_make_safe(line);
	fprintf(stderr, "tallyctl: %s\n", line ? line : "out of memory");
	return status;
}

int error_open(const char *address, int error)
{
	switch (-error) {
	case ENOTCONN:
		return error_line(STATUS_ERROR,
			"no tallyd at %s; start it with 'tallyd' or name its socket with --socket",
			address);
	case EACCES:
		return error_line(STATUS_ERROR,
			"the socket of tallyd at %s may not be used by this user; "
			"see socket_mode in tallyd.conf",
			address);
	case EPERM:
		return error_line(STATUS_ERROR,
			"tallyd at %s does not let this user in; end some of the user's sessions, "
			"or see the log of tallyd",
			address);
	case ETIMEDOUT:
		return error_line(STATUS_ERROR,
			"tallyd at %s does not answer; see its log, or start it again", address);
	case EPROTO:
		return error_line(STATUS_ERROR,
			"tallyd at %s speaks another version; use the tallyctl that came with it",
			address);
	case EINVAL:
	case EOPNOTSUPP:
		return error_line(STATUS_ERROR,
			"'%s' is no address of a tallyd; name its socket with --socket PATH, "
			"at most 107 bytes, or with TALLY_ADDRESS=unix:PATH",
			address);
	default:
		return error_line(STATUS_ERROR,
			"cannot open tallyd at %s: %s; see the log of tallyd", address,
			strerror(-error));
	}
}

int error_plain(const struct invocation *inv, const char *subject, int error)
{
	switch (-error) {
	case ENOTCONN:
		return error_line(STATUS_ERROR,
			"%s: tallyd at %s went away; start it with 'tallyd' and try again", subject,
			inv->address);
	case ETIMEDOUT:
		return error_line(STATUS_ERROR,
			"%s: tallyd at %s did not answer in time; try again, or see its log",
			subject, inv->address);
	case EPROTO:
		return error_line(STATUS_ERROR,
			"%s: the answer of tallyd at %s is not understood; "
			"use the tallyctl that came with it",
			subject, inv->address);
	case EPERM:
		return error_line(STATUS_ERROR,
			"%s: not permitted to this user; use root or the owner of the pool",
			subject);
	case ENOMEM:
		return error_line(
			STATUS_ERROR, "%s: out of memory; free some and try again", subject);
	default:
		return error_line(
			STATUS_ERROR, "%s: %s; see the log of tallyd", subject, strerror(-error));
	}
}

/* Whether the pool is there: 0, or what is wrong with its path. */
static int probe_pool(const struct invocation *inv, const char *path)
{
	_cleanup_(freep) char *text = NULL;

	return tally_get(inv->tally, path, "memory.current", TALLY_CACHED, &text);
}

static int error_no_pool(const char *path)
{
	return error_line(
		STATUS_ERROR, "%s: no such pool; create it with 'tallyctl create %s'", path, path);
}

static int error_bad_path(const char *path, int error)
{
	if (error == -ENAMETOOLONG)
		return error_line(STATUS_ERROR,
			"%s: the path is too long; use at most 255 bytes a part and 4095 in all",
			path);
	return error_line(STATUS_ERROR,
		"'%s' is no path of a pool; use '/' or '/part/part', without control characters, "
		"empty parts, '.' and '..'",
		path);
}

static int error_no_file(const char *path, const char *file)
{
	return error_line(
		STATUS_ERROR, "%s: no file '%s' in this pool; tallyctl(1) lists them", path, file);
}

int error_get(const struct invocation *inv, const char *path, const char *file, int error)
{
	_cleanup_(freep) char *subject = NULL;

	switch (-error) {
	case ENOENT:
		return file && probe_pool(inv, path) == 0 ? error_no_file(path, file)
							  : error_no_pool(path);
	case EINVAL:
	case ENAMETOOLONG:
		return file && probe_pool(inv, path) == 0 ? error_no_file(path, file)
							  : error_bad_path(path, error);
	case EACCES:
		if (file)
			return error_line(STATUS_ERROR,
				"%s: '%s' cannot be read; it can only be written", path, file);
		return error_plain(inv, path, -EPERM);
	case ENOSPC:
		return error_line(
			STATUS_ERROR, "%s: tallyd has no room for it; see the log of tallyd", path);
	default:
		if (file && asprintf(&subject, "%s: %s", path, file) < 0)
			subject = NULL;
		return error_plain(inv, subject ? subject : path, error);
	}
}

static bool has_suffix(const char *text, const char *suffix)
{
	size_t n = strlen(text), m = strlen(suffix);

	return n >= m && !strcmp(text + n - m, suffix);
}

/* The form that the values of a file have, to be said after "give". */
static const char *accepted_form(const char *file)
{
	if (!strncmp(file, "cgroup.max.", strlen("cgroup.max.")))
		return "a whole number, or 'max'";
	if (has_suffix(file, ".max") || !strcmp(file, "memory.high") ||
		!strcmp(file, "memory.low") || !strcmp(file, "memory.min"))
		return "bytes with an optional K, M, G, T, P or E, such as 512M, or 'max'";
	return "what tallyctl(1) says of this file";
}

int error_set(const struct invocation *inv, const char *path, const char *file, const char *value,
	int error)
{
	switch (-error) {
	case EACCES:
		return error_line(STATUS_ERROR, "%s: '%s' cannot be written; it can only be read",
			path, file);
	case EINVAL:
		if (probe_pool(inv, path) == -EINVAL)
			return error_bad_path(path, error);
		return error_line(STATUS_ERROR, "%s: '%s' is no value of %s; give %s", path, value,
			file, accepted_form(file));
	case ERANGE:
		return error_line(STATUS_ERROR,
			"%s: '%s' is too large for %s; give less than 16E, or "
			"'max' for no limit",
			path, value, file);
	default:
		return error_get(inv, path, file, error);
	}
}

int error_create(const struct invocation *inv, const char *path, int error)
{
	_cleanup_(freep) char *parent = NULL;

	switch (-error) {
	case EEXIST:
		return error_line(STATUS_ERROR,
			"%s: the pool is there already; change it with 'tallyctl set %s "
			"FILE=VALUE'",
			path, path);
	case ENOENT:
		parent = text_parent_path(path);
		if (!parent)
			return error_plain(inv, path, -ENOMEM);
		return error_line(STATUS_ERROR,
			"%s: there is no pool %s to create it in; create that first with "
			"'tallyctl create %s'",
			path, parent, parent);
	case EAGAIN:
		return error_line(STATUS_ERROR,
			"%s: the tree has as many pools or levels as it may have; remove some "
			"first",
			path);
	default:
		return error_get(inv, path, NULL, error);
	}
}

/* Lines of a file, 0 when it cannot be read: the pool may be going just now. */
static size_t count_entries(const struct invocation *inv, const char *path, const char *file)
{
	_cleanup_(freep) char *text = NULL;

	if (tally_get(inv->tally, path, file, TALLY_CACHED, &text) < 0)
		return 0;
	return text_count_lines(text);
}

static int error_busy(const struct invocation *inv, const char *path)
{
	size_t children = count_entries(inv, path, "pool.children");
	size_t processes = count_entries(inv, path, "cgroup.procs");
	const char *mend;

	if (!children && !processes)
		return error_line(STATUS_ERROR,
			"%s: the pool is in use: bytes are still charged to it; try again when "
			"'tallyctl get %s memory.current' shows 0",
			path, path);
	if (children && processes)
		mend = "end the processes, and remove the children too with --recursive";
	else
		mend = children ? "remove them too with --recursive" : "end them first";
	return error_line(STATUS_ERROR,
		"%s: the pool is in use: it has %zu %s and %zu attached %s; %s", path, children,
		children == 1 ? "child" : "children", processes,
		processes == 1 ? "process" : "processes", mend);
}

int error_remove(const struct invocation *inv, const char *path, int error)
{
	switch (-error) {
	case EBUSY:
		return error_busy(inv, path);
	case ENOENT:
		return error_line(STATUS_ERROR,
			"%s: no such pool; 'tallyctl tree' shows those that are there", path);
	default:
		return error_get(inv, path, NULL, error);
	}
}
