/* SPDX-License-Identifier: MIT */

/*
 * Reading values by hand, because strtoull() takes too much ("-1" as 2^64-1, "0x10", "+1") and
 * leaves to each caller what to do about the rest. Here a text is exactly a value or it is refused,
 * in the same way for configuration, files of pools and command line; and nothing depends on the
 * locale.
 */

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "util.h"
#include "value.h"

#define SPACE " \t\n\v\f\r"

/* A piece of the text, not terminated. */
struct piece {
	const char *p;
	size_t n;
};

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit byte_units[] = {
	{"", 1},
	{"k", UINT64_C(1) << 10},
	{"K", UINT64_C(1) << 10},
	{"m", UINT64_C(1) << 20},
	{"M", UINT64_C(1) << 20},
	{"g", UINT64_C(1) << 30},
	{"G", UINT64_C(1) << 30},
	{"t", UINT64_C(1) << 40},
	{"T", UINT64_C(1) << 40},
	{"p", UINT64_C(1) << 50},
	{"P", UINT64_C(1) << 50},
	{"e", UINT64_C(1) << 60},
	{"E", UINT64_C(1) << 60},
};

static const struct unit no_units[] = {
	{"", 1},
};

static const struct unit time_units[] = {
	{"", UINT64_C(1000000)},
	{"us", 1},
	{"ms", UINT64_C(1000)},
	{"s", UINT64_C(1000000)},
	{"min", UINT64_C(60000000)},
	{"h", UINT64_C(3600000000)},
};

static struct piece trim(const char *text)
{
	struct piece t = {.p = text ? text : ""};

	t.p += strspn(t.p, SPACE);
	t.n = strlen(t.p);
	while (t.n > 0 && strchr(SPACE, t.p[t.n - 1]))
		t.n--;
	return t;
}

static bool is_word(struct piece t, const char *word)
{
	return t.n == strlen(word) && memcmp(t.p, word, t.n) == 0;
}

/* Takes the digits at the front of *t; a number beyond 64 bits sets *ret_over, so that a text which
 * is no value at all can still be told from one that is too large. */
static int take_digits(struct piece *t, int base, uint64_t *ret, bool *ret_over)
{
	uint64_t v = 0;
	bool over = false;
	size_t i;

	for (i = 0; i < t->n; i++) {
		int digit = t->p[i] - '0';

		if (digit < 0 || digit >= base)
			break;
		if (__builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, digit, &v))
			over = true;
	}
	if (i == 0)
		return -EINVAL;

	t->p += i;
	t->n -= i;
	*ret = v;
	*ret_over = over;
	return 0;
}

static int parse_with_unit(
	const char *text, const struct unit *units, size_t n_units, uint64_t *ret)
{
	struct piece t = trim(text);
	uint64_t v;
	bool over;
	int r;

	r = take_digits(&t, 10, &v, &over);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n_units; i++) {
		if (!is_word(t, units[i].name))
			continue;
		if (over || __builtin_mul_overflow(v, units[i].factor, &v))
			return -ERANGE;
		*ret = v;
		return 0;
	}
	return -EINVAL;
}

int value_parse_bytes(const char *text, uint64_t *ret)
{
	return parse_with_unit(text, byte_units, ELEMENTS(byte_units), ret);
}

/* Or the word max. */
static int parse_or_max(
	const char *text, int (*parse)(const char *text, uint64_t *ret), uint64_t *ret)
{
	uint64_t v;
	int r;

	if (is_word(trim(text), "max")) {
		*ret = VALUE_MAX;
		return 0;
	}
	r = parse(text, &v);
	if (r < 0)
		return r;
	if (v == VALUE_MAX)
		return -ERANGE;
	*ret = v;
	return 0;
}

int value_parse_limit(const char *text, uint64_t *ret)
{
	return parse_or_max(text, value_parse_bytes, ret);
}

int value_parse_number(const char *text, uint64_t *ret)
{
	return parse_with_unit(text, no_units, ELEMENTS(no_units), ret);
}

int value_parse_count(const char *text, uint64_t *ret)
{
	return parse_or_max(text, value_parse_number, ret);
}

int value_parse_usec(const char *text, uint64_t *ret)
{
	return parse_with_unit(text, time_units, ELEMENTS(time_units), ret);
}

int value_parse_bool(const char *text, bool *ret)
{
	static const char *const words[][2] = {
		{"no", "yes"},
		{"false", "true"},
		{"off", "on"},
		{"0", "1"},
	};
	struct piece t = trim(text);

	for (size_t i = 0; i < ELEMENTS(words); i++)
		for (int yes = 0; yes <= 1; yes++)
			if (is_word(t, words[i][yes])) {
				*ret = yes;
				return 0;
			}
	return -EINVAL;
}

int value_parse_mode(const char *text, unsigned *ret)
{
	struct piece t = trim(text);
	uint64_t v;
	bool over;
	int r;

	r = take_digits(&t, 8, &v, &over);
	if (r < 0)
		return r;
	if (t.n > 0)
		return -EINVAL;
	if (over || v > 0777)
		return -ERANGE;
	*ret = (unsigned)v;
	return 0;
}

const char *value_format_limit(uint64_t v, char buf[static VALUE_TEXT_MAX])
{
	if (v == VALUE_MAX)
		snprintf(buf, VALUE_TEXT_MAX, "max");
	else
		snprintf(buf, VALUE_TEXT_MAX, "%" PRIu64, v);
	return buf;
}

const char *value_format_usec(uint64_t usec, char buf[static VALUE_TEXT_MAX])
{
	if (usec % 1000000 == 0)
		snprintf(buf, VALUE_TEXT_MAX, "%" PRIu64 "s", usec / 1000000);
	else if (usec % 1000 == 0)
		snprintf(buf, VALUE_TEXT_MAX, "%" PRIu64 "ms", usec / 1000);
	else
		snprintf(buf, VALUE_TEXT_MAX, "%" PRIu64 "us", usec);
	return buf;
}

const char *value_format_human(uint64_t v, char buf[static VALUE_TEXT_MAX])
{
	static const char suffixes[] = "KMGTPE";
	const size_t last = sizeof(suffixes) - 2;
	uint64_t whole, rest, tenths;
	unsigned shift;
	size_t i = 0;

	if (v < 1024 || v == VALUE_MAX)
		return value_format_limit(v, buf);

	while (i < last && v >> (10 * (i + 2)) > 0)
		i++;
	shift = 10 * ((unsigned)i + 1);
	whole = v >> shift;
	rest = v & ((UINT64_C(1) << shift) - 1);
	tenths = (rest * 10 + (UINT64_C(1) << (shift - 1))) >> shift;
	if (tenths == 10) {
		whole++;
		tenths = 0;
	}
	if (whole == 1024 && i < last) {
		whole = 1;
		i++;
	}

	if (tenths > 0)
		snprintf(buf, VALUE_TEXT_MAX, "%u.%u%c", (unsigned)whole, (unsigned)tenths,
			suffixes[i]);
	else
		snprintf(buf, VALUE_TEXT_MAX, "%u%c", (unsigned)whole, suffixes[i]);
	return buf;
}
