/* SPDX-License-Identifier: MIT */

/*
 * Behind the checker every handler believes the shape of its message, so the checker is held
 * against a second description of the protocol, made here by hand: first one fault at a time, then
 * with noise.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "core/util.h"
#include "core/wire.h"

#define FUZZ_ROUNDS 200000

struct kind {
	uint32_t type, fixed, strings, fds, tail;
};

/* Sizes in numbers: an older client sends these bytes. */
static const struct kind requests[] = {
	{WIRE_HELLO, 24, 1, 0, 0},
	{WIRE_ATTACH, 32, 1, 0, 0},
	{WIRE_DETACH, 40, 0, 0, 0},
	{WIRE_FORGET, 24, 0, 0, 0},
	{WIRE_KEY, 32, 0, 0, 0},
	{WIRE_EXTENT, 24, 0, 0, 0},
	{WIRE_CHARGE, 64, 0, 0, 0},
	{WIRE_RING, 32, 0, 0, 0},
	{WIRE_AHEAD, 32, 0, 0, 0},
	{WIRE_ITEM, 16, 1, 0, 0},
	{WIRE_DEFINE, 24, 3, 0, 0},
	{WIRE_GET, 24, 2, 0, 0},
	{WIRE_SET, 16, 3, 0, 0},
	{WIRE_CREATE, 16, 1, 0, 0},
	{WIRE_REMOVE, 24, 1, 0, 0},
	{WIRE_BYE, 16, 0, 0, 0},
	{WIRE_TRANSFER, 48, 0, 0, 0},
	{WIRE_WATCH, 24, 1, 0, 0},
	{WIRE_UNWATCH, 24, 0, 0, 0},
	{WIRE_ON_RECLAIM, 32, 0, 0, 0},
	{WIRE_REFUSAL, 24, 0, 0, 0},
	{WIRE_QUEUE, 24, 0, 0, 0},
	{WIRE_REQUEST, 64, 0, 0, 0},
	{WIRE_CANCEL, 32, 0, 0, 0},
	{WIRE_FETCH, 56, 0, 0, 0},
};

static const struct kind answers[] = {
	{WIRE_WELCOME, 32, 0, 3, 0},
	{WIRE_ATTACHED, 56, 0, 2, 0},
	{WIRE_KEYED, 56, 0, 2, 0},
	{WIRE_EXTENT_IS, 24, 0, 2, 0},
	{WIRE_GRANT, 64, 0, 0, 0},
	{WIRE_ITEM_IS, 32, 0, 0, 0},
	{WIRE_TEXT, 32, 0, 1, 1},
	{WIRE_DONE, 32, 0, 0, 0},
	{WIRE_QUEUE_IS, 24, 0, 1, 0},
	{WIRE_FETCHED, 64, 0, 0, 0},
};

static const struct kind notices[] = {
	{WIRE_EVENT, 96, 0, 0, 0},
	{WIRE_RECLAIM, 48, 0, 0, 0},
	{WIRE_TURN, 40, 0, 0, 0},
};

static const struct kind reports[] = {
	{WIRE_RECLAIMED, 40, 0, 0, 0},
};

/* Which of the two sockets, and in which direction. */
enum way {
	REQUEST,
	ANSWER,
	NOTICE,
	REPORT,
	WAYS,
};

static const struct {
	const struct kind *kinds;
	size_t n;
} ways[WAYS] = {
	[REQUEST] = {requests, ELEMENTS(requests)},
	[ANSWER] = {answers, ELEMENTS(answers)},
	[NOTICE] = {notices, ELEMENTS(notices)},
	[REPORT] = {reports, ELEMENTS(reports)},
};

struct message {
	char bytes[WIRE_MAX + 1];
	size_t n;
	unsigned fds;
};

static const char *const marks[WIRE_STRINGS_MAX] = {"a", "b", "c"};

static int check(enum way way, const struct message *m, const char **strings)
{
	const char *ignored[WIRE_STRINGS_MAX];
	/* To the byte and at an odd address, so that nothing can be read but the message. */
	char *exact = malloc(m->n + 1);
	int r;

	assert_non_null(exact);
	memcpy(exact + 1, m->bytes, m->n);
	if (way == REQUEST)
		r = wire_check_request(exact + 1, m->n, m->fds, strings ? strings : ignored);
	else if (way == ANSWER)
		r = wire_check_answer(exact + 1, m->n, m->fds);
	else if (way == NOTICE)
		r = wire_check_notice(exact + 1, m->n);
	else
		r = wire_check_report(exact + 1, m->n);
	if (r == 0 && way == REQUEST && strings)
		for (unsigned i = 0; i < WIRE_STRINGS_MAX && strings[i]; i++)
			strings[i] = m->bytes + (strings[i] - exact - 1);
	free(exact);
	return r;
}

