/* SPDX-License-Identifier: MIT */

/*
 * The commands that change pools or the daemon. Arguments are checked as a whole before the first
 * change, and what a failed command made it removes again, as far as it can.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "denied.h"
#include "errors.h"
#include "owner.h"
#include "text.h"

/* Writes to a file that acts on any write; the value means nothing. */
#define ANY_VALUE "1"

/* ------------------------------------------------------------------ set, create */

/* Checks the FILE=VALUE arguments from args[1] on. */
static int check_settings(const struct invocation *inv)
{
	for (int i = 1; i < inv->n_args; i++) {
		const char *equals = strchr(inv->args[i], '=');

		if (!equals || equals == inv->args[i])
			return command_usage(
				inv, "'%s' is not FILE=VALUE", ERROR_CUT(inv->args[i]));
	}
	return STATUS_DONE;
}

/* To be freed; NULL: it has been told why there is none. */
static char *value_for(const char *path, const char *file, const char *typed)
{
	return strcmp(file, "pool.owner") ? strdup(typed) : owner_numbers(path, typed);
}

static int apply_settings(const struct invocation *inv)
{
	for (int i = 1; i < inv->n_args; i++) {
		const char *equals = strchr(inv->args[i], '=');
		_cleanup_(freep) char *file =
			strndup(inv->args[i], (size_t)(equals - inv->args[i]));
		_cleanup_(freep) char *value = NULL;
		int r;

		if (!file)
			return error_plain(inv, inv->args[0], -ENOMEM);
		value = value_for(inv->args[0], file, equals + 1);
		if (!value)
			return STATUS_ERROR;
		r = tally_set(inv->tally, inv->args[0], file, value);
		if (r < 0)
			return error_set(inv, inv->args[0], file, equals + 1, r);
	}
	return STATUS_DONE;
}

int change_set(struct invocation *inv)
{
	int r = check_settings(inv);

	if (!r)
		r = command_open(inv, NULL);
	return r ? r : apply_settings(inv);
}

int change_create(struct invocation *inv)
{
	int r = check_settings(inv);

	if (!r)
		r = command_open(inv, NULL);
	if (r)
		return r;
	r = tally_create(inv->tally, inv->args[0]);
	if (r < 0)
		return error_create(inv, inv->args[0], r);
	r = apply_settings(inv);
	if (r)
		tally_remove(inv->tally, inv->args[0], 0);
	return r;
}

/* ------------------------------------------------------------------ remove */

static int remove_one(const struct invocation *inv, const char *path)
{
	return tally_remove(inv->tally, path, inv->force ? TALLY_FORCE : 0);
}

/* Removes what is below the pool; what others remove meanwhile is fine. Tells errors. */
static int remove_children(const struct invocation *inv, const char *path)
{
	_cleanup_(freep) char *children = NULL;
	char *cursor, *name;
	int r = tally_get(inv->tally, path, "pool.children", TALLY_CACHED, &children);

	if (r == -ENOENT)
		return STATUS_DONE;
	if (r < 0)
		return error_get(inv, path, "pool.children", r);
	cursor = children;
	while ((name = text_next_line(&cursor))) {
		_cleanup_(freep) char *child = text_join_path(path, name);

		if (!child)
			return error_plain(inv, path, -ENOMEM);
		r = remove_children(inv, child);
		if (r)
			return r;
		r = remove_one(inv, child);
		if (r < 0 && r != -ENOENT)
			return error_remove(inv, child, r);
	}
	return STATUS_DONE;
}

int change_remove(struct invocation *inv)
{
	const char *path = inv->args[0];
	int r = command_open(inv, NULL);

	if (r)
		return r;
	if (!strcmp(path, "/"))
		return error_line(STATUS_ERROR,
			"/: the root pool cannot be removed; remove the pools below it by name");
	if (inv->recursive) {
		r = remove_children(inv, path);
		if (r)
			return r;
	}
	r = remove_one(inv, path);
	return r < 0 ? error_remove(inv, path, r) : STATUS_DONE;
}

/* ------------------------------------------------------------------ drain, flush, reload */

