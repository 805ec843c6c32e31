/* SPDX-License-Identifier: MIT */

/*
 * memory.pressure against a model that knows nothing of catching up: it keeps the whole history of
 * who waited when, and computes each period from the beginning, one after the other.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/pressure.h"
#include "core/statfmt.h"
#include "core/text.h"
#include "core/util.h"

#define SECOND UINT64_C(1000000)
#define START (77 * SECOND + 123456)
#define CHANGES 4096

static uint64_t clock_usec;

static uint64_t read_clock(void)
{
	return clock_usec;
}

struct fixture {
	struct item_table items;
	struct pool_tree *tree;
	struct pool *root, *a, *b; /* /, /a, /a/b */
	struct pool_member of_a, of_b[2];
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	*state = f;
	clock_usec = START;
	if (!f || pool_tree_new(&f->items, &f->tree) < 0)
		return -1;
	f->tree->now = read_clock;
	f->root = f->tree->root;
	if (pool_create_all(f->tree, "/a/b", &f->b) < 0 || pressure_prepare(f->b) < 0)
		return -1;
	f->a = f->b->parent;
	pool_add_member(f->a, &f->of_a);
	pool_add_member(f->b, &f->of_b[0]);
	pool_add_member(f->b, &f->of_b[1]);
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	pool_remove_member(f->a, &f->of_a);
	pool_remove_member(f->b, &f->of_b[0]);
	pool_remove_member(f->b, &f->of_b[1]);
	pool_tree_free(f->tree);
	item_table_clear(&f->items);
	free(f);
	return 0;
}

static void pass(uint64_t usec)
{
	clock_usec += usec;
}

static void expect(const struct pool *p, const char *text)
{
	_cleanup_(freep) char *got = NULL;

	assert_int_equal(statfmt_read(p, "memory.pressure", &got), 0);
	assert_string_equal(got, text);
}

/* ------------------------------------------------------------------ by hand */

#define NOTHING "avg10=0.00 avg60=0.00 avg300=0.00 total="

static void test_nothing(void **state)
{
	struct fixture *f = *state;

	expect(f->root, "some " NOTHING "0\nfull " NOTHING "0\n");
	pass(3600 * SECOND);
	expect(f->b, "some " NOTHING "0\nfull " NOTHING "0\n");
	/* and where nobody has ever waited there are no figures, but the same text */
	assert_int_equal(pool_create(f->tree, "/new", &f->b), 0);
	assert_null(f->b->pressure);
	expect(f->b, "some " NOTHING "0\nfull " NOTHING "0\n");
	f->b = TAILQ_FIRST(&f->a->children);
}

/* One of two waits for half of a period: 50 % of it go in, at the period's end and not before. */
static void test_half_a_period(void **state)
{
	struct fixture *f = *state;

	pressure_begin(f->b, &f->of_b[0]);
	pass(SECOND);
	expect(f->b, "some " NOTHING "1000000\nfull " NOTHING "0\n");
	pressure_end(f->b, &f->of_b[0]);
	pass(SECOND - 1);
	expect(f->b, "some " NOTHING "1000000\nfull " NOTHING "0\n");
	pass(1);
	/* 50 % · (2048 − 1677, 1981, 2034) / 2048, rounded up: 18550, 3350 and 700 of 2048 */
	expect(f->b, "some avg10=9.05 avg60=1.63 avg300=0.34 total=1000000\nfull " NOTHING "0\n");
	/* and it falls: 18550 · 1677 / 2048 = 15189, … */
	pass(2 * SECOND);
	expect(f->b, "some avg10=7.41 avg60=1.58 avg300=0.33 total=1000000\nfull " NOTHING "0\n");
}

