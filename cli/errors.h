/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Every error of tallyctl is one line on stderr that says what is wrong (pool, file, value) and
 * what mends it. libtally gives an errno only; the sentences are here, and where one number stands
 * for two faults (no such pool, no such file) the daemon is asked once more which it is.
 */

#include "command.h"
#include "text.h"

/* What a user typed, for a message: cut, because nobody reads a line of many kilobytes. */
#define ERROR_CUT(typed) text_cut(typed, (char[TEXT_CUT_MAX]){0})

/* Prints "tallyctl: …" as one line, whatever the arguments hold; returns `status`. */
int error_line(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* All of them take a negative errno, tell it and return STATUS_ERROR. */

/* Of tally_open_with(). */
int error_open(const char *address, int error);

/* Of tally_get() (file NULL: of looking at the pool). */
int error_get(const struct invocation *inv, const char *path, const char *file, int error);
int error_attach(const struct invocation *inv, const char *path, int error);
int error_watch(const struct invocation *inv, const char *path, int error);

/* Of a charge that no limit refused. */
int error_charge(const struct invocation *inv, const char *path, int error);

/* Of tally_set(). */
int error_set(const struct invocation *inv, const char *path, const char *file, const char *value,
	int error);

int error_create(const struct invocation *inv, const char *path, int error);
int error_remove(const struct invocation *inv, const char *path, int error);

/* Of finding the pool whose values are to be dropped. */
int error_reset(const struct invocation *inv, const char *path, int error);

/* Of writing to stdout. */
int error_output(int error);

/* Of what has neither pool nor file; `subject` says what it was about. */
int error_plain(const struct invocation *inv, const char *subject, int error);
