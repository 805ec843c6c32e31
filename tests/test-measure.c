/* SPDX-License-Identifier: MIT */

/*
 * Whatever measure_text() lets pass, inih must read as it stands: that is shown for every short
 * text over the characters that inih minds, beside inih itself, and case by case for all that it is
 * known to cut, join or skip.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/conf.h"
#include "conf/measure.h"
#include "core/util.h"

static char dir[] = "/tmp/test-measure-XXXXXX";

static int set_up(void **state)
{
	(void)state;
	return mkdtemp(dir) && chmod(dir, 0755) == 0 && chdir(dir) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	unlink("f");
	return chdir("/") == 0 && rmdir(dir) == 0 ? 0 : -1;
}

static void write_file(const char *text, size_t n)
{
	FILE *f = fopen("f", "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

static void accept_text(const char *text, size_t n)
{
	_cleanup_(freep) char *error = NULL;
	int r = measure_text("f", text, n, &error);

	if (r != 0)
		print_error("%s\n", error);
	assert_int_equal(r, 0);
	assert_null(error);
}

/* The error begins with `begin` and has `what` in it. */
static void refuse_text(const char *text, size_t n, const char *begin, const char *what)
{
	_cleanup_(freep) char *error = NULL;

	assert_int_equal(measure_text("f", text, n, &error), -EINVAL);
	assert_non_null(error);
	if (strncmp(error, begin, strlen(begin)) != 0 || !strstr(error, what) ||
		!strchr(error, ';'))
		fail_msg("\"%s\" is not \"%s ... %s\"", error, begin, what);
}

#define ACCEPT(text) accept_text(text, sizeof(text) - 1)
#define REFUSE(text, begin, what) refuse_text(text, sizeof(text) - 1, begin, what)

struct heard {
	unsigned n;
	char section[64], key[256], value[256];
};

static int hear(void *user, const char *section, const char *key, const char *value)
{
	struct heard *h = user;

	h->n++;
	snprintf(h->section, sizeof(h->section), "%s", section);
	snprintf(h->key, sizeof(h->key), "%s", key);
	snprintf(h->value, sizeof(h->value), "%s", value);
	return 1;
}

/* A text whose second line is `begin` and as many x as make n bytes, and then `end`. */
static char *make_line(const char *begin, size_t n, const char *end, size_t *ret_n)
{
	size_t size = 4 + n + strlen(end);
	char *text = malloc(size + 1);

	assert_non_null(text);
	memset(text, 'x', size);
	memcpy(text, "[s]\n", 4);
	memcpy(text + 4, begin, strlen(begin));
	memcpy(text + 4 + n, end, strlen(end) + 1);
	*ret_n = size;
	return text;
}

static void test_line_length(void **state)
{
	static const char *const ends[] = {"\n", "", "\nz = 1\n"};
	static const char *const begins[] = {"k = ", "# c ", "; c ", "k = 1 ; "};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(begins); i++)
		for (size_t j = 0; j < ELEMENTS(ends); j++)
			for (size_t n = CONF_LINE_MAX - 1; n <= CONF_LINE_MAX + 3; n++) {
				size_t size;
				_cleanup_(freep) char *text =
					make_line(begins[i], n, ends[j], &size);

				if (n > CONF_LINE_MAX)
					refuse_text(text, size, "f:2: [s]: ", "bytes");
				else if (*begins[i] == 'k' || strstr(ends[j], "z"))
					accept_text(text, size);
			}
}

/* The longest line that is let pass arrives whole; inih's own border lies one byte further. */
static void test_longest_line_arrives(void **state)
{
	struct heard h = {0};
	size_t size;
	_cleanup_(freep) char *text = make_line("k = ", CONF_LINE_MAX, "\n", &size);
	_cleanup_(freep) char *longer = make_line("k = ", CONF_LINE_MAX + 2, "\n", &size);

	(void)state;
	assert_int_equal(ini_parse_string(text, hear, &h), 0);
	assert_int_equal(strlen(h.value), CONF_LINE_MAX - 4);
	assert_int_not_equal(ini_parse_string(longer, hear, &h), 0);
}

/* The rest of a comment that is too long would be a key: inih hears what nobody wrote. */
static void test_comment_does_not_become_a_key(void **state)
{
	struct heard h = {0};
	size_t size;
	_cleanup_(freep) char *text = make_line("# c ", 199, "memory.max = 1\n", &size);

	(void)state;
	assert_int_equal(ini_parse_string(text, hear, &h), 0);
	assert_string_equal(h.key, "memory.max");
	refuse_text(text, size, "f:2: [s]: ", "comments too");
}

