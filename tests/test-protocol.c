/* SPDX-License-Identifier: MIT */

/*
 * A client that keeps to no rule. It speaks the protocol by hand, so that it can say what libtally
 * never would, and writes into its segment whatever it likes. The daemon has to end such a session,
 * or to bear it, and nobody else may notice.
 */

#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/util.h"
#include "raw.h"

#define K UINT64_C(1024)
#define M (K * K)

static const char config[] = "[daemon]\n"
			     "flush_interval = 100ms\n"
			     "grace = 100ms\n"
			     "export =\n";

static struct harness h;
static struct tally *watcher; /* an honest client beside */

static int start(void **state)
{
	(void)state;
	harness_start(&h, config);
	watcher = harness_open(&h);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	watcher = tally_close(watcher);
	harness_stop(&h);
	return 0;
}

/* ------------------------------------------------------------------ conditions */

struct holding {
	const char *path;
	uint64_t bytes;
};

static int is_held(void *userdata)
{
	struct holding *w = userdata;

	return harness_current(watcher, w->path) == w->bytes;
}

static void wait_for_current(const char *path, uint64_t bytes)
{
	struct holding w = {path, bytes};

	assert_true(harness_wait(is_held, &w, HARNESS_PATIENCE_MS));
}

static int is_vacant(void *userdata)
{
	return harness_value(watcher, userdata, "cgroup.events", "populated") == 0;
}

/* Nothing of a session is left in the pool, which then can be removed. */
static void wait_for_end(const char *path)
{
	assert_true(harness_wait(is_vacant, (void *)path, HARNESS_PATIENCE_MS));
	assert_int_equal(harness_current(watcher, path), 0);
	assert_int_equal(harness_value(watcher, path, "memory.stat", "stock"), 0);
	assert_int_equal(tally_remove(watcher, path, 0), 0);
}

static unsigned daemon_descriptors(void)
{
	char path[64];
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)h.daemon);
	d = opendir(path);
	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int has_descriptors(void *userdata)
{
	return daemon_descriptors() == *(unsigned *)userdata;
}

static void wait_for_descriptors(unsigned n)
{
	assert_true(harness_wait(has_descriptors, &n, HARNESS_PATIENCE_MS));
}

static int is_alone(void *userdata)
{
	(void)userdata;
	return harness_value(watcher, "/", "tallyd.status", "sessions") == 1;
}

/* Whatever one client does, another one is served, and its account is right. */
static void assert_others_served(void)
{
	struct tally *t = harness_open(&h);
	struct tally_pool *p = harness_attach(t, "/others");

	assert_int_equal(tally_charge(p, 3 * M), 0);
	assert_int_equal(harness_current(watcher, "/others"), 3 * M);
	tally_detach(p);
	assert_int_equal(harness_current(t, "/others"), 0);
	tally_close(t);
}

/* ------------------------------------------------------------------ HELLO */

static const size_t fixed_sizes[WIRE_REQUESTS_END] = {
	[WIRE_HELLO] = sizeof(struct wire_hello),
	[WIRE_ATTACH] = sizeof(struct wire_attach),
	[WIRE_DETACH] = sizeof(struct wire_detach),
	[WIRE_FORGET] = sizeof(struct wire_forget),
	[WIRE_KEY] = sizeof(struct wire_key),
	[WIRE_EXTENT] = sizeof(struct wire_extent),
	[WIRE_CHARGE] = sizeof(struct wire_charge),
	[WIRE_RING] = sizeof(struct wire_ring),
	[WIRE_AHEAD] = sizeof(struct wire_ahead),
	[WIRE_ITEM] = sizeof(struct wire_item),
	[WIRE_DEFINE] = sizeof(struct wire_define),
	[WIRE_GET] = sizeof(struct wire_get),
	[WIRE_SET] = sizeof(struct wire_set),
	[WIRE_CREATE] = sizeof(struct wire_create),
	[WIRE_REMOVE] = sizeof(struct wire_remove),
	[WIRE_BYE] = sizeof(struct wire_bye),
	[WIRE_TRANSFER] = sizeof(struct wire_transfer),
	[WIRE_WATCH] = sizeof(struct wire_watch),
	[WIRE_UNWATCH] = sizeof(struct wire_unwatch),
	[WIRE_ON_RECLAIM] = sizeof(struct wire_on_reclaim),
	[WIRE_REFUSAL] = sizeof(struct wire_refusal),
	[WIRE_QUEUE] = sizeof(struct wire_queue),
	[WIRE_REQUEST] = sizeof(struct wire_request),
	[WIRE_CANCEL] = sizeof(struct wire_cancel),
	[WIRE_FETCH] = sizeof(struct wire_fetch),
};

static const unsigned n_strings[WIRE_REQUESTS_END] = {
	[WIRE_HELLO] = 1,
	[WIRE_ATTACH] = 1,
	[WIRE_ITEM] = 1,
	[WIRE_DEFINE] = 3,
	[WIRE_GET] = 2,
	[WIRE_SET] = 3,
	[WIRE_CREATE] = 1,
	[WIRE_REMOVE] = 1,
	[WIRE_WATCH] = 1,
};

/* A message of the right shape for its type. */
static void raw_request_of(struct raw *r, uint32_t type)
{
	const char *strings[WIRE_STRINGS_MAX] = {0};
	char fixed[256] = {0};

	for (unsigned i = 0; i < n_strings[type]; i++)
		strings[i] = "/";
	raw_request(r, type, fixed, fixed_sizes[type], strings);
}

static void test_before_hello(void **state)
{
	(void)state;
	for (uint32_t type = WIRE_HELLO + 1; type < WIRE_REQUESTS_END; type++) {
		struct raw r;

		raw_connect(&r, &h);
		raw_request_of(&r, type);
		raw_assert_ended(&r);
	}
}

static void test_second_hello(void **state)
{
	struct raw r;

	(void)state;
	raw_open(&r, &h);
	raw_assert_alive(&r);
	raw_request_of(&r, WIRE_HELLO);
	raw_assert_ended(&r);
}

static void refuse_hello(struct wire_hello hello, const char *name, int status)
{
	const char *const strings[WIRE_STRINGS_MAX] = {name};
	union message m;
	struct raw r;

	raw_connect(&r, &h);
	raw_request(&r, WIRE_HELLO, &hello, sizeof(hello), strings);
	if (status != 0) {
		raw_expect(&r, WIRE_WELCOME, &m);
		assert_int_equal(m.h.cookie, r.cookie);
		assert_int_equal(m.welcome.status, status);
		assert_int_equal(m.welcome.version, WIRE_VERSION);
	}
	raw_assert_ended(&r);
}

