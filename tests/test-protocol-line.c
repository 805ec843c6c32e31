/* SPDX-License-Identifier: MIT */

/*
 * A client by hand that breaks the rules of places in line, transfers, watches and reclaim. Only its
 * own session may end for that: beside it stands a neighbour with a place in line, and an account of
 * a uid that has room for no leak.
 */

#include "raw.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/util.h"
#include "core/word.h"

#define K UINT64_C(1024)
#define M (K * K)
#define QUEUED 24 /* places, queues and watches that the uid may have */

static const char config[] = "[daemon]\n"
			     "flush_interval = 100ms\n"
			     "grace = 100ms\n"
			     "max_queued_per_uid = 24\n"
			     "export =\n";

static struct harness h;
static struct tally *watcher;
static uint32_t event_item;

static int start(void **state)
{
	(void)state;
	harness_start(&h, config);
	watcher = harness_open(&h);
	assert_int_equal(tally_item_lookup(watcher, "alloc", &event_item), 0);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	watcher = tally_close(watcher);
	harness_stop(&h);
	return 0;
}

/* ------------------------------------------------------------------ places by hand */

static int raw_ask_queue(struct raw *r, uint64_t queue, int *ret_fd)
{
	struct wire_queue ask = {.queue = queue};
	int fds[WIRE_FDS_MAX];
	union message m;

	raw_request(r, WIRE_QUEUE, &ask, sizeof(ask), raw_no_strings);
	assert_true(raw_receive(r, &m, fds) > 0);
	assert_int_equal(m.h.type, WIRE_QUEUE_IS);
	assert_int_equal(m.h.cookie, r->cookie);
	if (m.queue_is.status == 0)
		*ret_fd = fds[0];
	return m.queue_is.status;
}

static void raw_ask_place(struct raw *r, struct wire_request m)
{
	if (m.deadline_usec == 0)
		m.deadline_usec = UINT64_MAX;
	raw_request(r, WIRE_REQUEST, &m, sizeof(m), raw_no_strings);
}

static void raw_cancel(struct raw *r, uint64_t queue, uint64_t id)
{
	struct wire_cancel m = {.queue = queue, .id = id};

	raw_request(r, WIRE_CANCEL, &m, sizeof(m), raw_no_strings);
}

/* The next notice of a queue. */
static void expect_turn(int fd, uint64_t id, int status)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct wire_turn m;

	assert_int_equal(poll(&p, 1, HARNESS_PATIENCE_MS), 1);
	assert_int_equal(recv(fd, &m, sizeof(m), 0), sizeof(m));
	assert_int_equal(wire_check_notice(&m, sizeof(m)), 0);
	assert_int_equal(m.h.type, WIRE_TURN);
	assert_int_equal(m.id, id);
	assert_int_equal(m.status, status);
}

static void raw_ask_fetch(struct raw *r, struct wire_fetch m)
{
	raw_request(r, WIRE_FETCH, &m, sizeof(m), raw_no_strings);
}

static void expect_fetched(struct raw *r, uint64_t id, uint64_t seq, uint64_t amount, int status)
{
	union message m;

	raw_expect(r, WIRE_FETCHED, &m);
	assert_int_equal(m.fetched.id, id);
	assert_int_equal(m.fetched.seq, seq);
	assert_int_equal(m.fetched.amount, amount);
	assert_int_equal(m.fetched.status, status);
}

static void raw_detach(struct raw *r, uint64_t attachment)
{
	struct wire_detach m = {.attachment = attachment};
	union message answer;

	raw_request(r, WIRE_DETACH, &m, sizeof(m), raw_no_strings);
	raw_expect(r, WIRE_DONE, &answer);
	assert_int_equal(answer.done.status, 0);
}

static int raw_do(struct raw *r, uint32_t type, void *fixed, size_t n,
	const char *const strings[static WIRE_STRINGS_MAX])
{
	union message m;

	raw_request(r, type, fixed, n, strings);
	raw_expect(r, WIRE_DONE, &m);
	assert_int_equal(m.h.cookie, r->cookie);
	return m.done.status;
}

/* The key of an item. */
static uint32_t raw_key(struct raw *r, uint64_t attachment, uint32_t item, uint32_t flags)
{
	struct wire_key ask = {.attachment = attachment, .item = item, .flags = flags};
	union message m;

	raw_request(r, WIRE_KEY, &ask, sizeof(ask), raw_no_strings);
	assert_int_equal(raw_take_key(r, WIRE_KEYED, &m), 0);
	return m.key_is.key;
}

static uint64_t granted(struct raw *r, uint32_t key)
{
	return atomic_load(&segment_figures(&r->segment, key)->granted);
}

