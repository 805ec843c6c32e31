/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The sequences themselves, for percpu.h alone. Rules that they keep: the thread's descriptor is
 * set (armed) before anything is read that the store rests on; the CPU number is read after that;
 * the store is the last instruction; no call, no stack, no system call in between; an abort goes to
 * C, where the caller decides. The abort address stands behind the signature that glibc registered,
 * out of the way of the code that runs. The arming stands inside the sequence: an abort before it
 * has happened is no harm.
 */

#include <linux/rseq.h>

/* One instruction a line. */
/* clang-format off */

/* Tests build these to see that what must fail does: a sequence that is not armed, and one that
 * goes by the number of the memory map's concurrency id instead of the CPU's. */
#if defined(PERCPU_CONTROL_MM_CID)
#define PERCPU_CPU_ID "24"
#else
#define PERCPU_CPU_ID "4"
#endif

#define PERCPU_TEXT_(x) #x
#define PERCPU_TEXT(x) PERCPU_TEXT_(x)

/* Labels: 1 the first instruction, 2 behind the store, 3 the descriptor, 4 the abort. The second
 * section lets debuggers and binary translators find the first. */
#define PERCPU_DESCRIPTOR                                                                          \
	".pushsection __rseq_cs, \"aw\"\n\t"                                                       \
	".balign 32\n\t"                                                                           \
	"3: .long 0, 0\n\t"                                                                        \
	".quad 1f, (2f - 1f), 4f\n\t"                                                              \
	".popsection\n\t"                                                                          \
	".pushsection __rseq_cs_ptr_array, \"aw\"\n\t"                                             \
	".quad 3b\n\t"                                                                             \
	".popsection\n\t"

#if defined(__x86_64__)

#define PERCPU_FAILURE                                                                             \
	".pushsection __rseq_failure, \"ax\"\n\t"                                                  \
	".byte 0x0f, 0xb9, 0x3d\n\t" /* ud1 with the signature as its operand */                   \
	".long 0x53053053\n\t"
#define PERCPU_ABORT                                                                               \
	PERCPU_FAILURE                                                                             \
	"4: jmp %l[aborted]\n\t"                                                                   \
	".popsection\n\t"

#if defined(PERCPU_CONTROL_UNARMED)
#define PERCPU_ARM "1: movq %[rseq], %%rcx\n\t"
#else
#define PERCPU_ARM                                                                                 \
	"1: movq %[rseq], %%rcx\n\t"                                                               \
	"leaq 3b(%%rip), %%rax\n\t"                                                                \
	"movq %%rax, %%fs:8(%%rcx)\n\t"
#endif

static inline uint32_t percpu_rseq_cpu(void)
{
	uint32_t cpu;

	__asm__ volatile("movl %%fs:" PERCPU_CPU_ID "(%1), %0"
			 : "=r"(cpu)
			 : "r"(percpu_rseq_offset));
	return cpu;
}

static inline __attribute__((always_inline)) int percpu_rseq_store(
	const struct percpu_area *a, percpu_word *w, uint32_t cpu, word old, word new)
{
	__asm__ volatile goto(
		PERCPU_DESCRIPTOR PERCPU_ARM
		"movl %%fs:" PERCPU_CPU_ID "(%%rcx), %%eax\n\t"
		"cmpl %[cpu], %%eax\n\t"
		"jne %l[elsewhere]\n\t"
		"cmpl %c[open](%[area]), %%eax\n\t"
		"jae %l[elsewhere]\n\t"
		"cmpq %[old], (%[w])\n\t"
		"jne %l[changed]\n\t"
		"movq %[new], (%[w])\n\t"
		"2:\n\t" PERCPU_ABORT
		:
		: [rseq] "m"(percpu_rseq_offset), [area] "r"(a),
		[open] "i"(offsetof(struct percpu_area, n_open)), [cpu] "r"(cpu), [w] "r"(w),
		[old] "r"(old), [new] "r"(new)
		: "rax", "rcx", "cc", "memory"
		: aborted, changed, elsewhere);
	return 0;
aborted:
changed:
	return -EAGAIN;
elsewhere:
	return -EXDEV;
}

/* One word after the other, 4 instructions each, and the way to the store from a later one. The store
 * adds in memory: what was loaded for the test is then not on the way from one change of the word to
 * the next. */
#define PERCPU_LOOK(byte, hit)                                                                     \
	"movq " byte "(%%rax), %%rcx\n\t"                                                          \
	"addq %[off], %%rcx\n\t"                                                                   \
	"cmpq %[most], %%rcx\n\t"                                                                  \
	"jbe " hit "\n\t"
#define PERCPU_FOUND(byte, label)                                                                  \
	label ": addq $" byte ", %%rax\n\t"                                                        \
	      "jmp 5f\n\t"