static void test_hello(void **state)
{
	struct wire_hello hello = {.version = WIRE_VERSION};
	_cleanup_(freep) char *name = calloc(1, 60000);

	(void)state;
	assert_non_null(name);
	memset(name, 'n', 60000 - 1);
	refuse_hello((struct wire_hello){.version = WIRE_VERSION + 1}, "n", -EPROTO);
	refuse_hello((struct wire_hello){.version = 0}, "n", -EPROTO);
	refuse_hello((struct wire_hello){.version = UINT32_MAX}, "n", -EPROTO);
	refuse_hello((struct wire_hello){.version = WIRE_VERSION, .flags = 2}, "n", 0);
	refuse_hello(hello, name, -EINVAL);
	refuse_hello(hello, name + 60000 - 1 - WIRE_NAME_MAX - 1, -EINVAL);
}

/* ------------------------------------------------------------------ shapes */

static void refuse_message(const void *message, size_t n)
{
	struct raw r;

	raw_open(&r, &h);
	raw_send(&r, message, n, NULL, 0);
	raw_assert_ended(&r);
}

static void test_types(void **state)
{
	static const uint32_t types[] = {0, WIRE_REQUESTS_END, 63, WIRE_WELCOME, WIRE_GRANT,
		WIRE_DONE, WIRE_ANSWERS_END, 1000, UINT32_MAX};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(types); i++) {
		struct wire_header m = {.size = sizeof(m), .type = types[i]};

		refuse_message(&m, sizeof(m));
	}
}

/* Every type: cut in its fixed part, without a string's NUL, with bytes behind its end, with a size
 * that is not its own. */
static void test_sizes(void **state)
{
	(void)state;
	for (uint32_t type = WIRE_HELLO; type < WIRE_REQUESTS_END; type++) {
		size_t fixed = fixed_sizes[type], whole = fixed + 2 * n_strings[type];
		char m[256] = {0};
		struct wire_header header = {.size = (uint32_t)(fixed - 1), .type = type};

		for (unsigned i = 0; i < n_strings[type]; i++)
			m[fixed + 2 * i] = '/';
		memcpy(m, &header, sizeof(header));
		refuse_message(m, fixed - 1);
		if (n_strings[type] > 0) {
			header.size = (uint32_t)whole - 1;
			memcpy(m, &header, sizeof(header));
			refuse_message(m, whole - 1);
		}
		header.size = (uint32_t)whole + 1;
		memcpy(m, &header, sizeof(header));
		refuse_message(m, whole + 1);
		refuse_message(m, whole);
		header.size = UINT32_MAX;
		memcpy(m, &header, sizeof(header));
		refuse_message(m, whole);
	}
}

static void test_tiny(void **state)
{
	static const char zeros[sizeof(struct wire_header)];

	(void)state;
	for (size_t n = 0; n < sizeof(struct wire_header); n++)
		refuse_message(zeros, n);
}

static void fill_random(void *p, size_t n, uint64_t *seed)
{
	unsigned char *bytes = p;

	for (size_t i = 0; i < n; i++) {
		*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		bytes[i] = (unsigned char)(*seed >> 56);
	}
}

/* Noise, and noise behind a header that is right. */
static void test_garbage(void **state)
{
	static char m[4096];
	uint64_t seed = 1;

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		struct wire_header header = {
			.size = 1 + i * 37, .type = 1 + i % (WIRE_REQUESTS_END - 1)};
		struct raw r;

		fill_random(m, sizeof(m), &seed);
		if (i % 2)
			memcpy(m, &header, sizeof(header));
		raw_open(&r, &h);
		raw_send(&r, m, header.size, NULL, 0);
		raw_close(&r);
	}
	assert_others_served();
}

static void test_long(void **state)
{
	_cleanup_(freep) char *m = calloc(1, 150000), *value = NULL;
	struct wire_header header = {.size = WIRE_MAX + 1, .type = WIRE_SET};
	const char *strings[WIRE_STRINGS_MAX] = {"/", "memory.max"};
	struct wire_set set = {0};
	union message answer;
	struct raw r;

	(void)state;
	assert_non_null(m);
	memset(m, '/', 150000);
	memcpy(m, &header, sizeof(header));
	refuse_message(m, WIRE_MAX + 1);
	header.size = WIRE_MAX;
	memcpy(m, &header, sizeof(header));
	refuse_message(m, WIRE_MAX + 1);
	header.size = 150000;
	memcpy(m, &header, sizeof(header));
	refuse_message(m, 150000);

	/* the longest that there may be */
	value = calloc(1, WIRE_MAX);
	assert_non_null(value);
	memset(value, '1', WIRE_MAX - sizeof(set) - strlen("/") - 1 - strlen("memory.max") - 1 - 1);
	strings[2] = value;
	raw_open(&r, &h);
	raw_request(&r, WIRE_SET, &set, sizeof(set), strings);
	raw_expect(&r, WIRE_DONE, &answer);
	assert_int_equal(answer.done.status, -ERANGE);
	raw_assert_alive(&r);
	raw_close(&r);
}

/* ------------------------------------------------------------------ descriptors */

/* How many the daemon has when nobody but the watcher is there. */
static unsigned quiet_descriptors(void)
{
	assert_true(harness_wait(is_alone, NULL, HARNESS_PATIENCE_MS));
	free(harness_get(watcher, "/", "tallyd.status"));
	return daemon_descriptors();
}

static void pass_descriptors(bool hello, unsigned n)
{
	struct wire_get get = {.h = {.size = sizeof(get) + 4, .type = WIRE_GET}};
	unsigned before = quiet_descriptors();
	char m[sizeof(get) + 4] = {0};
	int fds[253];
	struct raw r;

	raw_connect(&r, &h);
	if (hello)
		raw_hello(&r);
	memcpy(m, &get, sizeof(get));
	memcpy(m + sizeof(get), "/\0f", 4);
	for (unsigned i = 0; i < n; i++) {
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		assert_true(fds[i] >= 0);
	}
	raw_send(&r, m, sizeof(m), fds, n);
	for (unsigned i = 0; i < n; i++)
		close(fds[i]);
	raw_assert_ended(&r);
	wait_for_descriptors(before);
}

