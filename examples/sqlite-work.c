/* SPDX-License-Identifier: MIT */

/*
 * The load: a small shop in an in-memory database, so that all its data is memory that somebody
 * pays for. Every answer of the database is compared with what was put in: a program that has been
 * refused memory in the middle of its work is only well if its data is too.
 */

#include "sqlite-work.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define ROWS_A_COMMIT 1000
#define ROWS_A_CUSTOMER 100

const char *const work_result_names[] = {
	[WORK_RUNNING] = "running",
	[WORK_FINISHED] = "finished",
	[WORK_REFUSED] = "refused",
	[WORK_FAILED] = "failed",
};

struct step {
	const char *name;
	int (*run)(struct work *w, unsigned part); /* a result code of SQLite */
	unsigned part;
};

static uint64_t work_customers(const struct work *w)
{
	return w->rows_wanted / ROWS_A_CUSTOMER + 1;
}

/* Scattered, but the same in each run. */
static uint32_t amount_of_row(uint64_t row)
{
	return (uint32_t)(row * UINT64_C(0x9e3779b97f4a7c15) >> 40) % 10000;
}

static int complain(struct work *w, const char *what)
{
	w->complaint = what;
	return SQLITE_INTERNAL;
}

/* Runs a statement that gives no row, and makes it ready for the next time. */
static int finish(sqlite3_stmt *s)
{
	sqlite3_step(s);
	return sqlite3_reset(s);
}

static int add_customers(struct work *w)
{
	static const char sql[] = "WITH RECURSIVE n(i) AS"
				  " (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)"
				  " INSERT INTO customer"
				  " SELECT i, printf('customer %d', i), i % 16 FROM n";
	sqlite3_stmt *s;
	int r;

	r = sqlite3_prepare_v2(w->db, sql, -1, &s, NULL);
	if (r)
		return r;

	sqlite3_bind_int64(s, 1, (sqlite3_int64)work_customers(w));
	sqlite3_step(s);
	return sqlite3_finalize(s);
}

/* ROLLBACK and the count are prepared now: at the limit there is no memory to parse them. */
static int step_create(struct work *w, unsigned part __attribute__((unused)))
{
	static const char schema[] =
		"PRAGMA temp_store = MEMORY;"
		"CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT, region INTEGER);"
		"CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER, amount INTEGER,"
		" note TEXT);";
	int r;

	r = sqlite3_open(":memory:", &w->db);
	if (!r)
		r = sqlite3_exec(w->db, schema, NULL, NULL, NULL);
	if (!r)
		r = add_customers(w);
	if (!r)
		r = sqlite3_prepare_v2(w->db, "ROLLBACK", -1, &w->rollback, NULL);
	if (!r)
		r = sqlite3_prepare_v2(
			w->db, "SELECT count(*), total(amount) FROM orders", -1, &w->count, NULL);
	if (!r)
		r = sqlite3_prepare_v2(
			w->db, "INSERT INTO orders VALUES(?1, ?2, ?3, ?4)", -1, &w->insert, NULL);
	return r;
}

static int insert_row(struct work *w, uint64_t row)
{
	char note[100];

	snprintf(note, sizeof(note), "order %08u of %s, to be delivered with the others",
		(unsigned)(row * 2654435761U), w->name);
	sqlite3_bind_int64(w->insert, 1, (sqlite3_int64)row);
	sqlite3_bind_int64(w->insert, 2, (sqlite3_int64)(row % work_customers(w) + 1));
	sqlite3_bind_int64(w->insert, 3, amount_of_row(row));
	sqlite3_bind_text(w->insert, 4, note, -1, SQLITE_STATIC);
	return finish(w->insert);
}

static int insert_batch(struct work *w, uint64_t n)
{
	int64_t amount = 0;
	int r;

	r = sqlite3_exec(w->db, "BEGIN", NULL, NULL, NULL);
	for (uint64_t row = w->rows + 1; !r && row <= w->rows + n; row++) {
		r = insert_row(w, row);
		amount += amount_of_row(row);
	}
	if (!r)
		r = sqlite3_exec(w->db, "COMMIT", NULL, NULL, NULL);
	if (r)
		return r;

	w->rows += n;
	w->amount += amount;
	return SQLITE_OK;
}

static int step_insert(struct work *w, unsigned quarter)
{
	uint64_t until = w->rows_wanted * quarter / 4;
	int r = SQLITE_OK;

	while (!r && w->rows < until) {
		uint64_t n = until - w->rows;

		r = insert_batch(w, n < ROWS_A_COMMIT ? n : ROWS_A_COMMIT);
	}
	return r;
}

static int step_index(struct work *w, unsigned part __attribute__((unused)))
{
	return sqlite3_exec(w->db,
		"CREATE INDEX orders_of_customer ON orders(customer, amount);"
		"CREATE INDEX orders_by_note ON orders(note)",
		NULL, NULL, NULL);
}

