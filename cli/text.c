/* SPDX-License-Identifier: MIT */

/*
 * Reading texts: in place and without any state, so that a caller owns nothing but the text.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "text.h"

char *text_next_line(char **cursor)
{
	char *line = *cursor, *end;

	if (!*line)
		return NULL;
	end = strchr(line, '\n');
	if (end) {
		*end = 0;
		*cursor = end + 1;
	} else {
		*cursor = line + strlen(line);
	}
	return line;
}

char *text_next_word(char **cursor)
{
	char *word = *cursor + strspn(*cursor, " \t");
	size_t n = strcspn(word, " \t");

	if (!n)
		return NULL;
	*cursor = word + n;
	if (word[n]) {
		word[n] = 0;
		(*cursor)++;
	}
	return word;
}

char *text_split_key(char *line)
{
	char *blank = strchr(line, ' ');

	if (!blank)
		return line + strlen(line);
	*blank = 0;
	return blank + 1;
}

size_t text_count_lines(const char *text)
{
	size_t n = 0;

	for (; *text; n++) {
		text += strcspn(text, "\n");
		text += *text == '\n';
	}
	return n;
}

/* Reads digits; *ret_end is behind them. */
static int parse_digits(const char *text, const char **ret_end, uint64_t *ret)
{
	uint64_t v = 0;
	const char *s;

	for (s = text; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(v, 10, &v) ||
			__builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return -ERANGE;
	if (s == text)
		return -EINVAL;
	*ret_end = s;
	*ret = v;
	return 0;
}

int text_find_number(const char *text, const char *key, uint64_t *ret)
{
	size_t n = strlen(key);
	const char *line, *end;
	uint64_t v;

	for (line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, n) || line[n] != ' ')
			continue;
		if (parse_digits(line + n + 1, &end, &v) < 0 || (*end && *end != '\n'))
			return -ENOENT;
		*ret = v;
		return 0;
	}
	return -ENOENT;
}

int text_parse_number(const char *text, uint64_t *ret)
{
	const char *end;
	uint64_t v;
	int r = parse_digits(text, &end, &v);

	if (r < 0)
		return r;
	if (*end)
		return -EINVAL;
	*ret = v;
	return 0;
}

int text_parse_duration(const char *text, uint64_t *ret_usec)
{
	static const struct {
		const char *name;
		uint64_t usec;
	} units[] = {{"", 1000000}, {"s", 1000000}, {"us", 1}, {"ms", 1000}, {"min", 60000000},
		{"h", UINT64_C(3600000000)}};
	const char *end;
	uint64_t v;
	int r = parse_digits(text, &end, &v);

	for (size_t i = 0; r >= 0 && i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(end, units[i].name) == 0) {
			if (__builtin_mul_overflow(v, units[i].usec, &v))
				return -ERANGE;
			*ret_usec = v;
			return 0;
		}
	return r < 0 ? r : -EINVAL;
}

int text_parse_bytes(const char *text, uint64_t *ret)
{
	static const char suffixes[] = "KMGTPEkmgtpe";
	const char *end, *suffix;
	uint64_t v;
	unsigned shift;
	int r = parse_digits(text, &end, &v);

	if (r < 0)
		return r;
	if (*end) {
		suffix = strchr(suffixes, *end);
		if (!suffix || end[1])
			return -EINVAL;
		shift = 10 * ((unsigned)(suffix - suffixes) % 6 + 1);
		if (v > UINT64_MAX >> shift)
			return -ERANGE;
		v <<= shift;
	}
	*ret = v;
	return 0;
}

int text_parse_limit(const char *text, uint64_t *ret)
{
	const char *end;
	uint64_t v = UINT64_MAX;
	int r;

	if (!strcmp(text, "max\n") || !strcmp(text, "max")) {
		*ret = v;
		return 0;
	}
	r = parse_digits(text, &end, &v);
	if (r < 0)
		return r;
	if (*end && strcmp(end, "\n"))
		return -EINVAL;
	*ret = v;
	return 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

void text_decode(char *text)
{
	char *to = text, *s = text;
	int high, low;

	while (*s) {
		high = *s == '%' ? hex_digit(s[1]) : -1;
		low = high >= 0 ? hex_digit(s[2]) : -1;
		if (low < 0 || (!high && !low)) {
			*to++ = *s++;
		} else {
			*to++ = (char)(high << 4 | low);
			s += 3;
		}
	}
	*to = 0;
}

size_t text_utf8_length(const char *text)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *s = (const unsigned char *)text;
	uint32_t c;
	size_t n;

	if (s[0] < 0x80)
		return 1;
	n = s[0] >= 0xf0 && s[0] < 0xf8 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	if (s[0] < 0xc0 || s[0] >= 0xf8)
		return 0;
	c = s[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

void text_make_safe(char *text)
{
	unsigned char *to = (unsigned char *)text, *s = to;

	while (*s) {
		/* U+0080 to U+009F: terminals that read UTF-8 take them for escape sequences. */
		bool wide = s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0;

		*to++ = wide || *s < 0x20 || *s == 0x7f ? '?' : *s;
		s += wide ? 2 : 1;
	}
	*to = 0;
}

const char *text_cut(const char *text, char buf[static TEXT_CUT_MAX])
{
	size_t n = 0;

	if (strnlen(text, TEXT_CUT_BYTES + 1) <= TEXT_CUT_BYTES)
		return strcpy(buf, text);
	for (size_t next = 0; next <= TEXT_CUT_BYTES;) {
		size_t length = text_utf8_length(text + next);

		n = next;
		next += length ? length : 1;
	}
	strcpy(mempcpy(buf, text, n), "…");
	return buf;
}

char *text_join_path(const char *parent, const char *name)
{
	char *path;

	if (asprintf(&path, "%s/%s", strcmp(parent, "/") ? parent : "", name) < 0)
		return NULL;
	return path;
}

char *text_parent_path(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash != path ? strndup(path, (size_t)(slash - path)) : strdup("/");
}