/* ------------------------------------------------------------------ who breaks rules, and who does not */

#define LIMIT M
#define SET_ASIDE 1000
#define TOO_MUCH (2 * M) /* waits for ever, and holds up nobody */

/*
 * Attachment 1 in /line, 2 in /line/below, both with bytes; queue 1 with place 1, whose turn has come,
 * and place 2, which waits; queue 2 with nothing.
 */
struct breaker {
	struct raw r;
	uint32_t key, below;
	int queue, other;
};

static void breaker_open(struct breaker *b)
{
	raw_open(&b->r, &h);
	b->key = raw_attach(&b->r, 1, "/line");
	b->below = raw_attach(&b->r, 2, "/line/below");
	assert_int_equal(tally_set(watcher, "/line", "memory.max", "1M"), 0);
	raw_charge(&b->r, 1, b->key, 1, 5000);
	raw_charge(&b->r, 2, b->below, 1, 5000);
	assert_int_equal(raw_ask_queue(&b->r, 1, &b->queue), 0);
	assert_int_equal(raw_ask_queue(&b->r, 2, &b->other), 0);
	raw_ask_place(&b->r,
		(struct wire_request){
			.queue = 1, .id = 1, .attachment = 1, .key = b->key, .need = SET_ASIDE});
	expect_turn(b->queue, 1, 0);
	raw_ask_place(&b->r,
		(struct wire_request){
			.queue = 1, .id = 2, .attachment = 1, .key = b->key, .need = TOO_MUCH});
	raw_assert_alive(&b->r);
}

static void breaker_close(struct breaker *b)
{
	raw_close(&b->r);
	b->queue = close_fd(b->queue);
	b->other = close_fd(b->other);
}

static int is_vacant(void *path)
{
	return harness_value(watcher, path, "cgroup.events", "populated") == 0;
}

/* All is given back: whoever comes next has the whole limit, and the pools can be removed. */
static void assert_nothing_left(void)
{
	struct tally_pool *p;

	assert_true(harness_wait(is_vacant, (void *)"/line", HARNESS_PATIENCE_MS));
	assert_int_equal(harness_current(watcher, "/line"), 0);
	assert_int_equal(harness_value(watcher, "/line", "memory.stat", "stock"), 0);
	assert_int_equal(harness_value(watcher, "/line", "memory.stat", "overdraft"), 0);
	p = harness_attach(watcher, "/line");
	assert_int_equal(tally_charge(p, LIMIT), 0);
	tally_detach(p);
	assert_int_equal(tally_remove(watcher, "/line/below", 0), 0);
	assert_int_equal(tally_remove(watcher, "/line", 0), 0);
}

static void assert_bears(struct breaker *b)
{
	raw_assert_alive(&b->r);
	breaker_close(b);
	assert_nothing_left();
}

static void assert_broken(struct breaker *b)
{
	raw_assert_ended(&b->r);
	breaker_close(b);
	assert_nothing_left();
}

/* Its one place waits for what only the end of the test brings. */
static struct {
	struct raw r;
	uint32_t key;
	int queue;
} neighbour;

static int settle(void **state)
{
	(void)state;
	raw_open(&neighbour.r, &h);
	neighbour.key = raw_attach(&neighbour.r, 7, "/neighbour");
	assert_int_equal(tally_set(watcher, "/neighbour", "memory.max", "1M"), 0);
	assert_int_equal(raw_ask_queue(&neighbour.r, 1, &neighbour.queue), 0);
	raw_ask_place(&neighbour.r,
		(struct wire_request){.queue = 1,
			.id = 1,
			.attachment = 7,
			.key = neighbour.key,
			.need = TOO_MUCH});
	raw_assert_alive(&neighbour.r);
	return 0;
}

static int leave(void **state)
{
	(void)state;
	raw_assert_alive(&neighbour.r);
	assert_int_equal(tally_set(watcher, "/neighbour", "memory.max", "max"), 0);
	expect_turn(neighbour.queue, 1, 0);
	raw_ask_fetch(&neighbour.r,
		(struct wire_fetch){
			.queue = 1, .id = 1, .attachment = 7, .key = neighbour.key, .seq = 1});
	expect_fetched(&neighbour.r, 1, 1, TOO_MUCH, 0);
	assert_int_equal(granted(&neighbour.r, neighbour.key), TOO_MUCH);
	raw_close(&neighbour.r);
	neighbour.queue = close_fd(neighbour.queue);
	assert_true(harness_wait(is_vacant, (void *)"/neighbour", HARNESS_PATIENCE_MS));
	assert_int_equal(tally_remove(watcher, "/neighbour", 0), 0);
	return 0;
}

/* ------------------------------------------------------------------ QUEUE */

