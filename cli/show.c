/* SPDX-License-Identifier: MIT */

/*
 * The commands that look and change nothing. A tree is read pool by pool while others change it, so
 * a pool that vanishes between two questions is left out, not an error.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "errors.h"
#include "output.h"
#include "text.h"
#include "walk.h"

static int print_json(struct invocation *inv, const json_t *json)
{
	int r = json ? output_json_print(json) : -ENOMEM;

	return r < 0 ? error_plain(inv, inv->command, r) : STATUS_DONE;
}

/* ------------------------------------------------------------------ status, get */

/* Bytes of a key that people read: a duration shows its unit itself. */
static size_t label_length(const char *key)
{
	static const char unit[] = "_usec";
	size_t n = strlen(key);

	return n > strlen(unit) && !strcmp(key + n - strlen(unit), unit) ? n - strlen(unit) : n;
}

/* A number for people, by the name of its key. */
static const char *format_number(const char *key, uint64_t v, char buf[OUTPUT_TEXT_MAX])
{
	static const char *const bytes[] = {"held", "idle", "overdraft"};

	if (label_length(key) < strlen(key))
		return output_duration(v, buf);
	for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++)
		if (!strcmp(key, bytes[i]))
			return output_bytes(v, buf);
	snprintf(buf, OUTPUT_TEXT_MAX, "%" PRIu64, v);
	return buf;
}

static const char *format_figure(const char *key, const json_t *value, char buf[OUTPUT_TEXT_MAX])
{
	if (json_is_integer(value))
		return format_number(key, (uint64_t)json_integer_value(value), buf);
	/* One that JSON's integers have no room for. */
	if (json_is_real(value)) {
		double v = json_real_value(value);

		return format_number(key, v < 0x1p64 ? (uint64_t)v : UINT64_MAX, buf);
	}
	return json_is_string(value) ? json_string_value(value) : "";
}

/* From the text: it has all digits of every number. */
static int print_status(char *text)
{
	_cleanup_(output_table_freep) struct output_table *table = output_table_new(2, 0);
	char buf[OUTPUT_TEXT_MAX], label[256];
	char *key;

	if (!table)
		return -ENOMEM;
	while ((key = text_next_line(&text))) {
		const char *value = text_split_key(key);
		uint64_t v;

		if (text_parse_number(value, &v) == 0)
			value = format_number(key, v, buf);
		snprintf(label, sizeof(label), "%.*s", (int)label_length(key), key);
		if (output_table_add(table, label) < 0 || output_table_add(table, value) < 0)
			return -ENOMEM;
	}
	output_table_print(table);
	return 0;
}

int show_status(struct invocation *inv)
{
	_cleanup_(freep) char *text = NULL;
	_cleanup_(json_decrefp) json_t *json = NULL;
	int r = command_open(inv, NULL);

	if (r)
		return r;
	r = tally_get(inv->tally, "/", "tallyd.status", 0, &text);
	if (r < 0)
		return error_get(inv, "/", "tallyd.status", r);
	if (inv->json) {
		json = output_json_file("tallyd.status", text);
		return print_json(inv, json);
	}
	r = print_status(text);
	return r < 0 ? error_plain(inv, inv->command, r) : STATUS_DONE;
}

int show_get(struct invocation *inv)
{
	const char *path = inv->args[0], *file = inv->args[1];
	_cleanup_(freep) char *text = NULL;
	_cleanup_(json_decrefp) json_t *json = NULL;
	int r = command_open(inv, NULL);

	if (r)
		return r;
	r = tally_get(inv->tally, path, file, inv->exact ? TALLY_EXACT : 0, &text);
	if (r < 0)
		return error_get(inv, path, file, r);
	if (!inv->json) {
		fputs(text, stdout);
		return STATUS_DONE;
	}
	json = json_pack("{s:o, s:o, s:o}", "pool", output_json_string(path), "file",
		output_json_string(file), "value", output_json_file(file, text));
	return print_json(inv, json);
}

/* ------------------------------------------------------------------ clients */

static int add_header(struct output_table *table, json_t *client, size_t columns)
{
	char label[64];
	const char *key;
	json_t *value;
	size_t i = 0;

	json_object_foreach(client, key, value)
	{
		if (i++ == columns)
			break;
		snprintf(label, sizeof(label), "%.*s", (int)label_length(key), key);
		for (char *s = label; *s; s++)
			*s = (char)(*s >= 'a' && *s <= 'z' ? *s - 'a' + 'A' : *s);
		if (output_table_add(table, label) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* The columns are those of the first session; what a session lacks shows as "-". */
static int add_client(
	struct output_table *table, json_t *first, const json_t *client, size_t columns)
{
	char buf[OUTPUT_TEXT_MAX];
	const char *key;
	json_t *unused;
	size_t i = 0;

	json_object_foreach(first, key, unused)
	{
		const json_t *value = json_object_get(client, key);
		const char *text = value ? format_figure(key, value, buf) : "-";

		if (i++ == columns)
			break;
		if (output_table_add(table, *text ? text : "-") < 0)
			return -ENOMEM;
	}
	return 0;
}

static int print_clients(const json_t *clients)
{
	_cleanup_(output_table_freep) struct output_table *table = NULL;
	json_t *first = json_array_get(clients, 0), *client, *value;
	size_t columns = json_object_size(first), i = 0;
	uint64_t right = 0;
	const char *key;

	if (!columns)
		return 0;
	columns = columns < OUTPUT_COLUMNS_MAX ? columns : OUTPUT_COLUMNS_MAX;
	json_object_foreach(first, key, value) if (i < columns) right |=
		(uint64_t)!json_is_string(value) << i++;
	table = output_table_new(columns, right);
	if (!table || add_header(table, first, columns) < 0)
		return -ENOMEM;
	json_array_foreach(clients, i,
		client) if (add_client(table, first, client, columns) < 0) return -ENOMEM;
	output_table_print(table);
	return 0;
}

/* Adds the sessions attached to one pool to an array, each with the path of that pool. */
static int collect_clients(
	const struct invocation *inv, const char *path, size_t level, void *userdata)
{
	_cleanup_(freep) char *text = NULL;
	_cleanup_(json_decrefp) json_t *clients = NULL;
	json_t *all = userdata, *client;
	size_t i;
	int r;

	(void)level;
	r = tally_get(inv->tally, path, "pool.clients", 0, &text);
	if (r < 0)
		return r;
	clients = output_json_file("pool.clients", text);
	json_array_foreach(clients, i,
		client) if (json_object_set_new(client, "pool", output_json_string(path)) <
		0) return -ENOMEM;
	return json_array_extend(all, clients) < 0 ? -ENOMEM : 0;
}

int show_clients(struct invocation *inv)
{
	const char *path = inv->n_args ? inv->args[0] : "/";
	_cleanup_(json_decrefp) json_t *clients = json_array();
	int r = command_open(inv, NULL);

	if (r)
		return r;
	r = walk_pools(inv, path, WALK_ALL, collect_clients, clients);
	if (r < 0)
		return error_get(inv, path, NULL, r);
	if (inv->json)
		return print_json(inv, clients);
	r = print_clients(clients);
	return r < 0 ? error_plain(inv, inv->command, r) : STATUS_DONE;
}
