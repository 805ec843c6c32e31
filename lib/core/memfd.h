/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A memfd that can be sealed and not be executed. Kernels since 6.3 may demand to be told the latter,
 * earlier ones do not know the word.
 */

#include <errno.h>
#include <sys/mman.h>

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