static void test_descriptors(void **state)
{
	(void)state;
	for (unsigned n = 1; n <= WIRE_FDS_MAX; n++) {
		pass_descriptors(false, n);
		pass_descriptors(true, n);
	}
}

static void test_descriptors_without_room(void **state)
{
	static const unsigned numbers[] = {WIRE_FDS_MAX + 1, 253};

	(void)state;
	harness_skip_emulated("keeps the descriptors that it has no room to hand on");
	for (size_t i = 0; i < ELEMENTS(numbers); i++) {
		pass_descriptors(false, numbers[i]);
		pass_descriptors(true, numbers[i]);
	}
}

/* What the daemon writes for its clients to read cannot be written by them, however they try. */
static void test_segment_is_sealed(void **state)
{
	struct wire_hello hello = {.version = WIRE_VERSION};
	const char *const name[WIRE_STRINGS_MAX] = {"by hand"};
	int fds[WIRE_FDS_MAX], again;
	union message m;
	char path[64];
	struct raw r;

	(void)state;
	raw_connect(&r, &h);
	raw_request(&r, WIRE_HELLO, &hello, sizeof(hello), name);
	assert_true(raw_receive(&r, &m, fds) > 0);
	assert_int_equal(ftruncate(fds[0], 0), -1);
	assert_int_equal(ftruncate(fds[0], 1 << 30), -1);
	assert_ptr_equal(
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0), MAP_FAILED);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[1]);
	again = open(path, O_RDWR | O_CLOEXEC);
	if (again >= 0) {
		assert_int_equal(pwrite(again, "x", 1, 0), -1);
		assert_ptr_equal(
			mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
		assert_int_equal(ftruncate(again, 0), -1);
		close(again);
	}
	for (unsigned i = 0; i < WIRE_FDS_MAX; i++)
		close(fds[i]);
	raw_close(&r);
}

/* ------------------------------------------------------------------ fields */

/* From a session that has attachment 1. */
static void refuse_request(
	uint32_t type, void *fixed, size_t n, const char *const strings[static WIRE_STRINGS_MAX])
{
	struct raw r;

	raw_open(&r, &h);
	raw_attach(&r, 1, "/fields");
	raw_request(&r, type, fixed, n, strings);
	raw_assert_ended(&r);
}

static void refuse_get(uint64_t flags)
{
	static const char *const strings[WIRE_STRINGS_MAX] = {"/fields", "memory.max"};
	struct wire_get m = {.flags = flags};

	refuse_request(WIRE_GET, &m, sizeof(m), strings);
}

static void test_flags(void **state)
{
	static const char *const path[WIRE_STRINGS_MAX] = {"/fields"};
	struct wire_attach attach = {.attachment = 2, .flags = 4};
	struct wire_detach detach = {.attachment = 1, .flags = 2};
	struct wire_remove remove = {.flags = 2};

	(void)state;
	refuse_request(WIRE_ATTACH, &attach, sizeof(attach), path);
	attach.flags = UINT64_C(1) << 63 | WIRE_ATTACH_CREATE;
	refuse_request(WIRE_ATTACH, &attach, sizeof(attach), path);
	refuse_request(WIRE_DETACH, &detach, sizeof(detach), raw_no_strings);
	refuse_request(WIRE_REMOVE, &remove, sizeof(remove), path);
	refuse_get(WIRE_GET_EXACT | WIRE_GET_CACHED);
	refuse_get(WIRE_GET_RATELIMITED | WIRE_GET_CACHED);
	refuse_get(8);
	refuse_get(UINT64_C(1) << 63);
}

/* A rule broken ends what the session holds, although its process lives. */
static void refuse_charge(struct wire_charge m)
{
	struct raw r;

	raw_open(&r, &h);
	m.attachment = 1;
	m.key = raw_attach(&r, 1, "/fields");
	raw_charge(&r, 1, m.key, 1, 5000);
	assert_true(harness_current(watcher, "/fields") >= 5000);
	raw_request(&r, WIRE_CHARGE, &m, sizeof(m), raw_no_strings);
	raw_assert_ended(&r);
	wait_for_current("/fields", 0);
}

static void test_charge_fields(void **state)
{
	(void)state;
	refuse_charge((struct wire_charge){.seq = 0, .need = 1});
	refuse_charge((struct wire_charge){.seq = 2, .need = 0});
	refuse_charge((struct wire_charge){.seq = 2, .need = WORD_BYTES_MAX + 1});
	refuse_charge((struct wire_charge){.seq = 2, .need = UINT64_MAX});
	refuse_charge((struct wire_charge){.seq = 2, .need = 1, .lane = SEGMENT_LANES});
	refuse_charge((struct wire_charge){.seq = 2, .need = 1, .lane = UINT32_MAX});
	refuse_charge((struct wire_charge){.seq = 2, .need = 1, .flags = 4});
	refuse_charge((struct wire_charge){
		.seq = 2, .need = 1, .flags = WIRE_CHARGE_QUEUE | WIRE_CHARGE_NOWAIT});
	refuse_charge((struct wire_charge){.seq = 2, .need = 1, .flags = UINT32_C(1) << 31});
}

static void test_largest_need(void **state)
{
	struct wire_grant g;
	uint32_t key;
	struct raw r;

	(void)state;
	raw_open(&r, &h);
	key = raw_attach(&r, 1, "/largest");
	raw_ask_charge(&r, 1, key, 1, WORD_BYTES_MAX);
	g = raw_expect_grant(&r, 1, key, 1);
	assert_int_equal(g.amount, WORD_BYTES_MAX);
	/* what a row has is bounded too */
	raw_ask_charge(&r, 1, key, 2, 1);
	g = raw_expect_grant(&r, 1, key, 2);
	assert_int_equal(g.amount, 0);
	assert_int_equal(g.status, -ENOMEM);
	raw_close(&r);
	wait_for_end("/largest");
}

/* ------------------------------------------------------------------ attachments and keys */

