/* SPDX-License-Identifier: MIT */

/*
 * Asking attachments, with a client that is the other end of the channel and no more: one question
 * at a time, one answer for each, and an end for whoever waits, whatever the client does.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "callback.h"
#include "channel.h"
#include "core/util.h"

static uv_loop_t loop;
static struct item_table items;
static struct pool_tree *tree;
static struct session session;
static struct attachment at[2]; /* 11 in /a/b, 12 in /a */
static struct pool *a, *b;
static int client;

static unsigned answers;
static uint64_t answered;
static bool ask_again;

static int by_number(const void *x, const void *y)
{
	uint64_t m = ((const struct attachment *)x)->number;
	uint64_t n = ((const struct attachment *)y)->number;

	return m < n ? -1 : m > n;
}

static void attach(struct attachment *to, uint64_t number, struct pool *p)
{
	*to = (struct attachment){.session = &session, .number = number, .pool = p};
	TAILQ_INSERT_TAIL(&session.attachments, to, entry);
	assert_non_null(tsearch(to, &session.attachment_index, by_number));
	pool_add_member(p, &to->member);
}

static void detach(struct attachment *from)
{
	callback_end(from);
	tdelete(from, &session.attachment_index, by_number);
	TAILQ_REMOVE(&session.attachments, from, entry);
	pool_remove_member(from->pool, &from->member);
}

static bool on_report(void *userdata, const void *message, size_t n)
{
	struct wire_reclaimed m;

	assert_int_equal(n, sizeof(m));
	memcpy(&m, message, sizeof(m));
	callback_answer(userdata, &m);
	return true;
}

static void on_gone(void *userdata, bool broken)
{
	assert_false(broken);
	callback_end_all(userdata);
}

static int start(void **state)
{
	const struct channel_owner o = {
		.on_report = on_report, .on_gone = on_gone, .userdata = &session};

	(void)state;
	answers = 0;
	answered = 0;
	ask_again = false;
	session = (struct session){0};
	TAILQ_INIT(&session.attachments);
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(channel_new(&loop, &o, &client, &session.channel), 0);
	assert_int_equal(pool_tree_new(&items, &tree), 0);
	assert_int_equal(pool_create_all(tree, "/a/b", &b), 0);
	a = b->parent;
	attach(&at[0], 11, b);
	attach(&at[1], 12, a);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	detach(&at[0]);
	detach(&at[1]);
	assert_int_equal(tree->root->n_reclaimers_below, 0);
	tree = pool_tree_free(tree);
	session.channel = channel_free(session.channel);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	client = close_fd(client);
	return 0;
}

static void turn(void)
{
	uv_run(&loop, UV_RUN_NOWAIT);
}

static void on_done(void *userdata, struct attachment *from, uint64_t bytes)
{
	assert_ptr_equal(userdata, &answers);
	answers++;
	answered += bytes;
	if (ask_again && callback_can_ask(from))
		callback_ask(from, 5, 0, on_done, &answers);
}

static void ask(struct attachment *to, uint64_t want)
{
	callback_ask(to, want, 1000 + want, on_done, &answers);
}

/* The question that has come; token 0: none. */
static struct wire_reclaim question(void)
{
	struct wire_reclaim m = {0};
	ssize_t n;

	turn();
	n = recv(client, &m, sizeof(m), MSG_DONTWAIT);
	if (n < 0) {
		assert_int_equal(errno, EAGAIN);
		return (struct wire_reclaim){0};
	}
	assert_int_equal(wire_check_notice(&m, (size_t)n), 0);
	assert_int_equal(m.h.type, WIRE_RECLAIM);
	assert_int_not_equal(m.token, 0);
	return m;
}

static void answer(uint64_t attachment, uint64_t token, uint64_t bytes)
{
	const struct wire_reclaimed m = {.h = WIRE_HEADER(WIRE_RECLAIMED, struct wire_reclaimed, 0),
		.attachment = attachment,
		.token = token,
		.bytes = bytes};

	assert_int_equal(send(client, &m, sizeof(m), MSG_NOSIGNAL), sizeof(m));
	turn();
}

static void test_who_can_be_asked(void **state)
{
	(void)state;
	assert_false(callback_can_ask(&at[0]));
	assert_false(callback_is_busy(&at[0]));
	assert_int_equal(callback_set(&at[0], true), 0);
	assert_int_equal(callback_set(&at[0], true), 0);
	assert_true(callback_can_ask(&at[0]));
	assert_true(at[0].member.reclaims);
	assert_int_equal(b->n_reclaimers_below, 1);
	assert_int_equal(a->n_reclaimers_below, 1);
	assert_int_equal(callback_set(&at[1], true), 0);
	assert_int_equal(b->n_reclaimers_below, 1);
	assert_int_equal(a->n_reclaimers_below, 2);
	assert_int_equal(tree->root->n_reclaimers_below, 2);
	assert_int_equal(callback_set(&at[0], false), 0);
	assert_int_equal(callback_set(&at[0], false), 0);
	assert_false(callback_can_ask(&at[0]));
	assert_int_equal(b->n_reclaimers_below, 0);
	assert_int_equal(tree->root->n_reclaimers_below, 1);

	at[0].state = ATTACHMENT_DETACHING;
	assert_int_equal(callback_set(&at[0], true), -ENODEV);
}