static inline __attribute__((always_inline)) int percpu_rseq_change(
	const struct percpu_area *a, uint64_t add, uint64_t most, uint64_t key)
{
	__asm__ volatile goto(
		PERCPU_DESCRIPTOR PERCPU_ARM
		"movl %%fs:" PERCPU_CPU_ID "(%%rcx), %%eax\n\t"
		"cmpl %c[open](%[area]), %%eax\n\t"
		"jae %l[elsewhere]\n\t"
		"shlq $" PERCPU_TEXT(
			PERCPU_PAGE_SHIFT) ", %%rax\n\t"
					   "addq %c[pages](%[area]), %%rax\n\t" PERCPU_LOOK("0",
						   "5f") PERCPU_LOOK("8", "11f") PERCPU_LOOK("16",
						   "12f") PERCPU_LOOK("24", "13f") PERCPU_LOOK("32",
						   "14f") PERCPU_LOOK("40", "15f") PERCPU_LOOK("48",
						   "16f") "jmp %l[absent]\n\t" PERCPU_FOUND("8",
						   "11") PERCPU_FOUND("16", "12") PERCPU_FOUND("24",
						   "13") PERCPU_FOUND("32", "14") PERCPU_FOUND("40",
						   "15") "16: addq $48, %%rax\n\t"
							 "5: addq %[add], (%%rax)\n\t"
							 "2:\n\t" PERCPU_ABORT
		:
		: [rseq] "m"(percpu_rseq_offset), [area] "r"(a),
		[open] "i"(offsetof(struct percpu_area, n_open)),
		[pages] "i"(offsetof(struct percpu_area, pages)), [off] "r"(add - key),
		[most] "er"(most), [add] "er"(add)
		: "rax", "rcx", "cc", "memory"
		: aborted, absent, elsewhere);
	return 0;
aborted:
	return -EAGAIN;
absent:
	return -ENOENT;
elsewhere:
	return -EXDEV;
}

/* What is out of the way gives back a number that is no CPU's. */
static inline __attribute__((always_inline)) uint32_t percpu_rseq_add(
	const struct percpu_area *a, char *first, size_t stride, int64_t delta, char **ret_word)
{
	uint32_t cpu;
	char *word;

	__asm__ volatile(
		PERCPU_DESCRIPTOR PERCPU_ARM
		"movl %%fs:" PERCPU_CPU_ID "(%%rcx), %%eax\n\t"
		"cmpl %c[adding](%[area]), %%eax\n\t"
		"jae 4f\n\t"
		"movq %%rax, %[word]\n\t"
		"imulq %[stride], %[word]\n\t"
		"addq %[first], %[word]\n\t"
		"addq %[delta], (%[word])\n\t"
		"2:\n\t" PERCPU_FAILURE
		"4: movl $-1, %%eax\n\t"
		"jmp 2b\n\t"
		".popsection\n\t"
		: "=&a"(cpu), [word] "=&r"(word)
		: [rseq] "m"(percpu_rseq_offset), [area] "r"(a),
		[adding] "i"(offsetof(struct percpu_area, n_adding)), [first] "rm"(first),
		[stride] "rm"(stride), [delta] "er"(delta)
		: "rcx", "cc", "memory");
	*ret_word = word;
	return cpu;
}

#else /* aarch64 */

#define PERCPU_FAILURE                                                                             \
	".pushsection __rseq_failure, \"ax\"\n\t"                                                  \
	".inst 0xd428bc00\n\t" /* brk with the signature */
#define PERCPU_ABORT                                                                               \
	PERCPU_FAILURE                                                                             \
	"4: b %l[aborted]\n\t"                                                                     \
	".popsection\n\t"

#if defined(PERCPU_CONTROL_UNARMED)
#define PERCPU_ARM "1:\n\t"
#else
#define PERCPU_ARM                                                                                 \
	"1: adrp x9, 3b\n\t"                                                                       \
	"add x9, x9, :lo12:3b\n\t"                                                                 \
	"str x9, [%[rseq], #8]\n\t"
#endif

static inline char *percpu_rseq_area(void)
{
	return (char *)__builtin_thread_pointer() + percpu_rseq_offset;
}

static inline uint32_t percpu_rseq_cpu(void)
{
	uint32_t cpu;

	__asm__ volatile("ldr %w0, [%1, #" PERCPU_CPU_ID "]" : "=r"(cpu) : "r"(percpu_rseq_area()));
	return cpu;
}

