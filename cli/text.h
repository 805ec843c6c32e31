/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Reading the texts of a pool's files, and what people type. libtally hands files over as text and
 * tallyctl knows nothing of the engine, so the few parsers that it needs are here.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define _cleanup_(f) __attribute__((cleanup(f)))

static inline void freep(void *p)
{
	free(*(void **)p);
}

/* The next line, cut out of the text in place, without newline; NULL behind the last one. The
 * cursor starts at the text. */
char *text_next_line(char **cursor);

/* The next word of a line (blanks and tabs separate), cut out in place; NULL behind the last one.
 */
char *text_next_word(char **cursor);

/* Cuts the line at its first blank; returns what stands behind it, "" if nothing does. */
char *text_split_key(char *line);

/* The number in the line `key NUMBER` of a text. -ENOENT: no such line, or no number in it. */
int text_find_number(const char *text, const char *key, uint64_t *ret);

/* Lines of a text. */
size_t text_count_lines(const char *text);

/* Decimal digits and nothing else. -EINVAL, -ERANGE. */
int text_parse_number(const char *text, uint64_t *ret);

/* Decimal digits and an optional K M G T P E (powers of 1024; either case). -EINVAL, -ERANGE. */
int text_parse_bytes(const char *text, uint64_t *ret);

/* Decimal digits and an optional unit, us, ms, s (the default), min or h, in microseconds. -EINVAL,
 * -ERANGE. */
int text_parse_duration(const char *text, uint64_t *ret_usec);

/* The text of a limit: `max`, which reads as UINT64_MAX, or a number; a newline behind it is fine.
 */
int text_parse_limit(const char *text, uint64_t *ret);

/* Decodes %XX in place; %00 and what is no such code stay as they are. */
void text_decode(char *text);

/* Bytes of the UTF-8 sequence that the text begins with, 0 if that is not valid UTF-8. */
size_t text_utf8_length(const char *text);

/* Replaces, in place, control characters by '?', so that a text is one line and cannot steer a
 * terminal. All other bytes stay, valid UTF-8 or not. */
void text_make_safe(char *text);

/* Bytes of a text that a message shows at most, and what text_cut() needs for them. */
#define TEXT_CUT_BYTES 64
#define TEXT_CUT_MAX (TEXT_CUT_BYTES + sizeof("…"))

/* The text, or the whole characters in its first TEXT_CUT_BYTES and "…". Returns buf. */
const char *text_cut(const char *text, char buf[static TEXT_CUT_MAX]);

/* `parent`/`name`, to be freed; NULL when memory is short. */
char *text_join_path(const char *parent, const char *name);

/* The parent of a path, to be freed: "/" for "/a"; NULL when memory is short. */
char *text_parent_path(const char *path);