static void test_asked_and_answered(void **state)
{
	struct wire_reclaim q;

	(void)state;
	callback_set(&at[0], true);
	ask(&at[0], 4096);
	assert_true(callback_is_busy(&at[0]));
	assert_false(callback_can_ask(&at[0]));
	q = question();
	assert_int_equal(q.attachment, 11);
	assert_int_equal(q.want, 4096);
	assert_int_equal(q.deadline_usec, 5096);
	assert_int_equal(answers, 0);
	answer(11, q.token, 100);
	assert_int_equal(answers, 1);
	assert_int_equal(answered, 100);
	assert_true(callback_can_ask(&at[0]));

	/* the same once more is nobody's */
	answer(11, q.token, 100);
	assert_int_equal(answers, 1);
}

static void test_two_at_a_time(void **state)
{
	struct wire_reclaim first, second;

	(void)state;
	callback_set(&at[0], true);
	callback_set(&at[1], true);
	ask(&at[0], 1);
	ask(&at[1], 2);
	first = question();
	second = question();
	assert_int_equal(first.attachment, 11);
	assert_int_equal(second.attachment, 12);
	assert_int_not_equal(first.token, second.token);
	answer(12, second.token, 20);
	assert_true(callback_is_busy(&at[0]));
	assert_false(callback_is_busy(&at[1]));
	answer(11, first.token, 10);
	assert_int_equal(answered, 30);
}

static void test_wrong_answers(void **state)
{
	struct wire_reclaim q;

	(void)state;
	callback_set(&at[0], true);
	callback_set(&at[1], true);
	ask(&at[0], 1);
	q = question();
	answer(12, q.token, 1);
	answer(13, q.token, 1);
	answer(11, q.token + 1, 1);
	answer(11, 0, 1);
	assert_int_equal(answers, 0);
	assert_true(callback_is_busy(&at[0]));
	answer(11, q.token, 1);
	assert_int_equal(answers, 1);
}

static void test_cancelled(void **state)
{
	struct wire_reclaim q;

	(void)state;
	callback_set(&at[0], true);
	callback_cancel(&at[0]);

	/* before it has gone: it never goes */
	ask(&at[0], 1);
	callback_cancel(&at[0]);
	assert_true(callback_can_ask(&at[0]));
	q = question();
	assert_int_equal(q.token, 0);

	/* afterwards: it is busy until it has answered */
	ask(&at[0], 2);
	q = question();
	callback_cancel(&at[0]);
	assert_true(callback_is_busy(&at[0]));
	answer(11, q.token, 1);
	assert_false(callback_is_busy(&at[0]));
	assert_int_equal(answers, 0);
}

static void test_asked_again_from_the_answer(void **state)
{
	struct wire_reclaim q;

	(void)state;
	callback_set(&at[0], true);
	ask_again = true;
	ask(&at[0], 1);
	q = question();
	answer(11, q.token, 1);
	assert_true(callback_is_busy(&at[0]));
	ask_again = false;
	q = question();
	assert_int_equal(q.want, 5);
	answer(11, q.token, 1);
	assert_int_equal(answers, 2);
}

/* Whoever waits for it is told, also where it could be asked again no more. */
static void test_callback_taken_away(void **state)
{
	struct wire_reclaim q;

	(void)state;
	callback_set(&at[0], true);
	ask_again = true;
	ask(&at[0], 1);
	q = question();
	callback_set(&at[0], false);
	assert_int_equal(answers, 1);
	assert_int_equal(answered, 0);
	assert_false(callback_is_busy(&at[0]));

	/* a new one knows nothing of what the old one was asked */
	callback_set(&at[0], true);
	answer(11, q.token, 1);
	assert_int_equal(answers, 1);
	assert_true(callback_can_ask(&at[0]));
}

static void test_client_gone(void **state)
{
	(void)state;
	callback_set(&at[0], true);
	callback_set(&at[1], true);
	ask(&at[0], 1);
	assert_int_not_equal(question().token, 0);
	ask(&at[1], 1);
	client = close_fd(client);
	turn();
	turn();
	assert_int_equal(answers, 2);
	assert_int_equal(answered, 0);
	assert_false(callback_can_ask(&at[0]));
	assert_int_equal(tree->root->n_reclaimers_below, 0);
}

/* Members that are moved take it with them. */
static void test_counted_where_the_member_is(void **state)
{
	(void)state;
	callback_set(&at[0], true);
	pool_remove_member(b, &at[0].member);
	assert_int_equal(a->n_reclaimers_below, 0);
	pool_add_member(a, &at[0].member);
	at[0].pool = a;
	assert_int_equal(b->n_reclaimers_below, 0);
	assert_int_equal(a->n_reclaimers_below, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_who_can_be_asked, start, stop),
		cmocka_unit_test_setup_teardown(test_asked_and_answered, start, stop),
		cmocka_unit_test_setup_teardown(test_two_at_a_time, start, stop),
		cmocka_unit_test_setup_teardown(test_wrong_answers, start, stop),
		cmocka_unit_test_setup_teardown(test_cancelled, start, stop),
		cmocka_unit_test_setup_teardown(test_asked_again_from_the_answer, start, stop),
		cmocka_unit_test_setup_teardown(test_callback_taken_away, start, stop),
		cmocka_unit_test_setup_teardown(test_client_gone, start, stop),
		cmocka_unit_test_setup_teardown(test_counted_where_the_member_is, start, stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