static void set_size(struct message *m, size_t n)
{
	uint32_t size = (uint32_t)n;

	m->n = n;
	memcpy(m->bytes + offsetof(struct wire_header, size), &size, sizeof(size));
}

static void set_type(struct message *m, uint32_t type)
{
	memcpy(m->bytes + offsetof(struct wire_header, type), &type, sizeof(type));
}

/* Right in all: fixed part of 0xee, strings "x", "x", … */
static void make(struct message *m, const struct kind *k)
{
	memset(m->bytes, 0xee, k->fixed);
	m->fds = 0;
	for (unsigned i = 0; i < k->strings; i++)
		memcpy(m->bytes + k->fixed + 2 * i, "x", 2);
	set_size(m, k->fixed + 2 * k->strings);
	set_type(m, k->type);
}

static void add_byte(struct message *m, char byte)
{
	m->bytes[m->n] = byte;
	set_size(m, m->n + 1);
}

static void assert_refused(enum way way, const struct message *m)
{
	const char *strings[WIRE_STRINGS_MAX];

	memcpy(strings, marks, sizeof(strings));
	assert_int_equal(check(way, m, strings), -EPROTO);
	assert_memory_equal(strings, marks, sizeof(strings));
}

static void for_each(enum way way, void (*fn)(enum way way, const struct kind *k))
{
	for (size_t i = 0; i < ways[way].n; i++)
		fn(way, &ways[way].kinds[i]);
}

static void for_all(void (*fn)(enum way way, const struct kind *k))
{
	for (enum way way = REQUEST; way < WAYS; way++)
		for_each(way, fn);
}

/* ------------------------------------------------------------------ one fault at a time */

/* The numbers of the types are the protocol's, as are the sizes. */
static void test_numbers(void **state _unused_)
{
	assert_int_equal(ELEMENTS(requests), WIRE_REQUESTS_END - 1);
	assert_int_equal(ELEMENTS(answers), WIRE_ANSWERS_END - WIRE_WELCOME);
	assert_int_equal(ELEMENTS(notices), WIRE_NOTICES_END - WIRE_EVENT);
	assert_int_equal(ELEMENTS(reports), WIRE_REPORTS_END - WIRE_RECLAIMED);
	assert_int_equal(WIRE_HELLO, 1);
	assert_int_equal(WIRE_BYE, 16);
	assert_int_equal(WIRE_REFUSAL, 20);
	assert_int_equal(WIRE_WELCOME, 64);
	assert_int_equal(WIRE_DONE, 71);
	assert_int_equal(WIRE_EVENT, 128);
	assert_int_equal(WIRE_RECLAIM, 129);
	assert_int_equal(WIRE_RECLAIMED, 192);
	assert_int_equal(WIRE_VERSION, 1);
	assert_int_equal(sizeof(struct wire_charge), 64);
	assert_int_equal(offsetof(struct wire_charge, key), 24);
	assert_int_equal(offsetof(struct wire_charge, seq), 32);
	assert_int_equal(offsetof(struct wire_charge, flags), 56);
	assert_int_equal(sizeof(struct wire_grant), 64);
	assert_int_equal(offsetof(struct wire_grant, seq), 32);
	assert_int_equal(offsetof(struct wire_grant, status), 48);
	assert_int_equal(offsetof(struct wire_grant, delay_usec), 52);
	assert_int_equal(offsetof(struct wire_grant, refusal), 56);
	assert_true(WIRE_TEXT_MAX + sizeof(struct wire_text) <= WIRE_MAX);
	assert_true(sizeof(struct wire_event) <= WIRE_NOTICE_MAX);
}

static void right(enum way way, const struct kind *k)
{
	const char *strings[WIRE_STRINGS_MAX];
	struct message m;

	make(&m, k);
	memcpy(strings, marks, sizeof(strings));
	assert_int_equal(check(way, &m, strings), 0);
	if (way != REQUEST)
		return;
	for (unsigned i = 0; i < WIRE_STRINGS_MAX; i++)
		if (i < k->strings)
			assert_ptr_equal(strings[i], m.bytes + k->fixed + 2 * i);
		else
			assert_null(strings[i]);
}

static void test_right(void **state _unused_)
{
	for_all(right);
}