static void test_queue_numbers(void **state)
{
	static const uint64_t bad[] = {0, 1, 2};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(bad); i++) {
		struct wire_queue m = {.queue = bad[i]};
		struct breaker b;

		breaker_open(&b);
		raw_request(&b.r, WIRE_QUEUE, &m, sizeof(m), raw_no_strings);
		assert_broken(&b);
	}
}

/* As many as the uid may have, each with a descriptor; and again, which shows that they are given
 * back. */
static void test_queues_are_bounded(void **state)
{
	int fds[QUEUED];
	struct raw r;

	(void)state;
	for (unsigned round = 0; round < 3; round++) {
		unsigned n = 0;
		int status;

		raw_open(&r, &h);
		do
			status = raw_ask_queue(&r, n + 1, &fds[n]);
		while (status == 0 && ++n < QUEUED);
		assert_int_equal(status, -EDQUOT);
		assert_int_equal(n, QUEUED - 2); /* the neighbour's queue and place */
		/* It is an answer, and ends nothing. */
		raw_assert_alive(&r);
		raw_close(&r);
		while (n-- > 0)
			close(fds[n]);
		raw_open(&r, &h);
		raw_assert_alive(&r);
		raw_close(&r);
	}
}

/* The client's end of a queue is for reading. */
static void test_noise_on_queue(void **state)
{
	static const char noise[100];
	struct wire_reclaimed report = {.h = WIRE_HEADER(WIRE_RECLAIMED, struct wire_reclaimed, 0)};
	struct breaker b;

	(void)state;
	breaker_open(&b);
	assert_true(send(b.queue, noise, sizeof(noise), MSG_NOSIGNAL) > 0);
	assert_broken(&b);
	breaker_open(&b);
	assert_true(send(b.other, &report, sizeof(report), MSG_NOSIGNAL) > 0);
	assert_broken(&b);
}

/* ------------------------------------------------------------------ REQUEST */

static void refuse_place(struct wire_request m, uint32_t item)
{
	struct breaker b;

	breaker_open(&b);
	m.attachment = 1;
	m.key = item ? raw_key(&b.r, 1, item, WIRE_KEY_STAT) : b.key;
	raw_ask_place(&b.r, m);
	assert_broken(&b);
}

static void test_request_fields(void **state)
{
	(void)state;
	refuse_place((struct wire_request){.queue = 1, .id = 0, .need = 1}, 0);
	refuse_place((struct wire_request){.queue = 1, .id = 3, .need = 0}, 0);
	refuse_place((struct wire_request){.queue = 1, .id = 3, .need = WORD_BYTES_MAX + 1}, 0);
	refuse_place((struct wire_request){.queue = 1, .id = 3, .need = UINT64_MAX}, 0);
	/* whose turn has come, and which waits */
	refuse_place((struct wire_request){.queue = 1, .id = 1, .need = 1}, 0);
	refuse_place((struct wire_request){.queue = 1, .id = 2, .need = 1}, 0);
	refuse_place((struct wire_request){.queue = 1, .id = 3, .need = 1}, event_item);
	/* rules hold in a queue that is not there, too */
	refuse_place((struct wire_request){.queue = 9, .id = 3, .need = 0}, 0);
	refuse_place((struct wire_request){.queue = 9, .id = 3, .need = 1}, event_item);
}

/* An id is of its queue. */
static void test_ids_are_of_a_queue(void **state)
{
	struct breaker b;

	(void)state;
	breaker_open(&b);
	raw_cancel(&b.r, 1, 2); /* whoever comes behind it waits too */
	raw_ask_place(&b.r,
		(struct wire_request){
			.queue = 2, .id = 1, .attachment = 2, .key = b.below, .need = 1});
	expect_turn(b.other, 1, 0);
	raw_cancel(&b.r, 1, 1);
	raw_cancel(&b.r, 1, 1);
	/* free again, and used again */
	raw_ask_place(&b.r,
		(struct wire_request){
			.queue = 1, .id = 1, .attachment = 1, .key = b.key, .need = 1});
	expect_turn(b.queue, 1, 0);
	assert_bears(&b);
}