/* What waits counts in all pools above, but there others do not wait. */
static void test_full(void **state)
{
	struct fixture *f = *state;

	pressure_begin(f->b, &f->of_b[0]);
	pressure_begin(f->b, &f->of_b[0]); /* twice: one attachment still */
	pass(10);
	pressure_begin(f->b, &f->of_b[1]);
	pass(100);
	expect(f->b, "some " NOTHING "110\nfull " NOTHING "100\n");
	expect(f->a, "some " NOTHING "110\nfull " NOTHING "0\n");
	pressure_begin(f->a, &f->of_a);
	pass(1000);
	expect(f->a, "some " NOTHING "1110\nfull " NOTHING "1000\n");
	expect(f->root, "some " NOTHING "1110\nfull " NOTHING "1000\n");
	pressure_end(f->b, &f->of_b[0]);
	pass(7);
	expect(f->b, "some " NOTHING "1117\nfull " NOTHING "1107\n");
	pressure_end(f->b, &f->of_b[0]);
	pressure_end(f->b, &f->of_b[1]);
	pass(7);
	expect(f->b, "some " NOTHING "1117\nfull " NOTHING "1107\n");
	expect(f->a, "some " NOTHING "1124\nfull " NOTHING "1007\n");
	pressure_end(f->a, &f->of_a);
}

/* Attachments that come and go change what `full` is, from that moment on. */
static void test_members(void **state)
{
	struct fixture *f = *state;
	struct pool_member other = {0};

	pressure_begin(f->b, &f->of_b[0]);
	pressure_begin(f->b, &f->of_b[1]);
	pass(5);
	pool_add_member(f->b, &other);
	pass(70);
	pool_remove_member(f->b, &other);
	pass(5);
	expect(f->b, "some " NOTHING "80\nfull " NOTHING "10\n");
	/* one that waits leaves, and is still waited for */
	pool_remove_member(f->b, &f->of_b[0]);
	assert_int_equal(f->root->n_stalled_below, 1);
	pass(5);
	pressure_end(NULL, &f->of_b[0]);
	assert_int_equal(f->root->n_stalled_below, 1);
	expect(f->b, "some " NOTHING "85\nfull " NOTHING "15\n");
	/* and one that waits goes to another pool */
	pool_remove_member(f->b, &f->of_b[1]);
	pool_add_member(f->a, &f->of_b[1]);
	pass(100);
	expect(f->b, "some " NOTHING "85\nfull " NOTHING "15\n");
	expect(f->a, "some " NOTHING "185\nfull " NOTHING "0\n");
	pool_remove_member(f->a, &f->of_b[1]);
	pool_add_member(f->b, &f->of_b[1]);
	pool_add_member(f->b, &f->of_b[0]);
	pressure_end(f->b, &f->of_b[1]);
	assert_int_equal(f->root->n_stalled_below, 0);
}

/* For ever: 100 % exactly, and back to 0. */
static void test_rest(void **state)
{
	struct fixture *f = *state;

	pressure_begin(f->b, &f->of_b[0]);
	pass(30 * 86400 * SECOND);
	expect(f->a,
		"some avg10=100.00 avg60=100.00 avg300=100.00 total=2592000000000\nfull " NOTHING
		"0\n");
	pressure_end(f->b, &f->of_b[0]);
	pass(2 * SECOND);
	expect(f->a,
		"some avg10=81.88 avg60=96.72 avg300=99.31 total=2592000000000\nfull " NOTHING
		"0\n");
	pass(3600 * SECOND);
	expect(f->a, "some " NOTHING "2592000000000\nfull " NOTHING "0\n");
}

/* What falls by itself is told as a change until it is at rest, and then no more. */
static void test_age(void **state)
{
	struct fixture *f = *state;
	unsigned n = 0;

	pressure_age(f->tree);
	while (pool_take_change(f->tree))
		;
	pressure_begin(f->b, &f->of_b[0]);
	pass(2 * SECOND);
	pressure_end(f->b, &f->of_b[0]);
	do {
		while (pool_take_change(f->tree))
			;
		pressure_age(f->tree);
		pass(2 * SECOND);
	} while (f->a->changed && n++ < 100000);
	assert_in_range(n, 100, 2000);
	expect(f->a, "some " NOTHING "2000000\nfull " NOTHING "0\n");
	assert_true(TAILQ_EMPTY(&f->tree->pressures));
	/* a pool that goes is not looked for */
	pressure_begin(f->b, &f->of_b[0]);
	pool_remove_member(f->b, &f->of_b[0]);
	pool_remove_member(f->b, &f->of_b[1]);
	pressure_end(NULL, &f->of_b[0]);
	assert_int_equal(pool_remove(f->b), 0);
	pressure_age(f->tree);
	assert_int_equal(pool_create_all(f->tree, "/a/b", &f->b), 0);
	pool_add_member(f->b, &f->of_b[0]);
	pool_add_member(f->b, &f->of_b[1]);
}

