/* SPDX-License-Identifier: MIT */

/*
 * The channel by itself, between a loop and the client's end of the pair: what is told is the state
 * of the moment in which it goes, a client that does not read costs nothing, and what breaks the
 * protocol is noticed.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "channel.h"
#include "core/util.h"
#include "core/wire.h"

struct fact {
	struct notice notice;
	uint64_t state;
	unsigned packed, sent;
	bool silent;
};

static uv_loop_t loop;
static struct channel *channel;
static int client;
static unsigned reports, gone, gone_broken;
static uint64_t reported;
static bool obey, free_in_report;

static bool on_report(void *userdata, const void *message, size_t n)
{
	struct wire_reclaimed m;

	assert_ptr_equal(userdata, &loop);
	assert_int_equal(n, sizeof(m));
	memcpy(&m, message, sizeof(m));
	reported += m.bytes;
	reports++;
	if (free_in_report)
		channel = channel_free(channel);
	return obey;
}

static void on_gone(void *userdata, bool broken)
{
	assert_ptr_equal(userdata, &loop);
	gone++;
	gone_broken += broken;
}

static size_t pack(const struct notice *n, void *buf)
{
	struct fact *f = container_of(n, struct fact, notice);
	const struct wire_reclaim m = {
		.h = WIRE_HEADER(WIRE_RECLAIM, struct wire_reclaim, 0), .want = f->state};

	f->packed++;
	if (f->silent)
		return 0;
	memcpy(buf, &m, sizeof(m));
	return sizeof(m);
}

static void on_sent(struct notice *n)
{
	struct fact *f = container_of(n, struct fact, notice);

	assert_null(n->channel);
	f->sent++;
}

static const struct fact fact = {.notice = {.pack = pack, .sent = on_sent}};

static int start(void **state)
{
	const struct channel_owner o = {
		.on_report = on_report, .on_gone = on_gone, .userdata = &loop};

	(void)state;
	reports = gone = gone_broken = 0;
	reported = 0;
	obey = true;
	free_in_report = false;
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(channel_new(&loop, &o, &client, &channel), 0);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	channel = channel_free(channel);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	client = close_fd(client);
	return 0;
}

static void turn(void)
{
	uv_run(&loop, UV_RUN_NOWAIT);
}

/* The next message's state; -EAGAIN, 0 when the daemon has hung up. */
static int64_t next(void)
{
	struct wire_reclaim m;
	ssize_t n = recv(client, &m, sizeof(m), MSG_DONTWAIT);

	if (n <= 0)
		return n < 0 ? -errno : 0;
	assert_int_equal(wire_check_notice(&m, (size_t)n), 0);
	return (int64_t)m.want;
}

static void say(const void *message, size_t n)
{
	assert_int_equal(send(client, message, n, MSG_DONTWAIT | MSG_NOSIGNAL), n);
}

static const struct wire_reclaimed report = {
	.h = WIRE_HEADER(WIRE_RECLAIMED, struct wire_reclaimed, 0), .bytes = 7};

/* ------------------------------------------------------------------ out */

static void test_told_in_the_next_turn_once(void **state)
{
	struct fact a = fact, b = fact;

	(void)state;
	a.state = 1;
	channel_post(channel, &a.notice);
	channel_post(channel, &b.notice);
	channel_post(channel, &a.notice);
	assert_int_equal(next(), -EAGAIN);
	a.state = 2;
	b.state = 3;
	turn();
	assert_int_equal(next(), 2);
	assert_int_equal(next(), 3);
	assert_int_equal(next(), -EAGAIN);
	assert_int_equal(a.sent, 1);

	/* and again, when there is something new */
	channel_post(channel, &a.notice);
	turn();
	assert_int_equal(next(), 2);
	assert_int_equal(next(), -EAGAIN);
}

static void test_forgotten(void **state)
{
	struct fact a = fact, b = fact;

	(void)state;
	a.state = 1;
	b.state = 2;
	channel_post(channel, &a.notice);
	channel_post(channel, &b.notice);
	channel_forget(&a.notice);
	channel_forget(&a.notice);
	turn();
	assert_int_equal(next(), 2);
	assert_int_equal(next(), -EAGAIN);
	assert_int_equal(a.packed, 0);
}

static void test_nothing_to_tell_after_all(void **state)
{
	struct fact a = fact;

	(void)state;
	a.silent = true;
	channel_post(channel, &a.notice);
	turn();
	assert_int_equal(next(), -EAGAIN);
	assert_int_equal(a.packed, 1);
	assert_int_equal(a.sent, 0);
	assert_null(a.notice.channel);
}

/* Nothing is packed for a client that does not read, and when it does it hears what is, after little
 * of what was. */