static void test_request_of_nobody(void **state)
{
	struct {
		uint64_t attachment;
		uint32_t key;
	} bad[] = {{0, 0}, {3, 0}, {UINT64_MAX, 0}, {1, 64}, {1, UINT32_MAX}, {1, WORD_KEY_VOID},
		{1, 1}};
	struct breaker b;

	(void)state;
	breaker_open(&b);
	for (size_t i = 0; i < ELEMENTS(bad); i++) {
		uint32_t key = bad[i].key ? bad[i].key : b.key;

		if (bad[i].key == 1)
			key = b.below; /* of another attachment */
		raw_ask_place(&b.r,
			(struct wire_request){.queue = 1,
				.id = 10 + i,
				.attachment = bad[i].attachment,
				.key = key,
				.need = 1});
		expect_fetched(&b.r, 10 + i, 0, 0, -ENODEV);
		expect_turn(b.queue, 0, 0);
	}
	/* a queue that was freed meanwhile wants no answer */
	raw_ask_place(&b.r,
		(struct wire_request){
			.queue = 9, .id = 1, .attachment = 1, .key = b.key, .need = 1});
	raw_ask_place(&b.r,
		(struct wire_request){
			.queue = 9, .id = 1, .attachment = 5, .key = b.key, .need = 1});
	assert_bears(&b);
}

static void test_places_are_bounded(void **state)
{
	struct breaker b;

	(void)state;
	for (unsigned round = 0; round < 2; round++) {
		/* two queues and two places of its own, and the neighbour's */
		unsigned room = QUEUED - 6;

		breaker_open(&b);
		for (unsigned i = 0; i < room; i++) {
			raw_ask_place(&b.r,
				(struct wire_request){.queue = 1,
					.id = 10 + i,
					.attachment = 1,
					.key = b.key,
					.need = TOO_MUCH});
			raw_assert_alive(&b.r);
		}
		raw_ask_place(&b.r,
			(struct wire_request){.queue = 1,
				.id = 100,
				.attachment = 1,
				.key = b.key,
				.need = TOO_MUCH});
		expect_fetched(&b.r, 100, 0, 0, -EDQUOT);
		raw_cancel(&b.r, 1, 12);
		raw_ask_place(&b.r,
			(struct wire_request){.queue = 1,
				.id = 100,
				.attachment = 1,
				.key = b.key,
				.need = TOO_MUCH});
		assert_bears(&b);
	}
}

/* Its own key and queue: what is told of it is told once. */
static void test_after_detach(void **state)
{
	struct breaker b;

	(void)state;
	breaker_open(&b);
	raw_detach(&b.r, 1);
	expect_turn(b.queue, 1, -ENODEV);
	expect_turn(b.queue, 2, -ENODEV);
	raw_ask_place(&b.r,
		(struct wire_request){
			.queue = 1, .id = 3, .attachment = 1, .key = b.key, .need = 1});
	expect_fetched(&b.r, 3, 0, 0, -ENODEV);
	raw_ask_fetch(&b.r,
		(struct wire_fetch){.queue = 1, .id = 1, .attachment = 1, .key = b.key, .seq = 1});
	expect_fetched(&b.r, 1, 1, 0, -ENODEV);
	raw_cancel(&b.r, 1, 1);
	raw_cancel(&b.r, 1, 2);
	assert_bears(&b);
}

/* ------------------------------------------------------------------ CANCEL */

static void test_cancel(void **state)
{
	struct breaker b;

	(void)state;
	breaker_open(&b);
	raw_cancel(&b.r, 0, 0);
	raw_cancel(&b.r, 1, 0);
	raw_cancel(&b.r, 1, 3);
	raw_cancel(&b.r, 1, UINT64_MAX);
	raw_cancel(&b.r, 2, 1);
	raw_cancel(&b.r, 9, 1);
	raw_assert_alive(&b.r);
	/* none of them was place 1 */
	raw_ask_fetch(&b.r,
		(struct wire_fetch){.queue = 1, .id = 1, .attachment = 1, .key = b.key, .seq = 1});
	expect_fetched(&b.r, 1, 1, SET_ASIDE, 0);
	raw_cancel(&b.r, 1, 1);
	raw_cancel(&b.r, 1, 2);
	raw_cancel(&b.r, 1, 2);
	assert_bears(&b);
}

/* ------------------------------------------------------------------ FETCH */

static void refuse_fetch(struct wire_fetch m, bool of_another)
{
	struct breaker b;

	breaker_open(&b);
	m.queue = 1;
	m.attachment = of_another ? 2 : 1;
	m.key = of_another ? b.below : b.key;
	raw_ask_fetch(&b.r, m);
	assert_broken(&b);
}

static void test_fetch_fields(void **state)
{
	(void)state;
	refuse_fetch((struct wire_fetch){.id = 0, .seq = 1}, false);
	refuse_fetch((struct wire_fetch){.id = 1, .seq = 0}, false);
	/* to a key that it was not asked for */
	refuse_fetch((struct wire_fetch){.id = 1, .seq = 1}, true);
	refuse_fetch((struct wire_fetch){.id = 2, .seq = 1}, true);
}