/* Nobody's numbers: what needs no answer is dropped, what needs one says so. */
static void test_unknown_numbers(void **state)
{
	static const uint64_t attachments[] = {0, 3, UINT64_MAX};
	static const uint32_t keys[] = {0, 64, 65, WORD_KEY_VOID, UINT32_MAX};
	struct raw r;
	uint32_t key;

	(void)state;
	raw_open(&r, &h);
	key = raw_attach(&r, 1, "/unknown");
	for (size_t i = 0; i < ELEMENTS(attachments); i++) {
		struct wire_detach detach = {.attachment = attachments[i]};
		struct wire_forget forget = {.attachment = attachments[i]};
		struct wire_key ask = {.attachment = attachments[i], .item = 1};
		struct wire_ring ring = {.attachment = attachments[i], .key = key};
		union message m;

		raw_request(&r, WIRE_DETACH, &detach, sizeof(detach), raw_no_strings);
		raw_expect(&r, WIRE_DONE, &m);
		assert_int_equal(m.done.status, 0);
		raw_request(&r, WIRE_FORGET, &forget, sizeof(forget), raw_no_strings);
		raw_request(&r, WIRE_KEY, &ask, sizeof(ask), raw_no_strings);
		assert_int_equal(raw_take_key(&r, WIRE_KEYED, &m), -ENODEV);
		raw_request(&r, WIRE_RING, &ring, sizeof(ring), raw_no_strings);
		raw_ask_charge(&r, attachments[i], key, 1, 1000);
		raw_assert_alive(&r);
	}
	for (size_t i = 0; i < ELEMENTS(keys); i++) {
		struct wire_ring ring = {.attachment = 1, .key = keys[i]};

		raw_request(&r, WIRE_RING, &ring, sizeof(ring), raw_no_strings);
		raw_ask_charge(&r, 1, keys[i], 1, 1000);
		raw_assert_alive(&r);
	}
	assert_int_equal(harness_value(watcher, "/unknown", "memory.stat", "stock"), 0);
	raw_charge(&r, 1, key, 1, 1000);
	raw_close(&r);
	wait_for_end("/unknown");
}

static void test_key_of_another(void **state)
{
	uint32_t a, b;
	struct raw r;

	(void)state;
	raw_open(&r, &h);
	a = raw_attach(&r, 1, "/another");
	b = raw_attach(&r, 2, "/another/below");
	assert_int_not_equal(a, b);
	raw_ask_charge(&r, 1, b, 1, 1000);
	raw_ask_charge(&r, 2, a, 1, 1000);
	raw_assert_alive(&r);
	assert_int_equal(harness_value(watcher, "/another", "memory.stat", "stock"), 0);
	raw_close(&r);
	wait_for_end("/another/below");
	wait_for_end("/another");
}

/* What came when there was no room for its descriptors may be asked for again. */
static void test_extent(void **state)
{
	static const uint32_t none[] = {0, 2, SEGMENT_EXTENTS, UINT32_MAX};
	struct wire_extent ask = {.extent = 1};
	int fds[WIRE_FDS_MAX];
	struct stat first;
	union message m;
	uint32_t key;
	struct raw r;

	(void)state;
	raw_open(&r, &h);
	raw_request(&r, WIRE_EXTENT, &ask, sizeof(ask), raw_no_strings);
	raw_expect(&r, WIRE_EXTENT_IS, &m);
	assert_int_equal(m.extent_is.status, -ENOENT);
	key = raw_attach(&r, 1, "/extent");
	for (size_t i = 0; i < ELEMENTS(none); i++) {
		ask.extent = none[i];
		raw_request(&r, WIRE_EXTENT, &ask, sizeof(ask), raw_no_strings);
		raw_expect(&r, WIRE_EXTENT_IS, &m);
		assert_int_equal(m.extent_is.status, -ENOENT);
	}
	ask.extent = 1;
	for (unsigned i = 0; i < 2; i++) {
		struct stat st;

		raw_request(&r, WIRE_EXTENT, &ask, sizeof(ask), raw_no_strings);
		assert_true(raw_receive(&r, &m, fds) > 0);
		assert_int_equal(m.h.type, WIRE_EXTENT_IS);
		assert_int_equal(m.h.cookie, r.cookie);
		assert_int_equal(m.extent_is.status, 0);
		assert_int_equal(m.extent_is.extent, 1);
		assert_int_equal(fstat(fds[0], &st), 0);
		if (i == 0)
			first = st;
		assert_int_equal(st.st_ino, first.st_ino);
		assert_int_equal(st.st_dev, first.st_dev);
		assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0),
			MAP_FAILED);
		close(fds[0]);
		close(fds[1]);
	}
	raw_charge(&r, 1, key, 1, 1000);
	raw_close(&r);
	wait_for_end("/extent");
}

static void test_items(void **state)
{
	static const struct {
		uint32_t item;
		int status;
	} bad[] = {{0, -EINVAL}, {64, -EINVAL}, {65, -EINVAL}, {UINT32_MAX, -EINVAL}};
	struct wire_key ask = {.attachment = 1};
	uint32_t event;
	union message m;
	struct raw r;

	(void)state;
	assert_int_equal(tally_item_lookup(watcher, "alloc", &event), 0);
	raw_open(&r, &h);
	raw_attach(&r, 1, "/keys");
	for (size_t i = 0; i < ELEMENTS(bad); i++) {
		ask.item = bad[i].item;
		raw_request(&r, WIRE_KEY, &ask, sizeof(ask), raw_no_strings);
		assert_int_equal(raw_take_key(&r, WIRE_KEYED, &m), bad[i].status);
	}
	ask.item = event;
	raw_request(&r, WIRE_KEY, &ask, sizeof(ask), raw_no_strings);
	assert_int_equal(raw_take_key(&r, WIRE_KEYED, &m), -EINVAL);
	raw_close(&r);
	wait_for_end("/keys");
}

/* Ends a session that attaches so after it has attachment 1 in /numbers. */
static void refuse_attach(uint64_t attachment, const char *path, bool detached)
{
	struct wire_detach detach = {.attachment = 1};
	union message m;
	struct raw r;

	raw_open(&r, &h);
	raw_attach(&r, 1, "/numbers");
	if (detached) {
		raw_request(&r, WIRE_DETACH, &detach, sizeof(detach), raw_no_strings);
		raw_expect(&r, WIRE_DONE, &m);
	}
	raw_ask_attach(&r, attachment, path, 0);
	raw_assert_ended(&r);
}

