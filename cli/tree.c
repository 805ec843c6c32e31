/* SPDX-License-Identifier: MIT */

/*
 * The tree of pools, drawn. It is read as a whole before the first line is printed, because widths
 * and branches depend on what comes later.
 */

#include <errno.h>
#include <langinfo.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "errors.h"
#include "output.h"
#include "text.h"
#include "walk.h"

struct row {
	char *path;
	char *branch; /* the lines drawn before the name */
	size_t level;
	uint64_t held, idle, limit;
	bool standalone;
};

struct tree {
	size_t n_rows, allocated, deepest;
	struct row *rows; /* parents first */
};

static void tree_clear(struct tree *tree)
{
	for (size_t i = 0; i < tree->n_rows; i++) {
		free(tree->rows[i].path);
		free(tree->rows[i].branch);
	}
	free(tree->rows);
}

static int append_row(struct tree *tree, const struct row *row)
{
	if (tree->n_rows == tree->allocated) {
		size_t n = tree->allocated ? tree->allocated * 2 : 64;
		struct row *rows = reallocarray(tree->rows, n, sizeof(*rows));

		if (!rows)
			return -ENOMEM;
		tree->rows = rows;
		tree->allocated = n;
	}
	tree->rows[tree->n_rows++] = *row;
	if (row->level > tree->deepest)
		tree->deepest = row->level;
	return 0;
}

/* The flush for the first pool serves those below it: all figures come from one look. */
static int read_pool(const struct invocation *inv, const char *path, size_t level, void *userdata)
{
	_cleanup_(freep) char *stat = NULL, *max = NULL, *standalone = NULL;
	struct row row = {.level = level};
	int r;

	r = tally_get(inv->tally, path, "memory.stat", level ? TALLY_CACHED : 0, &stat);
	if (r < 0)
		return r;
	r = tally_get(inv->tally, path, "memory.max", TALLY_CACHED, &max);
	if (r < 0)
		return r;
	r = tally_get(inv->tally, path, "pool.standalone", TALLY_CACHED, &standalone);
	if (r < 0)
		return r;
	row.standalone = strcmp(standalone, "1\n") == 0;
	if (text_find_number(stat, "held", &row.held) < 0 ||
		text_find_number(stat, "stock", &row.idle) < 0 ||
		text_parse_limit(max, &row.limit) < 0)
		return -EPROTO;
	row.path = strdup(path);
	r = row.path ? append_row(userdata, &row) : -ENOMEM;
	if (r < 0)
		free(row.path);
	return r;
}

/* Draws the branches from the last row to the first: only then is it known whether a pool has later
 * siblings, because each of them may have vanished. */
static int draw_branches(struct tree *tree)
{
	static const char *const drawn[] = {"   ", "│  ", "└─ ", "├─ "};
	static const char *const ascii[] = {"   ", "|  ", "`- ", "|- "};
	const char *const *parts = strcmp(nl_langinfo(CODESET), "UTF-8") ? ascii : drawn;
	_cleanup_(freep) bool *more = calloc(tree->deepest + 1, sizeof(*more));

	if (!more)
		return -ENOMEM;
	for (size_t i = tree->n_rows; i-- > 0;) {
		struct row *row = &tree->rows[i];
		char *to = row->branch = malloc(row->level * strlen(drawn[3]) + 1);

		if (!to)
			return -ENOMEM;
		*to = 0;
		for (size_t level = 1; level <= row->level; level++)
			to = stpcpy(to, parts[(level == row->level) * 2 + more[level]]);
		more[row->level] = true;
		memset(more + row->level + 1, 0, (tree->deepest - row->level) * sizeof(*more));
	}
	return 0;
}

static int add_row(struct output_table *table, const struct row *row)
{
	char held[OUTPUT_TEXT_MAX], idle[OUTPUT_TEXT_MAX], limit[OUTPUT_TEXT_MAX];
	char bar[OUTPUT_BAR_CELLS + 3] = "";
	_cleanup_(freep) char *name = NULL;
	const char *last = row->level ? strrchr(row->path, '/') + 1 : row->path;

	if (asprintf(&name, "%s%s%s", row->branch, last, row->standalone ? " (standalone)" : "") <
		0) {
		name = NULL;
		return -ENOMEM;
	}
	if (row->limit != UINT64_MAX)
		output_bar(row->held, row->idle, row->limit, bar);
	const char *cells[] = {name, "held", output_bytes(row->held, held), "idle",
		output_bytes(row->idle, idle), "limit", output_limit(row->limit, limit), bar};

	for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++)
		if (output_table_add(table, cells[i]) < 0)
			return -ENOMEM;
	return 0;
}

static int print_tree(struct tree *tree)
{
	_cleanup_(output_table_freep) struct output_table *table =
		output_table_new(8, 1 << 2 | 1 << 4 | 1 << 6);

	if (!table || draw_branches(tree) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < tree->n_rows; i++)
		if (add_row(table, &tree->rows[i]) < 0)
			return -ENOMEM;
	output_table_print(table);
	return 0;
}

/* A flat array, parents first: a tree may be deeper than JSON readers allow. */
static json_t *json_of_tree(const struct tree *tree)
{
	_cleanup_(json_decrefp) json_t *array = json_array();

	if (!array)
		return NULL;
	for (size_t i = 0; i < tree->n_rows; i++) {
		const struct row *row = &tree->rows[i];
		json_t *pool = json_pack("{s:o, s:o, s:o, s:o, s:b}", "path",
			output_json_string(row->path), "held", output_json_number(row->held),
			"idle", output_json_number(row->idle), "limit",
			output_json_limit(row->limit), "standalone", row->standalone);

		if (json_array_append_new(array, pool) < 0)
			return NULL;
	}
	return json_incref(array);
}

int show_tree(struct invocation *inv)
{
	_cleanup_(tree_clear) struct tree tree = {0};
	uint64_t depth = WALK_ALL;
	const char *path = inv->n_args ? inv->args[0] : "/";
	_cleanup_(json_decrefp) json_t *json = NULL;
	int r;

	if (inv->depth && text_parse_number(inv->depth, &depth) < 0)
		return command_usage(
			inv, "--depth wants a whole number, not '%s'", ERROR_CUT(inv->depth));
	r = command_open(inv, NULL);
	if (r)
		return r;
	r = walk_pools(inv, path, depth, read_pool, &tree);
	if (r < 0)
		return error_get(inv, path, NULL, r);
	if (inv->json) {
		json = json_of_tree(&tree);
		r = json ? output_json_print(json) : -ENOMEM;
	} else {
		r = print_tree(&tree);
	}
	return r < 0 ? error_plain(inv, inv->command, r) : STATUS_DONE;
}
