/* SPDX-License-Identifier: MIT */

/*
 * Showing things: nothing here talks to a daemon. A terminal and a pipe get the same text, without
 * colours, so that what a person sees can be piped and compared.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "output.h"
#include "text.h"

/* ------------------------------------------------------------------ JSON */

json_t *output_json_string(const char *text)
{
	static const char replacement[] = "\xef\xbf\xbd";
	_cleanup_(freep) char *valid = NULL;
	char *to;

	valid = malloc(strlen(text) * (sizeof(replacement) - 1) + 1);
	if (!valid)
		return NULL;
	to = valid;
	while (*text) {
		size_t n = text_utf8_length(text);

		to = n ? mempcpy(to, text, n) : stpcpy(to, replacement);
		text += n ? n : 1;
	}
	*to = 0;
	return json_string(valid);
}

json_t *output_json_number(uint64_t value)
{
	return value <= INT64_MAX ? json_integer((json_int_t)value) : json_real((double)value);
}

json_t *output_json_limit(uint64_t value)
{
	return value == UINT64_MAX ? json_string("max") : output_json_number(value);
}

static json_t *json_of_word(const char *word)
{
	uint64_t v;

	return text_parse_number(word, &v) < 0 ? output_json_string(word) : output_json_number(v);
}

static json_t *json_of_pair(const char *key, const char *value)
{
	/* A name is a string even when it is all digits. */
	bool name = !strcmp(key, "name") || !strcmp(key, "version");

	return name ? output_json_string(value) : json_of_word(value);
}

static json_t *json_of_line(char *line)
{
	return output_json_string(line);
}

static json_t *json_of_number(char *line)
{
	return json_of_word(line);
}

/* "BYTES:WHO,…", still encoded: a name may hold what separates them. */
static json_t *json_of_holders(char *text)
{
	json_t *array = json_array();
	char *one;

	while (array && *text && (one = strsep(&text, ","))) {
		char *who = strchrnul(one, ':');
		json_t *holder;

		if (*who)
			*who++ = 0;
		text_decode(who);
		holder = json_pack(
			"{s:o, s:o}", "bytes", json_of_word(one), "who", output_json_string(who));
		if (json_array_append_new(array, holder) < 0) {
			json_decref(array);
			return NULL;
		}
		if (!text)
			break;
	}
	return array;
}