static void test_full_socket(void **state)
{
	struct fact a = fact;
	unsigned packed, old = 0;
	int64_t heard;

	(void)state;
	a.state = 1;
	for (unsigned i = 0; i < 10000; i++) {
		channel_post(channel, &a.notice);
		turn();
	}
	assert_non_null(a.notice.channel);
	assert_in_range(a.sent, 1, 100);
	packed = a.packed;
	a.state = 2;
	for (unsigned i = 0; i < 1000; i++) {
		channel_post(channel, &a.notice);
		turn();
	}
	assert_int_equal(a.packed, packed);

	while ((heard = next()) == 1)
		old++;
	assert_int_equal(heard, -EAGAIN);
	assert_int_equal(old, a.sent);
	turn();
	assert_int_equal(next(), 2);
	assert_int_equal(next(), -EAGAIN);
}

/* ------------------------------------------------------------------ in */

static void test_reports(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++)
		say(&report, sizeof(report));
	turn();
	assert_int_equal(reports, 3);
	assert_int_equal(reported, 21);
	assert_int_equal(gone, 0);
}

static void assert_broken(void)
{
	struct fact a = fact;

	turn();
	assert_int_equal(gone, 1);
	assert_int_equal(gone_broken, 1);
	say(&report, sizeof(report));
	channel_post(channel, &a.notice);
	turn();
	assert_int_equal(gone, 1);
	assert_int_equal(reports, 0);
	assert_int_equal(next(), -EAGAIN);
}

static void test_noise(void **state)
{
	static const char noise[1000];

	(void)state;
	say(noise, sizeof(noise));
	assert_broken();
}

static void test_other_direction(void **state)
{
	const struct wire_reclaim m = {.h = WIRE_HEADER(WIRE_RECLAIM, struct wire_reclaim, 0)};

	(void)state;
	say(&m, sizeof(m));
	assert_broken();
}

static void test_one_byte_more(void **state)
{
	char long_one[sizeof(report) + 1] = {0};

	(void)state;
	memcpy(long_one, &report, sizeof(report));
	say(long_one, sizeof(long_one));
	assert_broken();
}

static void test_descriptors_with_it(void **state)
{
	char control[CMSG_SPACE(sizeof(int))] = {0};
	struct wire_reclaimed m = report;
	struct iovec iov = {.iov_base = &m, .iov_len = sizeof(m)};
	struct msghdr msg = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	int fds[2], left;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fds[1], sizeof(int));
	assert_int_equal(sendmsg(client, &msg, MSG_NOSIGNAL), sizeof(m));
	close(fds[1]);
	assert_broken();
	/* it was closed: the pipe has no writer */
	assert_int_equal(read(fds[0], &left, 1), 0);
	close(fds[0]);
}

static void test_owner_calls_it_broken(void **state)
{
	(void)state;
	obey = false;
	say(&report, sizeof(report));
	turn();
	assert_int_equal(gone_broken, 1);
}

static void test_freed_while_it_reads(void **state)
{
	(void)state;
	free_in_report = true;
	say(&report, sizeof(report));
	say(&report, sizeof(report));
	turn();
	assert_int_equal(reports, 1);
	assert_int_equal(gone, 0);
	turn();
	while (next() > 0)
		;
	assert_int_equal(next(), 0);
}

/* ------------------------------------------------------------------ hanging up */

static void test_client_hangs_up(void **state)
{
	struct fact a = fact;

	(void)state;
	say(&report, sizeof(report));
	client = close_fd(client);
	channel_post(channel, &a.notice);
	turn();
	turn();
	assert_int_equal(reports, 1);
	assert_int_equal(gone, 1);
	assert_int_equal(gone_broken, 0);
	assert_null(a.notice.channel);
	channel_post(channel, &a.notice);
	assert_null(a.notice.channel);
}

static void test_freed_with_notices(void **state)
{
	struct fact a = fact;

	(void)state;
	channel_post(channel, &a.notice);
	channel = channel_free(channel);
	assert_null(a.notice.channel);
	turn();
	turn();
	assert_int_equal(next(), 0);
	assert_int_equal(gone, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_told_in_the_next_turn_once, start, stop),
		cmocka_unit_test_setup_teardown(test_forgotten, start, stop),
		cmocka_unit_test_setup_teardown(test_nothing_to_tell_after_all, start, stop),
		cmocka_unit_test_setup_teardown(test_full_socket, start, stop),
		cmocka_unit_test_setup_teardown(test_reports, start, stop),
		cmocka_unit_test_setup_teardown(test_noise, start, stop),
		cmocka_unit_test_setup_teardown(test_other_direction, start, stop),
		cmocka_unit_test_setup_teardown(test_one_byte_more, start, stop),
		cmocka_unit_test_setup_teardown(test_descriptors_with_it, start, stop),
		cmocka_unit_test_setup_teardown(test_owner_calls_it_broken, start, stop),
		cmocka_unit_test_setup_teardown(test_freed_while_it_reads, start, stop),
		cmocka_unit_test_setup_teardown(test_client_hangs_up, start, stop),
		cmocka_unit_test_setup_teardown(test_freed_with_notices, start, stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