static void test_fetch_what_is_not_there(void **state)
{
	struct wire_fetch m = {.attachment = 1, .id = 3, .queue = 1};
	struct breaker b;
	uint64_t before;

	(void)state;
	breaker_open(&b);
	before = granted(&b.r, b.key);
	m.key = b.key;
	m.seq = 1;
	raw_ask_fetch(&b.r, m);
	expect_fetched(&b.r, 3, 1, 0, -ENOENT);
	m = (struct wire_fetch){.queue = 9, .id = 1, .attachment = 1, .key = b.key, .seq = 2};
	raw_ask_fetch(&b.r, m);
	expect_fetched(&b.r, 1, 2, 0, -ENOENT);
	/* it waits still */
	m = (struct wire_fetch){.queue = 1, .id = 2, .attachment = 1, .key = b.key, .seq = 3};
	raw_ask_fetch(&b.r, m);
	expect_fetched(&b.r, 2, 3, 0, -EAGAIN);
	/* nobody's keys */
	m = (struct wire_fetch){.queue = 1, .id = 1, .attachment = 2, .key = b.key, .seq = 4};
	raw_ask_fetch(&b.r, m);
	expect_fetched(&b.r, 1, 4, 0, -ENODEV);
	m = (struct wire_fetch){.queue = 1, .id = 1, .attachment = 1, .key = UINT32_MAX, .seq = 4};
	raw_ask_fetch(&b.r, m);
	expect_fetched(&b.r, 1, 4, 0, -ENODEV);
	assert_int_equal(granted(&b.r, b.key), before);
	assert_bears(&b);
}

/* Once, however often it is asked for; numbers may be left out, and older ones are dropped. */
static void test_fetch_twice(void **state)
{
	struct wire_fetch m = {.queue = 1, .id = 1, .attachment = 1, .seq = 5};
	struct breaker b;
	uint64_t before;

	(void)state;
	breaker_open(&b);
	before = granted(&b.r, b.key);
	m.key = b.key;
	raw_ask_fetch(&b.r, m);
	expect_fetched(&b.r, 1, 5, SET_ASIDE, 0);
	raw_ask_fetch(&b.r, m);
	expect_fetched(&b.r, 1, 5, SET_ASIDE, 0);
	m.seq = 4;
	raw_ask_fetch(&b.r, m);
	raw_assert_alive(&b.r);
	m.seq = 6;
	raw_ask_fetch(&b.r, m);
	expect_fetched(&b.r, 1, 6, 0, -ENOENT);
	m.seq = 5;
	raw_ask_fetch(&b.r, m);
	raw_assert_alive(&b.r);
	assert_int_equal(granted(&b.r, b.key), before + SET_ASIDE);
	assert_bears(&b);
}

/* The lane is FETCH's alone. */
static void test_charge_in_lane_of_fetch(void **state)
{
	struct wire_charge m = {.attachment = 1, .lane = SEGMENT_FETCH, .seq = 1, .need = 1};
	struct breaker b;

	(void)state;
	breaker_open(&b);
	m.key = b.key;
	raw_request(&b.r, WIRE_CHARGE, &m, sizeof(m), raw_no_strings);
	assert_broken(&b);
}

/* What is set aside is going to be the row's, which has its bound. */
static void test_set_aside_is_bounded(void **state)
{
	struct wire_transfer move = {.from = 2, .to = 1, .bytes = 5000};
	struct wire_ahead ahead = {.attachment = 1};
	struct raw r;
	int queue = -1;

	(void)state;
	raw_open(&r, &h);
	ahead.key = move.to_key = raw_attach(&r, 1, "/line");
	move.from_key = raw_attach(&r, 2, "/line/below");
	raw_charge(&r, 2, move.from_key, 1, 5000);
	assert_int_equal(raw_ask_queue(&r, 1, &queue), 0);
	raw_ask_place(&r,
		(struct wire_request){.queue = 1,
			.id = 1,
			.attachment = 1,
			.key = move.to_key,
			.need = WORD_BYTES_MAX});
	expect_turn(queue, 1, 0);
	raw_request(&r, WIRE_AHEAD, &ahead, sizeof(ahead), raw_no_strings);
	assert_int_equal(raw_do(&r, WIRE_TRANSFER, &move, sizeof(move), raw_no_strings), -ENOMEM);
	raw_ask_fetch(&r,
		(struct wire_fetch){
			.queue = 1, .id = 1, .attachment = 1, .key = move.to_key, .seq = 1});
	expect_fetched(&r, 1, 1, WORD_BYTES_MAX, 0);
	assert_int_equal(granted(&r, move.to_key), WORD_BYTES_MAX);
	raw_close(&r);
	close(queue);
	assert_nothing_left();
}

/* ------------------------------------------------------------------ TRANSFER */

