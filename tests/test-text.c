/* SPDX-License-Identifier: MIT */

/*
 * A text is what its pieces are, at every length, with numbers of every length; and one of which
 * memory ran short is never handed over with a hole.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "core/util.h"

static unsigned fail_at; /* the how-manieth growth fails; 0: none */

/* Stands before the C library's, so that memory can run short at a chosen piece. */
void *reallocarray(void *p, size_t n, size_t size)
{
	return fail_at && --fail_at == 0 ? NULL : realloc(p, n * size);
}

static void assert_taken(struct text *t, const char *expected)
{
	_cleanup_(freep) char *taken = NULL;

	assert_int_equal(text_take(t, &taken), 0);
	assert_string_equal(taken, expected);
	assert_null(t->data);
	assert_int_equal(t->n | t->size, 0);
	assert_false(t->failed);
}

static void test_empty(void **state _unused_)
{
	struct text t = {0};

	assert_taken(&t, "");
	text_add(&t, "");
	assert_taken(&t, "");
	text_clear(&t);
	text_clear(&t);
}

static void test_pieces(void **state _unused_)
{
	struct text t = {0};

	text_add(&t, "a b");
	text_add_number(&t, 70);
	text_add(&t, "\n");
	text_add_row(&t, "key", 8);
	text_add_row(&t, "", 0);
	assert_taken(&t, "a b70\nkey 8\n 0\n");
	text_add(&t, "again");
	assert_taken(&t, "again");
	text_add(&t, "not taken");
	text_clear(&t);
	assert_taken(&t, "");
}

static void assert_number(uint64_t number)
{
	char expected[64];
	struct text t = {0};

	snprintf(expected, sizeof(expected), "<%" PRIu64 ">k %" PRIu64 "\n", number, number);
	text_add(&t, "<");
	text_add_number(&t, number);
	text_add(&t, ">");
	text_add_row(&t, "k", number);
	assert_taken(&t, expected);
}

/* Around each power of ten and of two, and with each pair of digits at each place. */
static void test_numbers(void **state _unused_)
{
	for (uint64_t n = 0; n < 20000; n++)
		assert_number(n);
	for (uint64_t power = 1; power <= UINT64_MAX / 10; power *= 10) {
		for (uint64_t n = 0; n < 100; n++)
			assert_number(power * n + n);
		assert_number(power * 10 - 1);
		assert_number(power * 10);
		assert_number(power * 10 + 1);
	}
	for (unsigned bit = 0; bit < 64; bit++) {
		assert_number((UINT64_C(1) << bit) - 1);
		assert_number(UINT64_C(1) << bit);
		assert_number((UINT64_C(1) << bit) + 1);
	}
	assert_number(UINT64_MAX - 1);
	assert_number(UINT64_MAX);
}

/* The end of what is allocated falls on every byte of a piece. */
static void test_every_length(void **state _unused_)
{
	char expected[2200] = "";

	for (size_t n = 0; n < 2100; n++) {
		struct text t = {0};

		for (size_t i = 0; i < n; i++)
			text_add(&t, "x");
		text_add_number(&t, UINT64_MAX);
		text_add_row(&t, "key", UINT64_MAX);
		memcpy(expected + n, "18446744073709551615key 18446744073709551615\n", 46);
		assert_taken(&t, expected);
		expected[n] = 'x';
	}
}

static void test_long_piece(void **state _unused_)
{
	size_t n = 1 << 20;
	_cleanup_(freep) char *piece = malloc(n + 1), *expected = malloc(n + 3);
	struct text t = {0};

	assert_true(piece && expected);
	memset(piece, 'p', n);
	piece[n] = '\0';
	sprintf(expected, "1%s2", piece);
	text_add_number(&t, 1);
	text_add(&t, piece);
	text_add_number(&t, 2);
	assert_taken(&t, expected);
}

static void add_rows(struct text *t)
{
	for (uint64_t i = 0; i < 1000; i++) {
		text_add(t, "text ");
		text_add_number(t, i);
		text_add_row(t, " row", i);
	}
}

/* Memory that is there again behind the piece that is missing changes nothing. */
static void test_short_of_memory(void **state _unused_)
{
	char untouched, *ret = &untouched;
	struct text t = {0};
	unsigned nth = 1;

	for (;; nth++) {
		fail_at = nth;
		add_rows(&t);
		if (fail_at > 0)
			break;
		assert_int_equal(text_take(&t, &ret), -ENOMEM);
		assert_ptr_equal(ret, &untouched);
		assert_null(t.data);
		text_add(&t, "after it");
		assert_taken(&t, "after it");
	}
	assert_true(nth > 4);
	fail_at = 0;
	text_clear(&t);

	fail_at = 1;
	assert_int_equal(text_take(&t, &ret), -ENOMEM);
	assert_ptr_equal(ret, &untouched);
	assert_taken(&t, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_every_length),
		cmocka_unit_test(test_long_piece),
		cmocka_unit_test(test_short_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