static void other_lengths(enum way way, const struct kind *k)
{
	struct message m;
	size_t n;

	make(&m, k);
	n = m.n;
	for (size_t shorter = 0; shorter < n; shorter++) {
		make(&m, k);
		m.n = shorter;
		assert_refused(way, &m);
		if (shorter >= sizeof(struct wire_header)) {
			set_size(&m, shorter);
			assert_refused(way, &m);
		}
	}

	make(&m, k);
	add_byte(&m, 'y');
	if (k->tail)
		assert_int_equal(check(way, &m, NULL), 0);
	else
		assert_refused(way, &m);
	make(&m, k);
	add_byte(&m, '\0');
	if (k->tail)
		assert_int_equal(check(way, &m, NULL), 0);
	else
		assert_refused(way, &m);
}

static void test_one_byte_short_or_long(void **state _unused_)
{
	for_all(other_lengths);
}

static void wrong_size(enum way way, const struct kind *k)
{
	static const uint32_t others[] = {0, 1, 15, 16, WIRE_MAX, UINT32_MAX};
	struct message m;
	size_t n;

	make(&m, k);
	n = m.n;
	for (size_t i = 0; i < ELEMENTS(others); i++) {
		if (others[i] == n)
			continue;
		make(&m, k);
		set_size(&m, others[i]);
		m.n = n;
		assert_refused(way, &m);
	}
	for (int by = -1; by <= 1; by += 2) {
		make(&m, k);
		set_size(&m, n + (size_t)by);
		m.n = n;
		assert_refused(way, &m);
	}
}

static void test_wrong_size_field(void **state _unused_)
{
	for_all(wrong_size);
}

static void descriptors(enum way way, const struct kind *k)
{
	struct message m;

	make(&m, k);
	for (m.fds = 0; m.fds <= k->fds; m.fds++)
		assert_int_equal(check(way, &m, NULL), 0);
	/* None can come with the messages of the event socket. */
	if (way == NOTICE || way == REPORT)
		return;
	for (; m.fds < 10; m.fds++)
		assert_refused(way, &m);
	m.fds = UINT32_MAX;
	assert_refused(way, &m);
}

static void test_descriptors(void **state _unused_)
{
	for_all(descriptors);
}

static void strings(enum way way, const struct kind *k)
{
	const char *found[WIRE_STRINGS_MAX];
	struct message m;

	if (k->strings == 0)
		return;
	/* One fewer, one more, the last one without its end. */
	make(&m, k);
	set_size(&m, m.n - 2);
	assert_refused(way, &m);
	make(&m, k);
	add_byte(&m, 'y');
	add_byte(&m, '\0');
	assert_refused(way, &m);
	make(&m, k);
	m.bytes[m.n - 1] = 'y';
	assert_refused(way, &m);
	/* One end in the middle less, or more. */
	make(&m, k);
	m.bytes[k->fixed + 1] = 'y';
	assert_refused(way, &m);
	make(&m, k);
	m.bytes[k->fixed] = '\0';
	assert_refused(way, &m);

	/* All of them empty. */
	make(&m, k);
	memset(m.bytes + k->fixed, 0, k->strings);
	set_size(&m, k->fixed + k->strings);
	assert_int_equal(check(way, &m, found), 0);
	for (unsigned i = 0; i < k->strings; i++)
		assert_ptr_equal(found[i], m.bytes + k->fixed + i);
	set_size(&m, m.n - 1);
	assert_refused(way, &m);
}

static void test_strings(void **state _unused_)
{
	for_each(REQUEST, strings);
}

static void longest(enum way way, const struct kind *k)
{
	const char *found[WIRE_STRINGS_MAX];
	struct message m;

	if (k->strings == 0 && !k->tail)
		return;
	make(&m, k);
	memset(m.bytes + m.n, 'y', sizeof(m.bytes) - m.n);
	if (k->strings > 0)
		m.bytes[m.n - 1] = 'y';
	m.bytes[WIRE_MAX - 1] = '\0';
	set_size(&m, WIRE_MAX);
	assert_int_equal(check(way, &m, found), 0);
	if (k->strings > 0)
		assert_int_equal(strlen(found[k->strings - 1]),
			WIRE_MAX - k->fixed - 2 * (k->strings - 1) - 1);
	m.bytes[WIRE_MAX - 1] = 'y';
	m.bytes[WIRE_MAX] = '\0';
	set_size(&m, WIRE_MAX + 1);
	assert_refused(way, &m);
}

static void test_longest(void **state _unused_)
{
	for_all(longest);
}