static int step_join(struct work *w, unsigned part __attribute__((unused)))
{
	static const char sql[] = "SELECT region, count(*), sum(amount) AS s FROM customer c"
				  " JOIN orders o ON o.customer = c.id GROUP BY region ORDER BY s";
	int64_t rows = 0, amount = 0;
	sqlite3_stmt *s;
	int r;

	r = sqlite3_prepare_v2(w->db, sql, -1, &s, NULL);
	if (r)
		return r;

	while (sqlite3_step(s) == SQLITE_ROW) {
		rows += sqlite3_column_int64(s, 1);
		amount += sqlite3_column_int64(s, 2);
	}
	r = sqlite3_finalize(s);
	if (!r && (rows != (int64_t)w->rows || amount != w->amount))
		r = complain(w, "the join does not give what was inserted");
	return r;
}

/* The unary plus keeps the index out of it, so that the sorter needs memory. */
static int step_sort(struct work *w, unsigned part __attribute__((unused)))
{
	static const char sql[] = "SELECT amount, note FROM orders ORDER BY +amount, +note";
	int64_t rows = 0, last = -1;
	sqlite3_stmt *s;
	int r;

	r = sqlite3_prepare_v2(w->db, sql, -1, &s, NULL);
	if (r)
		return r;

	while (sqlite3_step(s) == SQLITE_ROW) {
		int64_t amount = sqlite3_column_int64(s, 0);

		if (amount < last)
			break;
		last = amount;
		rows++;
	}
	r = sqlite3_finalize(s);
	if (!r && rows != (int64_t)w->rows)
		r = complain(w, "the rows do not come sorted");
	return r;
}

static const struct step steps[] = {
	{"schema", step_create, 0},
	{"rows, first quarter", step_insert, 1},
	{"rows, second quarter", step_insert, 2},
	{"rows, third quarter", step_insert, 3},
	{"rows, last quarter", step_insert, 4},
	{"index", step_index, 0},
	{"join", step_join, 0},
	{"sort", step_sort, 0},
};

#define N_STEPS (sizeof(steps) / sizeof(steps[0]))

const char *work_step_name(unsigned step)
{
	return step < N_STEPS ? steps[step].name : NULL;
}

/* Back to the last commit. Without the statement no transaction was ever begun. */
static int work_roll_back(struct work *w)
{
	sqlite3_reset(w->insert);
	if (!w->rollback || sqlite3_get_autocommit(w->db))
		return SQLITE_OK;
	return finish(w->rollback);
}

/* Whether all that was committed is there, and nothing else. */
static int work_verify(struct work *w)
{
	int64_t rows = 0, amount = 0;
	int r;

	if (!w->count)
		return SQLITE_OK;

	if (sqlite3_step(w->count) == SQLITE_ROW) {
		rows = sqlite3_column_int64(w->count, 0);
		amount = sqlite3_column_int64(w->count, 1);
	}
	r = sqlite3_reset(w->count);
	if (!r && (rows != (int64_t)w->rows || amount != w->amount))
		r = complain(w, "the rollback has not left what was committed");
	return r;
}

static void work_fail(struct work *w, const char *step, int r)
{
	int error = atomic_load(&w->owner.error);
	const char *why = sqlite3_errstr(r);

	if (w->complaint)
		why = w->complaint;
	else if (error)
		why = strerror(-error);
	else if (w->db)
		why = sqlite3_errmsg(w->db);

	w->result = WORK_FAILED;
	fprintf(stderr, "%s failed at \"%s\": %s\n", w->name, step, why);
}

/*
 * Met a limit. Other processes share the pool and may take what the rollback has freed, so that no
 * memory to count the rows with is no failure.
 */
static void work_refuse(struct work *w, const char *step)
{
	const char *verified = "verified";
	int r;

	r = work_roll_back(w);
	if (!r)
		r = work_verify(w);
	if (r == SQLITE_NOMEM && sqlite3_get_autocommit(w->db)) {
		verified = "no memory left to verify";
	} else if (r) {
		work_fail(w, step, r);
		return;
	}

	w->result = WORK_REFUSED;
	printf("%s refused at \"%s\": rolled back to %llu rows, %s\n", w->name, step,
		(unsigned long long)w->rows, verified);
}

void work_run(struct work *w, unsigned step)
{
	bool refused;
	int r;

	if (w->result != WORK_RUNNING)
		return;

	alloc_set_owner(&w->owner);
	r = steps[step].run(w, steps[step].part);
	refused = atomic_load(&w->owner.refused) > 0 && atomic_load(&w->owner.error) == 0;
	if (r == SQLITE_NOMEM && refused)
		work_refuse(w, steps[step].name);
	else if (r)
		work_fail(w, steps[step].name, r);
	else if (!work_step_name(step + 1))
		w->result = WORK_FINISHED;
	alloc_set_owner(NULL);
}

void work_close(struct work *w)
{
	sqlite3_finalize(w->insert);
	sqlite3_finalize(w->rollback);
	sqlite3_finalize(w->count);
	sqlite3_close(w->db);
	w->insert = w->rollback = w->count = NULL;
	w->db = NULL;
}
