/* SPDX-License-Identifier: MIT */

/*
 * Every way through a sequence. Here the thread's struct rseq is one of the test's own, so that the
 * thread may be on any CPU, on none, or unregistered, as the kernel would have it; that the kernel
 * aborts what it should is tried where several threads and processes meet (test-stock, stress).
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "core/percpu.h"
#include "core/stock.h"
#include "kernel.h"

#define CPUS 4
#define KEY 7
#define KEY_BITS ((uint64_t)KEY << WORD_KEY_SHIFT)

/* ------------------------------------------------------------------ which kind */

static void test_names(void **state _unused_)
{
	uint32_t wanted = 77;

	assert_int_equal(percpu_parse_kind("Rseq", &wanted), -EINVAL);
	assert_int_equal(percpu_parse_kind("rseq ", &wanted), -EINVAL);
	assert_int_equal(percpu_parse_kind("2", &wanted), -EINVAL);
	assert_int_equal(wanted, 77);
	assert_int_equal(percpu_parse_kind(NULL, &wanted), 0);
	assert_int_equal(wanted, 0);
	wanted = 77;
	assert_int_equal(percpu_parse_kind("", &wanted), 0);
	assert_int_equal(wanted, 0);
	assert_int_equal(percpu_parse_kind("atomic", &wanted), 0);
	assert_int_equal(wanted, PERCPU_ATOMIC);
	assert_int_equal(percpu_parse_kind("rseq", &wanted), 0);
	assert_int_equal(wanted, PERCPU_RSEQ);
}

static void skip_without_rseq(void)
{
	if (percpu_has_rseq())
		return;
	print_message("skipped: the threads of this process have no restartable sequences\n");
	skip();
}

static void test_kernel(void **state _unused_)
{
	cpu_set_t before, after;

	skip_without_rseq();
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	assert_int_equal(kernel_aborts_sequences(), percpu_kernel_is_sound());
	assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
	assert_true(CPU_EQUAL(&before, &after));
}

static void test_areas(void **state _unused_)
{
	static struct stock_page page;
	struct percpu_area a = percpu_area_make(&page, 3, PERCPU_ATOMIC);

	/* No sequence gets in. */
	assert_int_equal(a.n_open, 0);
	assert_int_equal(a.n_adding, 0);
	assert_int_equal(a.n_cpus, 3);
	assert_ptr_equal(a.pages, &page);
	a = percpu_area_make(&page, 3, PERCPU_RSEQ);
	assert_int_equal(a.n_open, 3);
	assert_int_equal(a.n_adding, 3);
	assert_int_equal(a.n_cpus, 3);
}

/* ------------------------------------------------------------------ sums */

#define STRIDE 192
#define BEYOND CPUS

static struct {
	char bytes[STRIDE];
} sums[CPUS + 1], sums_before[CPUS + 1];

static _Atomic int64_t *sum_of(uint32_t cpu)
{
	return (_Atomic int64_t *)(void *)&sums[cpu];
}

static void empty_sums(void)
{
	memset(sums, 0, sizeof(sums));
	memset(sums_before, 0, sizeof(sums_before));
}

static void assert_only_added(uint32_t cpu, char *word, int64_t delta)
{
	int64_t value = atomic_load(sum_of(cpu));

	assert_ptr_equal(word, &sums[cpu]);
	memset(sums_before, 0, sizeof(sums_before));
	memcpy(&sums_before[cpu], &delta, sizeof(delta));
	assert_int_equal(value, delta);
	assert_memory_equal(sums, sums_before, sizeof(sums));
	atomic_store(sum_of(cpu), 0);
}

static void test_add_by_atomics(void **state _unused_)
{
	static struct stock_page page;
	struct percpu_area a = percpu_area_make(&page, CPUS, PERCPU_ATOMIC), none;
	char *word = NULL;
	uint32_t cpu;

	empty_sums();
	assert_int_equal(percpu_try_add(&a, sums[0].bytes, STRIDE, 5, &word), UINT32_MAX);
	cpu = percpu_add(&a, sums[0].bytes, STRIDE, 5, &word);
	assert_in_range(cpu, 0, BEYOND);
	assert_only_added(cpu, word, 5);

	/* No CPU of ours is in there. */
	none = percpu_area_make(&page, 1, PERCPU_ATOMIC);
	cpu = percpu_add(&none, sums[0].bytes, STRIDE, -5, &word);
	assert_in_range(cpu, 0, 1);
	assert_only_added(cpu, word, -5);

	a.n_cpus = 0;
	assert_int_equal(percpu_add(&a, sums[0].bytes, STRIDE, 5, &word), UINT32_MAX);
	assert_int_equal(atomic_load(sum_of(cpu)), 0);
}

