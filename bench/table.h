/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The results of a benchmark: a row a variant, a column a quantity, in each cell the samples of all
 * rounds. Printed once for people, as medians and spread, and once for programs, a line a figure:
 *
 *	figure NAME MEDIAN UNIT min MIN max MAX rounds N
 *	skipped NAME REASON
 */

#include <sys/queue.h>

struct table_column {
	const char *figure; /* the last part of the name; NULL: the column has no name of its own */
	const char *title;
	const char *unit;
};

struct table_cell {
	double *samples;
	unsigned n;
};

struct table_row {
	STAILQ_ENTRY(table_row) entry;
	char *figure, *label;
	char *skipped; /* why nothing was measured; NULL: it was */
	struct table_cell cells[];
};

struct table {
	const char *figure, *title;
	const struct table_column *columns;
	unsigned n_columns;
	STAILQ_HEAD(, table_row) rows;
};

/* All text of the columns stays the caller's. */
void table_init(struct table *t, const char *figure, const char *title,
	const struct table_column *columns, unsigned n_columns);

/* A new row, named `figure` and labelled as formatted. */
struct table_row *table_add_row(struct table *t, const char *figure, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

void table_skip(struct table_row *r, const char *reason);

void table_add(struct table_row *r, unsigned column, double sample);

void table_print(const struct table *t);

void table_free(struct table *t);

/*
 * Prints the ratio of two medians, as a line and as the figure `figure`; `asked` says what was hoped
 * for. Skipped if one of them was.
 */
void table_print_ratio(const char *figure, const char *asked, const struct table_row *a,
	const struct table_row *b, unsigned column);