/* ------------------------------------------------------------------ the model */

/* From when on how many of so many waited. */
struct change {
	uint64_t usec;
	unsigned waiting, of;
};

struct model {
	struct change changes[CHANGES];
	unsigned n;
};

static bool is_on(const struct change *c, bool full)
{
	return full ? c->waiting > 0 && c->waiting == c->of : c->waiting > 0;
}

/* Of the time from..to. */
static uint64_t time_on(const struct model *m, bool full, uint64_t from, uint64_t to)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < m->n; i++) {
		uint64_t a = m->changes[i].usec, b = i + 1 < m->n ? m->changes[i + 1].usec : to;

		a = a < from ? from : a;
		b = b > to ? to : b;
		if (a < b && is_on(&m->changes[i], full))
			sum += b - a;
	}
	return sum;
}

static void describe(const struct model *m, bool full, uint64_t now, char *buf, size_t size)
{
	static const unsigned kept[] = {1677, 1981, 2034};
	uint64_t avg[3] = {0};

	for (uint64_t end = START + 2 * SECOND; end <= now; end += 2 * SECOND) {
		uint64_t percent = time_on(m, full, end - 2 * SECOND, end) / (SECOND / 50);

		for (unsigned i = 0; i < 3; i++) {
			uint64_t active = percent << 11;
			uint64_t sum = avg[i] * kept[i] + active * (2048 - kept[i]);

			avg[i] = (sum + (active >= avg[i] ? 2047 : 0)) >> 11;
		}
	}
	snprintf(buf, size, "%s avg10=%u.%02u avg60=%u.%02u avg300=%u.%02u total=%" PRIu64 "\n",
		full ? "full" : "some", (unsigned)(avg[0] >> 11),
		(unsigned)((avg[0] & 2047) * 100 >> 11), (unsigned)(avg[1] >> 11),
		(unsigned)((avg[1] & 2047) * 100 >> 11), (unsigned)(avg[2] >> 11),
		(unsigned)((avg[2] & 2047) * 100 >> 11), time_on(m, full, START, now));
}

static uint64_t random_below(uint64_t n)
{
	return ((uint64_t)random() << 31 ^ (uint64_t)random()) % n;
}

static void test_model(void **state)
{
	struct fixture *f = *state;
	struct model *m = calloc(1, sizeof(*m));
	struct pool_member *members[] = {&f->of_a, &f->of_b[0], &f->of_b[1]};
	unsigned stalls[ELEMENTS(members)] = {0};

	assert_non_null(m);
	srandom(4711);
	m->changes[m->n++] = (struct change){START, 0, ELEMENTS(members)};
	for (unsigned round = 0; round < 600; round++) {
		unsigned i = (unsigned)random_below(ELEMENTS(members)), waiting = 0;
		struct pool *p = i == 0 ? f->a : f->b;
		char some[256], both[512];

		/* from the same moment to many periods later */
		pass(random_below(UINT64_C(1) << (3 + random_below(24))));
		if (stalls[i] > 0 && random_below(2)) {
			stalls[i]--;
			pressure_end(p, members[i]);
		} else {
			stalls[i]++;
			pressure_begin(p, members[i]);
		}
		for (unsigned j = 0; j < ELEMENTS(members); j++)
			waiting += stalls[j] > 0;
		m->changes[m->n++] = (struct change){clock_usec, waiting, ELEMENTS(members)};
		if (random_below(3) == 0)
			pressure_age(f->tree);
		if (random_below(4) != 0)
			continue;
		pass(random_below(5 * SECOND));
		describe(m, false, clock_usec, some, sizeof(some));
		snprintf(both, sizeof(both), "%s", some);
		describe(m, true, clock_usec, some, sizeof(some));
		strcat(both, some);
		expect(f->a, both);
		expect(f->root, both);
	}
	for (unsigned i = 0; i < ELEMENTS(members); i++)
		while (stalls[i]-- > 0)
			pressure_end(i == 0 ? f->a : f->b, members[i]);
	free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_half_a_period, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_full, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_members, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_rest, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_age, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_model, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
