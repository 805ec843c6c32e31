/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The daemon's log: lines on stderr, with the priority in front where the journal reads them.
 */

#include "core/util.h"

void log_open(bool debug);

void log_write(int priority, const char *format, ...) _printf_(2, 3);

/* Priorities are those of syslog(3). */
#define log_error(...) log_write(3, __VA_ARGS__)
#define log_warning(...) log_write(4, __VA_ARGS__)
#define log_info(...) log_write(6, __VA_ARGS__)
#define log_debug(...) log_write(7, __VA_ARGS__)