/* The numbers around the ranges, and ones that would reach far behind the tables. */
static void unknown(enum way way, const struct kind *k)
{
	static const uint32_t types[] = {0, WIRE_REQUESTS_END, 62, 63, WIRE_ANSWERS_END, 127,
		WIRE_NOTICES_END, 191, WIRE_REPORTS_END, 256 + 1, 65536 + 1, UINT32_C(1) << 31,
		(UINT32_C(1) << 31) + 1, UINT32_MAX - 1, UINT32_MAX};
	struct message m;

	for (size_t i = 0; i < ELEMENTS(types); i++) {
		make(&m, k);
		set_type(&m, types[i]);
		assert_refused(way, &m);
	}
}

static void test_unknown_types(void **state _unused_)
{
	for_all(unknown);
}

static void other_way(enum way way, const struct kind *k)
{
	struct message m;

	for (enum way other = REQUEST; other < WAYS; other++) {
		if (other == way)
			continue;
		make(&m, k);
		assert_refused(other, &m);
	}
}

static void test_other_direction(void **state _unused_)
{
	for_all(other_way);
}

/* Of every length below a header's, and with nothing at all. */
static void test_less_than_a_header(void **state _unused_)
{
	struct message m;

	for (size_t n = 0; n < sizeof(struct wire_header); n++) {
		make(&m, &requests[ELEMENTS(requests) - 1]);
		set_size(&m, n);
		assert_refused(REQUEST, &m);
		set_type(&m, WIRE_DONE);
		assert_refused(ANSWER, &m);
	}
}

/* ------------------------------------------------------------------ packing */

static void packed(enum way way, const struct kind *k)
{
	static const char *const texts[WIRE_STRINGS_MAX] = {"/a/b", "", "third"};
	const char *in[WIRE_STRINGS_MAX] = {0}, *out[WIRE_STRINGS_MAX];
	char fixed[64];
	struct wire_header h;
	struct message m;
	int n;

	memset(fixed, 0xa5, sizeof(fixed));
	memcpy(in, texts, k->strings * sizeof(*in));
	n = wire_pack(m.bytes, fixed, k->fixed, k->type, UINT64_C(0x123456789abcdef0), in);
	assert_in_range(n, k->fixed, WIRE_MAX);
	m.n = (size_t)n;
	m.fds = 0;
	memcpy(&h, m.bytes, sizeof(h));
	assert_int_equal(h.size, n);
	assert_int_equal(h.type, k->type);
	assert_true(h.cookie == UINT64_C(0x123456789abcdef0));
	assert_memory_equal(m.bytes + sizeof(h), fixed, k->fixed - sizeof(h));
	assert_int_equal(check(way, &m, out), 0);
	for (unsigned i = 0; i < k->strings; i++)
		assert_string_equal(out[i], texts[i]);
}

static void test_pack(void **state _unused_)
{
	for_each(REQUEST, packed);
}

static void test_pack_header_alone(void **state _unused_)
{
	struct wire_header h = WIRE_HEADER(WIRE_RING, struct wire_ring, 7);

	assert_int_equal(h.size, 32);
	assert_int_equal(h.type, WIRE_RING);
	assert_int_equal(h.cookie, 7);
}

/* What just fits, in one string and in three, and one byte more. */
static void test_pack_limits(void **state _unused_)
{
	struct wire_set fixed = {0};
	static char a[WIRE_MAX], b[WIRE_MAX], buf[WIRE_MAX + 1];
	const char *in[WIRE_STRINGS_MAX] = {a};
	const size_t room = WIRE_MAX - sizeof(fixed);

	buf[WIRE_MAX] = 0x5a;
	memset(a, 'a', room - 1);
	assert_int_equal(wire_pack(buf, &fixed, sizeof(fixed), WIRE_SET, 1, in), WIRE_MAX);
	assert_int_equal(buf[WIRE_MAX - 1], 0);
	assert_int_equal(buf[WIRE_MAX - 2], 'a');
	a[room - 1] = 'a';
	assert_int_equal(wire_pack(buf, &fixed, sizeof(fixed), WIRE_SET, 1, in), -E2BIG);

	memset(a, 0, sizeof(a));
	memset(a, 'a', 99);
	memset(b, 'b', room - 100 - 1 - 1);
	memcpy(in, ((const char *[]){a, b, ""}), sizeof(in));
	assert_int_equal(wire_pack(buf, &fixed, sizeof(fixed), WIRE_SET, 1, in), WIRE_MAX);
	in[2] = "c";
	assert_int_equal(wire_pack(buf, &fixed, sizeof(fixed), WIRE_SET, 1, in), -E2BIG);
	in[2] = NULL;
	assert_int_equal(wire_pack(buf, &fixed, sizeof(fixed), WIRE_SET, 1, in), WIRE_MAX - 1);

	/* Strings behind a NULL are not looked at. */
	memcpy(in, ((const char *[]){"x", NULL, a}), sizeof(in));
	assert_int_equal(wire_pack(buf, &fixed, sizeof(fixed), WIRE_SET, 1, in), sizeof(fixed) + 2);
	assert_int_equal(buf[WIRE_MAX], 0x5a);
}

