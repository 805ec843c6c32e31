/* SPDX-License-Identifier: MIT */

/*
 * The trial: a sequence says that it has begun, and waits for another process on the same CPU to
 * answer. That process runs only when ours is preempted, so that a sequence which sees the answer,
 * and goes on to its store, was not aborted by the preemption.
 */

#include "kernel.h"

#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/percpu.h"

#if PERCPU_HAS_RSEQ

enum flag {
	BEGUN,
	ANSWERED,
	STORED,
	FLAGS,
};

/* 0: it went through; -EAGAIN: it was aborted. */
#if defined(__x86_64__)
static __attribute__((noinline)) int wait_in_sequence(volatile uint32_t *flags)
{
	/* clang-format off */
	__asm__ volatile goto(
		PERCPU_DESCRIPTOR PERCPU_ARM
		"movl $1, (%[flags])\n\t"
		"6: pause\n\t"
		"cmpl $0, 4(%[flags])\n\t"
		"je 6b\n\t"
		"movl $1, 8(%[flags])\n\t"
		"2:\n\t" PERCPU_ABORT
		:
		: [rseq] "m"(percpu_rseq_offset), [flags] "r"(flags)
		: "rax", "rcx", "cc", "memory"
		: aborted);
	/* clang-format on */
	return 0;
aborted:
	return -EAGAIN;
}
#else
static __attribute__((noinline)) int wait_in_sequence(volatile uint32_t *flags)
{
	/* clang-format off */
	__asm__ volatile goto(
		PERCPU_DESCRIPTOR PERCPU_ARM
		"mov w9, #1\n\t"
		"str w9, [%[flags]]\n\t"
		"6: ldr w9, [%[flags], #4]\n\t"
		"cbz w9, 6b\n\t"
		"str w9, [%[flags], #8]\n\t"
		"2:\n\t" PERCPU_ABORT
		:
		: [rseq] "r"(percpu_rseq_area()), [flags] "r"(flags)
		: "x9", "cc", "memory"
		: aborted);
	/* clang-format on */
	return 0;
aborted:
	return -EAGAIN;
}
#endif

/* The other process, on the same CPU. */
static _Noreturn void answer(volatile uint32_t *flags)
{
	const struct timespec t = {.tv_nsec = 500000};

	while (!flags[BEGUN])
		nanosleep(&t, NULL);
	flags[ANSWERED] = 1;
	_exit(0);
}

static int try_pinned(void)
{
	volatile uint32_t *flags = mmap(NULL, FLAGS * sizeof(*flags), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;
	int r;

	if (flags == MAP_FAILED)
		return -errno;
	pid = fork();
	if (pid < 0)
		r = -errno;
	else if (pid == 0)
		answer(flags);
	else {
		/* Whoever else preempts it, an abort is what is wanted. */
		r = wait_in_sequence(flags) == -EAGAIN;
		flags[BEGUN] = 1;
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	munmap((void *)flags, FLAGS * sizeof(*flags));
	return r;
}

int kernel_aborts_sequences(void)
{
	cpu_set_t before, one;
	int cpu = sched_getcpu(), r;

	if (!percpu_has_rseq() || cpu < 0)
		return 0;
	if (sched_getaffinity(0, sizeof(before), &before) < 0)
		return -errno;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one) < 0)
		return -errno;
	r = try_pinned();
	if (sched_setaffinity(0, sizeof(before), &before) < 0 && r >= 0)
		r = -errno;
	return r;
}

#else

int kernel_aborts_sequences(void)
{
	return 0;
}

#endif
