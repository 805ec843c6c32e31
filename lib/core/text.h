/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A text that is built up piece by piece. Figures are read by the thousand each second, and stdio
 * takes longer for one of their texts than the look at the figures does; here it is a few copies.
 * Memory may run short at any piece: that is remembered and said once, at the end.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zeroes: an empty text. */
struct text {
	char *data; /* n bytes of `size`; NULL: none yet */
	size_t n, size;
	bool failed; /* a piece is missing */
};

void text_add(struct text *t, const char *string);
/* In decimal. */
void text_add_number(struct text *t, uint64_t number);
/* "KEY NUMBER\n" */
void text_add_row(struct text *t, const char *key, uint64_t number);

/* Hands the text over, to be freed by the caller; t is empty again. -ENOMEM, also when memory ran
 * short at any piece of it. */
int text_take(struct text *t, char **ret);
/* Frees what has not been taken. */
void text_clear(struct text *t);
