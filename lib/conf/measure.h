/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Measuring a configuration file before inih sees it. inih cuts what is too long and joins what is
 * indented or repeated, and says nothing; a limit that was cut by one digit would then be in force.
 * Here such a file is refused, with the line and what to do, and inih gets only what it reads as it
 * stands.
 */

#include <stddef.h>

#include "core/util.h"

#define MEASURE_FILE_MAX (1024 * 1024) /* bytes of a file; tens of thousands of sections */

/* What an error is about. line 0, section NULL and key NULL: not shown. */
struct measure_place {
	const char *file;
	unsigned line;
	const char *section, *key;
};

/*
 * Puts "FILE:LINE: [SECTION] KEY: text", always one line, into *ret_error, to be freed by the
 * caller. Returns -EINVAL, or -ENOMEM with *ret_error NULL.
 */
_printf_(3, 4) int measure_fail(
	const struct measure_place *at, char **ret_error, const char *format, ...);

/*
 * Reads a file whole, without a byte order mark and with LF for CRLF, and measures it: every line
 * of *ret_text (NUL-terminated, to be freed) is one that inih neither cuts nor joins nor skips. The
 * file must be a regular one, or /dev/null, which is how an administrator masks a drop-in.
 *
 * 0, or a negative errno with one line in *ret_error.
 */
int measure_read(const char *file, char **ret_text, size_t *ret_n, char **ret_error);

/* The measuring alone, of a text that is called `file` in messages. */
int measure_text(const char *file, const char *text, size_t n, char **ret_error);