#if PERCPU_HAS_RSEQ

#include <sys/rseq.h>

/* ------------------------------------------------------------------ a struct rseq of our own */

static struct rseq *mine;
static ptrdiff_t real_offset;
static struct stock_page *pages, *before;
static struct percpu_area area;

static int set_up(void **state _unused_)
{
	pages = aligned_alloc(STOCK_PAGE, CPUS * sizeof(*pages));
	before = aligned_alloc(STOCK_PAGE, CPUS * sizeof(*pages));
	mine = aligned_alloc(32, 32);
	if (!pages || !before || !mine)
		return -1;
	memset(pages, 0, CPUS * sizeof(*pages));
	memset(mine, 0, 32);
	area = percpu_area_make(pages, CPUS, PERCPU_RSEQ);
	real_offset = percpu_rseq_offset;
#if defined(__x86_64__)
	char *thread;

	__asm__("movq %%fs:0, %0" : "=r"(thread));
	percpu_rseq_offset = (char *)mine - thread;
#else
	percpu_rseq_offset = (char *)mine - (char *)__builtin_thread_pointer();
#endif
	return 0;
}

static int tear_down(void **state _unused_)
{
	percpu_rseq_offset = real_offset;
	free(pages);
	free(before);
	free(mine);
	return 0;
}

static void keep(void)
{
	memcpy(before, pages, CPUS * sizeof(*pages));
}

static void assert_only_changed(uint32_t cpu, unsigned slot, word w)
{
	atomic_store(&before[cpu].stock.slot[slot], w);
	assert_memory_equal(pages, before, CPUS * sizeof(*pages));
}

/* Each word on each CPU, and none but it. */
static void test_change(void **state _unused_)
{
	for (uint32_t cpu = 0; cpu < CPUS; cpu++)
		for (unsigned i = 0; i < PERCPU_WORDS; i++) {
			percpu_word *slot = &pages[cpu].stock.slot[i];

			mine->cpu_id = cpu;
			assert_int_equal(percpu_cpu(&area), cpu);
			atomic_store(slot, word_make(KEY, 100, i & 1));
			keep();
			assert_int_equal(
				percpu_try_change(&area, word_take(101), WORD_TAKE_MOST, KEY_BITS),
				-ENOENT);
			assert_int_equal(percpu_try_change(&area, word_take(1), WORD_TAKE_MOST,
						 KEY_BITS + (UINT64_C(1) << WORD_KEY_SHIFT)),
				-ENOENT);
			assert_int_equal(
				percpu_try_change(&area, 1 << 1, 100 << 1 | 1, KEY_BITS), -ENOENT);
			assert_memory_equal(pages, before, CPUS * sizeof(*pages));

			assert_int_equal(
				percpu_try_change(&area, word_take(60), WORD_TAKE_MOST, KEY_BITS),
				0);
			assert_only_changed(cpu, i, word_make(KEY, 40, i & 1));
			assert_int_equal(
				percpu_try_change(&area, 50 << 1, 90 << 1 | 1, KEY_BITS), 0);
			assert_only_changed(cpu, i, word_make(KEY, 90, i & 1));
			assert_int_equal(
				percpu_change(&area, word_take(90), WORD_TAKE_MOST, KEY_BITS), 0);
			assert_only_changed(cpu, i, word_make(KEY, 0, i & 1));
			atomic_store(slot, 0);
		}
}

/* The first that serves, not the first of the key. */
static void test_first(void **state _unused_)
{
	mine->cpu_id = 1;
	atomic_store(&pages[1].stock.slot[2], word_make(KEY, 10, 0));
	atomic_store(&pages[1].stock.slot[4], word_make(KEY, 100, 1));
	keep();
	assert_int_equal(percpu_try_change(&area, word_take(11), WORD_TAKE_MOST, KEY_BITS), 0);
	assert_only_changed(1, 4, word_make(KEY, 89, 1));
	assert_int_equal(percpu_try_change(&area, word_take(3), WORD_TAKE_MOST, KEY_BITS), 0);
	assert_only_changed(1, 2, word_make(KEY, 7, 0));
}