static void refuse_transfer(uint64_t bytes, uint32_t from_item, uint32_t to_item)
{
	struct wire_transfer m = {.from = 1, .to = 2, .bytes = bytes};
	struct breaker b;

	breaker_open(&b);
	m.from_key = from_item ? raw_key(&b.r, 1, from_item, WIRE_KEY_STAT) : b.key;
	m.to_key = to_item ? raw_key(&b.r, 2, to_item, WIRE_KEY_STAT) : b.below;
	raw_request(&b.r, WIRE_TRANSFER, &m, sizeof(m), raw_no_strings);
	assert_broken(&b);
}

static void test_transfer_fields(void **state)
{
	uint32_t sock;

	(void)state;
	assert_int_equal(tally_item_lookup(watcher, "sock", &sock), 0);
	refuse_transfer(0, 0, 0);
	refuse_transfer(WORD_BYTES_MAX + 1, 0, 0);
	refuse_transfer(UINT64_MAX, 0, 0);
	refuse_transfer(1, sock, 0);
	refuse_transfer(1, 0, sock);
	refuse_transfer(1, event_item, event_item);
	refuse_transfer(1, event_item, 0);
}

static int transfer(struct breaker *b, struct wire_transfer m)
{
	return raw_do(&b->r, WIRE_TRANSFER, &m, sizeof(m), raw_no_strings);
}

static void test_transfer_of_nobody(void **state)
{
	struct wire_transfer m;
	uint64_t from, to;
	struct breaker b;

	(void)state;
	breaker_open(&b);
	from = granted(&b.r, b.key);
	to = granted(&b.r, b.below);
	m = (struct wire_transfer){
		.from = 1, .to = 2, .from_key = b.key, .to_key = b.below, .bytes = 1000};
	m.from = 3;
	assert_int_equal(transfer(&b, m), -ENODEV);
	m.from = 2;
	assert_int_equal(transfer(&b, m), -ENODEV); /* with a key of another attachment */
	m.from = 1;
	m.to = 0;
	assert_int_equal(transfer(&b, m), -ENODEV);
	m.to = 2;
	m.to_key = UINT32_MAX;
	assert_int_equal(transfer(&b, m), -ENODEV);
	m.to_key = b.key;
	assert_int_equal(transfer(&b, m), -ENODEV);
	m.to_key = b.below;
	/* more than it has; what is set aside for it is nobody's yet */
	m.bytes = from + 1;
	assert_int_equal(transfer(&b, m), -EINVAL);
	m.bytes = WORD_BYTES_MAX;
	assert_int_equal(transfer(&b, m), -EINVAL);
	/* to itself */
	m.to = 1;
	m.to_key = b.key;
	assert_int_equal(transfer(&b, m), 0);
	assert_int_equal(granted(&b.r, b.key), from);
	assert_int_equal(granted(&b.r, b.below), to);
	raw_detach(&b.r, 2);
	m = (struct wire_transfer){
		.from = 1, .to = 2, .from_key = b.key, .to_key = b.below, .bytes = 1000};
	assert_int_equal(transfer(&b, m), -ENODEV);
	assert_int_equal(granted(&b.r, b.key), from);
	assert_bears(&b);
}

/* ------------------------------------------------------------------ WATCH */

static int ask_watch(struct raw *r, uint64_t number, const char *path)
{
	const char *const strings[WIRE_STRINGS_MAX] = {path};
	struct wire_watch m = {.watch = number};

	return raw_do(r, WIRE_WATCH, &m, sizeof(m), strings);
}

static void ask_unwatch(struct raw *r, uint64_t number)
{
	struct wire_unwatch m = {.watch = number};

	raw_request(r, WIRE_UNWATCH, &m, sizeof(m), raw_no_strings);
}

static void test_watch_numbers(void **state)
{
	static const char *const strings[WIRE_STRINGS_MAX] = {"/"};
	struct wire_watch again = {.watch = 5};
	struct breaker b;

	(void)state;
	breaker_open(&b);
	assert_int_equal(ask_watch(&b.r, 5, "/line"), 0);
	raw_request(&b.r, WIRE_WATCH, &again, sizeof(again), strings);
	assert_broken(&b);

	/* and of numbers that nothing watches under */
	breaker_open(&b);
	assert_int_equal(ask_watch(&b.r, 5, "/nowhere"), -ENOENT);
	assert_int_equal(ask_watch(&b.r, 5, "not a path"), -EINVAL);
	ask_unwatch(&b.r, 5);
	ask_unwatch(&b.r, UINT64_MAX);
	assert_int_equal(ask_watch(&b.r, 5, "/line"), 0);
	ask_unwatch(&b.r, 5);
	ask_unwatch(&b.r, 5);
	assert_int_equal(ask_watch(&b.r, 5, "/line/below"), 0);
	assert_bears(&b);
}

