/* SPDX-License-Identifier: MIT */

/*
 * Lines to standard error, which is somebody's terminal, file, pipe or the journal's socket. Nobody
 * need read it: a daemon that waits there until somebody does serves nobody meanwhile. So what is
 * not taken at once is dropped and counted, and the next line that is taken tells how many were.
 */

#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/util.h"

#define LINE_MAX_BYTES 16384 /* three paths and a sentence */

static bool want_debug, for_journal;
static int own_fd = -1; /* standard error once more, not blocking */
static unsigned long n_lost;
/* The end of a long line of which the beginning was taken. */
static char rest[LINE_MAX_BYTES + 32];
static size_t n_rest;

void log_open(bool debug)
{
	struct stat st;

	want_debug = debug;
	for_journal = getenv("JOURNAL_STREAM") != NULL;
	/* A description of our own: O_NONBLOCK on the shared one would be everybody's. Files keep
	 * theirs, for it knows where to go on; sockets and what belongs to others cannot be opened. */
	if (fstat(STDERR_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)))
		own_fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* Without waiting, as far as that can be told beforehand. */
static ssize_t put(const char *text, size_t n)
{
	struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
	ssize_t done;

	if (own_fd >= 0)
		return write(own_fd, text, n);
	done = send(STDERR_FILENO, text, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (done >= 0 || errno != ENOTSOCK)
		return done;
	if (poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT)) {
		errno = EAGAIN;
		return -1;
	}
	return write(STDERR_FILENO, text, n);
}

static bool put_rest(void)
{
	ssize_t done = n_rest > 0 ? put(rest, n_rest) : 0;

	if (done > 0) {
		n_rest -= (size_t)done;
		memmove(rest, rest + done, n_rest);
	}
	return n_rest == 0;
}

/* Of a line either all is taken in the end, or nothing. */
static bool put_line(const char *line)
{
	ssize_t done;
	int n;

	if (!put_rest())
		return false;
	n = for_journal ? snprintf(rest, sizeof(rest), "%s\n", line)
			: snprintf(rest, sizeof(rest), "tallyd: %s\n", line + strlen("<0>"));
	done = put(rest, (size_t)n);
	if (done > 0) {
		n_rest = (size_t)n - (size_t)done;
		memmove(rest, rest + done, n_rest);
	}
	return done > 0;
}

void log_write(int priority, const char *format, ...)
{
	char line[LINE_MAX_BYTES], lost[64];
	va_list ap;
	int n;

	if (priority >= 7 && !want_debug)
		return;
	snprintf(line, sizeof(line), "<%d>", priority);
	va_start(ap, format);
	n = vsnprintf(line + strlen("<0>"), sizeof(line) - strlen("<0>"), format, ap);
	va_end(ap);
	if (n < 0)
		return;
	/* One message is one line, whatever a client put into its name. */
	for (char *p = line; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	if (n_lost > 0) {
		snprintf(lost, sizeof(lost), "<4>%lu lines were lost here: nobody read them",
			n_lost);
		if (put_line(lost))
			n_lost = 0;
	}
	if (n_lost > 0 || !put_line(line))
		n_lost++;
}
