/* SPDX-License-Identifier: MIT */

#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

#define FIRST_SIZE 512
#define NUMBER_MAX 20 /* digits of the greatest one */

static bool grow(struct text *t, size_t n)
{
	size_t size = t->size ? t->size : FIRST_SIZE;
	char *data;

	while (!t->failed && size - t->n < n)
		t->failed = __builtin_mul_overflow(size, (size_t)2, &size);
	data = t->failed ? NULL : reallocarray(t->data, size, sizeof(*data));
	if (!data) {
		t->failed = true;
		return false;
	}
	t->data = data;
	t->size = size;
	return true;
}

/* Room for n bytes more. A failed text gets none, or it would have a hole. */
static inline bool need(struct text *t, size_t n)
{
	if (likely(t->size - t->n >= n && !t->failed))
		return true;
	return grow(t, n);
}

/* Where there is room for it. */
static inline void put(struct text *t, const char *bytes, size_t n)
{
	memcpy(t->data + t->n, bytes, n);
	t->n += n;
}

static inline unsigned count_digits(uint64_t number)
{
	static const uint64_t powers[NUMBER_MAX] = {0, 10, 100, 1000, 10000, 100000, 1000000,
		10000000, 100000000, 1000000000, UINT64_C(10000000000), UINT64_C(100000000000),
		UINT64_C(1000000000000), UINT64_C(10000000000000), UINT64_C(100000000000000),
		UINT64_C(1000000000000000), UINT64_C(10000000000000000),
		UINT64_C(100000000000000000), UINT64_C(1000000000000000000),
		UINT64_C(10000000000000000000)};
	/* Of its bits times log10(2), which is it or one too few. */
	unsigned n = (64 - (unsigned)__builtin_clzll(number | 1)) * 1233 >> 12;

	return n + (number >= powers[n]);
}

static inline void put_pair(char *at, unsigned number)
{
	static const char pairs[] = "00010203040506070809101112131415161718192021222324"
				    "25262728293031323334353637383940414243444546474849"
				    "50515253545556575859606162636465666768697071727374"
				    "75767778798081828384858687888990919293949596979899";

	memcpy(at, pairs + (size_t)number * 2, 2);
}

/* Four digits at a time: each division waits for the one before. */
static inline void put_number(struct text *t, uint64_t number)
{
	unsigned n = count_digits(number), four;
	char *at = t->data + t->n + n;

	t->n += n;
	for (; number >= 10000; number /= 10000) {
		four = (unsigned)(number % 10000);
		at -= 4;
		put_pair(at, four / 100);
		put_pair(at + 2, four % 100);
	}
	four = (unsigned)number;
	if (four >= 100) {
		at -= 2;
		put_pair(at, four % 100);
		four /= 100;
	}
	if (four >= 10)
		put_pair(at - 2, four);
	else
		at[-1] = (char)('0' + four);
}

void text_add(struct text *t, const char *string)
{
	size_t n = strlen(string);

	if (n > 0 && need(t, n))
		put(t, string, n);
}

void text_add_number(struct text *t, uint64_t number)
{
	if (need(t, NUMBER_MAX))
		put_number(t, number);
}

void text_add_row(struct text *t, const char *key, uint64_t number)
{
	size_t n = strlen(key);

	if (!need(t, n + NUMBER_MAX + 2))
		return;
	put(t, key, n);
	t->data[t->n++] = ' ';
	put_number(t, number);
	t->data[t->n++] = '\n';
}

int text_take(struct text *t, char **ret)
{
	if (!need(t, 1)) {
		text_clear(t);
		return -ENOMEM;
	}
	t->data[t->n] = '\0';
	*ret = take_ptr(t->data);
	*t = (struct text){0};
	return 0;
}

void text_clear(struct text *t)
{
	free(t->data);
	*t = (struct text){0};
}
