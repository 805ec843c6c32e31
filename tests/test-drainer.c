/* SPDX-License-Identifier: MIT */

/*
 * The loop hands words over and has to have every one of them back, once, in its own thread and in
 * the order in which it gave them: its rows have an intent open for each, and sessions wait for
 * theirs before they can end.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <string.h>

#include "core/util.h"
#include "drainer.h"

#define MANY 200

static uv_loop_t loop;
static struct drainer *drainer;
static pthread_t loop_thread;

/* Batches as they came back. */
static struct drainer_batch *finished[MANY];
static _Atomic unsigned n_finished;
static _Atomic bool strayed;

static int set_up(void **state _unused_)
{
	if (uv_loop_init(&loop) < 0 || drainer_new(&loop, &drainer) < 0)
		return -1;
	loop_thread = pthread_self();
	n_finished = 0;
	strayed = false;
	return 0;
}

/* Nothing of it is left in the loop. */
static int tear_down(void **state _unused_)
{
	drainer = drainer_free(drainer);
	uv_run(&loop, UV_RUN_DEFAULT);
	return uv_loop_close(&loop);
}

static void on_done(struct drainer_batch *b)
{
	/* An assertion in another thread would go astray. */
	strayed = strayed || !pthread_equal(pthread_self(), loop_thread);
	assert_true(n_finished < MANY);
	finished[n_finished++] = b;
}

static void run_until(unsigned n)
{
	while (n_finished < n)
		uv_run(&loop, UV_RUN_ONCE);
	assert_false(strayed);
}

static const struct percpu_area atomics = {.kind = PERCPU_ATOMIC};

static struct drainer_word *add(struct drainer_batch *b, enum drainer_op op, percpu_word *slot,
	uint32_t key, uint64_t bytes, uint32_t parity)
{
	struct drainer_word *w = drainer_batch_add(b);

	assert_non_null(w);
	w->op = op;
	w->area = &atomics;
	w->slot = slot;
	w->key = key;
	w->bytes = bytes;
	w->parity = parity;
	return w;
}

static void clear_batch(struct drainer_batch *b)
{
	free(b->words);
	*b = (struct drainer_batch){0};
}

static void assert_word(const percpu_word *slot, uint32_t key, uint64_t bytes, unsigned parity)
{
	assert_true(percpu_load(slot) == word_make(key, bytes, parity));
}

/* ------------------------------------------------------------------ batches */

static void test_add(void **state _unused_)
{
	struct drainer_batch b = {.done = on_done, .userdata = &loop};

	for (unsigned i = 0; i < 1000; i++) {
		struct drainer_word *w = drainer_batch_add(&b), zero;

		assert_non_null(w);
		memset(&zero, 0, sizeof(zero));
		assert_memory_equal(w, &zero, sizeof(zero));
		assert_ptr_equal(w, &b.words[i]);
		assert_int_equal(b.n, i + 1);
		assert_true(b.n <= b.room);
		w->bytes = i;
	}
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(b.words[i].bytes, i);

	/* Used again: zeroed, in the room that it has. */
	b.n = 0;
	assert_int_equal(drainer_batch_add(&b)->bytes, 0);
	assert_int_equal(b.words[1].bytes, 1);
	assert_int_equal(b.n, 1);
	assert_ptr_equal(b.userdata, &loop);
	clear_batch(&b);
}

static void test_results(void **state _unused_)
{
	static percpu_word slots[8];
	struct drainer_batch b = {.done = on_done};
	static const bool done[] = {true, false, false, false, true, true, true, true};

	for (unsigned i = 0; i < ELEMENTS(slots); i++)
		atomic_store(&slots[i], word_make(7, 100, i & 1));
	add(&b, DRAINER_TAKE, &slots[0], 7, 60, 0);
	add(&b, DRAINER_TAKE, &slots[1], 7, 101, 1);
	add(&b, DRAINER_TAKE, &slots[2], 8, 60, 0);
	add(&b, DRAINER_TAKE, &slots[3], 7, 60, 0);
	add(&b, DRAINER_TAKE, &slots[4], 7, 100, 0);
	add(&b, DRAINER_CLEAR, &slots[5], 7, 0, 0);
	add(&b, DRAINER_CLEAR, &slots[6], 8, 0, 0);
	add(&b, DRAINER_TAKE, &slots[7], 7, 40, 1);
	b.words[3].userdata = &slots[3];
	/* What was there before is no answer. */
	b.words[1].done = b.words[2].done = true;
	drainer_submit(drainer, &b);
	run_until(1);

	assert_ptr_equal(finished[0], &b);
	assert_int_equal(b.n, ELEMENTS(done));
	for (unsigned i = 0; i < b.n; i++)
		assert_int_equal(b.words[i].done, done[i]);
	assert_word(&slots[0], 7, 40, 1);
	assert_word(&slots[1], 7, 100, 1);
	assert_word(&slots[2], 7, 100, 0);
	assert_word(&slots[3], 7, 100, 1);
	assert_word(&slots[4], 7, 0, 1);
	assert_word(&slots[5], 0, 0, 0);
	assert_word(&slots[6], 7, 100, 0);
	assert_word(&slots[7], 7, 60, 0);
	assert_ptr_equal(b.words[3].userdata, &slots[3]);
	clear_batch(&b);
}

static void test_empty_batch(void **state _unused_)
{
	struct drainer_batch b = {.done = on_done};

	drainer_submit(drainer, &b);
	run_until(1);
	assert_ptr_equal(finished[0], &b);
	clear_batch(&b);
}