static inline __attribute__((always_inline)) int percpu_rseq_store(
	const struct percpu_area *a, percpu_word *w, uint32_t cpu, word old, word new)
{
	__asm__ volatile goto(
		PERCPU_DESCRIPTOR PERCPU_ARM
		"ldr w9, [%[rseq], #" PERCPU_CPU_ID "]\n\t"
		"cmp w9, %w[cpu]\n\t"
		"b.ne %l[elsewhere]\n\t"
		"ldr w10, [%[area], #%c[open]]\n\t"
		"cmp w9, w10\n\t"
		"b.hs %l[elsewhere]\n\t"
		"ldr x10, [%[w]]\n\t"
		"cmp x10, %[old]\n\t"
		"b.ne %l[changed]\n\t"
		"str %[new], [%[w]]\n\t"
		"2:\n\t" PERCPU_ABORT
		:
		: [rseq] "r"(percpu_rseq_area()), [area] "r"(a),
		[open] "i"(offsetof(struct percpu_area, n_open)), [cpu] "r"(cpu), [w] "r"(w),
		[old] "r"(old), [new] "r"(new)
		: "x9", "x10", "cc", "memory"
		: aborted, changed, elsewhere);
	return 0;
aborted:
changed:
	return -EAGAIN;
elsewhere:
	return -EXDEV;
}

#define PERCPU_LOOK                                                                                \
	"ldr x10, [x9]\n\t"                                                                        \
	"add x10, x10, %[off]\n\t"                                                                 \
	"cmp x10, %[most]\n\t"                                                                     \
	"b.ls 5f\n\t"
#define PERCPU_NEXT "add x9, x9, #8\n\t"

static inline __attribute__((always_inline)) int percpu_rseq_change(
	const struct percpu_area *a, uint64_t add, uint64_t most, uint64_t key)
{
	__asm__ volatile goto(
		PERCPU_DESCRIPTOR PERCPU_ARM
		"ldr w9, [%[rseq], #" PERCPU_CPU_ID "]\n\t"
		"ldr w10, [%[area], #%c[open]]\n\t"
		"cmp w9, w10\n\t"
		"b.hs %l[elsewhere]\n\t"
		"ldr x10, [%[area], #%c[pages]]\n\t"
		"add x9, x10, x9, lsl #" PERCPU_TEXT(
			PERCPU_PAGE_SHIFT) "\n\t" PERCPU_LOOK PERCPU_NEXT PERCPU_LOOK PERCPU_NEXT
			PERCPU_LOOK PERCPU_NEXT PERCPU_LOOK PERCPU_NEXT PERCPU_LOOK PERCPU_NEXT
				PERCPU_LOOK PERCPU_NEXT PERCPU_LOOK "b %l[absent]\n\t"
					   "5: add x10, x10, %[key]\n\t"
					   "str x10, [x9]\n\t"
					   "2:\n\t" PERCPU_ABORT
		:
		: [rseq] "r"(percpu_rseq_area()), [area] "r"(a),
		[open] "i"(offsetof(struct percpu_area, n_open)),
		[pages] "i"(offsetof(struct percpu_area, pages)), [off] "r"(add - key),
		[most] "r"(most), [key] "r"(key)
		: "x9", "x10", "cc", "memory"
		: aborted, absent, elsewhere);
	return 0;
aborted:
	return -EAGAIN;
absent:
	return -ENOENT;
elsewhere:
	return -EXDEV;
}

static inline __attribute__((always_inline)) uint32_t percpu_rseq_add(
	const struct percpu_area *a, char *first, size_t stride, int64_t delta, char **ret_word)
{
	uint64_t cpu;
	char *word;

	__asm__ volatile(
		PERCPU_DESCRIPTOR PERCPU_ARM
		"ldr %w[cpu], [%[rseq], #" PERCPU_CPU_ID "]\n\t"
		"ldr w10, [%[area], #%c[adding]]\n\t"
		"cmp %w[cpu], w10\n\t"
		"b.hs 5f\n\t"
		"madd %[word], %[cpu], %[stride], %[first]\n\t"
		"ldr x10, [%[word]]\n\t"
		"add x10, x10, %[delta]\n\t"
		"str x10, [%[word]]\n\t"
		"2:\n\t" PERCPU_FAILURE
		"4: b 5f\n\t"
		".popsection\n\t"
		".subsection 1\n\t"
		"5: mov %w[cpu], #-1\n\t"
		"b 2b\n\t"
		".previous\n\t"
		: [cpu] "=&r"(cpu), [word] "=&r"(word)
		: [rseq] "r"(percpu_rseq_area()), [area] "r"(a),
		[adding] "i"(offsetof(struct percpu_area, n_adding)), [first] "r"(first),
		[stride] "r"(stride), [delta] "r"(delta)
		: "x9", "x10", "cc", "memory");
	*ret_word = word;
	return (uint32_t)cpu;
}

#endif
