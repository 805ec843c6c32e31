/* SPDX-License-Identifier: MIT */

#include "table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "core/util.h"

#define LABEL_WIDTH 54
#define CELL_WIDTH 24
#define NUMBER_TEXT 32
#define CELL_TEXT (4 * NUMBER_TEXT)

static void *or_die(void *p)
{
	if (!p)
		bench_die("out of memory");
	return p;
}

/* ------------------------------------------------------------------ filling */

void table_init(struct table *t, const char *figure, const char *title,
	const struct table_column *columns, unsigned n_columns)
{
	*t = (struct table){
		.figure = figure, .title = title, .columns = columns, .n_columns = n_columns};
	STAILQ_INIT(&t->rows);
}

struct table_row *table_add_row(struct table *t, const char *figure, const char *format, ...)
{
	struct table_row *r = or_die(calloc(1, sizeof(*r) + t->n_columns * sizeof(r->cells[0])));
	va_list args;

	va_start(args, format);
	if (vasprintf(&r->label, format, args) < 0)
		bench_die("out of memory");
	va_end(args);
	r->figure = or_die(strdup(figure));
	STAILQ_INSERT_TAIL(&t->rows, r, entry);
	return r;
}

void table_skip(struct table_row *r, const char *reason)
{
	free(r->skipped);
	r->skipped = or_die(strdup(reason));
}

void table_add(struct table_row *r, unsigned column, double sample)
{
	struct table_cell *c = &r->cells[column];

	c->samples = or_die(realloc(c->samples, (c->n + 1) * sizeof(*c->samples)));
	c->samples[c->n++] = sample;
}

void table_free(struct table *t)
{
	struct table_row *r;

	while ((r = STAILQ_FIRST(&t->rows))) {
		STAILQ_REMOVE_HEAD(&t->rows, entry);
		for (unsigned i = 0; i < t->n_columns; i++)
			free(r->cells[i].samples);
		free(r->figure);
		free(r->label);
		free(r->skipped);
		free(r);
	}
}

/* ------------------------------------------------------------------ printing */

struct spread {
	double min, median, max;
};

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static bool has_samples(const struct table_row *r, unsigned column)
{
	return !r->skipped && r->cells[column].n > 0;
}

static struct spread spread_of(const struct table_cell *c)
{
	_cleanup_(freep) double *sorted = or_die(malloc(c->n * sizeof(*sorted)));

	memcpy(sorted, c->samples, c->n * sizeof(*sorted));
	qsort(sorted, c->n, sizeof(*sorted), by_value);
	return (struct spread){.min = sorted[0],
		.median = (sorted[(c->n - 1) / 2] + sorted[c->n / 2]) / 2,
		.max = sorted[c->n - 1]};
}

/* Three or four digits that matter, and never an exponent. */
static const char *number(double value, char text[NUMBER_TEXT])
{
	double size = value < 0 ? -value : value;
	int digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : size >= 0.1 ? 3 : 4;

	snprintf(text, NUMBER_TEXT, "%.*f", value == 0 ? 0 : digits, value);
	return text;
}

static void print_cell(const struct table_row *r, unsigned column)
{
	char text[CELL_TEXT], a[NUMBER_TEXT], b[NUMBER_TEXT], c[NUMBER_TEXT];
	struct spread s;

	if (!has_samples(r, column)) {
		printf(" %*s", CELL_WIDTH, "-");
		return;
	}
	s = spread_of(&r->cells[column]);
	snprintf(text, sizeof(text), "%s (%s..%s)", number(s.median, a), number(s.min, b),
		number(s.max, c));
	printf(" %*s", CELL_WIDTH, text);
}

static void print_for_people(const struct table *t)
{
	const struct table_row *r;

	printf("\n%s: median (min..max)\n%-*s", t->title, LABEL_WIDTH, "");
	for (unsigned i = 0; i < t->n_columns; i++) {
		char title[CELL_TEXT];

		snprintf(title, sizeof(title), "%s [%s]", t->columns[i].title, t->columns[i].unit);
		printf(" %*s", CELL_WIDTH, title);
	}
	printf("\n");
	STAILQ_FOREACH(r, &t->rows, entry)
	{
		printf("%-*s", LABEL_WIDTH, r->label);
		if (r->skipped)
			printf(" skipped: %s", r->skipped);
		for (unsigned i = 0; !r->skipped && i < t->n_columns; i++)
			print_cell(r, i);
		printf("\n");
	}
}

static void print_for_programs(const struct table *t)
{
	const struct table_row *r;

	STAILQ_FOREACH(r, &t->rows, entry)
	{
		if (r->skipped)
			printf("skipped %s.%s %s\n", t->figure, r->figure, r->skipped);
		for (unsigned i = 0; i < t->n_columns; i++) {
			const struct table_column *c = &t->columns[i];
			struct spread s;

			if (!has_samples(r, i))
				continue;
			s = spread_of(&r->cells[i]);
			printf("figure %s.%s%s%s %.8g %s min %.8g max %.8g rounds %u\n", t->figure,
				r->figure, c->figure ? "." : "", c->figure ? c->figure : "",
				s.median, c->unit, s.min, s.max, r->cells[i].n);
		}
	}
}

void table_print(const struct table *t)
{
	print_for_people(t);
	printf("\n");
	print_for_programs(t);
}

void table_print_ratio(const char *figure, const char *asked, const struct table_row *a,
	const struct table_row *b, unsigned column)
{
	double x, y;

	if (!has_samples(a, column) || !has_samples(b, column)) {
		printf("skipped %s one of the two was not measured\n", figure);
		return;
	}
	x = spread_of(&a->cells[column]).median;
	y = spread_of(&b->cells[column]).median;
	if (y == 0) {
		printf("skipped %s %s is 0\n", figure, b->label);
		return;
	}
	printf("figure %s %.3f ratio # %s / %s%s%s\n", figure, x / y, a->label, b->label,
		asked ? "; asked: " : "", asked ? asked : "");
}
