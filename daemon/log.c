/* SPDX-License-Identifier: MIT */

#include "log.h"

#include <stdarg.h>
#include <string.h>

static bool want_debug, for_journal;

void log_open(bool debug)
{
	want_debug = debug;
	for_journal = getenv("JOURNAL_STREAM") != NULL;
}

void log_write(int priority, const char *format, ...)
{
	char line[16384]; /* three paths and a sentence */
	va_list ap;
	int n;

	if (priority >= 7 && !want_debug)
		return;
	va_start(ap, format);
	n = vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	if (n < 0)
		return;
	/* One message is one line, whatever a client put into its name. */
	for (char *p = line; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	if (for_journal)
		fprintf(stderr, "<%d>%s\n", priority, line);
	else
		fprintf(stderr, "tallyd: %s\n", line);
}