/* On no CPU of the area, not registered, behind a closed gate, in a forked child. */
static void test_elsewhere(void **state _unused_)
{
	static const uint32_t numbers[] = {CPUS, CPUS + 1, UINT32_MAX, UINT32_MAX - 1, INT32_MAX};
	struct percpu_area wiped = {0};

	for (uint32_t cpu = 0; cpu < CPUS; cpu++)
		atomic_store(&pages[cpu].stock.slot[0], word_make(KEY, 100, 0));
	keep();
	for (size_t i = 0; i < ELEMENTS(numbers); i++) {
		mine->cpu_id = numbers[i];
		assert_int_equal(
			percpu_try_change(&area, word_take(1), WORD_TAKE_MOST, KEY_BITS), -EXDEV);
		assert_int_equal(
			percpu_change(&area, word_take(1), WORD_TAKE_MOST, KEY_BITS), -EXDEV);
	}

	mine->cpu_id = 0;
	assert_int_equal(percpu_try_change(&wiped, word_take(0), UINT64_MAX, 0), -EXDEV);
	assert_int_equal(percpu_change(&wiped, word_take(0), UINT64_MAX, 0), -EXDEV);
	area.n_open = 0;
	assert_int_equal(percpu_change(&area, word_take(1), WORD_TAKE_MOST, KEY_BITS), -EXDEV);
	assert_int_equal(percpu_store(&area, &pages[0].stock.slot[0], 0, word_make(KEY, 100, 0),
				 word_make(KEY, 1, 0)),
		-EXDEV);
	assert_memory_equal(pages, before, CPUS * sizeof(*pages));
}

static void test_store(void **state _unused_)
{
	percpu_word *slot = &pages[2].stock.slot[3];

	atomic_store(slot, word_make(KEY, 100, 0));
	keep();
	mine->cpu_id = 1;
	assert_int_equal(percpu_store(&area, slot, 2, word_make(KEY, 100, 0), 5), -EXDEV);
	mine->cpu_id = UINT32_MAX;
	assert_int_equal(percpu_store(&area, slot, 2, word_make(KEY, 100, 0), 5), -EXDEV);
	assert_int_equal(percpu_store(&area, slot, UINT32_MAX, word_make(KEY, 100, 0), 5), -EXDEV);
	mine->cpu_id = 2;
	assert_int_equal(percpu_store(&area, slot, 2, word_make(KEY, 100, 1), 5), -EAGAIN);
	assert_int_equal(percpu_store(&area, slot, 2, word_make(KEY + 1, 100, 0), 5), -EAGAIN);
	assert_memory_equal(pages, before, CPUS * sizeof(*pages));
	assert_int_equal(percpu_store(&area, slot, 2, word_make(KEY, 100, 0), 5), 0);
	assert_only_changed(2, 3, 5);
}

static void test_add(void **state _unused_)
{
	char *word = NULL;

	empty_sums();
	for (uint32_t cpu = 0; cpu < CPUS; cpu++) {
		mine->cpu_id = cpu;
		assert_int_equal(percpu_try_add(&area, sums[0].bytes, STRIDE, 7, &word), cpu);
		assert_only_added(cpu, word, 7);
		assert_int_equal(percpu_add(&area, sums[0].bytes, STRIDE, INT64_MIN, &word), cpu);
		assert_only_added(cpu, word, INT64_MIN);
	}
	/* What shuts charges out does not shut out this. */
	area.n_open = 0;
	assert_int_equal(percpu_add(&area, sums[0].bytes, STRIDE, -1, &word), CPUS - 1);
	assert_only_added(CPUS - 1, word, -1);
}

static void test_add_elsewhere(void **state _unused_)
{
	static const uint32_t numbers[] = {CPUS, CPUS + 1, UINT32_MAX, UINT32_MAX - 1, INT32_MAX};
	struct percpu_area wiped = {0};
	char *word = NULL;

	empty_sums();
	for (size_t i = 0; i < ELEMENTS(numbers); i++) {
		mine->cpu_id = numbers[i];
		assert_int_equal(
			percpu_try_add(&area, sums[0].bytes, STRIDE, 1, &word), UINT32_MAX);
		assert_int_equal(percpu_add(&area, sums[0].bytes, STRIDE, 1, &word), BEYOND);
		assert_only_added(BEYOND, word, 1);
	}
	mine->cpu_id = 0;
	assert_int_equal(percpu_try_add(&wiped, sums[0].bytes, STRIDE, 1, &word), UINT32_MAX);
	assert_int_equal(percpu_add(&wiped, sums[0].bytes, STRIDE, 1, &word), UINT32_MAX);
	area.n_adding = 0;
	assert_int_equal(percpu_try_add(&area, sums[0].bytes, STRIDE, 1, &word), UINT32_MAX);
	area.n_cpus = 0;
	assert_int_equal(percpu_add(&area, sums[0].bytes, STRIDE, 1, &word), UINT32_MAX);
	memset(sums_before, 0, sizeof(sums_before));
	assert_memory_equal(sums, sums_before, sizeof(sums));
}