static void test_attachment_numbers(void **state)
{
	union message m;
	uint32_t key;
	struct raw r;

	(void)state;
	refuse_attach(0, "/numbers", false);
	refuse_attach(1, "/", false);
	refuse_attach(1, "/numbers", true);

	/* asked again, answered again */
	raw_open(&r, &h);
	key = raw_attach(&r, 1, "/numbers");
	raw_ask_attach(&r, 1, "/numbers", 0);
	assert_int_equal(raw_take_key(&r, WIRE_ATTACHED, &m), 0);
	assert_int_equal(m.key_is.key, key);
	assert_int_equal(m.key_is.extent, 0);
	raw_ask_attach(&r, UINT64_MAX, "/no-such-pool", 0);
	assert_int_equal(raw_take_key(&r, WIRE_ATTACHED, &m), -ENOENT);
	raw_ask_attach(&r, UINT64_MAX, "not a path", 0);
	assert_int_equal(raw_take_key(&r, WIRE_ATTACHED, &m), -EINVAL);
	raw_close(&r);
	wait_for_end("/numbers");
}

/* ------------------------------------------------------------------ requests and their numbers */

static void test_seq(void **state)
{
	struct wire_grant first, again;
	uint64_t granted;
	uint32_t key;
	struct raw r;

	(void)state;
	raw_open(&r, &h);
	key = raw_attach(&r, 1, "/seq");
	raw_ask_charge(&r, 1, key, 1, 1000);
	first = raw_expect_grant(&r, 1, key, 1);
	granted = atomic_load(&segment_figures(&r.segment, key)->granted);
	assert_int_equal(granted, first.amount);

	/* the same again: the same answer, and nothing more is granted, whatever it asks for */
	raw_ask_charge(&r, 1, key, 1, 1000);
	again = raw_expect_grant(&r, 1, key, 1);
	assert_int_equal(again.amount, first.amount);
	raw_ask_charge(&r, 1, key, 1, 7 * M);
	again = raw_expect_grant(&r, 1, key, 1);
	assert_int_equal(again.amount, first.amount);
	assert_int_equal(atomic_load(&segment_figures(&r.segment, key)->granted), granted);

	/* numbers may be left out, and then what is older is dropped */
	raw_charge(&r, 1, key, 10, 1000);
	granted = atomic_load(&segment_figures(&r.segment, key)->granted);
	raw_ask_charge(&r, 1, key, 9, 1000);
	raw_ask_charge(&r, 1, key, 1, 1000);
	raw_assert_alive(&r);
	assert_int_equal(atomic_load(&segment_figures(&r.segment, key)->granted), granted);
	assert_int_equal(harness_current(watcher, "/seq"), granted);
	raw_charge(&r, 1, key, UINT64_MAX, 1000);
	raw_ask_charge(&r, 1, key, 1, 1000);
	raw_assert_alive(&r);
	raw_close(&r);
	wait_for_end("/seq");
}

/* A refusal is an answer too. */
static void test_seq_of_refusal(void **state)
{
	struct wire_grant g;
	uint32_t key;
	struct raw r;

	(void)state;
	raw_open(&r, &h);
	key = raw_attach(&r, 1, "/refused");
	assert_int_equal(tally_set(watcher, "/refused", "memory.max", "1M"), 0);
	for (unsigned i = 0; i < 2; i++) {
		raw_ask_charge(&r, 1, key, 1, 2 * M);
		g = raw_expect_grant(&r, 1, key, 1);
		assert_int_equal(g.amount, 0);
		assert_int_equal(g.status, -ENOMEM);
		/* it stays refused, although it would fit by now */
		assert_int_equal(tally_set(watcher, "/refused", "memory.max", "max"), 0);
	}
	assert_int_equal(harness_value(watcher, "/refused", "memory.events", "oom"), 1);
	raw_charge(&r, 1, key, 2, 2 * M);
	raw_close(&r);
	wait_for_end("/refused");
}

static int is_waiting(void *userdata)
{
	return harness_waiting(watcher, userdata) == 1;
}

static void ask_queued(struct raw *r, uint64_t attachment, uint32_t key, uint64_t seq)
{
	struct wire_charge c = {.attachment = attachment,
		.key = key,
		.seq = seq,
		.need = 2 * M,
		.deadline_usec = UINT64_MAX,
		.flags = WIRE_CHARGE_QUEUE};

	raw_request(r, WIRE_CHARGE, &c, sizeof(c), raw_no_strings);
}

static void test_seq_while_waiting(void **state)
{
	struct wire_detach detach = {.attachment = 1};
	char path[] = "/waiting";
	struct wire_grant g;
	union message m;
	uint32_t key;
	struct raw r;

	(void)state;
	raw_open(&r, &h);
	key = raw_attach(&r, 1, path);
	assert_int_equal(tally_set(watcher, path, "memory.max", "1M"), 0);
	raw_charge(&r, 1, key, 1, 1000);
	ask_queued(&r, 1, key, 2);
	assert_true(harness_wait(is_waiting, path, HARNESS_PATIENCE_MS));
	/* it is not asked twice, and the answered one before it is still answered */
	ask_queued(&r, 1, key, 2);
	raw_ask_charge(&r, 1, key, 1, 1000);
	raw_expect_grant(&r, 1, key, 1);
	raw_assert_alive(&r);
	assert_true(is_waiting(path));
	assert_int_equal(tally_set(watcher, path, "memory.max", "max"), 0);
	g = raw_expect_grant(&r, 1, key, 2);
	assert_true(g.amount >= 2 * M);
	raw_assert_alive(&r);

	/* a detach takes it back */
	assert_int_equal(tally_set(watcher, path, "memory.max", "1M"), 0);
	ask_queued(&r, 1, key, 3);
	assert_true(harness_wait(is_waiting, path, HARNESS_PATIENCE_MS));
	raw_request(&r, WIRE_DETACH, &detach, sizeof(detach), raw_no_strings);
	raw_expect(&r, WIRE_DONE, &m);
	assert_int_equal(tally_set(watcher, path, "memory.max", "max"), 0);
	raw_assert_alive(&r);

	/* two at a time break a rule, and so ends what waits */
	key = raw_attach(&r, 2, path);
	assert_int_equal(tally_set(watcher, path, "memory.max", "1M"), 0);
	ask_queued(&r, 2, key, 1);
	assert_true(harness_wait(is_waiting, path, HARNESS_PATIENCE_MS));
	ask_queued(&r, 2, key, 2);
	raw_assert_ended(&r);
	assert_int_equal(tally_set(watcher, path, "memory.max", "max"), 0);
	wait_for_end(path);
}

/* ------------------------------------------------------------------ a client that does not read */

#define DEAF 20
#define DEAF_MAX 20000 /* as many texts are more than the daemon may keep */

