/* SPDX-License-Identifier: MIT */

/*
 * Tasks are carried out in their order by another thread, and come back to the loop; at the end they
 * are finished or handed back, as its owner wants.
 */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/util.h"
#include "worker.h"

#define MANY 100

struct number {
	struct worker_task task;
	unsigned n;
	bool carried_out;
};

static struct owner {
	uv_loop_t loop;
	struct worker *worker;
	pthread_t loop_thread;
	struct number numbers[MANY];
	unsigned n_carried_out, n_done, n_handed_back;
	bool again; /* each that comes back for the first time is submitted once more */
	bool began;
	uv_sem_t *gate; /* the first one waits there */
} owner;

static void begin(void)
{
	owner.began = true;
}

static void carry_out(struct worker_task *t, void *userdata)
{
	struct number *n = container_of(t, struct number, task);
	struct owner *o = userdata;

	if (o->gate && n->n == 0)
		uv_sem_wait(o->gate);
	n->carried_out = n->n == o->n_carried_out % MANY;
	o->n_carried_out++;
}

static void done(struct worker_task *t, void *userdata)
{
	struct number *n = container_of(t, struct number, task);
	struct owner *o = userdata;

	assert_true(pthread_equal(pthread_self(), o->loop_thread));
	assert_int_equal(n->n, o->n_done % MANY);
	o->n_handed_back += !n->carried_out;
	o->n_done++;
	if (o->again && o->n_done <= MANY) {
		n->carried_out = false;
		worker_submit(o->worker, t);
	}
}

static int set_up(void **state _unused_)
{
	const struct worker_owner w = {begin, carry_out, done, &owner};

	owner = (struct owner){.loop_thread = pthread_self()};
	assert_int_equal(uv_loop_init(&owner.loop), 0);
	assert_int_equal(worker_new(&owner.loop, &w, &owner.worker), 0);
	return 0;
}

static int tear_down(void **state _unused_)
{
	worker_free(owner.worker, true);
	uv_run(&owner.loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&owner.loop), 0);
	return 0;
}

static void submit_many(void)
{
	for (unsigned i = 0; i < MANY; i++) {
		owner.numbers[i].n = i;
		worker_submit(owner.worker, &owner.numbers[i].task);
	}
}

static void test_in_order(void **state _unused_)
{
	submit_many();
	while (owner.n_done < MANY)
		uv_run(&owner.loop, UV_RUN_ONCE);
	assert_true(owner.began);
	assert_int_equal(owner.n_carried_out, MANY);
	assert_int_equal(owner.n_handed_back, 0);
}

static void test_finished_at_the_end(void **state _unused_)
{
	owner.again = true;
	submit_many();
	owner.worker = worker_free(owner.worker, true);
	assert_int_equal(owner.n_carried_out, 2 * MANY);
	assert_int_equal(owner.n_done, 2 * MANY);
	assert_int_equal(owner.n_handed_back, 0);
}

static void open_gate(void *gate)
{
	/* Until the end is under way, as far as another thread can tell. */
	uv_sleep(50);
	uv_sem_post(gate);
}

static void test_handed_back_at_the_end(void **state _unused_)
{
	uv_thread_t opener;
	uv_sem_t gate;

	assert_int_equal(uv_sem_init(&gate, 0), 0);
	owner.gate = &gate;
	submit_many();
	assert_int_equal(uv_thread_create(&opener, open_gate, &gate), 0);
	owner.worker = worker_free(owner.worker, false);
	assert_int_equal(owner.n_done, MANY);
	assert_int_equal(owner.n_handed_back, MANY - owner.n_carried_out);
	uv_thread_join(&opener);
	uv_sem_destroy(&gate);
}

static void test_null(void **state _unused_)
{
	assert_null(worker_free(NULL, true));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_in_order),
		TEST(test_finished_at_the_end),
		TEST(test_handed_back_at_the_end),
		TEST(test_null),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
