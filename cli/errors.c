/* SPDX-License-Identifier: MIT */

/*
 * The sentences for what can go wrong. A helper that knows the errno's meaning for its call handles
 * it; everything that any call may answer ends in error_plain().
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "denied.h"
#include "errors.h"
#include "full.h"
#include "owner.h"
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

static const char *path_of_address(const char *address)
{
	static const char scheme[] = "unix:";
	bool named = !strncmp(address, scheme, strlen(scheme));

	return named ? address + strlen(scheme) : NULL;
}

static bool is_no_socket(const char *address)
{
	const char *path = path_of_address(address);
	struct stat st;

	return path && stat(path, &st) == 0 && !S_ISSOCK(st.st_mode);
}

static bool is_bad_percpu(const char *kind)
{
	return kind && *kind && strcmp(kind, "atomic") != 0 && strcmp(kind, "rseq") != 0;
}

static int error_bad_address(const char *address)
{
	bool looks_like_path = *address == '/' || *address == '.';

	if (looks_like_path && strlen(address) < sizeof(((struct sockaddr_un *)0)->sun_path))
		return error_line(STATUS_ERROR,
			"'%s' is no address of a tallyd; for a socket, write unix:%s", address,
			address);
	return error_line(STATUS_ERROR,
		"'%s' is no address of a tallyd; name its socket with --socket PATH, "
		"at most 107 bytes, or with TALLY_ADDRESS=unix:PATH",
		ERROR_CUT(address));
}

int error_open(const char *address, int error)
{
	if ((error == -ENOTCONN || error == -EACCES) && is_no_socket(address))
		return error_line(STATUS_ERROR,
			"%s is no socket; name that of tallyd with --socket", address);
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
	case EDQUOT:
		return error_line(STATUS_ERROR,
			"tallyd at %s: %s has as many sessions as one user may have; end some, or "
			"ask root to raise max_sessions_per_uid in tallyd.conf",
			address, owner_name_own((char[OWNER_TEXT_MAX]){0}));
	case ETIMEDOUT:
		return error_line(STATUS_ERROR,
			"tallyd at %s does not answer; see its log, or start it again", address);
	case EPROTO:
		return error_line(STATUS_ERROR,
			"tallyd at %s speaks another version; use the tallyctl that came with it",
			address);
	case EINVAL:
		if (is_bad_percpu(getenv("TALLY_PERCPU")))
			return error_line(STATUS_ERROR,
				"TALLY_PERCPU is neither 'atomic' nor 'rseq'; correct or unset it");
		return error_bad_address(address);
	case EOPNOTSUPP:
		return error_line(STATUS_ERROR,
			"TALLY_PERCPU asks for restartable sequences, which tallyctl or tallyd at "
			"%s "
			"cannot use here; unset it",
			address);
	default:
		return error_line(STATUS_ERROR,
			"cannot open tallyd at %s: %s; see the log of tallyd", address,
			strerror(-error));
	}
}

/* Whether the connection alone is gone, and tallyd is there. */
static bool is_answering(const struct invocation *inv)
{
	struct tally_options o = {.address = inv->address, .connect_timeout_usec = 1000000};
	struct tally *t = NULL;
	int r = tally_open_with(&o, sizeof(o), &t);

	tally_close(t);
	return r == 0;
}

int error_output(int error)
{
	return error_line(STATUS_ERROR,
		"cannot write the output: %s; see where it is redirected to", strerror(-error));
}

