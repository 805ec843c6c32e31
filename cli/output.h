/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What tallyctl shows: texts of files as JSON, figures for people, tables and bars. Human output is
 * made from the same values as JSON, so that both always say the same.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- JSON; all of them NULL when memory is short */

/* A string; bytes that are not valid UTF-8 become U+FFFD, so that the output is always JSON. */
json_t *output_json_string(const char *text);

/* Above 2^63 - 1, the most that JSON libraries read exactly, a real number. */
json_t *output_json_number(uint64_t value);

/* The string "max" for UINT64_MAX. */
json_t *output_json_limit(uint64_t value);

/* The content of a pool's file in the shape that the file has: a number or string, an array of
 * lines, an object for `key value` lines, an array of objects for `key=value` lines. */
json_t *output_json_file(const char *file, const char *text);

/* Writes out what was printed; an errno if any of it was lost. */
int output_flush(void);

/* Prints one JSON text and a newline to stdout. 0, or -ENOMEM; failed writes are seen in main(). */
int output_json_print(const json_t *json);

/* ---- figures for people */

#define OUTPUT_TEXT_MAX 48 /* bytes that a formatted figure needs at most, with NUL */

/* "12.5M", "64K", "0"; cut, not rounded, after one decimal. Returns buf. */
const char *output_bytes(uint64_t bytes, char buf[static OUTPUT_TEXT_MAX]);

/* The same; "max" for UINT64_MAX. Returns buf. */
const char *output_limit(uint64_t bytes, char buf[static OUTPUT_TEXT_MAX]);

/* "250ms", "12.3s", "5min 12s", "3h 12min", "4d 3h". Returns buf. */
const char *output_duration(uint64_t usec, char buf[static OUTPUT_TEXT_MAX]);

#define OUTPUT_BAR_CELLS 20

/* "[####==..............]": held, idle, free of the limit; every part that is not 0 shows, and a
 * pool above its limit is full. Returns buf. */
const char *output_bar(
	uint64_t held, uint64_t idle, uint64_t limit, char buf[static OUTPUT_BAR_CELLS + 3]);

/* ---- tables */

struct output_table; /* rows of cells; the width of a column is that of its widest cell */

#define OUTPUT_COLUMNS_MAX 64

/* 1 to OUTPUT_COLUMNS_MAX columns; those whose bit is set in `right` are aligned to the right. NULL
 * when memory is short. */
struct output_table *output_table_new(size_t columns, uint64_t right);
/* NULL is fine; returns NULL. */
struct output_table *output_table_free(struct output_table *t);

/* Adds the next cell, row by row; control characters in it become '?'. -ENOMEM. */
int output_table_add(struct output_table *t, const char *cell);

/* Prints to stdout; no blanks at the ends of lines. */
void output_table_print(const struct output_table *t);

static inline void output_table_freep(struct output_table **t)
{
	output_table_free(*t);
}