static void test_section_length(void **state)
{
	(void)state;
	for (int n = CONF_SECTION_MAX - 1; n <= 52; n++) {
		_cleanup_(freep) char *text = NULL;
		int size = asprintf(&text, "\n[%0*d]\nk = 1\n", n, 0);

		if (n <= CONF_SECTION_MAX) {
			struct heard h = {0};

			accept_text(text, (size_t)size);
			assert_int_equal(ini_parse_string(text, hear, &h), 0);
			assert_int_equal(strlen(h.section), n);
		} else {
			refuse_text(text, (size_t)size, "f:2: ", "at most 40");
		}
	}
}

static void test_sections(void **state)
{
	(void)state;
	ACCEPT("[a]\nk = 1\n[b]\nk = 1\n");
	ACCEPT("[a] ; comment\nk = 1\n");
	ACCEPT("[a]  \nk = 1\n");
	ACCEPT("[a;b]\nk = 1\n");
	REFUSE("[a]\nk = 1\n[b]\nk = 1\n\n[a]\nl = 1\n", "f:6: [a]: ", "line 1");
	REFUSE("[a]\n# only this\n\n[b]\nk = 1\n", "f:1: [a]: ", "empty");
	REFUSE("[b]\nk = 1\n[a]\n", "f:3: [a]: ", "empty");
	REFUSE("[b]\nk = 1\n[a]", "f:3: [a]: ", "empty");
	REFUSE("[]\nk = 1\n", "f:1: ", "no name");
	REFUSE("[a\nk = 1\n", "f:1: ", "not closed");
	REFUSE("[a ; b]\nk = 1\n", "f:1: ", "not closed");
	REFUSE("[a] b\nk = 1\n", "f:1: ", "behind ']'");
	REFUSE("[a]b]\nk = 1\n", "f:1: ", "behind ']'");
	REFUSE("[a] k = 1\n", "f:1: ", "behind ']'");
	REFUSE("[a] # b\nk = 1\n", "f:1: ", "' ;'");
	REFUSE("[a];b\nk = 1\n", "f:1: ", "' ;'");
	REFUSE("k = 1\n[a]\nk = 1\n", "f:1: ", "before the first section");
}

static void test_lines(void **state)
{
	(void)state;
	ACCEPT("");
	ACCEPT("\n\n  \n\t\n# a\n; b\n");
	ACCEPT("[s]\nk=v\nk =v\nk = \nk = a=b:c\nk = 1 ; c\nk=;c\nk = a # b");
	ACCEPT("[s]\nk;l = 1\n");
	REFUSE("[s]\nk = 1\n  more\n", "f:3: [s]: ", "indented");
	REFUSE("[s]\nk = 1\n\tl = 2\n", "f:3: [s]: ", "indented");
	REFUSE("[s]\nk = 1\n\n  l = 2\n", "f:4: [s]: ", "indented");
	REFUSE("[s]\nk = 1\n  [t]\nk = 2\n", "f:3: [s]: ", "indented");
	REFUSE("[s]\nk = 1\n  # c\n", "f:3: [s]: ", "indented");
	REFUSE("  [s]\nk = 1\n", "f:1: ", "indented");
	REFUSE("[s]\nk\n", "f:2: [s]: ", "no '='");
	REFUSE("[s]\nk ; l = 1\n", "f:2: [s]: ", "no '='");
	REFUSE("[s]\nk: v\n", "f:2: [s]: ", "write k = VALUE");
	REFUSE("[s]\nk: v = w\n", "f:2: [s]: ", "':'");
	REFUSE("[s]\n= v\n", "f:2: [s]: ", "no key");
}

static void test_bytes(void **state)
{
	(void)state;
	ACCEPT("[s]\nk\t=\tv\xc3\xa9\n");
	REFUSE("[s]\nk = 1\0"
	       "2\n",
		"f:2: [s]: ", "NUL");
	REFUSE("[s]\n\0k = 1\n", "f:2: [s]: ", "NUL");
	REFUSE("[s]\nk = 1\n\0", "f:3: [s]: ", "NUL");
	REFUSE("# \0\n", "f:1: ", "NUL");
	REFUSE("[s]\nk = a\rb\n", "f:2: [s]: ", "0x0d");
	REFUSE("[s]\rk = a\r", "f:1: ", "0x0d");
	REFUSE("[s]\n\vk = a\n", "f:2: [s]: ", "0x0b");
	REFUSE("[s]\n\fk = a\n", "f:2: [s]: ", "0x0c");
	REFUSE("[s]\nk = \x1b[1m\n", "f:2: [s]: ", "0x1b");
	REFUSE("[s]\nk = \x7f\n", "f:2: [s]: ", "0x7f");
}