static void test_watches_are_bounded(void **state)
{
	struct breaker b;

	(void)state;
	for (unsigned round = 0; round < 2; round++) {
		unsigned room = QUEUED - 6;

		breaker_open(&b);
		for (unsigned i = 1; i <= room; i++)
			assert_int_equal(ask_watch(&b.r, i, "/line"), 0);
		assert_int_equal(ask_watch(&b.r, 100, "/line"), -EDQUOT);
		ask_unwatch(&b.r, 1);
		assert_int_equal(ask_watch(&b.r, 100, "/line"), 0);
		assert_bears(&b);
	}
}

/* ------------------------------------------------------------------ ON_RECLAIM and RECLAIMED */

static int ask_on_reclaim(struct raw *r, uint64_t attachment, uint64_t flags)
{
	struct wire_on_reclaim m = {.attachment = attachment, .flags = flags};

	return raw_do(r, WIRE_ON_RECLAIM, &m, sizeof(m), raw_no_strings);
}

static void test_on_reclaim(void **state)
{
	static const uint64_t bad[] = {2, 3, UINT64_C(1) << 63};
	struct breaker b;

	(void)state;
	for (size_t i = 0; i < ELEMENTS(bad); i++) {
		struct wire_on_reclaim m = {.attachment = 1, .flags = bad[i]};

		breaker_open(&b);
		assert_int_equal(ask_on_reclaim(&b.r, 1, WIRE_ON_RECLAIM_SET), 0);
		raw_request(&b.r, WIRE_ON_RECLAIM, &m, sizeof(m), raw_no_strings);
		assert_broken(&b);
	}
	breaker_open(&b);
	assert_int_equal(ask_on_reclaim(&b.r, 0, WIRE_ON_RECLAIM_SET), -ENODEV);
	assert_int_equal(ask_on_reclaim(&b.r, 3, 0), -ENODEV);
	assert_int_equal(ask_on_reclaim(&b.r, 1, 0), 0);
	assert_int_equal(ask_on_reclaim(&b.r, 1, WIRE_ON_RECLAIM_SET), 0);
	assert_int_equal(ask_on_reclaim(&b.r, 1, WIRE_ON_RECLAIM_SET), 0);
	raw_detach(&b.r, 1);
	assert_int_equal(ask_on_reclaim(&b.r, 1, 0), -ENODEV);
	assert_int_equal(ask_on_reclaim(&b.r, 1, WIRE_ON_RECLAIM_SET), -ENODEV);
	assert_bears(&b);
}

static void report(struct raw *r, uint64_t attachment, uint64_t token, uint64_t bytes)
{
	struct wire_reclaimed m = {.h = WIRE_HEADER(WIRE_RECLAIMED, struct wire_reclaimed, 0),
		.attachment = attachment,
		.token = token,
		.bytes = bytes};

	assert_int_equal(send(r->event_fd, &m, sizeof(m), MSG_NOSIGNAL), sizeof(m));
}

/* Asks attachment 2 to give back; somebody waits for its answer. Returns the token. */
static uint64_t question(struct breaker *b)
{
	struct pollfd p = {.fd = b->r.event_fd, .events = POLLIN};
	struct wire_reclaim m;

	assert_int_equal(ask_on_reclaim(&b->r, 2, WIRE_ON_RECLAIM_SET), 0);
	raw_ask_charge(&b->r, 1, b->key, 2, TOO_MUCH);
	assert_int_equal(poll(&p, 1, HARNESS_PATIENCE_MS), 1);
	assert_int_equal(recv(b->r.event_fd, &m, sizeof(m), 0), sizeof(m));
	assert_int_equal(wire_check_notice(&m, sizeof(m)), 0);
	assert_int_equal(m.h.type, WIRE_RECLAIM);
	assert_int_equal(m.attachment, 2);
	return m.token;
}

/* Whoever waits hears of no answer but the one that was asked for, and of that one once. */
static void test_reports_of_nobody(void **state)
{
	struct wire_grant g;
	struct breaker b;
	uint64_t token;

	(void)state;
	breaker_open(&b);
	report(&b.r, 1, 1, 1000);
	report(&b.r, 0, 0, UINT64_MAX);
	report(&b.r, UINT64_MAX, 1, 1000);
	token = question(&b);
	report(&b.r, 1, token, M);
	report(&b.r, 3, token, M);
	report(&b.r, 2, token + 1, M);
	report(&b.r, 2, 0, M);
	report(&b.r, 2, token, UINT64_MAX);
	report(&b.r, 2, token, UINT64_MAX);
	g = raw_expect_grant(&b.r, 1, b.key, 2);
	assert_int_equal(g.status, -ENOMEM);
	assert_int_equal(harness_value(watcher, "/line", "memory.events", "reclaim"), 1);
	report(&b.r, 2, token, 1);
	assert_bears(&b);
}

