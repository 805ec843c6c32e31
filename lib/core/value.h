/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Values that people write: sizes, durations, booleans, whole numbers. Text from a person or from
 * another program; surrounding white space is ignored, everything else that is not exactly a value
 * is refused.
 */

#include <stdbool.h>
#include <stdint.h>

#define VALUE_MAX UINT64_MAX /* what the word `max` reads as */

/* All of them: 0, -EINVAL (not such a value) or -ERANGE (too large); output untouched on failure.
 */

/* Bytes: decimal digits and an optional K M G T P E (powers of 1024; either case). No sign, no
 * fraction, no blank between number and suffix. */
int value_parse_bytes(const char *text, uint64_t *ret);

/* As value_parse_bytes(), or the word `max`, which reads as VALUE_MAX. A number that is VALUE_MAX
 * itself is -ERANGE. */
int value_parse_limit(const char *text, uint64_t *ret);

/* A whole number without suffix. */
int value_parse_number(const char *text, uint64_t *ret);

/* As value_parse_number(), or the word `max`, which reads as VALUE_MAX. A number that is VALUE_MAX
 * itself is -ERANGE. */
int value_parse_count(const char *text, uint64_t *ret);

/* A duration in microseconds: digits and us, ms, s, min or h; a bare number means seconds. */
int value_parse_usec(const char *text, uint64_t *ret);

/* yes/no, true/false, on/off, 1/0. */
int value_parse_bool(const char *text, bool *ret);

/* Octal permission bits, 0 to 0777 ("0666"). */
int value_parse_mode(const char *text, unsigned *ret);

/* "max" or the number; the text that the files of a pool show, without newline. At most 21 bytes
 * with NUL are written. */
#define VALUE_TEXT_MAX 24
const char *value_format_limit(uint64_t v, char buf[static VALUE_TEXT_MAX]);

/* A duration, as value_parse_usec() reads it: "2s", "500ms", "1us". At most VALUE_TEXT_MAX bytes. */
const char *value_format_usec(uint64_t usec, char buf[static VALUE_TEXT_MAX]);

/* For people: "12.5M", "64K", "0", "max". At most VALUE_TEXT_MAX bytes. */
const char *value_format_human(uint64_t v, char buf[static VALUE_TEXT_MAX]);