/* What inih tells of a text. Every call must be a line "key=value" that stands there. */
struct told {
	const char *lines[8]; /* of keys, in their order */
	size_t n_lines, n;
	bool wrong;
};

static int check_told(void *user, const char *section, const char *key, const char *value)
{
	struct told *t = user;
	size_t n = strlen(key), m = strlen(value);
	const char *line;

	if (t->wrong || t->n == t->n_lines || *section == '\0') {
		t->wrong = true;
		return 1;
	}
	line = t->lines[t->n++];
	t->wrong = memcmp(line, key, n) != 0;
	line += n;
	line += strspn(line, " ");
	t->wrong = t->wrong || *line++ != '=';
	line += value[0] ? strspn(line, " ") : 0;
	t->wrong = t->wrong || strncmp(line, value, m) != 0;
	line += m;
	/* behind the value: nothing but blanks and a comment */
	m = strspn(line, " ");
	t->wrong = t->wrong || (line[m] && line[m] != '\n' && !(line[m] == ';' && m));
	return 1;
}

/* Whether the text was let pass. */
static bool check_beside_inih(const char *text, size_t n)
{
	_cleanup_(freep) char *error = NULL;
	struct told told = {0};

	if (measure_text("f", text, n, &error) < 0) {
		assert_int_equal(strncmp(error, "f:", 2), 0);
		return false;
	}
	for (const char *line = text; *line;) {
		size_t size = strcspn(line, "\n");

		if (strspn(line, " ") < size && !strchr("#;[", *line))
			told.lines[told.n_lines++] = line;
		line += size + (line[size] == '\n');
	}
	if (ini_parse_string(text, check_told, &told) != 0 || told.wrong || told.n != told.n_lines)
		fail_msg("inih reads \"%s\" otherwise", text);
	return true;
}

/* All texts of up to 5 of these characters, behind what may stand before them. */
static void test_all_short_texts(void **state)
{
	static const char alphabet[] = "k=:;# []\n";
	static const char *const begins[] = {"", "[s]\n", "[s]\na=\n", "[s]\na="};
	const unsigned base = sizeof(alphabet) - 1;
	unsigned passed[ELEMENTS(begins)] = {0};

	(void)state;
	for (size_t b = 0; b < ELEMENTS(begins); b++)
		for (unsigned length = 1, count = base; length <= 5; length++, count *= base)
			for (unsigned i = 0; i < count; i++) {
				char text[32] = "";
				unsigned rest = i, n = (unsigned)strlen(begins[b]);

				memcpy(text, begins[b], n);
				for (unsigned j = 0; j < length; j++, rest /= base)
					text[n++] = alphabet[rest % base];
				passed[b] += check_beside_inih(text, n);
			}
	for (size_t b = 0; b < ELEMENTS(begins); b++)
		assert_true(passed[b] > 1000);
}

static void refuse_file(const char *file, int r, const char *what)
{
	_cleanup_(freep) char *text = NULL, *error = NULL;
	size_t n = 77, prefix = strlen(file);

	assert_int_equal(measure_read(file, &text, &n, &error), r);
	assert_null(text);
	assert_int_equal(n, 77);
	assert_non_null(error);
	if (strncmp(error, file, prefix) != 0 || error[prefix] != ':' || !strstr(error, what) ||
		!strchr(error, ';'))
		fail_msg("\"%s\" is not \"%s: ... %s\"", error, file, what);
}

static void test_read(void **state)
{
	_cleanup_(freep) char *text = NULL, *error = NULL;
	size_t n = 77;

	(void)state;
	write_file("[s]\nk = 1", 9);
	assert_int_equal(measure_read("f", &text, &n, &error), 0);
	assert_string_equal(text, "[s]\nk = 1");
	assert_int_equal(n, 9);
	assert_null(error);
}

