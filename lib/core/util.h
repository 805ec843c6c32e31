/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What C lacks and every module wants: owners that clean up when they leave their scope, and a few
 * macros with one meaning each. Lists are those of <sys/queue.h>, trees those of <search.h>.
 */

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define _cleanup_(f) __attribute__((cleanup(f)))
#define _public_ __attribute__((visibility("default")))
#define _printf_(a, b) __attribute__((format(printf, a, b)))
#define _unused_ __attribute__((unused))

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define ELEMENTS(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline void freep(void *p)
{
	free(*(void **)p);
}

static inline int close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
	return -1;
}

static inline void close_fdp(int *fd)
{
	close_fd(*fd);
}

static inline void fclosep(FILE **f)
{
	if (*f)
		fclose(*f);
}

/* Hands an owned pointer or descriptor over to the caller and leaves nothing behind to clean up. */
#define take_ptr(p)                                                                                \
	({                                                                                         \
		typeof(p) taken_ = (p);                                                            \
		(p) = NULL;                                                                        \
		taken_;                                                                            \
	})

static inline int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

/*
 * Takes a structure that may have grown: bytes that this library does not know must be 0, missing
 * ones are.
 */
static inline int copy_struct(void *dst, size_t known, const void *src, size_t size)
{
	for (size_t i = known; i < size; i++)
		if (((const char *)src)[i])
			return -E2BIG;
	memset(dst, 0, known);
	memcpy(dst, src, size < known ? size : known);
	return 0;
}

/* Gives one that the caller may know to be shorter, or longer: what is beyond is 0. */
static inline void give_struct(void *dst, size_t size, const void *src, size_t known)
{
	memset(dst, 0, size);
	memcpy(dst, src, size < known ? size : known);
}