/* Asks until the socket takes no more, which it must do soon. The cookies are 1, 2, … */
static unsigned ask_until_full(struct raw *r)
{
	static const char strings[] = "/deaf\0pool.children";
	struct wire_get get = {.h = {.size = sizeof(get) + sizeof(strings), .type = WIRE_GET}};
	struct pollfd p = {.fd = r->fd, .events = POLLOUT};
	char m[sizeof(get) + sizeof(strings)];
	unsigned n = 0;

	memcpy(m + sizeof(get), strings, sizeof(strings));
	/* a moment's patience: the daemon may be about to read some */
	while (poll(&p, 1, 200) > 0) {
		get.h.cookie = n + 1;
		memcpy(m, &get, sizeof(get));
		if (send(r->fd, m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
			n++;
		else
			assert_int_equal(errno, EAGAIN);
		assert_true(n < DEAF_MAX);
	}
	return n;
}

static void test_deaf(void **state)
{
	struct raw deaf[DEAF];
	unsigned asked[DEAF];
	uint64_t before;
	char path[64];

	(void)state;
	assert_int_equal(tally_create(watcher, "/deaf"), 0);
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(path, sizeof(path), "/deaf/a-child-with-a-name-%04u", i);
		assert_int_equal(tally_create(watcher, path), 0);
	}
	assert_others_served();
	before = harness_memory_kib(&h);
	for (unsigned i = 0; i < DEAF; i++) {
		raw_open(&deaf[i], &h);
		asked[i] = ask_until_full(&deaf[i]);
		assert_true(asked[i] > 10);
	}
	assert_others_served();
	/* one answer each may wait in the daemon; allocators that look for errors keep all of them
	 */
	if (harness_is_bare(&h))
		assert_true(harness_memory_kib(&h) < before + 32 * K);

	/* nothing was lost */
	for (unsigned i = 0; i < DEAF; i++) {
		for (unsigned n = 1; n <= asked[i]; n++) {
			union message m;

			raw_expect(&deaf[i], WIRE_TEXT, &m);
			assert_int_equal(m.h.cookie, n);
			assert_int_equal(m.text.status, 0);
			assert_int_equal(
				m.text.length, 1000 * strlen("a-child-with-a-name-0000\n"));
		}
		raw_assert_alive(&deaf[i]);
		raw_close(&deaf[i]);
	}
}

/* What a client says there is checked as what it says on the first. */
static void test_noise_on_event_socket(void **state)
{
	static const char noise[1000];
	struct raw r;

	(void)state;
	raw_open(&r, &h);
	send(r.event_fd, noise, sizeof(noise), MSG_DONTWAIT | MSG_NOSIGNAL);
	raw_assert_ended(&r);
	assert_others_served();
}

/* ------------------------------------------------------------------ a client that scribbles */

struct scribbler {
	struct segment *segment;
	bool spares_force;
	_Atomic bool stop;
};

static void scribble(struct scribbler *s, uint64_t *seed)
{
	size_t base = segment_stocks_offset(s->segment->n_cpus) + s->segment->n_cpus * STOCK_PAGE;
	_Atomic uint64_t *words = s->segment->rw[0];
	struct segment_key *keys = s->segment->rw[1];

	for (size_t i = 0; i < base / sizeof(*words); i++) {
		uint64_t w;

		fill_random(&w, sizeof(w), seed);
		/* keys that there are, so that the daemon takes some of it for credit */
		if (i % 2)
			w = word_make(1 + i % 4, w % (8 * M), w & 1);
		atomic_store_explicit(&words[i], w, memory_order_relaxed);
	}
	for (size_t i = 0; i < SEGMENT_FIRST_KEYS * sizeof(*keys) / sizeof(*words); i++) {
		_Atomic uint64_t *word = (_Atomic uint64_t *)keys + i;
		struct segment_key *k = &keys[i * sizeof(*words) / sizeof(*keys)];
		uint64_t w;

		if (s->spares_force && (word == &k->force || word == &k->debt))
			continue;
		fill_random(&w, sizeof(w), seed);
		if (word == &k->reserve && i % 16 == 0)
			w = word_make((uint32_t)(k - keys) + 1, w % (8 * M), w & 1);
		atomic_store_explicit(word, w, memory_order_relaxed);
	}
}

static void *run_scribbler(void *arg)
{
	struct scribbler *s = arg;
	uint64_t seed = 42;

	while (!s->stop)
		scribble(s, &seed);
	return NULL;
}

/* It charges, detaches and attaches, while an honest client beside it does too. Returns what it was
 * granted and has not given back. */
static uint64_t charge_and_scribble(struct raw *r, struct tally_pool *neighbour)
{
	uint64_t attachment = 1, seq = 0, granted = 0;
	uint32_t key = raw_attach(r, attachment, "/scribble/bad");

	for (unsigned i = 0; i < 200; i++) {
		struct wire_grant g;

		raw_ask_charge(r, attachment, key, ++seq, 1 + i * 4001);
		g = raw_expect_grant(r, attachment, key, seq);
		granted += g.amount;
		assert_int_equal(tally_charge(neighbour, 100 * K), 0);
		if (i % 2)
			tally_uncharge(neighbour, 100 * K);
		if (i % 20 == 0)
			assert_int_equal(tally_set(watcher, "/scribble", "pool.drain", "1"), 0);
		assert_int_equal(harness_current(watcher, "/scribble/good"), (i / 2 + 1) * 100 * K);
		if (i % 50 == 49) {
			struct wire_detach detach = {.attachment = attachment,
				.flags = WIRE_DETACH_LAST,
				.dropped = i * K};
			union message m;

			attachment++;
			raw_request(r, WIRE_DETACH, &detach, sizeof(detach), raw_no_strings);
			raw_expect(r, WIRE_DONE, &m);
			key = raw_attach(r, attachment, "/scribble/bad");
			seq = granted = 0;
		}
	}
	return granted;
}

static void scribble_in_pool(bool spares_force)
{
	struct tally *honest = harness_open(&h);
	struct tally_pool *neighbour = harness_attach(honest, "/scribble/good");
	struct scribbler s = {.spares_force = spares_force};
	uint64_t granted, held, stock;
	pthread_t thread;
	struct raw r;

	raw_open(&r, &h);
	raw_attach(&r, 1000, "/scribble/bad"); /* so that there is a first extent */
	if (spares_force)
		assert_int_equal(tally_set(watcher, "/scribble/bad", "memory.max", "32M"), 0);
	s.segment = &r.segment;
	assert_int_equal(pthread_create(&thread, NULL, run_scribbler, &s), 0);
	granted = charge_and_scribble(&r, neighbour);
	s.stop = true;
	assert_int_equal(pthread_join(thread, NULL), 0);

	/* It can hide what it has, and by its force words owe more, but not more than a row holds.
	 */
	held = harness_current(watcher, "/scribble/bad");
	stock = harness_value(watcher, "/scribble/bad", "memory.stat", "stock");
	if (spares_force)
		assert_true(held + stock <= granted && held + stock <= 32 * M);
	else
		assert_true(held + stock <= 2 * WORD_BYTES_MAX);
	assert_int_equal(harness_current(watcher, "/scribble/good"), 10000 * K);
	assert_int_equal(harness_value(watcher, "/scribble/good", "memory.stat", "overdraft"), 0);
	raw_close(&r);
	wait_for_end("/scribble/bad");
	wait_for_current("/scribble", 10000 * K);
	tally_detach(neighbour);
	tally_close(honest);
	wait_for_end("/scribble/good");
	wait_for_end("/scribble");
}

static void test_scribbler(void **state)
{
	(void)state;
	scribble_in_pool(true);
	scribble_in_pool(false);
	assert_others_served();
}

/* ------------------------------------------------------------------ silence, and half a silence */

#define SILENT 200

static void test_silent(void **state)
{
	unsigned before = quiet_descriptors();
	struct raw silent[SILENT];

	(void)state;
	for (unsigned i = 0; i < SILENT; i++)
		raw_connect(&silent[i], &h);
	assert_others_served();
	for (unsigned i = 0; i < SILENT; i++)
		raw_assert_ended(&silent[i]);
	wait_for_descriptors(before);
	assert_others_served();
}

/* Who says no more keeps what it has, as long as its second socket is open. */
static void test_half_closed(void **state)
{
	static const int ways[] = {SHUT_WR, SHUT_RDWR};

	(void)state;
	for (size_t i = 0; i < ELEMENTS(ways); i++) {
		uint64_t amount;
		uint32_t key;
		struct raw r;

		raw_open(&r, &h);
		key = raw_attach(&r, 1, "/half");
		amount = raw_charge(&r, 1, key, 1, 5000);
		assert_int_equal(shutdown(r.fd, ways[i]), 0);
		if (ways[i] == SHUT_WR) {
			int fds[WIRE_FDS_MAX];
			union message m;

			assert_int_equal(raw_receive(&r, &m, fds), 0);
		}
		r.fd = close_fd(r.fd);
		assert_others_served();
		assert_int_equal(harness_current(watcher, "/half"), amount);
		raw_close(&r);
		wait_for_end("/half");
	}
}

/* Who hears no more, and goes on asking. */
static void test_shut_ears(void **state)
{
	uint64_t amount;
	uint32_t key;
	struct raw r;

	(void)state;
	raw_open(&r, &h);
	key = raw_attach(&r, 1, "/ears");
	amount = raw_charge(&r, 1, key, 1, 5000);
	assert_int_equal(shutdown(r.fd, SHUT_RD), 0);
	raw_ask_get(&r, "/", "memory.max", 0);
	raw_ask_get(&r, "/", "memory.max", 0);
	assert_others_served();
	assert_int_equal(harness_current(watcher, "/ears"), amount);
	raw_close(&r);
	wait_for_end("/ears");
}

/* Before HELLO nothing is worth waiting for. */
static void test_gone_before_hello(void **state)
{
	unsigned before = quiet_descriptors();
	struct raw r;

	(void)state;
	raw_connect(&r, &h);
	assert_int_equal(shutdown(r.fd, SHUT_WR), 0);
	raw_assert_ended(&r);
	wait_for_descriptors(before);
}

static void test_bye(void **state)
{
	struct wire_bye bye = {0};
	union message m;
	uint32_t key;
	struct raw r;

	(void)state;
	raw_open(&r, &h);
	key = raw_attach(&r, 1, "/bye");
	raw_charge(&r, 1, key, 1, 5000);
	raw_request(&r, WIRE_BYE, &bye, sizeof(bye), raw_no_strings);
	raw_expect(&r, WIRE_DONE, &m);
	assert_int_equal(m.done.status, 0);
	raw_assert_ended(&r);
	wait_for_end("/bye");

	/* what comes behind it is not heard */
	raw_open(&r, &h);
	key = raw_attach(&r, 1, "/bye");
	raw_request(&r, WIRE_BYE, &bye, sizeof(bye), raw_no_strings);
	raw_ask_charge(&r, 1, key, 1, 5000);
	wait_for_end("/bye");
	raw_close(&r);
}

/* ------------------------------------------------------------------ force */

/* A client tells of what it has changed in a key's words. */
static void raw_mark(struct raw *r, uint32_t key)
{
	struct segment_spot spot = segment_spot(&r->segment, key);

	segment_mark(&spot, spot.cell, segment_page(&r->segment, 0), SEGMENT_CREDIT);
	atomic_store(&segment_header(&r->segment)->touched[0], 1);
}

static void test_force(void **state)
{
	struct segment_key *words;
	uint64_t amount;
	uint32_t key;
	struct raw r;

	(void)state;
	raw_open(&r, &h);
	key = raw_attach(&r, 1, "/force/below");
	words = segment_key(&r.segment, key);
	assert_int_equal(tally_set(watcher, "/force", "memory.max", "1M"), 0);
	amount = raw_charge(&r, 1, key, 1, 1000);

	/* past the limit, and counted when the figures are looked at */
	atomic_fetch_add(&words->force, 3 * M);
	raw_mark(&r, key);
	assert_int_equal(harness_current(watcher, "/force"), amount + 3 * M);
	assert_int_equal(harness_current(watcher, "/force/below"), amount + 3 * M);
	assert_int_equal(harness_value(watcher, "/force/below", "memory.events.local", "force"), 1);
	assert_int_equal(harness_value(watcher, "/force", "memory.events", "force"), 1);
	assert_int_equal(harness_value(watcher, "/force", "memory.events.local", "force"), 0);
	/* once */
	assert_int_equal(harness_current(watcher, "/force"), amount + 3 * M);
	assert_int_equal(harness_value(watcher, "/force", "memory.events", "force"), 1);
	atomic_fetch_add(&words->debt, 1000);
	raw_mark(&r, key);
	assert_int_equal(harness_current(watcher, "/force"), amount + 3 * M + 1000);
	assert_int_equal(harness_value(watcher, "/force", "memory.events", "force"), 2);

	/* words that go back, or run away, add nothing */
	atomic_store(&words->force, 0);
	raw_mark(&r, key);
	assert_int_equal(harness_current(watcher, "/force"), amount + 3 * M + 1000);
	atomic_store(&words->force, WORD_BYTES_MAX + 1);
	raw_mark(&r, key);
	assert_int_equal(harness_current(watcher, "/force"), amount + 3 * M + 1000);
	atomic_store(&words->force, UINT64_MAX);
	raw_mark(&r, key);
	assert_int_equal(harness_current(watcher, "/force"), amount + 3 * M + 1000);
	/* nor do they add more than a row can have */
	atomic_fetch_add(&words->force, WORD_BYTES_MAX);
	raw_mark(&r, key);
	assert_int_equal(harness_current(watcher, "/force"), WORD_BYTES_MAX);
	raw_close(&r);
	wait_for_end("/force/below");
	wait_for_current("/force", 0);
	assert_int_equal(harness_value(watcher, "/force", "memory.stat", "overdraft"), 0);
	wait_for_end("/force");
}

/* ------------------------------------------------------------------ overdraft */

/* Gives more back than it has: once into its reserve, once into a stock. */
static void give_too_much(struct raw *r, uint32_t key, uint64_t bytes, bool to_stock)
{
	struct segment_header *header = segment_header(&r->segment);
	struct percpu_area a = segment_stocks(&r->segment);
	uint64_t total;

	if (to_stock) {
		header->touched[0] = 1;
		atomic_store(&a.pages[0].stock.slot[3], word_make(key, bytes, 0));
	} else
		assert_true(segment_reserve_add(segment_key(&r->segment, key), key, bytes, &total));
}

static uint64_t overdraft(const char *path)
{
	return harness_value(watcher, path, "memory.stat", "overdraft");
}

/* Noticed when the daemon takes the credit back, and not again at the end, however it comes. */
static void overdraw_and_drain(bool to_stock, bool detach)
{
	struct wire_detach d = {.attachment = 1};
	uint64_t amount;
	union message m;
	uint32_t key;
	struct raw r;

	raw_open(&r, &h);
	key = raw_attach(&r, 1, "/overdrawn");
	amount = raw_charge(&r, 1, key, 1, 10000);
	give_too_much(&r, key, amount + 777, to_stock);
	assert_int_equal(harness_current(watcher, "/overdrawn"), 0);
	assert_int_equal(overdraft("/overdrawn"), 0);
	assert_int_equal(tally_set(watcher, "/overdrawn", "pool.drain", "1"), 0);
	assert_int_equal(overdraft("/overdrawn"), 777);
	assert_int_equal(tally_set(watcher, "/overdrawn", "pool.drain", "1"), 0);
	assert_int_equal(overdraft("/overdrawn"), 777);
	if (detach) {
		raw_request(&r, WIRE_DETACH, &d, sizeof(d), raw_no_strings);
		raw_expect(&r, WIRE_DONE, &m);
	}
	raw_close(&r);
	assert_true(harness_wait(is_vacant, (void *)"/overdrawn", HARNESS_PATIENCE_MS));
	assert_int_equal(overdraft("/overdrawn"), 777);
	wait_for_end("/overdrawn");
}

/* Noticed at the detach, or else at the end of the session. */
static void overdraw_and_end(bool to_stock, bool detach)
{
	struct wire_detach d = {.attachment = 1};
	uint64_t amount;
	union message m;
	uint32_t key;
	struct raw r;

	raw_open(&r, &h);
	key = raw_attach(&r, 1, "/overdrawn");
	amount = raw_charge(&r, 1, key, 1, 10000);
	give_too_much(&r, key, amount + 777, to_stock);
	if (detach) {
		if (!to_stock)
			d.dropped = segment_reserve_close(segment_key(&r.segment, key));
		raw_request(&r, WIRE_DETACH, &d, sizeof(d), raw_no_strings);
		raw_expect(&r, WIRE_DONE, &m);
		assert_int_equal(overdraft("/overdrawn"), 777);
	}
	raw_close(&r);
	assert_true(harness_wait(is_vacant, (void *)"/overdrawn", HARNESS_PATIENCE_MS));
	assert_int_equal(overdraft("/overdrawn"), 777);
	wait_for_end("/overdrawn");
}

static void test_overdraft(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		overdraw_and_drain(i & 1, i & 2);
		overdraw_and_end(i & 1, i & 2);
	}
}