static int write_any(struct invocation *inv, const char *file)
{
	const char *path = inv->args[0];
	int r = command_open(inv, NULL);

	if (r)
		return r;
	r = tally_set(inv->tally, path, file, ANY_VALUE);
	return r < 0 ? error_set(inv, path, file, ANY_VALUE, r) : STATUS_DONE;
}

int change_reclaim(struct invocation *inv)
{
	const char *path = inv->args[0], *bytes = inv->args[1];
	uint64_t n;
	int r;

	if (text_parse_bytes(bytes, &n) < 0)
		return command_usage(inv,
			"'%s' is no number of bytes; give digits with an optional K, M, G, T, P or "
			"E",
			ERROR_CUT(bytes));
	r = command_open(inv, NULL);
	if (r)
		return r;
	r = tally_set(inv->tally, path, "memory.reclaim", bytes);
	return r < 0 ? error_set(inv, path, "memory.reclaim", bytes, r) : STATUS_DONE;
}

int change_drain(struct invocation *inv)
{
	return write_any(inv, "pool.drain");
}

int change_flush(struct invocation *inv)
{
	return write_any(inv, "pool.flush");
}

int change_evict(struct invocation *inv)
{
	_cleanup_(freep) char *value = NULL;
	uint64_t pid;
	int r;

	if (text_parse_number(inv->args[0], &pid) < 0 || pid == 0)
		return command_usage(inv, "PID wants the number of a process, not '%s'",
			ERROR_CUT(inv->args[0]));
	r = command_open(inv, NULL);
	if (r)
		return r;
	if (asprintf(&value, "pid=%llu", (unsigned long long)pid) < 0)
		return error_plain(inv, inv->command, -ENOMEM);
	r = tally_set(inv->tally, "/", "pool.evict", value);
	return r < 0 ? denied_to_evict(inv, inv->args[0], r) : STATUS_DONE;
}

/* The daemon keeps the text of what it found in the configuration for the next reader. */
static int tell_bad_configuration(const struct invocation *inv)
{
	_cleanup_(freep) char *text = NULL;
	char *cursor, *line = NULL;

	if (tally_get(inv->tally, "/", "tallyd.reload", 0, &text) >= 0) {
		cursor = text;
		line = text_next_line(&cursor);
	}
	if (!line || !*line)
		line = (char *)"the configuration is wrong, 'tallyd --check-config' shows where";
	return error_line(STATUS_ERROR, "%s; the old configuration stays", line);
}

/* Whether the daemon could not be asked, or would not listen; else it was its configuration. */
static bool is_of_the_asking(int error)
{
	return error == -ENOTCONN || error == -ETIMEDOUT || error == -EPERM || error == -EPROTO;
}

static int reload(const struct invocation *inv)
{
	int r = tally_set(inv->tally, "/", "tallyd.reload", ANY_VALUE);

	if (r == 0)
		return STATUS_DONE;
	return is_of_the_asking(r) ? error_plain(inv, inv->command, r)
				   : tell_bad_configuration(inv);
}

static int reset(const struct invocation *inv, const char *path)
{
	_cleanup_(freep) char *value = NULL, *present = NULL;
	int r;

	/* The pool first, to tell an error of its path from one of the value. */
	r = tally_get(inv->tally, path, "memory.max", TALLY_CACHED, &present);
	if (r < 0)
		return error_reset(inv, path, r);
	if (asprintf(&value, "reset %s", path) < 0) {
		value = NULL;
		return error_plain(inv, path, -ENOMEM);
	}
	r = tally_set(inv->tally, "/", "tallyd.reload", value);
	return r < 0 ? error_set(inv, "/", "tallyd.reload", value, r) : STATUS_DONE;
}

int change_reload(struct invocation *inv)
{
	_cleanup_(freep) char *changes = NULL;
	int r = command_open(inv, NULL);

	if (!r)
		r = inv->reset ? reset(inv, inv->reset) : reload(inv);
	if (r)
		return r;
	r = tally_get(inv->tally, "/", "tallyd.reload", 0, &changes);
	if (r < 0)
		return error_get(inv, "/", "tallyd.reload", r);
	fputs(*changes ? changes : "nothing changed\n", stdout);
	return STATUS_DONE;
}
