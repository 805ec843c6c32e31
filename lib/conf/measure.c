/* SPDX-License-Identifier: MIT */

/*
 * One pass over the bytes of a file, line by line, knowing just enough of the grammar to tell what
 * inih would make of each line: where its comments begin, where it ends a section's name, which of
 * '=' and ':' it takes for the separator. What a key means is not known here.
 */

#include "measure.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "conf.h"

/* A section seen in this file, found by name in a tree, so that a file full of them stays quick. */
struct seen {
	unsigned line;
	char name[CONF_SECTION_MAX + 1];
};

struct measure {
	struct measure_place at;
	char **ret_error;
	void *sections;             /* tsearch(3) root of struct seen */
	const struct seen *section; /* the one that the line stands in */
	unsigned keys;              /* of that section */
};

int measure_fail(const struct measure_place *at, char **ret_error, const char *format, ...)
{
	_cleanup_(freep) char *what = NULL;
	const char *section = at->section, *key = at->key;
	char line[16] = "", *text;
	va_list args;
	int n;

	*ret_error = NULL;
	va_start(args, format);
	n = vasprintf(&what, format, args);
	va_end(args);
	if (n < 0) {
		what = NULL;
		return -ENOMEM;
	}
	if (at->line)
		snprintf(line, sizeof(line), "%u:", at->line);
	if (asprintf(&text, "%s:%s%s%s%s%s%s%s %s", at->file, line, section ? " [" : "",
		    section ? section : "", section ? "]" : "", key ? " " : "", key ? key : "",
		    section || key ? ":" : "", what) < 0)
		return -ENOMEM;

	for (char *c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	*ret_error = text;
	return -EINVAL;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* The first of `stops`, or of the blank-and-';' that begins a comment, or the end. */
static const char *find_stop(const char *from, const char *end, const char *stops)
{
	for (const char *c = from; c < end; c++)
		if (strchr(stops, *c) || (*c == ';' && c > from && is_blank(c[-1])))
			return c;
	return end;
}

static bool is_blank_until(const char *from, const char *end)
{
	while (from < end && is_blank(*from))
		from++;
	return from == end;
}

static int check_bytes(struct measure *m, const char *line, size_t n)
{
	if (n > CONF_LINE_MAX)
		return measure_fail(&m->at, m->ret_error,
			"the line has %zu bytes, at most %d can be read; shorten it, comments too",
			n, CONF_LINE_MAX);
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)line[i];

		if (c == '\0')
			return measure_fail(&m->at, m->ret_error,
				"the line has a NUL byte; write the file as plain text");
		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return measure_fail(&m->at, m->ret_error,
				"the line has the control character 0x%02x; remove it", c);
	}
	return 0;
}

/* A section without keys would vanish without a word: inih tells of keys alone. */
static int leave_section(struct measure *m)
{
	struct measure_place at = m->at;

	if (!m->section || m->keys)
		return 0;
	at.line = m->section->line;
	return measure_fail(&at, m->ret_error,
		"the section is empty; give it a key, or remove it or comment it out");
}

static int compare_seen(const void *a, const void *b)
{
	return strcmp(((const struct seen *)a)->name, ((const struct seen *)b)->name);
}

static int enter_section(struct measure *m, const char *name, size_t n)
{
	_cleanup_(freep) struct seen *seen = calloc(1, sizeof(*seen));
	struct seen **found;

	if (!seen)
		return -ENOMEM;
	seen->line = m->at.line;
	memcpy(seen->name, name, n);
	found = tsearch(seen, &m->sections, compare_seen);
	if (!found)
		return -ENOMEM;
	m->at.section = (*found)->name;
	if (*found != seen)
		return measure_fail(&m->at, m->ret_error,
			"the section stands in line %u already; write its keys there",
			(*found)->line);
	m->section = take_ptr(seen);
	m->keys = 0;
	return 0;
}

static int check_section(struct measure *m, const char *line, const char *end)
{
	const char *name = line + 1, *close = find_stop(name, end, "]");
	size_t n = (size_t)(close - name);
	int r = leave_section(m);

	if (r < 0)
		return r;
	m->at.section = NULL;
	if (close == end || *close != ']')
		return measure_fail(
			&m->at, m->ret_error, "the section's name is not closed; end it with ']'");
	if (n == 0)
		return measure_fail(&m->at, m->ret_error,
			"the section has no name; write it between '[' and ']'");
	if (n > CONF_SECTION_MAX)
		return measure_fail(&m->at, m->ret_error,
			"the section's name has %zu bytes, at most %d can be read; shorten it", n,
			CONF_SECTION_MAX);
	close++;
	if (!is_blank_until(close, find_stop(close, end, "")))
		return measure_fail(&m->at, m->ret_error,
			"there is text behind ']'; put it into a line of its own, a comment behind "
			"' ;'");
	return enter_section(m, name, n);
}

