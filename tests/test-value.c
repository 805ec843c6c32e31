/* SPDX-License-Identifier: MIT */

/*
 * Values are written by people: a text that is not exactly a value must never be taken for one, and
 * what the files show must be read back as the same number.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/util.h"
#include "core/value.h"

#define UNTOUCHED UINT64_C(0x5555)

typedef int (*parse_fn)(const char *text, uint64_t *ret);

struct good {
	const char *text;
	uint64_t value;
};

static void check_good(parse_fn parse, const struct good *cases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t v = UNTOUCHED;
		int r = parse(cases[i].text, &v);

		if (r != 0 || v != cases[i].value)
			fail_msg("\"%s\" gives %d, %" PRIu64, cases[i].text, r, v);
	}
}

static void check_bad(parse_fn parse, int expected, const char *const *texts, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t v = UNTOUCHED;
		int r = parse(texts[i], &v);

		if (r != expected)
			fail_msg("\"%s\" gives %d", texts[i] ? texts[i] : "(NULL)", r);
		assert_int_equal(v, UNTOUCHED);
	}
}

static const struct good good_bytes[] = {
	{"0", 0},
	{"1", 1},
	{"007", 7},
	{"4096", 4096},
	{"1K", 1024},
	{"1k", 1024},
	{"3M", UINT64_C(3) << 20},
	{"3m", UINT64_C(3) << 20},
	{"2G", UINT64_C(2) << 30},
	{"2g", UINT64_C(2) << 30},
	{"5T", UINT64_C(5) << 40},
	{"5t", UINT64_C(5) << 40},
	{"7P", UINT64_C(7) << 50},
	{"7p", UINT64_C(7) << 50},
	{"15E", UINT64_C(15) << 60},
	{"15e", UINT64_C(15) << 60},
	{"0E", 0},
	{"16383P", UINT64_C(16383) << 50},
	{" 12 ", 12},
	{"\t\n\v\f\r1G\r\f\v\n\t", UINT64_C(1) << 30},
	{"18446744073709551614", UINT64_MAX - 1},
};

static const char *const bad_bytes[] = {
	NULL,
	"",
	" ",
	"-1",
	"+1",
	"- 1",
	"1.5G",
	"1,5",
	"1 G",
	"1 2",
	"0x10",
	"1KB",
	"1KiB",
	"1kk",
	"K",
	"B",
	"1B",
	"1e3",
	"inf",
	"Max",
	"MAX",
	"maximum",
	"1max",
	"max1",
	"1\x01",
	"\xc2\xa0"
	"1",
	"\xd9\xa1",
	"99999999999999999999999x",
	"16EE",
	"/",
	":",
};

static const char *const large_bytes[] = {
	"16E",
	"17E",
	"16384P",
	"18446744073709551616",
	"18446744073709551615K",
	"99999999999999999999999999",
	"36893488147419103232",
	"18014398509481984K",
};

static void test_bytes(void **state _unused_)
{
	static const struct good largest[] = {{"18446744073709551615", UINT64_MAX}};
	static const char *const word[] = {"max"};

	check_good(value_parse_bytes, good_bytes, ELEMENTS(good_bytes));
	check_good(value_parse_bytes, largest, ELEMENTS(largest));
	check_bad(value_parse_bytes, -EINVAL, bad_bytes, ELEMENTS(bad_bytes));
	check_bad(value_parse_bytes, -EINVAL, word, ELEMENTS(word));
	check_bad(value_parse_bytes, -ERANGE, large_bytes, ELEMENTS(large_bytes));
}

static void test_limit(void **state _unused_)
{
	static const struct good words[] = {{"max", VALUE_MAX}, {" max\n", VALUE_MAX}};
	static const char *const no_limit_in_digits[] = {"18446744073709551615"};

	check_good(value_parse_limit, good_bytes, ELEMENTS(good_bytes));
	check_good(value_parse_limit, words, ELEMENTS(words));
	check_bad(value_parse_limit, -EINVAL, bad_bytes, ELEMENTS(bad_bytes));
	check_bad(value_parse_limit, -ERANGE, large_bytes, ELEMENTS(large_bytes));
	check_bad(value_parse_limit, -ERANGE, no_limit_in_digits, ELEMENTS(no_limit_in_digits));
}

static void test_number(void **state _unused_)
{
	static const struct good good[] = {
		{"0", 0},
		{" 1024\n", 1024},
		{"18446744073709551615", UINT64_MAX},
	};
	static const char *const bad[] = {NULL, "", "1K", "-1", "+1", "1.0", "max", "1s", "0x1"};
	static const char *const large[] = {"18446744073709551616"};

	check_good(value_parse_number, good, ELEMENTS(good));
	check_bad(value_parse_number, -EINVAL, bad, ELEMENTS(bad));
	check_bad(value_parse_number, -ERANGE, large, ELEMENTS(large));
}

static void test_count(void **state _unused_)
{
	static const struct good good[] = {
		{"0", 0},
		{" 17\n", 17},
		{"18446744073709551614", UINT64_MAX - 1},
		{" max ", VALUE_MAX},
	};
	static const char *const bad[] = {NULL, "", "1K", "-1", "Max", "max 1"};
	static const char *const large[] = {"18446744073709551615", "99999999999999999999"};

	check_good(value_parse_count, good, ELEMENTS(good));
	check_bad(value_parse_count, -EINVAL, bad, ELEMENTS(bad));
	check_bad(value_parse_count, -ERANGE, large, ELEMENTS(large));
}

static void test_usec(void **state _unused_)
{
	static const struct good good[] = {
		{"0", 0},
		{"2", 2000000},
		{"2s", 2000000},
		{"7us", 7},
		{"250ms", 250000},
		{"3min", 180000000},
		{"1h", UINT64_C(3600000000)},
		{" 30s ", 30000000},
		{"18446744073709551615us", UINT64_MAX},
		{"18446744073709s", UINT64_C(18446744073709000000)},
	};
	static const char *const bad[] = {
		NULL,
		"",
		"s",
		"1m",
		"1S",
		"1 s",
		"1.5s",
		"-1s",
		"1sec",
		"1hh",
		"1h30min",
		"max",
		"1K",
	};
	static const char *const large[] = {
		"18446744073710s",
		"18446744073710",
		"18446744073709551616us",
		"5124095577h",
	};

	check_good(value_parse_usec, good, ELEMENTS(good));
	check_bad(value_parse_usec, -EINVAL, bad, ELEMENTS(bad));
	check_bad(value_parse_usec, -ERANGE, large, ELEMENTS(large));
}

static void test_bool(void **state _unused_)
{
	static const char *const yes[] = {"yes", "true", "on", "1", " yes\n"};
	static const char *const no[] = {"no", "false", "off", "0", "\tno "};
	static const char *const bad[] = {NULL, "", "y", "2", "01", "yes no", "Truee", "onn", "-1"};
	bool v;

	for (size_t i = 0; i < ELEMENTS(yes); i++) {
		v = false;
		assert_int_equal(value_parse_bool(yes[i], &v), 0);
		assert_true(v);
	}
	for (size_t i = 0; i < ELEMENTS(no); i++) {
		v = true;
		assert_int_equal(value_parse_bool(no[i], &v), 0);
		assert_false(v);
	}
	for (size_t i = 0; i < ELEMENTS(bad); i++) {
		v = true;
		assert_int_equal(value_parse_bool(bad[i], &v), -EINVAL);
		assert_true(v);
		v = false;
		assert_int_equal(value_parse_bool(bad[i], &v), -EINVAL);
		assert_false(v);
	}
}

static void test_mode(void **state _unused_)
{
	static const char *const bad[] = {
		NULL, "", "8", "068", "0o666", "0x1ff", "-1", "rw", "6 6"};
	static const char *const large[] = {"1000", "01777", "7777777777777777777777777"};
	unsigned v;

	assert_int_equal(value_parse_mode("0666", &v), 0);
	assert_int_equal(v, 0666);
	assert_int_equal(value_parse_mode(" 750\n", &v), 0);
	assert_int_equal(v, 0750);
	assert_int_equal(value_parse_mode("0", &v), 0);
	assert_int_equal(v, 0);
	assert_int_equal(value_parse_mode("0777", &v), 0);
	assert_int_equal(v, 0777);

	for (size_t i = 0; i < ELEMENTS(bad); i++)
		assert_int_equal(value_parse_mode(bad[i], &v), -EINVAL);
	for (size_t i = 0; i < ELEMENTS(large); i++)
		assert_int_equal(value_parse_mode(large[i], &v), -ERANGE);
	assert_int_equal(v, 0777);
}

static void test_format_usec(void **state _unused_)
{
	static const uint64_t values[] = {0, 1, 999, 1000, 1001, 999999, 1000000, 1500000, 60000000,
		UINT64_C(86400000000), UINT64_MAX};
	char buf[VALUE_TEXT_MAX];
	uint64_t again;

	assert_string_equal(value_format_usec(2000000, buf), "2s");
	assert_string_equal(value_format_usec(500000, buf), "500ms");
	assert_string_equal(value_format_usec(7, buf), "7us");
	for (size_t i = 0; i < ELEMENTS(values); i++) {
		assert_int_equal(value_parse_usec(value_format_usec(values[i], buf), &again), 0);
		assert_int_equal(again, values[i]);
	}
}

static void test_format_limit(void **state _unused_)
{
	static const uint64_t values[] = {
		0, 1, 4096, UINT64_C(15) << 60, UINT64_MAX - 1, VALUE_MAX};
	char buf[VALUE_TEXT_MAX];
	uint64_t back;

	assert_string_equal(value_format_limit(VALUE_MAX, buf), "max");
	assert_string_equal(value_format_limit(0, buf), "0");
	assert_string_equal(value_format_limit(UINT64_MAX - 1, buf), "18446744073709551614");
	for (size_t i = 0; i < ELEMENTS(values); i++) {
		assert_ptr_equal(value_format_limit(values[i], buf), buf);
		assert_int_equal(value_parse_limit(buf, &back), 0);
		assert_int_equal(back, values[i]);
	}
}

static void test_format_human(void **state _unused_)
{
	static const struct good cases[] = {
		{"0", 0},
		{"1", 1},
		{"1023", 1023},
		{"1K", 1024},
		{"1K", 1024 + 51},
		{"1.1K", 1024 + 52},
		{"1.5K", 1536},
		{"2K", 2047},
		{"64K", 65536},
		{"1000K", 1000 * 1024},
		{"1023.9K", 1024 * 1024 - 52},
		{"1M", 1024 * 1024 - 51},
		{"1M", 1024 * 1024 - 1},
		{"12.5M", UINT64_C(25) << 19},
		{"1G", UINT64_C(1) << 30},
		{"1.5T", UINT64_C(3) << 39},
		{"1P", UINT64_C(1) << 50},
		{"1E", (UINT64_C(1) << 60) - 1},
		{"15.5E", UINT64_C(31) << 59},
		{"16E", UINT64_MAX - 1},
		{"max", VALUE_MAX},
	};
	char buf[VALUE_TEXT_MAX];

	for (size_t i = 0; i < ELEMENTS(cases); i++)
		assert_string_equal(value_format_human(cases[i].value, buf), cases[i].text);
}

/* What a text of value_format_human() says, in tenths of a byte. */
static __uint128_t tenths_of_bytes(const char *text, unsigned *ret_shift)
{
	static const char suffixes[] = "KMGTPE";
	const char *suffix;
	char *end;
	__uint128_t v = (__uint128_t)strtoull(text, &end, 10) * 10;

	if (*end == '.') {
		v += (unsigned)(end[1] - '0');
		end += 2;
	}
	suffix = *end ? strchr(suffixes, *end) : NULL;
	*ret_shift = suffix ? 10 * (unsigned)(suffix - suffixes + 1) : 0;
	return v << *ret_shift;
}

/* Never off by more than half of the last digit, above or below. */
static void test_format_human_is_near(void **state _unused_)
{
	uint64_t v = 1;

	for (int i = 0; i < 200000; i++) {
		char buf[VALUE_TEXT_MAX];
		uint64_t value;
		__uint128_t shown, truth, off;
		unsigned shift;

		v = v * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		value = v >> (i % 64);
		value = value == VALUE_MAX ? 0 : value;
		value_format_human(value, buf);
		assert_true(strlen(buf) <= strlen("1023.9K"));

		shown = tenths_of_bytes(buf, &shift);
		truth = (__uint128_t)value * 10;
		off = shown > truth ? shown - truth : truth - shown;
		if (off * 2 > (__uint128_t)1 << shift)
			fail_msg("%" PRIu64 " is shown as %s", value, buf);
		if (shift == 0)
			assert_true(off == 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_number),
		cmocka_unit_test(test_count),
		cmocka_unit_test(test_usec),
		cmocka_unit_test(test_bool),
		cmocka_unit_test(test_mode),
		cmocka_unit_test(test_format_usec),
		cmocka_unit_test(test_format_limit),
		cmocka_unit_test(test_format_human),
		cmocka_unit_test(test_format_human_is_near),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