static void test_read_dropped(void **state)
{
	_cleanup_(freep) char *text = NULL, *again = NULL, *error = NULL;
	static const char windows[] = "\xef\xbb\xbf[s]\r\nk = 1\r\n\r\nl = 2\r\n";
	char line[3 + 4 + CONF_LINE_MAX + 3] = "\xef\xbb\xbf[s]\n";
	size_t n;

	(void)state;
	write_file(windows, sizeof(windows) - 1);
	assert_int_equal(measure_read("f", &text, &n, &error), 0);
	assert_string_equal(text, "[s]\nk = 1\n\nl = 2\n");
	assert_int_equal(n, strlen(text));

	/* neither counts for the length of a line */
	memset(line + 7, 'x', CONF_LINE_MAX);
	line[8] = '=';
	memcpy(line + 7 + CONF_LINE_MAX, "\r\n", 2);
	write_file(line, 7 + CONF_LINE_MAX + 2);
	assert_int_equal(measure_read("f", &again, &n, &error), 0);
	assert_int_equal(n, 4 + CONF_LINE_MAX + 1);
}

/* A mark that is not at the very beginning is no mark, and CR alone ends no line. */
static void test_read_not_dropped(void **state)
{
	static const char mark[] = "[s]\n\xef\xbb\xbfk = 1\n", cr[] = "[s]\nk = 1\r";
	_cleanup_(freep) char *text = NULL, *error = NULL, *untouched = NULL;
	size_t n;

	(void)state;
	write_file(mark, sizeof(mark) - 1);
	assert_int_equal(measure_read("f", &text, &n, &error), 0);
	assert_string_equal(text, mark);
	write_file(cr, sizeof(cr) - 1);
	assert_int_equal(measure_read("f", &untouched, &n, &error), -EINVAL);
	assert_null(untouched);
	assert_non_null(strstr(error, "0x0d"));
	write_file("[s]\nk = 1\0002\n", 12);
	refuse_file("f", -EINVAL, "NUL");
}

static void test_read_refused(void **state)
{
	(void)state;
	unlink("f");
	refuse_file("f", -ENOENT, "No such file");
	refuse_file(".", -EISDIR, "Is a directory");
	refuse_file("/dev/zero", -EINVAL, "no regular file");
	assert_int_equal(mkfifo("f", 0600), 0);
	refuse_file("f", -EINVAL, "no regular file");
	unlink("f");
	assert_int_equal(symlink("f", "f"), 0);
	refuse_file("f", -ELOOP, "symbolic links");
	unlink("f");
}

static void test_read_unreadable(void **state)
{
	uid_t user = geteuid();

	(void)state;
	write_file("", 0);
	assert_int_equal(chmod("f", 0), 0);
	if (user == 0)
		assert_int_equal(seteuid(65534), 0);
	refuse_file("f", -EACCES, "make it readable");
	assert_int_equal(seteuid(user), 0);
}

static void test_read_null_device(void **state)
{
	_cleanup_(freep) char *text = NULL, *error = NULL;
	size_t n;

	(void)state;
	assert_int_equal(measure_read("/dev/null", &text, &n, &error), 0);
	assert_int_equal(n, 0);
	assert_string_equal(text, "");
}

static void test_read_size(void **state)
{
	_cleanup_(freep) char *big = malloc(MEASURE_FILE_MAX + 1), *text = NULL, *error = NULL;
	size_t n;

	(void)state;
	unlink("f");
	memset(big, '\n', MEASURE_FILE_MAX + 1);
	write_file(big, MEASURE_FILE_MAX);
	assert_int_equal(measure_read("f", &text, &n, &error), 0);
	assert_int_equal(n, MEASURE_FILE_MAX);
	write_file(big, MEASURE_FILE_MAX + 1);
	refuse_file("f", -EINVAL, "larger");
}

static void test_fail(void **state)
{
	struct measure_place at = {"a\nb", 3, "s", "k"};
	char *error = NULL;

	(void)state;
	assert_int_equal(measure_fail(&at, &error, "%s; %d", "x\ty\x7f", 7), -EINVAL);
	assert_string_equal(error, "a?b:3: [s] k: x?y?; 7");
	free(error);
	at = (struct measure_place){"f", 0, "s", NULL};
	measure_fail(&at, &error, "x");
	assert_string_equal(error, "f: [s]: x");
	free(error);
	at = (struct measure_place){"f", 2, NULL, NULL};
	measure_fail(&at, &error, "x");
	assert_string_equal(error, "f:2: x");
	free(error);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_line_length),
		cmocka_unit_test(test_longest_line_arrives),
		cmocka_unit_test(test_comment_does_not_become_a_key),
		cmocka_unit_test(test_section_length),
		cmocka_unit_test(test_sections),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_all_short_texts),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_read_dropped),
		cmocka_unit_test(test_read_not_dropped),
		cmocka_unit_test(test_read_refused),
		cmocka_unit_test(test_read_unreadable),
		cmocka_unit_test(test_read_null_device),
		cmocka_unit_test(test_read_size),
		cmocka_unit_test(test_fail),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