/* ------------------------------------------------------------------ noise */

static uint64_t next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static const struct kind *find(const struct kind *kinds, size_t n, uint32_t type)
{
	for (size_t i = 0; i < n; i++)
		if (kinds[i].type == type)
			return &kinds[i];
	return NULL;
}

/* The rules once more, in the plainest way. */
static bool is_right(const struct kind *kinds, size_t n_kinds, const struct message *m)
{
	struct wire_header h;
	const struct kind *k;
	unsigned ends = 0;

	if (m->n < sizeof(h) || m->n > WIRE_MAX)
		return false;
	memcpy(&h, m->bytes, sizeof(h));
	k = find(kinds, n_kinds, h.type);
	if (!k || h.size != m->n || m->n < k->fixed || m->fds > k->fds)
		return false;
	if (k->tail)
		return true;
	for (size_t i = k->fixed; i < m->n; i++)
		ends += m->bytes[i] == '\0';
	return ends == k->strings && (m->n == k->fixed || m->bytes[m->n - 1] == '\0');
}

static void mutate(struct message *m, uint64_t *seed)
{
	uint64_t random = next_random(seed), place = random >> 32;

	switch (random % 8) {
	case 0:
		m->bytes[place % m->n] = (char)(random >> 8);
		break;
	case 1:
		m->bytes[place % m->n] = '\0';
		break;
	case 2:
		m->n = place % (m->n + 1);
		break;
	case 3:
		set_size(m, sizeof(struct wire_header) + place % 80);
		break;
	case 4:
		set_type(m, place % 200);
		break;
	case 5:
		m->fds = place % 5;
		break;
	case 6:
		add_byte(m, (char)(random >> 8 & 1 ? 'z' : '\0'));
		break;
	case 7:
		m->bytes[place % m->n] ^= (char)(1 << (random >> 8) % 8);
		break;
	}
	if (m->n == 0)
		m->n = 1;
}

static void assert_sound(const struct message *m, const char *const *strings)
{
	const struct kind *k;
	struct wire_header h;
	const char *at;

	memcpy(&h, m->bytes, sizeof(h));
	k = find(requests, ELEMENTS(requests), h.type);
	at = m->bytes + k->fixed;
	for (unsigned i = 0; i < WIRE_STRINGS_MAX; i++) {
		if (i >= k->strings) {
			assert_null(strings[i]);
			continue;
		}
		assert_ptr_equal(strings[i], at);
		at += strlen(at) + 1;
	}
	assert_ptr_equal(at, m->bytes + m->n);
}

static void test_noise(void **state _unused_)
{
	uint64_t seed = UINT64_C(0x9e3779b97f4a7c15);
	unsigned accepted = 0, refused = 0;
	static struct message m;

	for (unsigned i = 0; i < FUZZ_ROUNDS; i++) {
		const char *found[WIRE_STRINGS_MAX];
		uint64_t random = next_random(&seed);
		const struct kind *kinds = ways[random % WAYS].kinds;
		bool want;

		memset(m.bytes, (int)(random >> 8), 128);
		make(&m, &kinds[(random >> 16) % ways[random % WAYS].n]);
		for (unsigned n = random >> 32 & 3; n > 0; n--)
			mutate(&m, &seed);

		for (enum way way = REQUEST; way < WAYS; way++) {
			if ((way == NOTICE || way == REPORT) && m.fds > 0)
				continue;
			memcpy(found, marks, sizeof(found));
			want = is_right(ways[way].kinds, ways[way].n, &m);
			if (check(way, &m, found) != (want ? 0 : -EPROTO))
				fail_msg("round %u: the two descriptions differ", i);
			if (way == REQUEST && want)
				assert_sound(&m, found);
			else
				assert_memory_equal(found, marks, sizeof(found));
			accepted += want;
			refused += !want;
		}
	}
	assert_true(accepted > FUZZ_ROUNDS / 10 && refused > FUZZ_ROUNDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_right),
		cmocka_unit_test(test_one_byte_short_or_long),
		cmocka_unit_test(test_wrong_size_field),
		cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_longest),
		cmocka_unit_test(test_unknown_types),
		cmocka_unit_test(test_other_direction),
		cmocka_unit_test(test_less_than_a_header),
		cmocka_unit_test(test_pack),
		cmocka_unit_test(test_pack_header_alone),
		cmocka_unit_test(test_pack_limits),
		cmocka_unit_test(test_noise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