static json_t *json_of_record(char *line)
{
	json_t *object = json_object();
	char *key;

	while (object && (key = text_next_word(&line))) {
		char *value = strchrnul(key, '=');

		if (*value)
			*value++ = 0;
		if (strcmp(key, "holders") != 0)
			text_decode(value);
		if (json_object_set_new(object, key,
			    strcmp(key, "holders") != 0 ? json_of_pair(key, value)
							: json_of_holders(value)) < 0) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

static json_t *json_of_lines(char *text, json_t *(*convert)(char *line))
{
	json_t *array = json_array();
	char *line;

	while (array && (line = text_next_line(&text)))
		if (json_array_append_new(array, convert(line)) < 0) {
			json_decref(array);
			return NULL;
		}
	return array;
}

static json_t *json_of_keyed(char *text, bool records)
{
	json_t *object = json_object();
	char *line;

	while (object && (line = text_next_line(&text))) {
		char *value = text_split_key(line);

		if (json_object_set_new(object, line,
			    records ? json_of_record(value) : json_of_pair(line, value)) < 0) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

static json_t *json_of_value(char *text)
{
	size_t n = strlen(text);

	if (n && text[n - 1] == '\n')
		text[n - 1] = 0;
	return json_of_word(text);
}

static bool is_one_of(const char *file, const char *const *files)
{
	while (*files && strcmp(file, *files))
		files++;
	return *files;
}

json_t *output_json_file(const char *file, const char *text)
{
	/* By name, not by look: a child may be called "held 1". */
	static const char *const keyed[] = {"memory.stat", "memory.events", "memory.events.local",
		"cgroup.events", "cgroup.stat", "tallyd.status", NULL};
	static const char *const lines[] = {"pool.children", "tallyd.reload", NULL};
	_cleanup_(freep) char *copy = strdup(text);

	if (!copy)
		return NULL;
	if (is_one_of(file, keyed))
		return json_of_keyed(copy, false);
	if (!strcmp(file, "memory.numa_stat") || !strcmp(file, "memory.pressure"))
		return json_of_keyed(copy, true);
	if (is_one_of(file, lines))
		return json_of_lines(copy, json_of_line);
	if (!strcmp(file, "cgroup.procs"))
		return json_of_lines(copy, json_of_number);
	if (!strcmp(file, "pool.clients") || !strcmp(file, "pool.refusals"))
		return json_of_lines(copy, json_of_record);
	return json_of_value(copy);
}

int output_flush(void)
{
	if (fflush(stdout) != 0)
		return -errno;
	return ferror(stdout) ? -EIO : 0;
}

int output_json_print(const json_t *json)
{
	_cleanup_(freep) char *text = json_dumps(json, JSON_INDENT(2));

	if (!text)
		return -ENOMEM;
	puts(text);
	return 0;
}

/* ------------------------------------------------------------------ figures */

const char *output_bytes(uint64_t bytes, char buf[static OUTPUT_TEXT_MAX])
{
	static const char *const units[] = {"", "K", "M", "G", "T", "P", "E"};
	unsigned shift = 0;
	uint64_t whole, tenths;

	while (shift < 60 && bytes >> shift >= 1024)
		shift += 10;
	whole = bytes >> shift;
	tenths = ((bytes - (whole << shift)) * 10) >> shift;
	if (tenths)
		snprintf(buf, OUTPUT_TEXT_MAX, "%" PRIu64 ".%" PRIu64 "%s", whole, tenths,
			units[shift / 10]);
	else
		snprintf(buf, OUTPUT_TEXT_MAX, "%" PRIu64 "%s", whole, units[shift / 10]);
	return buf;
}

const char *output_limit(uint64_t bytes, char buf[static OUTPUT_TEXT_MAX])
{
	return bytes == UINT64_MAX ? strcpy(buf, "max") : output_bytes(bytes, buf);
}

const char *output_duration(uint64_t usec, char buf[static OUTPUT_TEXT_MAX])
{
	uint64_t s = usec / 1000000, min = s / 60, h = min / 60, d = h / 24;

	if (d)
		snprintf(buf, OUTPUT_TEXT_MAX, "%" PRIu64 "d %" PRIu64 "h", d, h % 24);
	else if (h)
		snprintf(buf, OUTPUT_TEXT_MAX, "%" PRIu64 "h %" PRIu64 "min", h, min % 60);
	else if (min)
		snprintf(buf, OUTPUT_TEXT_MAX, "%" PRIu64 "min %" PRIu64 "s", min, s % 60);
	else if (s && usec % 1000000 / 100000)
		snprintf(buf, OUTPUT_TEXT_MAX, "%" PRIu64 ".%" PRIu64 "s", s,
			usec % 1000000 / 100000);
	else if (s)
		snprintf(buf, OUTPUT_TEXT_MAX, "%" PRIu64 "s", s);
	else
		snprintf(buf, OUTPUT_TEXT_MAX, "%" PRIu64 "ms", usec / 1000);
	return buf;
}

static size_t bar_cells(uint64_t bytes, uint64_t limit, size_t most)
{
	double cells;

	if (!bytes || !most)
		return 0;
	if (!limit)
		return most;
	cells = (double)bytes / (double)limit * OUTPUT_BAR_CELLS;
	return cells < 1 ? 1 : cells > (double)most ? most : (size_t)cells;
}

const char *output_bar(
	uint64_t held, uint64_t idle, uint64_t limit, char buf[static OUTPUT_BAR_CELLS + 3])
{
	size_t n = bar_cells(held, limit, OUTPUT_BAR_CELLS);
	size_t m = bar_cells(idle, limit, OUTPUT_BAR_CELLS - n);

	buf[0] = '[';
	memset(buf + 1, '#', n);
	memset(buf + 1 + n, '=', m);
	memset(buf + 1 + n + m, '.', OUTPUT_BAR_CELLS - n - m);
	strcpy(buf + 1 + OUTPUT_BAR_CELLS, "]");
	return buf;
}

/* ------------------------------------------------------------------ tables */

struct output_table {
	size_t columns, n_cells, allocated;
	uint64_t right;
	char **cells;
};

struct output_table *output_table_new(size_t columns, uint64_t right)
{
	struct output_table *t;

	if (!columns || columns > OUTPUT_COLUMNS_MAX)
		return NULL;
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->columns = columns;
	t->right = right;
	return t;
}

struct output_table *output_table_free(struct output_table *t)
{
	if (!t)
		return NULL;
	for (size_t i = 0; i < t->n_cells; i++)
		free(t->cells[i]);
	free(t->cells);
	free(t);
	return NULL;
}

int output_table_add(struct output_table *t, const char *cell)
{
	char *copy;

	if (t->n_cells == t->allocated) {
		size_t n = t->allocated ? t->allocated * 2 : 64;
		char **cells = reallocarray(t->cells, n, sizeof(*cells));

		if (!cells)
			return -ENOMEM;
		t->cells = cells;
		t->allocated = n;
	}
	copy = strdup(cell);
	if (!copy)
		return -ENOMEM;
	text_make_safe(copy);
	t->cells[t->n_cells++] = copy;
	return 0;
}

/* Columns on the terminal. A byte that is no character of the locale counts as one column. */
static size_t display_width(const char *text)
{
	size_t width = 0, left = strlen(text);
	mbstate_t state = {0};
	wchar_t c;

	while (left) {
		size_t n = mbrtowc(&c, text, left, &state);
		int columns = 1;

		if (n == (size_t)-1 || n == (size_t)-2) {
			state = (mbstate_t){0};
			n = 1;
		} else {
			columns = wcwidth(c);
		}
		width += columns > 0 ? (size_t)columns : 0;
		text += n;
		left -= n;
	}
	return width;
}

static void pad(size_t n)
{
	printf("%*s", (int)n, "");
}

static void print_row(const struct output_table *t, char *const *row, const size_t *widths)
{
	size_t last = t->columns;

	while (last && !*row[last - 1])
		last--;
	for (size_t c = 0; c < last; c++) {
		size_t blanks = widths[c] - display_width(row[c]);
		bool right = t->right >> c & 1;

		if (c)
			fputs("  ", stdout);
		if (right)
			pad(blanks);
		fputs(row[c], stdout);
		if (!right && c + 1 < last)
			pad(blanks);
	}
	putchar('\n');
}

void output_table_print(const struct output_table *t)
{
	size_t widths[OUTPUT_COLUMNS_MAX] = {0};

	for (size_t i = 0; i < t->n_cells; i++) {
		size_t width = display_width(t->cells[i]), *column = &widths[i % t->columns];

		if (width > *column)
			*column = width;
	}
	for (size_t i = 0; i + t->columns <= t->n_cells; i += t->columns)
		print_row(t, t->cells + i, widths);
}
