/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A memfd that can be sealed and not be executed. Kernels since 6.3 may demand to be told the latter,
 * earlier ones do not know the word.
 */

#include <errno.h>
#include <sys/mman.h>

#include "util.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* The descriptor, or a negative errno. */
static inline int memfd_make(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return fd < 0 ? -errno : fd;
}

/* One that holds `n` bytes of text. */
static inline int memfd_of_text(const char *name, const char *text, size_t n)
{
	_cleanup_(close_fdp) int fd = memfd_make(name);

	if (fd < 0)
		return fd;
	for (size_t done = 0; done < n;) {
		ssize_t w = write(fd, text + done, n - done);

		if (w < 0)
			return -errno;
		done += (size_t)w;
	}
	return take_fd(&fd);
}