int error_plain(const struct invocation *inv, const char *subject, int error)
{
	switch (-error) {
	case ENOTCONN:
		if (is_answering(inv))
			return error_line(STATUS_ERROR,
				"%s: tallyd at %s has ended this session, as 'tallyctl evict' "
				"does, or "
				"was started again; try again",
				subject, inv->address);
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
			"%s: %s may not do that: only root and members of admin_group may; ask one "
			"of them",
			subject, owner_name_own((char[OWNER_TEXT_MAX]){0}));
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

static int error_unknown_pool(const char *path)
{
	return error_line(
		STATUS_ERROR, "%s: no such pool; 'tallyctl tree' shows those that are there", path);
}

static int error_bad_path(const char *path, int error)
{
	if (error == -ENAMETOOLONG || error == -E2BIG)
		return error_line(STATUS_ERROR,
			"%s: the path is too long; use at most 255 bytes a part and 4095 in all",
			ERROR_CUT(path));
	return error_line(STATUS_ERROR,
		"'%s' is no path of a pool; use '/' or '/part/part', without control characters, "
		"empty parts, '.' and '..'",
		ERROR_CUT(path));
}

static int error_no_file(const char *path, const char *file)
{
	return error_line(STATUS_ERROR, "%s: no file '%s' in this pool; tallyctl(1) lists them",
		path, ERROR_CUT(file));
}

/* What of the two names is wrong. */
static int error_name(const struct invocation *inv, const char *path, const char *file, int error)
{
	int r = file ? probe_pool(inv, path) : error;

	switch (-r) {
	case 0:
		return error_no_file(path, file);
	case ENOENT:
		return error_no_pool(path);
	case EINVAL:
	case ENAMETOOLONG:
	case E2BIG:
		return error_bad_path(path, r);
	default:
		return error_plain(inv, path, r);
	}
}

int error_get(const struct invocation *inv, const char *path, const char *file, int error)
{
	_cleanup_(freep) char *subject = NULL;

	switch (-error) {
	case ENOENT:
	case EINVAL:
	case ENAMETOOLONG:
	case E2BIG:
		return error_name(inv, path, file, error);
	case EACCES:
		if (file && denied_is_only_written(file))
			return error_line(STATUS_ERROR,
				"%s: '%s' cannot be read; it can only be written", path, file);
		return denied_by_mode(inv, path, "read it", path);
	case ENOSPC:
		return error_line(STATUS_ERROR,
			"%s: the file system of tallyd's runtime directory is full; make room "
			"there",
			path);
	default:
		if (file && asprintf(&subject, "%s: %s", path, ERROR_CUT(file)) < 0)
			subject = NULL;
		return error_plain(inv, subject ? subject : path, error);
	}
}

static bool has_suffix(const char *text, const char *suffix)
{
	size_t n = strlen(text), m = strlen(suffix);

	return n >= m && !strcmp(text + n - m, suffix);
}

static bool is_limit(const char *file)
{
	return has_suffix(file, ".max") || !strcmp(file, "memory.high") ||
		!strcmp(file, "memory.low") || !strcmp(file, "memory.min");
}

/* The form that the values of a file have, to be said after "give". */
static const char *accepted_form(const char *file)
{
	if (!strncmp(file, "cgroup.max.", strlen("cgroup.max.")))
		return "a whole number, or 'max'";
	if (!strcmp(file, "pool.owner"))
		return "USER:GROUP, each a name or a number";
	if (!strcmp(file, "pool.mode"))
		return "octal permission bits up to 0777, such as 0750";
	if (!strcmp(file, "pool.evict"))
		return "pid=N or session=N";
	if (!strcmp(file, "memory.reclaim"))
		return "bytes with an optional K, M, G, T, P or E, such as 512M";
	if (is_limit(file))
		return "bytes with an optional K, M, G, T, P or E, such as 512M, or 'max'";
	return "what tallyctl(1) says of this file";
}

/* The pool in `reset POOL` for tallyd.reload, to be freed; NULL for other files and values. */
static char *pool_of_reset(const char *path, const char *file, const char *value)
{
	static const char reset[] = "reset ", blanks[] = " \t\n";
	size_t n;

	value += strspn(value, blanks);
	if (strcmp(path, "/") || strcmp(file, "tallyd.reload") ||
		strncmp(value, reset, strlen(reset)))
		return NULL;
	value += strlen(reset);
	value += strspn(value, blanks);
	n = strlen(value);
	while (n && strchr(blanks, value[n - 1]))
		n--;
	return strndup(value, n);
}

/* Of writing to a file that does something. */
static int error_of_act(const struct invocation *inv, const char *path, const char *file,
	const char *value, int error)
{
	bool evicts = !strcmp(file, "pool.evict");

	if (error == -EAGAIN && !strcmp(file, "memory.reclaim"))
		return error_line(STATUS_ERROR,
			"%s: fewer than %s bytes came back; what clients hold may be protected by "
			"memory.min, or they give nothing back, see 'tallyctl clients %s'",
			path, ERROR_CUT(value), path);
	if (error == -ESRCH && evicts)
		return error_line(STATUS_ERROR,
			"%s: '%s' names no client of this pool or of one below it; 'tallyctl "
			"clients %s' shows those that there are",
			path, ERROR_CUT(value), path);
	if (error == -ENOTUNIQ && evicts)
		return error_line(STATUS_ERROR,
			"%s: '%s' is the number of a process and of a session; write pid=%s or "
			"session=%s",
			path, ERROR_CUT(value), ERROR_CUT(value), ERROR_CUT(value));
	return error_get(inv, path, file, error);
}

int error_set(const struct invocation *inv, const char *path, const char *file, const char *value,
	int error)
{
	_cleanup_(freep) char *pool = pool_of_reset(path, file, value);
	int r = pool ? probe_pool(inv, pool) : 0;

	if (r == -ENOENT || r == -EINVAL || r == -ENAMETOOLONG)
		return error_reset(inv, pool, r);
	switch (-error) {
	case EACCES:
	case EPERM:
		return denied_to_set(inv, path, file, error);
	case EINVAL:
		if (probe_pool(inv, path) == -EINVAL)
			return error_bad_path(path, error);
		return error_line(STATUS_ERROR, "%s: '%s' is no value of %s; give %s", path,
			ERROR_CUT(value), file, accepted_form(file));
	case E2BIG:
		if (strlen(file) > strlen(value) || probe_pool(inv, path) < 0)
			return error_get(inv, path, file, error);
		return error_line(STATUS_ERROR, "%s: the value '%s' of %s is too long; give %s",
			path, ERROR_CUT(value), file, accepted_form(file));
	case ERANGE:
		if (!is_limit(file))
			return error_line(STATUS_ERROR, "%s: '%s' is too large for %s; give %s",
				path, ERROR_CUT(value), file, accepted_form(file));
		return error_line(STATUS_ERROR,
			"%s: '%s' is too large for %s; give less than 16E, or "
			"'max' for no limit",
			path, ERROR_CUT(value), file);
	default:
		return error_of_act(inv, path, file, value, error);
	}
}

int error_attach(const struct invocation *inv, const char *path, int error)
{
	switch (-error) {
	case EACCES:
		return denied_by_mode(inv, path, "attach to it", path);
	case EDQUOT:
		return error_line(STATUS_ERROR,
			"%s: %s has as many attachments as one user may have; end some, or ask "
			"root "
			"to raise max_attachments_per_uid in tallyd.conf",
			path, owner_name_own((char[OWNER_TEXT_MAX]){0}));
	default:
		return error_get(inv, path, NULL, error);
	}
}

int error_watch(const struct invocation *inv, const char *path, int error)
{
	if (error == -EDQUOT)
		return error_line(STATUS_ERROR,
			"%s: %s has as many watches and waiting requests as one user may have; end "
			"some, or ask root to raise max_queued_per_uid in tallyd.conf",
			path, owner_name_own((char[OWNER_TEXT_MAX]){0}));
	return error_get(inv, path, NULL, error);
}

int error_charge(const struct invocation *inv, const char *path, int error)
{
	if (error == -ENODEV)
		return error_line(STATUS_ERROR,
			"%s: the pool was removed meanwhile; create it with 'tallyctl create %s' "
			"and try again",
			path, path);
	return error == -EDQUOT ? error_watch(inv, path, error) : error_plain(inv, path, error);
}

int error_create(const struct invocation *inv, const char *path, int error)
{
	_cleanup_(freep) char *parent = NULL;

	switch (-error) {
	case EACCES:
		return denied_from_above(inv, path, "make it", error);
	case EDQUOT:
		return error_line(STATUS_ERROR,
			"%s: %s has made as many pools as one user may; remove some, or ask root "
			"to "
			"raise max_pools_per_uid in tallyd.conf",
			path, owner_name_own((char[OWNER_TEXT_MAX]){0}));
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
		return full_tree(inv, path);
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

/* Nobody can take over what is charged there: --force does not help. */
static bool is_standalone(const struct invocation *inv, const char *path)
{
	_cleanup_(freep) char *text = NULL;

	return tally_get(inv->tally, path, "pool.standalone", TALLY_CACHED, &text) == 0 &&
		*text == '1';
}

static int error_busy(const struct invocation *inv, const char *path)
{
	size_t children = count_entries(inv, path, "pool.children");
	size_t processes = count_entries(inv, path, "cgroup.procs");
	bool standalone = is_standalone(inv, path);
	const char *mend;

	if (!children && standalone)
		return error_line(STATUS_ERROR,
			"%s: the standalone pool is in use by %zu attached %s, and what is charged "
			"to it cannot go to a parent; end its clients, see 'tallyctl clients %s', "
			"and try again",
			path, processes, processes == 1 ? "process" : "processes", path);
	if (!children && !processes)
		return error_line(STATUS_ERROR,
			"%s: the pool is in use: bytes are still charged to it; try again when "
			"'tallyctl get %s memory.current' shows 0, or use --force",
			path, path);
	if (children && inv->force)
		mend = "remove the children too with --recursive";
	else if (children && processes && standalone)
		mend = "end the processes, and remove the children too with --recursive";
	else if (children && processes)
		mend = "end the processes, or use --force, and remove the children too with "
		       "--recursive";
	else
		mend = children ? "remove them too with --recursive"
				: "end them first, or use --force";
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
		return error_unknown_pool(path);
	case EACCES:
	case EPERM:
		return denied_from_above(inv, path, "remove it", error);
	default:
		return error_get(inv, path, NULL, error);
	}
}

int error_reset(const struct invocation *inv, const char *path, int error)
{
	return error == -ENOENT ? error_unknown_pool(path) : error_get(inv, path, NULL, error);
}