static int check_key(struct measure *m, const char *line, const char *end)
{
	const char *stop = find_stop(line, end, "=:");

	if (stop == end || *stop == ';')
		return measure_fail(&m->at, m->ret_error,
			"the line has no '='; write KEY = VALUE, or '#' before a comment");
	if (*stop == ':')
		return measure_fail(&m->at, m->ret_error,
			"the line has ':' in or behind the key; write %.*s = VALUE",
			(int)(stop - line), line);
	if (stop == line)
		return measure_fail(
			&m->at, m->ret_error, "the line has no key before '='; write KEY = VALUE");
	if (!m->section)
		return measure_fail(&m->at, m->ret_error,
			"the key stands before the first section; write [SECTION] above it");
	m->keys++;
	return 0;
}

static int check_line(struct measure *m, const char *line, const char *end)
{
	int r = check_bytes(m, line, (size_t)(end - line));

	if (r < 0)
		return r;
	if (is_blank_until(line, end))
		return 0;
	if (is_blank(*line))
		return measure_fail(&m->at, m->ret_error,
			"the line is indented; begin it at its first column (no line continues "
			"another)");
	if (*line == '#' || *line == ';')
		return 0;
	return *line == '[' ? check_section(m, line, end) : check_key(m, line, end);
}

int measure_text(const char *file, const char *text, size_t n, char **ret_error)
{
	struct measure m = {.at = {.file = file}, .ret_error = ret_error};
	const char *end = text + n;
	int r = 0;

	*ret_error = NULL;
	for (const char *line = text; line < end && r == 0;) {
		const char *newline = memchr(line, '\n', (size_t)(end - line));
		const char *line_end = newline ? newline : end;

		m.at.line++;
		r = check_line(&m, line, line_end);
		line = newline ? newline + 1 : end;
	}
	if (r == 0)
		r = leave_section(&m);
	tdestroy(m.sections, free);
	return r;
}

/* Drops a byte order mark and the CR of CRLF: both change nothing but the length of a line. */
static size_t normalise(char *text, size_t n)
{
	size_t from = n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, to = 0;

	for (; from < n; from++)
		if (text[from] != '\r' || from + 1 == n || text[from + 1] != '\n')
			text[to++] = text[from];
	text[to] = '\0';
	return to;
}

static int read_all(int fd, char *buf, size_t size, size_t *ret_n)
{
	size_t n = 0;

	while (n < size) {
		ssize_t got = read(fd, buf + n, size - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		n += (size_t)got;
	}
	*ret_n = n;
	return 0;
}

static int fail_file(const char *file, int r, char **ret_error)
{
	struct measure_place at = {.file = file};
	const char *remedy = r == -EISDIR ? "put a file in its place or remove it"
		: r == -ENOENT
		? "create it, remove the link or option that names it, or reload if it just went"
		: "make it readable for tallyd or remove it";
	int failed = measure_fail(
		&at, ret_error, "the file cannot be read: %s; %s", strerror(-r), remedy);

	return failed == -ENOMEM ? failed : r;
}

/* Without O_NONBLOCK a FIFO in the place of a file would hold up the start for ever. */
static int open_file(const char *file, int *ret, char **ret_error)
{
	_cleanup_(close_fdp) int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct measure_place at = {.file = file};
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return fail_file(file, -errno, ret_error);
	if (S_ISDIR(st.st_mode))
		return fail_file(file, -EISDIR, ret_error);
	if (!S_ISREG(st.st_mode) && !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)))
		return measure_fail(&at, ret_error,
			"this is no regular file; put one in its place (a link to /dev/null masks "
			"a "
			"drop-in)");
	*ret = take_fd(&fd);
	return 0;
}

int measure_read(const char *file, char **ret_text, size_t *ret_n, char **ret_error)
{
	_cleanup_(freep) char *text = NULL;
	_cleanup_(close_fdp) int fd = -1;
	struct measure_place at = {.file = file};
	size_t n = 0;
	int r;

	*ret_error = NULL;
	r = open_file(file, &fd, ret_error);
	if (r < 0)
		return r;
	text = malloc(MEASURE_FILE_MAX + 1);
	if (!text)
		return -ENOMEM;
	r = read_all(fd, text, MEASURE_FILE_MAX + 1, &n);
	if (r < 0)
		return fail_file(file, r, ret_error);
	if (n > MEASURE_FILE_MAX)
		return measure_fail(&at, ret_error,
			"the file is larger than %d bytes; split it into drop-ins",
			MEASURE_FILE_MAX);
	n = normalise(text, n);
	r = measure_text(file, text, n, ret_error);
	if (r < 0)
		return r;
	*ret_text = take_ptr(text);
	*ret_n = n;
	return 0;
}
