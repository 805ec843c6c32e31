/* SPDX-License-Identifier: MIT */

/*
 * The trial: a sequence that waits for another process on the same CPU. That process runs only when
 * ours is preempted, so that a sequence which sees what it did, and goes on to its store, was not
 * aborted by the preemption.
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

/* Waits inside a sequence for another process to set flag[0], then sets flag[1]. -EAGAIN: aborted.
 */
#if defined(__x86_64__)
static __attribute__((noinline)) int wait_in_sequence(volatile uint32_t *flag)
{
	__asm__ volatile goto(PERCPU_DESCRIPTOR PERCPU_ARM "6: pause\n\t"
							   "cmpl $0, (%[flag])\n\t"
							   "je 6b\n\t"
							   "movl $1, 4(%[flag])\n\t"
							   "2:\n\t" PERCPU_ABORT
			      :
			      : [rseq] "r"(percpu_rseq_offset), [flag] "r"(flag)
			      : "rax", "cc", "memory"
			      : aborted);
	return 0;
aborted:
	return -EAGAIN;
}
#else
static __attribute__((noinline)) int wait_in_sequence(volatile uint32_t *flag)
{
	__asm__ volatile goto(PERCPU_DESCRIPTOR PERCPU_ARM "6: ldr w9, [%[flag]]\n\t"
							   "cbz w9, 6b\n\t"
							   "str w9, [%[flag], #4]\n\t"
							   "2:\n\t" PERCPU_ABORT
			      :
			      : [rseq] "r"(percpu_rseq_area()), [flag] "r"(flag)
			      : "x9", "cc", "memory"
			      : aborted);
	return 0;
aborted:
	return -EAGAIN;
}
#endif

/* The other process, on the same CPU: lets us get into the sequence, then sets the flag. */
static _Noreturn void set_flag(volatile uint32_t *flag)
{
	const struct timespec t = {.tv_nsec = 1000000};

	nanosleep(&t, NULL);
	*flag = 1;
	_exit(0);
}

static int try_pinned(void)
{
	volatile uint32_t *flag =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;
	int r;

	if (flag == MAP_FAILED)
		return -errno;
	pid = fork();
	if (pid < 0) {
		r = -errno;
		goto finish;
	}
	if (pid == 0)
		set_flag(flag);
	do
		r = wait_in_sequence(flag);
	while (r == -EAGAIN && !flag[0]);
	r = r == -EAGAIN;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
finish:
	munmap((void *)flag, 4096);
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