/* The figure only grows, whatever a client says that it dropped. */
static void test_overdraft_claimed(void **state)
{
	uint64_t before = 0;
	struct raw r;

	(void)state;
	raw_open(&r, &h);
	for (uint64_t attachment = 1; attachment <= 3; attachment++) {
		struct wire_detach d = {.attachment = attachment, .dropped = UINT64_MAX};
		int fds[WIRE_FDS_MAX];
		uint64_t after;
		union message m;

		raw_attach(&r, attachment, "/claimed");
		raw_request(&r, WIRE_DETACH, &d, sizeof(d), raw_no_strings);
		if (raw_receive(&r, &m, fds) == 0)
			break; /* it may also be taken for a broken rule */
		after = overdraft("/claimed");
		assert_true(after >= before);
		before = after;
	}
	raw_close(&r);
	wait_for_end("/claimed");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_before_hello),
		cmocka_unit_test(test_second_hello),
		cmocka_unit_test(test_hello),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_tiny),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_descriptors_without_room),
		cmocka_unit_test(test_segment_is_sealed),
		cmocka_unit_test(test_flags),
		cmocka_unit_test(test_charge_fields),
		cmocka_unit_test(test_largest_need),
		cmocka_unit_test(test_unknown_numbers),
		cmocka_unit_test(test_key_of_another),
		cmocka_unit_test(test_extent),
		cmocka_unit_test(test_items),
		cmocka_unit_test(test_attachment_numbers),
		cmocka_unit_test(test_seq),
		cmocka_unit_test(test_seq_of_refusal),
		cmocka_unit_test(test_seq_while_waiting),
		cmocka_unit_test(test_deaf),
		cmocka_unit_test(test_noise_on_event_socket),
		cmocka_unit_test(test_scribbler),
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_half_closed),
		cmocka_unit_test(test_shut_ears),
		cmocka_unit_test(test_gone_before_hello),
		cmocka_unit_test(test_bye),
		cmocka_unit_test(test_force),
		cmocka_unit_test(test_overdraft),
		cmocka_unit_test(test_overdraft_claimed),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