/* What is asked when the callback goes, or the attachment, is over. */
static void test_report_too_late(void **state)
{
	struct wire_grant g;
	struct breaker b;
	uint64_t token;

	(void)state;
	breaker_open(&b);
	token = question(&b);
	assert_int_equal(ask_on_reclaim(&b.r, 2, 0), 0);
	report(&b.r, 2, token, 1000);
	g = raw_expect_grant(&b.r, 1, b.key, 2);
	assert_int_equal(g.status, -ENOMEM);
	assert_bears(&b);

	breaker_open(&b);
	token = question(&b);
	breaker_close(&b); /* somebody waits for it */
	assert_nothing_left();
	breaker_open(&b);
	report(&b.r, 2, token, 1000);
	assert_bears(&b);
}

static void break_report(const void *message, size_t n)
{
	struct breaker b;

	breaker_open(&b);
	question(&b);
	assert_true(send(b.r.event_fd, message, n, MSG_NOSIGNAL) > 0);
	assert_broken(&b);
}

static void test_report_shapes(void **state)
{
	struct wire_reclaimed m = {.h = WIRE_HEADER(WIRE_RECLAIMED, struct wire_reclaimed, 0)};

	(void)state;
	break_report(&m, sizeof(m) - 1);
	break_report(&m, sizeof(m.h));
	m.h.type = WIRE_RECLAIM;
	break_report(&m, sizeof(m));
	m.h.type = WIRE_RECLAIMED + 1;
	break_report(&m, sizeof(m));
	m.h.type = WIRE_RECLAIMED;
	m.h.size = UINT32_MAX;
	break_report(&m, sizeof(m));
}

/* ------------------------------------------------------------------ answers that are owed */

#define OWED 64
#define ASKED (OWED + 16)

static void ask_reclaim(struct raw *r)
{
	static const char *const strings[WIRE_STRINGS_MAX] = {"/line", "memory.reclaim", "1G"};
	struct wire_set m = {0};

	raw_request(r, WIRE_SET, &m, sizeof(m), strings);
}

/*
 * Asks for bytes back, of one that does not answer, and so for a round. True: those that are more than
 * may be owed were told to come again before any of the others had an answer; false, now and then: a
 * round was over already.
 */
static bool is_owed_so_many(void)
{
	bool more_first = true;
	uint64_t before;
	struct breaker b;
	struct raw r;

	breaker_open(&b);
	assert_int_equal(ask_on_reclaim(&b.r, 2, WIRE_ON_RECLAIM_SET), 0);
	raw_open(&r, &h);
	before = r.cookie;
	for (unsigned i = 0; i < ASKED; i++)
		ask_reclaim(&r);
	for (unsigned i = 0; i < ASKED; i++) {
		union message m;

		raw_expect(&r, WIRE_DONE, &m);
		assert_int_equal(m.done.status, -EAGAIN);
		more_first = more_first && (m.h.cookie - before > OWED) == (i < ASKED - OWED);
	}
	/* They are owed no more. */
	for (unsigned i = 0; i < ASKED; i++) {
		static const char *const strings[WIRE_STRINGS_MAX] = {"/line", "pool.drain", "1"};
		struct wire_set m = {0};

		assert_int_equal(raw_do(&r, WIRE_SET, &m, sizeof(m), strings), 0);
	}
	raw_close(&r);
	assert_bears(&b);
	return more_first;
}

static void test_owed_answers_are_bounded(void **state)
{
	bool seen = false;

	(void)state;
	for (unsigned i = 0; !seen && i < 20; i++)
		seen = is_owed_so_many();
	assert_true(seen);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, settle, leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(queue_numbers),
		TEST(queues_are_bounded),
		TEST(noise_on_queue),
		TEST(request_fields),
		TEST(ids_are_of_a_queue),
		TEST(request_of_nobody),
		TEST(places_are_bounded),
		TEST(after_detach),
		TEST(cancel),
		TEST(fetch_fields),
		TEST(fetch_what_is_not_there),
		TEST(fetch_twice),
		TEST(charge_in_lane_of_fetch),
		TEST(set_aside_is_bounded),
		TEST(transfer_fields),
		TEST(transfer_of_nobody),
		TEST(watch_numbers),
		TEST(watches_are_bounded),
		TEST(on_reclaim),
		TEST(reports_of_nobody),
		TEST(report_too_late),
		TEST(report_shapes),
		TEST(owed_answers_are_bounded),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