/* The descriptor is the kernel's to believe: whole, in this program, around the store. */
static void assert_descriptor(void)
{
	const struct rseq_cs *cs;
	uint32_t signature;

	cs = (const struct rseq_cs *)(uintptr_t)mine->rseq_cs;
	assert_non_null(cs);
	assert_int_equal((uintptr_t)cs % 32, 0);
	assert_int_equal(cs->version, 0);
	assert_int_equal(cs->flags, 0);
	assert_in_range(cs->post_commit_offset, 16, 1024);
	/* The way out is outside, behind the signature that glibc registered. */
	assert_false(cs->abort_ip - cs->start_ip < cs->post_commit_offset);
	memcpy(&signature, (const char *)(uintptr_t)cs->abort_ip - 4, 4);
	assert_int_equal(signature, RSEQ_SIG);
}

static void test_descriptor(void **state _unused_)
{
	char *word;

	mine->cpu_id = 0;
	atomic_store(&pages[0].stock.slot[0], word_make(KEY, 100, 0));
	assert_int_equal(percpu_try_change(&area, word_take(1), WORD_TAKE_MOST, KEY_BITS), 0);
	assert_descriptor();
	mine->rseq_cs = 0;
	assert_int_equal(
		percpu_store(&area, &pages[0].stock.slot[0], 0, word_make(KEY, 99, 0), 5), 0);
	assert_descriptor();
	mine->rseq_cs = 0;
	assert_int_equal(percpu_try_add(&area, sums[0].bytes, STRIDE, 1, &word), 0);
	assert_descriptor();
}

/* ------------------------------------------------------------------ the real one */

static struct percpu_area *contended_area;
static volatile sig_atomic_t handled, interrupts;

/* An interrupt that changes the very word. */
static void on_signal(int number _unused_)
{
	char *word;

	handled += percpu_change(contended_area, 1 << 1, UINT32_MAX, KEY_BITS) == 0;
	percpu_add(contended_area, sums[0].bytes, STRIDE, 1, &word);
	interrupts++;
}

/* No change is lost, whichever instruction a signal hits. */
static void test_signals(void **state _unused_)
{
	struct itimerspec every = {.it_interval.tv_nsec = 50000, .it_value.tv_nsec = 50000};
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old;
	struct sigevent to_me = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	uint64_t changed = 0, sum = 0;
	int64_t added = 0;
	timer_t timer;
	char *word;

	skip_without_rseq();
	percpu_rseq_offset = real_offset;
	area = percpu_area_make(pages, CPUS, PERCPU_RSEQ);
	for (uint32_t cpu = 0; cpu < CPUS; cpu++)
		atomic_store(&pages[cpu].stock.slot[0], word_make(KEY, 0, 0));
	contended_area = &area;
	handled = interrupts = 0;
	empty_sums();
	assert_int_equal(sigaction(SIGUSR1, &sa, &old), 0);
	assert_int_equal(timer_create(CLOCK_MONOTONIC, &to_me, &timer), 0);
	assert_int_equal(timer_settime(timer, 0, &every, NULL), 0);
	while (handled < 200)
		for (unsigned i = 0; i < 1000; i++) {
			changed += percpu_change(&area, 1 << 1, UINT32_MAX, KEY_BITS) == 0;
			percpu_add(&area, sums[0].bytes, STRIDE, -3, &word);
			added -= 3;
		}
	assert_int_equal(timer_delete(timer), 0);
	assert_int_equal(sigaction(SIGUSR1, &old, NULL), 0);
	for (uint32_t cpu = 0; cpu < CPUS; cpu++)
		sum += word_bytes(percpu_load(&pages[cpu].stock.slot[0]));
	assert_int_equal(sum, changed + (uint64_t)handled);
	for (uint32_t cpu = 0; cpu <= BEYOND; cpu++)
		added -= atomic_load(sum_of(cpu));
	assert_int_equal(added, -(int64_t)interrupts);
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_kernel),
		cmocka_unit_test(test_areas),
		cmocka_unit_test(test_add_by_atomics),
#if PERCPU_HAS_RSEQ
		cmocka_unit_test_setup_teardown(test_change, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_first, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_elsewhere, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_store, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_add, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_add_elsewhere, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_descriptor, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_signals, set_up, tear_down),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