/* Each batch takes one byte if it finds the parity that the one before left. */
static void submit_many(struct drainer_batch *batches, percpu_word *slot)
{
	atomic_store(slot, word_make(7, MANY, 0));
	for (unsigned i = 0; i < MANY; i++) {
		batches[i] = (struct drainer_batch){.done = on_done};
		add(&batches[i], DRAINER_TAKE, slot, 7, 1, i & 1);
		drainer_submit(drainer, &batches[i]);
	}
}

static void assert_all_in_order(struct drainer_batch *batches, const percpu_word *slot)
{
	assert_int_equal(n_finished, MANY);
	for (unsigned i = 0; i < MANY; i++) {
		assert_ptr_equal(finished[i], &batches[i]);
		assert_true(batches[i].words[0].done);
		clear_batch(&batches[i]);
	}
	assert_word(slot, 7, 0, MANY & 1);
}

static void test_order(void **state _unused_)
{
	static struct drainer_batch batches[MANY];
	static percpu_word slot;

	submit_many(batches, &slot);
	run_until(MANY);
	assert_all_in_order(batches, &slot);
}

static percpu_word ring_slot;

/* As a drain does that goes on in rounds: the same batch again, from its own callback. */
static void on_round(struct drainer_batch *b)
{
	unsigned round = ++n_finished;

	assert_int_equal(b->n, 1);
	assert_true(b->words[0].done);
	b->n = 0;
	if (round == MANY)
		return;
	add(b, DRAINER_TAKE, &ring_slot, 7, 1, round & 1);
	drainer_submit(drainer, b);
}

static void test_submitted_from_done(void **state _unused_)
{
	struct drainer_batch b = {.done = on_round};

	atomic_store(&ring_slot, word_make(7, MANY, 0));
	add(&b, DRAINER_TAKE, &ring_slot, 7, 1, 0);
	drainer_submit(drainer, &b);
	run_until(MANY);
	assert_word(&ring_slot, 7, 0, MANY & 1);
	clear_batch(&b);
}

/* ------------------------------------------------------------------ the end */

static void test_free_finishes_what_is_queued(void **state _unused_)
{
	static struct drainer_batch batches[MANY];
	static percpu_word slot;

	submit_many(batches, &slot);
	drainer = drainer_free(drainer);
	assert_null(drainer);
	assert_all_in_order(batches, &slot);
	/* And none comes a second time. */
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(n_finished, MANY);
}

/* What `done` hands over is handed over, and comes back too, late as it is. */
static void test_free_finishes_what_done_submits(void **state _unused_)
{
	struct drainer_batch b = {.done = on_round};

	atomic_store(&ring_slot, word_make(7, MANY, 0));
	add(&b, DRAINER_TAKE, &ring_slot, 7, 1, 0);
	drainer_submit(drainer, &b);
	drainer_free(drainer);
	uv_run(&loop, UV_RUN_DEFAULT);
	drainer = NULL;
	assert_int_equal(n_finished, MANY);
	assert_word(&ring_slot, 7, 0, MANY & 1);
	clear_batch(&b);
}

static void test_free_nothing(void **state _unused_)
{
	struct drainer *second;

	assert_null(drainer_free(NULL));
	assert_int_equal(drainer_new(&loop, &second), 0);
	assert_null(drainer_free(second));
}

/* ------------------------------------------------------------------ beside a client */

#define SLOTS 4
#define TOTAL 100000
#define ROUNDS 300

static percpu_word shared[SLOTS];
static _Atomic bool stop;

/* Charges and uncharges a little, in turn. */
static void *run_client(void *arg)
{
	int64_t *held = arg;

	for (uint64_t i = 0; !atomic_load(&stop); i++) {
		percpu_word *slot = &shared[i % SLOTS];
		word w = percpu_load(slot);

		if (*held < 500 && word_bytes(w) >= 10)
			*held += percpu_store(&atomics, slot, 0, w, w - (10 << 1)) == 0 ? 10 : 0;
		else if (*held >= 10)
			*held -= percpu_store(&atomics, slot, 0, w, w + (10 << 1)) == 0 ? 10 : 0;
	}
	return NULL;
}

/* What it says that it took is what is missing. */
static void test_conserved(void **state _unused_)
{
	struct drainer_batch b = {.done = on_done};
	int64_t held = 0, taken = 0, left = 0;
	pthread_t client;

	for (unsigned i = 0; i < SLOTS; i++)
		atomic_store(&shared[i], word_make(1 + i, TOTAL, 0));
	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&client, NULL, run_client, &held), 0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		b.n = 0;
		n_finished = 0;
		for (unsigned i = 0; i < SLOTS; i++) {
			word w = percpu_load(&shared[i]);

			add(&b, DRAINER_TAKE, &shared[i], 1 + i, word_bytes(w) / 50 + round % 3,
				word_parity(w));
		}
		drainer_submit(drainer, &b);
		run_until(1);
		for (unsigned i = 0; i < SLOTS; i++)
			taken += b.words[i].done ? (int64_t)b.words[i].bytes : 0;
	}
	atomic_store(&stop, true);
	assert_int_equal(pthread_join(client, NULL), 0);
	for (unsigned i = 0; i < SLOTS; i++) {
		assert_int_equal(word_key(percpu_load(&shared[i])), 1 + i);
		left += (int64_t)word_bytes(percpu_load(&shared[i]));
	}
	assert_true(taken > 0);
	assert_int_equal(left + held + taken, (int64_t)SLOTS * TOTAL);
	clear_batch(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_add),
		cmocka_unit_test_setup_teardown(test_results, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_empty_batch, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_order, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_submitted_from_done, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_free_finishes_what_is_queued, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_free_finishes_what_done_submits, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_free_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_conserved, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
