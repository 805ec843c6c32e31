/* SPDX-License-Identifier: MIT */

/*
 * The embedded engine as its client sees it: messages in, answers out, and the words of the segment,
 * mapped a second time as a client maps them. The client here is as small as can be; what it does
 * with credit is what the library does: a need is the asker's, all the rest goes to the reserve.
 */

#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "core/item.h"
#include "core/segment.h"
#include "core/util.h"
#include "core/wire.h"
#include "embedded.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define BATCH (256 * KIB)
#define KEYS_MAX 4096
#define LONG_USEC UINT64_C(120000000) /* a deadline that no test waits for */

/* What came for a key. */
struct granted {
	_Atomic unsigned n;
	struct wire_grant last;
	uint64_t seq[SEGMENT_LANES];
	uint64_t need; /* of the request under way, which its asker takes */
};

/* The client. */
struct box {
	struct embedded *engine;
	struct segment segment;
	struct percpu_area stocks;
	int fd;
	bool refuse_extents;     /* as one that has no memory */
	bool keep_answers;       /* nothing is accepted */
	unsigned closed, opened; /* the gate, how often */
	struct granted keys[KEYS_MAX];
	uint64_t last_attachment, last_cookie;

	/* The answer to the question under way, but GRANT. */
	unsigned n_answers;
	union {
		struct wire_header h;
		struct wire_welcome welcome;
		struct wire_key_is key;
		struct wire_extent_is extent;
		struct wire_item_is item;
		struct wire_text text;
		struct wire_done done;
		char bytes[WIRE_MAX];
	} answer;
	char *text;
};

static const char *const none[WIRE_STRINGS_MAX];

/* ------------------------------------------------------------------ the owner */

static void take_extent(struct box *b, uint32_t extent, const int *fds)
{
	assert_int_equal(extent, b->segment.n_extents);
	assert_int_equal(segment_map(&b->segment, fds), 0);
}

static void take_key(struct box *b, const struct wire_key_is *m, const int *fds)
{
	if (m->status < 0)
		return;
	if (m->extent && !b->refuse_extents)
		take_extent(b, m->extent, fds);
	if (segment_key(&b->segment, m->key) && !b->keep_answers) {
		segment_reserve_open(segment_key(&b->segment, m->key), m->key);
		for (unsigned lane = 0; lane < SEGMENT_LANES; lane++) {
			b->keys[m->key].seq[lane] = 0;
			atomic_store(&segment_key(&b->segment, m->key)->accepted[lane], 0);
		}
	}
}

static void take_text(struct box *b, const struct wire_text *m, int fd)
{
	if (m->status < 0)
		return;
	b->text = malloc(m->length + 1);
	assert_non_null(b->text);
	b->text[m->length] = '\0';
	if (m->in_memfd)
		assert_int_equal(pread(fd, b->text, m->length, 0), (int64_t)m->length);
	else
		memcpy(b->text, m + 1, m->length);
}

static void accept_grant(struct box *b, const struct wire_grant *m)
{
	struct segment_key *words = segment_key(&b->segment, m->key);
	struct granted *g = &b->keys[m->key];
	uint64_t total;

	g->last = *m;
	if (!b->keep_answers) {
		if (m->amount > 0)
			segment_reserve_add(words, m->key, m->amount - g->need, &total);
		atomic_store(&words->accepted[m->lane], m->seq);
	}
	atomic_fetch_add(&g->n, 1);
}

static void on_message(void *userdata, const void *message, size_t n, int *fds)
{
	const struct wire_header *h = message;
	struct box *b = userdata;
	unsigned n_fds = 0;

	while (n_fds < WIRE_FDS_MAX && fds[n_fds] >= 0)
		n_fds++;
	assert_int_equal(wire_check_answer(message, n, n_fds), 0);
	if (h->type == WIRE_GRANT) {
		accept_grant(b, message);
		return;
	}
	b->n_answers++;
	memcpy(&b->answer, message, n);
	if (h->type == WIRE_WELCOME && b->answer.welcome.status == 0) {
		assert_int_equal(segment_map(&b->segment, fds), 0);
		b->stocks = segment_stocks(&b->segment);
		b->fd = take_fd(&fds[2]);
	} else if (h->type == WIRE_ATTACHED || h->type == WIRE_KEYED) {
		take_key(b, &b->answer.key, fds);
	} else if (h->type == WIRE_EXTENT_IS && b->answer.extent.status == 0) {
		take_extent(b, b->answer.extent.extent, fds);
	} else if (h->type == WIRE_TEXT) {
		take_text(b, &b->answer.text, fds[0]);
	}
}

static void on_gate(void *userdata, bool open)
{
	struct box *b = userdata;

	*(open ? &b->opened : &b->closed) += 1;
	atomic_store(&b->stocks.n_open, open ? b->stocks.n_cpus : 0);
	if (!open && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0) < 0)
		abort();
}

/* ------------------------------------------------------------------ messages */

/* A message whose answer lies in b->answer when it returns 0. */
static int ask(struct box *b, uint32_t type, void *fixed, size_t n, const char *const *strings)
{
	union {
		struct wire_header h;
		char bytes[WIRE_MAX];
	} m;
	int size = wire_pack(&m, fixed, n, type, ++b->last_cookie, strings);

	assert_true(size > 0);
	free(b->text);
	b->text = NULL;
	b->n_answers = 0;
	return embedded_handle(b->engine, &m, (size_t)size, true);
}

#define ASK(b, type, ...)                                                                          \
	({                                                                                         \
		__VA_ARGS__;                                                                       \
		ask(b, type, &m, sizeof(m), none);                                                 \
	})

static void assert_answer(struct box *b, uint32_t type)
{
	assert_int_equal(b->n_answers, 1);
	assert_int_equal(b->answer.h.type, type);
	assert_true(b->answer.h.cookie == b->last_cookie);
}

static int hello(struct box *b, uint32_t version, uint32_t flags)
{
	struct wire_hello m = {.version = version, .flags = flags};
	const char *strings[WIRE_STRINGS_MAX] = {"test"};

	return ask(b, WIRE_HELLO, &m, sizeof(m), strings);
}

static int attach_as(struct box *b, uint64_t number, const char *path, uint64_t flags)
{
	struct wire_attach m = {.attachment = number, .flags = flags};
	const char *strings[WIRE_STRINGS_MAX] = {path};
	int r = ask(b, WIRE_ATTACH, &m, sizeof(m), strings);

	if (r == 0)
		assert_answer(b, WIRE_ATTACHED);
	return r < 0 ? r : b->answer.key.status;
}

/* The key of the attachment, whose number is b->last_attachment. */
static uint32_t attach(struct box *b, const char *path)
{
	assert_int_equal(attach_as(b, ++b->last_attachment, path, WIRE_ATTACH_CREATE), 0);
	return b->answer.key.key;
}

static int key_of(struct box *b, uint64_t attachment, uint32_t item, uint32_t *ret)
{
	struct wire_key m = {.attachment = attachment, .item = item};
	int r = ask(b, WIRE_KEY, &m, sizeof(m), none);

	assert_int_equal(r, 0);
	assert_answer(b, WIRE_KEYED);
	*ret = b->answer.key.key;
	return b->answer.key.status;
}

static int detach_with(struct box *b, uint64_t attachment, uint64_t flags, uint64_t dropped)
{
	struct wire_detach m = {.attachment = attachment, .flags = flags, .dropped = dropped};

	return ask(b, WIRE_DETACH, &m, sizeof(m), none);
}

static void detach(struct box *b, uint64_t attachment, uint32_t key)
{
	uint64_t dropped = segment_reserve_close(segment_key(&b->segment, key));

	assert_int_equal(detach_with(b, attachment, WIRE_DETACH_LAST, dropped), 0);
	assert_answer(b, WIRE_DONE);
	assert_int_equal(b->answer.done.status, 0);
}

static struct wire_charge make_charge(
	struct box *b, uint64_t attachment, uint32_t key, unsigned lane, uint64_t need)
{
	return (struct wire_charge){.h = WIRE_HEADER(WIRE_CHARGE, struct wire_charge, 0),
		.attachment = attachment,
		.key = key,
		.lane = lane,
		.seq = ++b->keys[key].seq[lane],
		.need = need};
}

/* What the asker gets: its need, or the status of the refusal. */
static int send_charge(struct box *b, struct wire_charge *m)
{
	struct granted *g = &b->keys[m->key];
	unsigned before = atomic_load(&g->n);
	int r;

	g->need = m->flags & WIRE_CHARGE_NOWAIT ? 0 : m->need;
	r = embedded_handle(b->engine, m, sizeof(*m), true);
	if (r < 0)
		return r;
	assert_int_equal(atomic_load(&g->n), before + 1);
	assert_int_equal(g->last.lane, m->lane);
	assert_true(g->last.seq == m->seq && g->last.attachment == m->attachment);
	assert_true(g->last.status < 0 ? g->last.amount == 0
			: g->need > 0  ? g->last.amount >= m->need
				       : g->last.amount == 0);
	return g->last.status;
}

/* A charge that looks nowhere but in the engine. */
static int charge(struct box *b, uint64_t attachment, uint32_t key, uint64_t bytes)
{
	struct wire_charge m = make_charge(b, attachment, key, 0, bytes);

	return send_charge(b, &m);
}

static bool take(struct box *b, uint32_t key, uint64_t bytes)
{
	uint64_t left;

	return segment_reserve_take(segment_key(&b->segment, key), key, bytes, bytes, &left) ==
		bytes;
}

static int charge_by_reserve(struct box *b, uint64_t attachment, uint32_t key, uint64_t bytes)
{
	if (take(b, key, bytes))
		return 0;
	return charge(b, attachment, key, bytes);
}

/* Without looking for an answer. */
static int tell(struct box *b, const void *message, size_t n, bool wait)
{
	return embedded_handle(b->engine, message, n, wait);
}

static int get(struct box *b, const char *path, const char *file, uint64_t flags)
{
	struct wire_get m = {.flags = flags};
	const char *strings[WIRE_STRINGS_MAX] = {path, file};
	int r = ask(b, WIRE_GET, &m, sizeof(m), strings);

	if (r < 0)
		return r;
	assert_answer(b, WIRE_TEXT);
	return b->answer.text.status;
}

static int set(struct box *b, const char *path, const char *file, const char *value)
{
	struct wire_set m = {0};
	const char *strings[WIRE_STRINGS_MAX] = {path, file, value};

	assert_int_equal(ask(b, WIRE_SET, &m, sizeof(m), strings), 0);
	assert_answer(b, WIRE_DONE);
	return b->answer.done.status;
}

static int create(struct box *b, const char *path)
{
	struct wire_create m = {0};
	const char *strings[WIRE_STRINGS_MAX] = {path};

	assert_int_equal(ask(b, WIRE_CREATE, &m, sizeof(m), strings), 0);
	assert_answer(b, WIRE_DONE);
	return b->answer.done.status;
}

static int remove_pool(struct box *b, const char *path)
{
	struct wire_remove m = {0};
	const char *strings[WIRE_STRINGS_MAX] = {path};

	assert_int_equal(ask(b, WIRE_REMOVE, &m, sizeof(m), strings), 0);
	assert_answer(b, WIRE_DONE);
	return b->answer.done.status;
}

static void assert_text(struct box *b, const char *path, const char *file, const char *text)
{
	assert_int_equal(get(b, path, file, 0), 0);
	assert_string_equal(b->text, text);
}

/* The number behind the key, or (no key) the number that the file is. */
static uint64_t value(struct box *b, const char *path, const char *file, const char *key)
{
	const char *line;
	size_t n = key ? strlen(key) : 0;

	assert_int_equal(get(b, path, file, WIRE_GET_EXACT), 0);
	line = b->text;
	while (key && (strncmp(line, key, n) != 0 || line[n] != ' ')) {
		line = strchr(line, '\n');
		assert_non_null(line);
		line++;
	}
	return strtoull(line + (key ? n + 1 : 0), NULL, 10);
}

static void assert_figures(struct box *b, const char *path, uint64_t held, uint64_t stock)
{
	assert_true(value(b, path, "memory.current", NULL) == held);
	assert_true(value(b, path, "memory.stat", "held") == held);
	assert_true(value(b, path, "memory.stat", "stock") == stock);
}

/* Into a slot of this CPU, as an uncharge does. */
static void put_into_stock(struct box *b, uint32_t key, uint64_t bytes)
{
	percpu_word *slot = &b->stocks.pages[0].stock.slot[2];

	atomic_store(&segment_header(&b->segment)->touched[0], 1);
	atomic_store(slot, word_make(key, bytes, word_parity(percpu_load(slot))));
}

static uint64_t in_stock(struct box *b, uint32_t key)
{
	word w = percpu_load(&b->stocks.pages[0].stock.slot[2]);

	return word_key(w) == key ? word_bytes(w) : 0;
}

static uint64_t in_reserve(struct box *b, uint32_t key)
{
	word w = atomic_load(&segment_key(&b->segment, key)->reserve);

	return word_key(w) == key ? word_bytes(w) : 0;
}

/* ------------------------------------------------------------------ set-up */

static char *write_conf(const char *text)
{
	const char *dir = getenv("TMPDIR");
	char *path;
	int fd;

	assert_true(asprintf(&path, "%s/embedded.XXXXXX", dir ? dir : "/tmp") > 0);
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (int64_t)strlen(text));
	close(fd);
	return path;
}

static int new_engine(struct box *b, const char *conf, enum percpu_kind kind)
{
	struct embedded_owner o = {.on_message = on_message, .gate = on_gate, .userdata = b};
	_cleanup_(freep) char *path = conf ? write_conf(conf) : NULL;
	int r;

	memset(b, 0, sizeof(*b));
	b->fd = -1;
	r = embedded_new(path, kind, &o, &b->engine);
	if (path)
		unlink(path);
	return r;
}

static void open_box(struct box *b, const char *conf, enum percpu_kind kind)
{
	assert_int_equal(new_engine(b, conf, kind), 0);
	assert_int_equal(hello(b, WIRE_VERSION, kind == PERCPU_RSEQ ? WIRE_HELLO_RSEQ : 0), 0);
	assert_answer(b, WIRE_WELCOME);
	assert_int_equal(b->answer.welcome.status, 0);
}

static void close_box(struct box *b)
{
	b->engine = embedded_free(b->engine);
	assert_null(b->engine);
	segment_unmap(&b->segment);
	close_fd(b->fd);
	free(b->text);
	b->text = NULL;
}

static struct box box;

static int set_up(void **state _unused_)
{
	open_box(&box, NULL, PERCPU_ATOMIC);
	return 0;
}

static int tear_down(void **state _unused_)
{
	close_box(&box);
	return 0;
}

/* ------------------------------------------------------------------ opening */

static void test_hello(void **state _unused_)
{
	struct box *b = &box;
	struct pollfd p;

	assert_int_equal(new_engine(b, NULL, PERCPU_ATOMIC), 0);
	/* Nothing is heard before it, nothing twice. */
	assert_int_equal(attach_as(b, 1, "/", 0), -EPROTO);
	assert_int_equal(hello(b, WIRE_VERSION, 2), -EPROTO);
	assert_int_equal(hello(b, WIRE_VERSION, 0), 0);
	assert_answer(b, WIRE_WELCOME);
	assert_int_equal(b->answer.welcome.status, 0);
	assert_int_equal(b->answer.welcome.version, WIRE_VERSION);
	assert_int_equal(hello(b, WIRE_VERSION, 0), -EPROTO);

	assert_int_equal(b->segment.kind, PERCPU_ATOMIC);
	assert_true(b->segment.n_cpus >= 1);
	assert_true(atomic_load(&segment_info(&b->segment)->batch) == BATCH);
	assert_true(atomic_load(&segment_info(&b->segment)->high) == BATCH);
	/* A descriptor that can be polled, and has nothing to say. */
	p = (struct pollfd){.fd = b->fd, .events = POLLIN};
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_int_equal(fcntl(b->fd, F_GETFD), FD_CLOEXEC);
	close_box(b);

	assert_int_equal(new_engine(b, NULL, PERCPU_ATOMIC), 0);
	assert_int_equal(hello(b, WIRE_VERSION + 1, 0), 0);
	assert_int_equal(b->answer.welcome.status, -EPROTO);
	assert_int_equal(attach_as(b, 1, "/", 0), -ENOTCONN);
	close_box(b);
}

static void test_kind(void **state _unused_)
{
	struct box *b = &box;

	if (!PERCPU_HAS_RSEQ)
		skip();
	/* The threads of this client have no sequences. */
	assert_int_equal(new_engine(b, NULL, PERCPU_RSEQ), 0);
	assert_int_equal(hello(b, WIRE_VERSION, 0), 0);
	assert_int_equal(b->segment.kind, PERCPU_ATOMIC);
	close_box(b);
	open_box(b, NULL, PERCPU_RSEQ);
	assert_int_equal(b->segment.kind, PERCPU_RSEQ);
	close_box(b);
	/* Having them, a client gets what it opened the engine for. */
	assert_int_equal(new_engine(b, NULL, PERCPU_ATOMIC), 0);
	assert_int_equal(hello(b, WIRE_VERSION, WIRE_HELLO_RSEQ), 0);
	assert_int_equal(b->segment.kind, PERCPU_ATOMIC);
	close_box(b);
}

static void test_configuration(void **state _unused_)
{
	static const char conf[] = "[daemon]\nbatch = 64K\nflush_interval = 1h\ngrace = 5s\n"
				   "export = /x*\nsocket_mode = 0600\n"
				   "[stat pages]\nunit = pages\nhelp = Pages\n"
				   "[stat faults]\ntype = event\n"
				   "[pool a]\npath = /a/b\nmemory.max = 1M\n";
	static const char *const bad[] = {
		"[pool a]\npath = a\n",
		"[daemon]\nbatch = 1\n",
		"[nothing]\nx = y\n",
		"[pool a]\nmemory.max = 1M\n",
		"[stat held]\nunit = x\n",
		"batch = 64K\n",
	};
	struct embedded_owner o = {0};
	struct embedded *e = (void *)&o;
	struct box *b = &box;

	open_box(b, conf, PERCPU_ATOMIC);
	assert_true(atomic_load(&segment_info(&b->segment)->batch) == 64 * KIB);
	assert_text(b, "/", "pool.children", "a\n");
	assert_text(b, "/a/b", "memory.max", "1048576\n");
	assert_text(b, "/a", "memory.max", "max\n");
	assert_int_equal(get(b, "/a/b", "memory.stat", 0), 0);
	assert_non_null(strstr(b->text, "\nsock 0\n"));
	assert_non_null(strstr(b->text, "\npages 0\nfaults 0\n"));
	close_box(b);

	for (size_t i = 0; i < ELEMENTS(bad); i++)
		assert_int_equal(new_engine(b, bad[i], PERCPU_ATOMIC), -EINVAL);
	assert_int_equal(embedded_new("/nowhere/tallyd.conf", PERCPU_ATOMIC, &o, &e), -ENOENT);
	assert_ptr_equal(e, &o);
	assert_null(embedded_free(NULL));
}

/* What has no shape of a message, and what no client says. */
static void test_broken_messages(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key = attach(b, "/a");
	uint64_t a = b->last_attachment;
	struct wire_charge good = make_charge(b, a, key, 0, 1), bad[10];
	struct wire_bye short_one = {.h = {.size = 4, .type = WIRE_BYE}};

	assert_int_equal(tell(b, &short_one, sizeof(short_one), true), -EPROTO);
	assert_int_equal(tell(b, &short_one, 4, true), -EPROTO);
	for (unsigned i = 0; i < ELEMENTS(bad); i++)
		bad[i] = good;
	bad[0].lane = SEGMENT_LANES;
	bad[1].need = 0;
	bad[2].need = WORD_BYTES_MAX + 1;
	bad[3].seq = 0;
	bad[4].flags = 4;
	bad[5].flags = WIRE_CHARGE_QUEUE | WIRE_CHARGE_NOWAIT;
	bad[6].h.type = WIRE_GRANT;
	bad[7].h.type = 0;
	bad[8].h.size--;
	bad[9].h.type = WIRE_REQUESTS_END;
	for (unsigned i = 0; i < ELEMENTS(bad); i++)
		assert_int_equal(tell(b, &bad[i], sizeof(bad[i]), true), -EPROTO);
	assert_int_equal(attach_as(b, 0, "/a", 0), -EPROTO);
	assert_int_equal(attach_as(b, 7, "/a", 4), -EPROTO);
	assert_int_equal(detach_with(b, a, 2, 0), -EPROTO);
	assert_int_equal(detach_with(b, a, 0, UINT64_MAX), -EPROTO);
	assert_int_equal(get(b, "/a", "memory.max", 8), -EPROTO);
	assert_int_equal(get(b, "/a", "memory.max", 3), -EPROTO);
	assert_int_equal(ASK(b, WIRE_REMOVE, struct wire_remove m = {.flags = 2}), -EPROTO);
	/* None of it has done anything. */
	b->keys[key].need = 1;
	assert_int_equal(tell(b, &good, sizeof(good), true), 0);
	assert_int_equal(b->keys[key].last.status, 0);
}

/* ------------------------------------------------------------------ attachments and keys */

static void test_attach(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key, item;

	assert_int_equal(attach_as(b, 1, "/a/b", 0), -ENOENT);
	assert_int_equal(attach_as(b, 1, "a", 0), -EINVAL);
	assert_int_equal(attach_as(b, 1, "/a/b", WIRE_ATTACH_CREATE), 0);
	key = b->answer.key.key;
	assert_int_equal(b->answer.key.item, 0);
	assert_true(b->answer.key.attachment == 1);
	assert_true(atomic_load(&segment_figures(&b->segment, key)->attachment) == 1);
	/* The same again is the same key; the number for another pool breaks the protocol. */
	assert_int_equal(attach_as(b, 1, "/a/b", 0), 0);
	assert_int_equal(b->answer.key.key, key);
	assert_int_equal(attach_as(b, 1, "/a", 0), -EPROTO);

	assert_int_equal(key_of(b, 1, 1, &item), 0);
	assert_int_not_equal(item, key);
	assert_int_equal(key_of(b, 1, 1, &key), 0);
	assert_int_equal(item, key);
	assert_int_equal(key_of(b, 1, 0, &item), -EINVAL);
	assert_int_equal(key_of(b, 1, 64, &item), -EINVAL);
	assert_int_equal(key_of(b, 1, 7, &item), -EINVAL); /* alloc, an event */
	assert_int_equal(key_of(b, 2, 1, &item), -ENODEV);

	assert_int_equal(remove_pool(b, "/a/b"), -EBUSY);
	assert_int_equal(detach_with(b, 1, 0, 0), 0);
	assert_int_equal(key_of(b, 1, 1, &item), -ENODEV);
	assert_int_equal(attach_as(b, 1, "/a/b", 0), -EPROTO);
	assert_int_equal(detach_with(b, 1, 0, 0), 0);
	assert_int_equal(detach_with(b, 99, 0, 0), 0);
	assert_int_equal(remove_pool(b, "/a/b"), 0);
}

static unsigned count_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_extents(void **state _unused_)
{
	struct box *b = &box;
	unsigned fds = count_fds();

	for (unsigned i = 0; i < 3 * SEGMENT_FIRST_KEYS; i++)
		attach(b, "/a");
	assert_int_equal(b->segment.n_extents, 3);
	/* What has arrived is not kept. */
	assert_int_equal(count_fds(), fds);

	/* What has not is sent once more. */
	b->refuse_extents = true;
	attach(b, "/a");
	assert_int_equal(b->answer.key.extent, 3);
	assert_true(b->answer.key.key > b->segment.n_keys);
	assert_int_equal(ASK(b, WIRE_EXTENT, struct wire_extent m = {.extent = 3}), 0);
	assert_answer(b, WIRE_EXTENT_IS);
	assert_int_equal(b->answer.extent.status, 0);
	assert_int_equal(b->segment.n_extents, 4);
	assert_int_equal(attach_as(b, b->last_attachment, "/a", 0), 0);
	assert_int_equal(count_fds(), fds);
	assert_int_equal(ASK(b, WIRE_EXTENT, struct wire_extent m = {.extent = 3}), 0);
	assert_int_equal(b->answer.extent.status, -ENOENT);
	assert_int_equal(ASK(b, WIRE_EXTENT, struct wire_extent m = {.extent = 0}), 0);
	assert_int_equal(b->answer.extent.status, -ENOENT);
	assert_int_equal(ASK(b, WIRE_EXTENT, struct wire_extent m = {.extent = 4000}), 0);
	assert_int_equal(b->answer.extent.status, -ENOENT);
}

static void test_detach_gives_everything_back(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key = attach(b, "/a/b"), item;
	uint64_t a = b->last_attachment;

	assert_int_equal(key_of(b, a, 4, &item), 0);
	assert_int_equal(charge(b, a, key, 1000), 0);
	assert_int_equal(charge(b, a, item, 2000), 0);
	assert_figures(b, "/a/b", 3000, 2 * BATCH);
	assert_true(value(b, "/", "memory.stat", "sock") == 2000);
	segment_reserve_close(segment_key(&b->segment, item));
	detach(b, a, key);
	assert_figures(b, "/", 0, 0);
	assert_figures(b, "/a/b", 0, 0);
	assert_true(value(b, "/", "memory.stat", "sock") == 0);
	assert_true(value(b, "/a/b", "memory.stat", "overdraft") == 0);
	assert_true(atomic_load(&segment_figures(&b->segment, key)->attachment) == 0);
	/* A charge that comes late concerns nobody. */
	assert_int_equal(
		tell(b,
			&(struct wire_charge){.h = WIRE_HEADER(WIRE_CHARGE, struct wire_charge, 0),
				.attachment = a,
				.key = key,
				.seq = 9,
				.need = 1},
			sizeof(struct wire_charge), true),
		0);
	assert_figures(b, "/", 0, 0);
}

static void test_overdraft(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key = attach(b, "/a");
	uint64_t a = b->last_attachment, total;

	/* Noticed when it is taken back … */
	assert_int_equal(charge(b, a, key, 1000), 0);
	segment_reserve_add(segment_key(&b->segment, key), key, 1000 + 77, &total);
	assert_int_equal(set(b, "/a", "pool.drain", ""), 0);
	assert_figures(b, "/", 0, 0);
	assert_true(value(b, "/a", "memory.stat", "overdraft") == 77);
	/* … and at the latest when the attachment goes. */
	put_into_stock(b, key, 5);
	segment_reserve_add(segment_key(&b->segment, key), key, 3, &total);
	detach(b, a, key);
	assert_true(value(b, "/", "memory.stat", "overdraft") == 77 + 8);
}

/* What was charged by force, and given back before anybody has looked, is none. */
static void test_detach_after_force(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key = attach(b, "/a");

	atomic_fetch_add(&segment_key(&b->segment, key)->force, 3000);
	atomic_fetch_add(&segment_key(&b->segment, key)->debt, 500);
	put_into_stock(b, key, 3500);
	detach(b, b->last_attachment, key);
	assert_figures(b, "/a", 0, 0);
	assert_true(value(b, "/a", "memory.stat", "overdraft") == 0);
	assert_true(value(b, "/a", "memory.events", "force") == 1);
}

/* Keys come round again, and what lay in slots of the old owner is nobody's. */
static void play_key_reuse(struct box *b)
{
	uint32_t highest = 0, first = 0;

	for (unsigned i = 0; i < 10 * SEGMENT_FIRST_KEYS; i++) {
		uint32_t key = attach(b, "/a");
		uint64_t a = b->last_attachment;

		highest = key > highest ? key : highest;
		first = i == 0 ? key : first;
		assert_true(in_stock(b, key) == 0);
		assert_int_equal(charge(b, a, key, 10), 0);
		put_into_stock(b, key, 10);
		detach(b, a, key);
	}
	assert_true(highest <= SEGMENT_FIRST_KEYS);
	assert_figures(b, "/", 0, 0);
	assert_true(value(b, "/", "memory.stat", "overdraft") == 0);
}

static void test_key_reuse(void **state _unused_)
{
	play_key_reuse(&box);
	assert_int_equal(box.closed, 0);
}

static void test_key_reuse_behind_the_gate(void **state _unused_)
{
	struct box *b = &box;

	if (!PERCPU_HAS_RSEQ)
		skip();
	open_box(b, NULL, PERCPU_RSEQ);
	play_key_reuse(b);
	assert_true(b->closed > 0);
	assert_int_equal(b->opened, b->closed);
	close_box(b);
}

/* While a thread may carry credit of a key in a register, the key is nobody else's. */
static void test_no_key_under_a_mover(void **state _unused_)
{
	struct box *b = &box;
	_Atomic uint32_t *moving = &b->stocks.pages[0].moving;
	uint32_t key = 0;

	atomic_store(&segment_header(&b->segment)->touched[0], 1);
	atomic_store(moving, 1);
	for (unsigned i = 0; i <= SEGMENT_FIRST_KEYS; i++) {
		key = attach(b, "/a");
		detach(b, b->last_attachment, key);
	}
	assert_int_equal(key, SEGMENT_FIRST_KEYS + 1);
	atomic_store(moving, 0);
	do {
		key = attach(b, "/a");
		detach(b, b->last_attachment, key);
	} while (key > SEGMENT_FIRST_KEYS && key < b->segment.n_keys);
	assert_true(key <= SEGMENT_FIRST_KEYS);
}

/* A handle that still names a detached attachment keeps its key. */
static void test_forget(void **state _unused_)
{
	struct box *b = &box;
	uint32_t kept = attach(b, "/a"), key;
	uint64_t a = b->last_attachment;

	assert_int_equal(detach_with(b, a, 0, 0), 0);
	segment_reserve_close(segment_key(&b->segment, kept));
	for (unsigned i = 0; i < 5 * SEGMENT_FIRST_KEYS; i++) {
		key = attach(b, "/a");
		assert_int_not_equal(key, kept);
		detach(b, b->last_attachment, key);
	}
	assert_int_equal(ASK(b, WIRE_FORGET, struct wire_forget m = {.attachment = a}), 0);
	assert_int_equal(ASK(b, WIRE_FORGET, struct wire_forget m = {.attachment = a}), 0);
	assert_int_equal(b->n_answers, 0);
	for (unsigned i = 0; i < 5 * SEGMENT_FIRST_KEYS; i++) {
		key = attach(b, "/a");
		detach(b, b->last_attachment, key);
		if (key == kept)
			return;
	}
	fail_msg("the key never came round again");
}

/* ------------------------------------------------------------------ granting */

static void test_batch(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key = attach(b, "/a"), other;
	uint64_t a = b->last_attachment, total;
	struct wire_charge m;

	atomic_store(&segment_key(&b->segment, key)->ahead, 1);
	assert_int_equal(charge(b, a, key, 1), 0);
	assert_true(b->keys[key].last.amount == 1 + BATCH);
	assert_int_equal(atomic_load(&segment_key(&b->segment, key)->ahead), 0);
	assert_true(atomic_load(&segment_figures(&b->segment, key)->batch) == BATCH);
	/* The same request has the same answer, and is not charged twice. */
	m = make_charge(b, a, key, 1, 10 * MIB);
	assert_int_equal(send_charge(b, &m), 0);
	assert_true(b->keys[key].last.amount >= 10 * MIB + BATCH);
	total = b->keys[key].last.amount + 1 + BATCH;
	b->keep_answers = true;
	assert_int_equal(send_charge(b, &m), 0);
	b->keep_answers = false;
	assert_true(value(b, "/", "memory.peak", NULL) == total);

	/* Near a limit a share of the headroom: two attachments here. */
	assert_int_equal(set(b, "/a", "pool.drain", "1"), 0);
	assert_int_equal(set(b, "/a", "memory.max", "10486761"), 0); /* 1000 more */
	assert_int_equal(attach_as(b, ++b->last_attachment, "/a", 0), 0);
	other = b->answer.key.key;
	assert_int_equal(charge(b, b->last_attachment, other, 100), 0);
	assert_true(b->keys[other].last.amount == 100 + 900 / 3);
}

/* Every byte of a limit can be used, wherever the credit lies. */
static void test_limit_is_exact(void **state _unused_)
{
	struct box *b = &box;
	uint32_t keys[8];
	uint64_t attachments[8], bytes = 0;
	unsigned open = ELEMENTS(keys);

	assert_int_equal(create(b, "/a"), 0);
	assert_int_equal(set(b, "/a", "memory.max", "64M"), 0);
	for (unsigned i = 0; i < ELEMENTS(keys); i++) {
		char path[16];

		snprintf(path, sizeof(path), "/a/%u", i % 3);
		keys[i] = attach(b, path);
		attachments[i] = b->last_attachment;
	}
	for (unsigned i = 0; open > 0; i = (i + 1) % ELEMENTS(keys)) {
		if (keys[i] == 0)
			continue;
		if (charge_by_reserve(b, attachments[i], keys[i], 4 * KIB) == 0) {
			bytes += 4 * KIB;
			continue;
		}
		if (open == ELEMENTS(keys))
			assert_true(bytes >= 64 * MIB / 1000 * 999);
		keys[i] = 0;
		open--;
	}
	assert_true(bytes == 64 * MIB);
	assert_figures(b, "/a", 64 * MIB, 0);
	assert_true(value(b, "/a", "memory.peak", NULL) == 64 * MIB);
	assert_true(value(b, "/a", "memory.events.local", "max") >= ELEMENTS(keys));
	assert_true(value(b, "/a", "memory.events.local", "oom") == ELEMENTS(keys));
	assert_true(value(b, "/", "memory.events", "oom") == ELEMENTS(keys));
	assert_true(value(b, "/", "memory.events.local", "oom") == 0);
	assert_true(value(b, "/a/0", "memory.events", "oom") == 0);
}

static void test_refusal(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key = attach(b, "/a");
	uint64_t a = b->last_attachment;

	assert_int_equal(set(b, "/a", "memory.max", "1M"), 0);
	assert_int_equal(charge(b, a, key, 2 * MIB), -ENOMEM);
	assert_figures(b, "/", 0, 0);
	assert_int_equal(charge(b, a, key, 1 * MIB), 0);
	assert_int_equal(charge(b, a, key, 1), -ENOMEM);
	/* More than a word holds fits in no key. */
	assert_int_equal(set(b, "/a", "memory.max", "max"), 0);
	assert_int_equal(charge(b, a, key, WORD_BYTES_MAX), -ENOMEM);
	assert_figures(b, "/", 1 * MIB, 0);
	assert_int_equal(set(b, "/a", "memory.max", "nonsense"), -EINVAL);
	assert_text(b, "/a", "memory.max", "max\n");
}

static void test_items(void **state _unused_)
{
	static const struct wire_define gauge = {.type = ITEM_GAUGE}, event = {.type = ITEM_EVENT},
					bad = {.type = 7};
	const char *strings[WIRE_STRINGS_MAX] = {"frames", "bytes", "Frames of pictures"};
	const char *other[WIRE_STRINGS_MAX] = {"frames", "bytes", "Something else"};
	const char *wrong[WIRE_STRINGS_MAX] = {"held", "", ""};
	struct wire_define d = gauge;
	struct box *b = &box;
	uint32_t item, key;

	assert_int_equal(ask(b, WIRE_ITEM, &(struct wire_item){0}, sizeof(struct wire_item),
				 (const char *[WIRE_STRINGS_MAX]){"sock"}),
		0);
	assert_answer(b, WIRE_ITEM_IS);
	assert_int_equal(b->answer.item.status, 0);
	assert_int_equal(b->answer.item.item, 4);
	assert_int_equal(b->answer.item.type, ITEM_GAUGE);
	assert_int_equal(ask(b, WIRE_ITEM, &(struct wire_item){0}, sizeof(struct wire_item),
				 (const char *[WIRE_STRINGS_MAX]){"frames"}),
		0);
	assert_int_equal(b->answer.item.status, -ENOENT);

	assert_int_equal(ask(b, WIRE_DEFINE, &d, sizeof(d), strings), 0);
	assert_answer(b, WIRE_ITEM_IS);
	assert_int_equal(b->answer.item.status, 0);
	item = b->answer.item.item;
	assert_int_equal(ask(b, WIRE_DEFINE, &d, sizeof(d), strings), 0);
	assert_int_equal(b->answer.item.status, 0);
	assert_int_equal(b->answer.item.item, item);
	assert_int_equal(ask(b, WIRE_DEFINE, &d, sizeof(d), other), 0);
	assert_int_equal(b->answer.item.status, -EEXIST);
	assert_int_equal(ask(b, WIRE_DEFINE, &d, sizeof(d), wrong), 0);
	assert_int_equal(b->answer.item.status, -EINVAL);
	d = event;
	assert_int_equal(ask(b, WIRE_DEFINE, &d, sizeof(d), strings), 0);
	assert_int_equal(b->answer.item.status, -EEXIST);
	d = bad;
	strings[0] = "films";
	assert_int_equal(ask(b, WIRE_DEFINE, &d, sizeof(d), strings), 0);
	assert_int_equal(b->answer.item.status, -EINVAL);

	attach(b, "/a");
	assert_int_equal(key_of(b, b->last_attachment, item, &key), 0);
	assert_int_equal(charge(b, b->last_attachment, key, 4096), 0);
	assert_true(value(b, "/", "memory.stat", "frames") == 4096);
	assert_true(value(b, "/", "memory.stat", "held") == 4096);
	put_into_stock(b, key, 96);
	assert_true(value(b, "/", "memory.stat", "frames") == 4000);
}

static void test_force(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key = attach(b, "/a");
	struct segment_key *words = segment_key(&b->segment, key);

	assert_int_equal(set(b, "/a", "memory.max", "1000"), 0);
	atomic_fetch_add(&words->force, 3000);
	assert_figures(b, "/a", 3000, 0);
	assert_true(value(b, "/a", "memory.events", "force") == 1);
	atomic_fetch_add(&words->debt, 500);
	/* Taken back before anybody has looked: no overdraft. */
	put_into_stock(b, key, 3500);
	assert_int_equal(set(b, "/a", "pool.drain", ""), 0);
	assert_figures(b, "/a", 0, 0);
	assert_true(value(b, "/a", "memory.stat", "overdraft") == 0);
	assert_true(value(b, "/a", "memory.events", "force") == 2);
	/* The word is the client's to write. */
	atomic_fetch_sub(&words->force, 1);
	assert_figures(b, "/a", 0, 0);
}

/* ------------------------------------------------------------------ idle credit */

static void play_drain(struct box *b)
{
	uint32_t key = attach(b, "/a/x"), other = attach(b, "/b");
	uint64_t a = b->last_attachment - 1, o = b->last_attachment;

	assert_int_equal(set(b, "/a", "memory.max", "2M"), 0);
	assert_int_equal(charge(b, a, key, 1 * MIB), 0);
	assert_int_equal(charge(b, o, other, 1 * MIB), 0);
	/* Half of what is idle lies in a slot. */
	assert_true(in_reserve(b, key) == BATCH);
	assert_true(take(b, key, BATCH / 2));
	put_into_stock(b, key, BATCH / 2);
	assert_figures(b, "/a", 1 * MIB, BATCH);

	/* Another attachment of the pool gets all of it, and nothing of the neighbour's. */
	key = attach(b, "/a/y");
	a = b->last_attachment;
	assert_int_equal(charge(b, a, key, 1 * MIB + 1), -ENOMEM);
	assert_figures(b, "/a", 1 * MIB, 0);
	assert_int_equal(charge(b, a, key, 1 * MIB), 0);
	assert_figures(b, "/a", 2 * MIB, 0);
	assert_figures(b, "/b", 1 * MIB, BATCH);
	assert_true(in_reserve(b, other) == BATCH);

	/* On demand too. */
	put_into_stock(b, other, 1 * MIB);
	assert_int_equal(set(b, "/", "pool.drain", ""), 0);
	assert_true(in_reserve(b, other) == 0 && in_stock(b, other) == 0);
	assert_figures(b, "/b", 0, 0);
	assert_figures(b, "/", 2 * MIB, 0);
}

static void test_drain(void **state _unused_)
{
	play_drain(&box);
	assert_int_equal(box.closed, 0);
}

static void test_drain_behind_the_gate(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key;

	if (!PERCPU_HAS_RSEQ)
		skip();
	open_box(b, NULL, PERCPU_RSEQ);
	play_drain(b);
	/* Once for the refused charge, once for the last drain: reserves need none, and others'
	 * slots neither. */
	assert_int_equal(b->closed, 2);
	assert_int_equal(b->opened, 2);
	assert_int_equal(set(b, "/", "pool.drain", ""), 0);
	key = attach(b, "/b");
	put_into_stock(b, key, 0);
	assert_int_equal(set(b, "/", "pool.drain", ""), 0);
	assert_int_equal(charge(b, b->last_attachment, key, 100), 0);
	put_into_stock(b, key, 100);
	assert_int_equal(set(b, "/a", "pool.drain", ""), 0);
	assert_int_equal(b->closed, 2);
	assert_int_equal(set(b, "/b", "pool.drain", ""), 0);
	assert_int_equal(b->closed, 3);
	assert_int_equal(b->opened, 3);
	assert_figures(b, "/b", 0, 0);
	close_box(b);
}

/* What lies idle is not to be charged past a limit that was lowered. */
static void test_lowered_limit(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key = attach(b, "/a");

	assert_int_equal(charge(b, b->last_attachment, key, 1 * MIB), 0);
	assert_int_equal(set(b, "/a", "memory.max", "2M"), 0);
	assert_true(in_reserve(b, key) == BATCH);
	assert_int_equal(set(b, "/a", "memory.max", "1M"), 0);
	assert_true(in_reserve(b, key) == 0);
	assert_int_equal(charge(b, b->last_attachment, key, 1), -ENOMEM);
}

static void test_ring(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key = attach(b, "/a");
	struct segment_key *words = segment_key(&b->segment, key);
	struct wire_ring m = {.attachment = b->last_attachment, .key = key};
	uint64_t total;

	assert_int_equal(charge(b, b->last_attachment, key, 2 * MIB), 0);
	segment_reserve_add(words, key, BATCH, &total);
	atomic_store(&words->ring, 1);
	assert_int_equal(ask(b, WIRE_RING, &m, sizeof(m), none), 0);
	assert_int_equal(b->n_answers, 0);
	assert_int_equal(atomic_load(&words->ring), 0);
	assert_true(in_reserve(b, key) == 2 * BATCH);
	segment_reserve_add(words, key, 1, &total);
	assert_int_equal(ask(b, WIRE_RING, &m, sizeof(m), none), 0);
	assert_true(in_reserve(b, key) == BATCH);
	assert_figures(b, "/a", 2 * MIB - BATCH - 1, BATCH);
	m.attachment++;
	assert_int_equal(ask(b, WIRE_RING, &m, sizeof(m), none), 0);
}

/* A bell that was lost is made good at a miss, once the time of a periodic look has come. */
static void test_lost_ring(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key, other;
	uint64_t total, end = HARNESS_PATIENCE_MS / 10;

	open_box(b, "[daemon]\nflush_interval = 100ms\n", PERCPU_ATOMIC);
	key = attach(b, "/a");
	assert_int_equal(charge(b, b->last_attachment, key, 2 * MIB), 0);
	other = attach(b, "/b");
	segment_reserve_add(segment_key(&b->segment, key), key, 2 * BATCH, &total);
	while (in_reserve(b, key) > BATCH && end-- > 0) {
		poll(NULL, 0, 10);
		assert_int_equal(charge(b, b->last_attachment, other, 1), 0);
	}
	assert_true(in_reserve(b, key) == BATCH);
	close_box(b);
}

/* So is what was charged by force: it counts against the limit. */
static void test_late_force(void **state _unused_)
{
	struct box *b = &box;
	uint64_t end = HARNESS_PATIENCE_MS / 10;
	uint32_t key, other;
	int r = 0;

	open_box(b, "[daemon]\nflush_interval = 100ms\n", PERCPU_ATOMIC);
	key = attach(b, "/a");
	other = attach(b, "/a");
	assert_int_equal(set(b, "/a", "memory.max", "1M"), 0);
	atomic_fetch_add(&segment_key(&b->segment, key)->force, 1 * MIB);
	while (r == 0 && end-- > 0) {
		poll(NULL, 0, 10);
		r = charge(b, b->last_attachment, other, 1);
	}
	assert_int_equal(r, -ENOMEM);
	close_box(b);
}

static void test_nowait(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key = attach(b, "/a"), other = attach(b, "/a");
	uint64_t a = b->last_attachment - 1;
	struct wire_charge m = make_charge(b, a, key, 0, 1000);

	m.flags = WIRE_CHARGE_NOWAIT;
	assert_int_equal(send_charge(b, &m), 0);
	assert_true(in_reserve(b, key) == 1000 + BATCH);
	assert_figures(b, "/a", 0, 1000 + BATCH);
	/* Over a limit others are drained, before it is refused. */
	assert_int_equal(charge(b, b->last_attachment, other, 1000), 0);
	assert_int_equal(set(b, "/a", "memory.max", "1M"), 0);
	m = make_charge(b, a, key, 0, 1 * MIB);
	m.flags = WIRE_CHARGE_NOWAIT;
	assert_int_equal(send_charge(b, &m), -ENOMEM);
	assert_true(in_reserve(b, key) == 0);
	m = make_charge(b, a, key, 0, 1 * MIB - 1000);
	m.flags = WIRE_CHARGE_NOWAIT;
	assert_int_equal(send_charge(b, &m), 0);
	assert_true(in_reserve(b, key) == 1 * MIB - 1000);
	assert_figures(b, "/a", 1000, 1 * MIB - 1000);
}

static void send_ahead(struct box *b, uint64_t attachment, uint32_t key)
{
	struct wire_ahead m = {.attachment = attachment, .key = key};

	assert_int_equal(ask(b, WIRE_AHEAD, &m, sizeof(m), none), 0);
	assert_int_equal(b->n_answers, 0);
}

static void test_ahead(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key = attach(b, "/a");
	uint64_t a = b->last_attachment;

	atomic_store(&segment_key(&b->segment, key)->ahead, 1);
	send_ahead(b, a, key);
	assert_int_equal(atomic_load(&segment_key(&b->segment, key)->ahead), 0);
	assert_true(in_reserve(b, key) == BATCH);
	assert_figures(b, "/a", 0, BATCH);
	/* Not to another's key. */
	send_ahead(b, a + 1, key);
	assert_true(in_reserve(b, key) == BATCH);

	assert_int_equal(set(b, "/", "pool.drain", ""), 0);
	assert_int_equal(set(b, "/a", "memory.max", "200K"), 0);
	atomic_store(&segment_key(&b->segment, key)->ahead, 1);
	send_ahead(b, a, key);
	assert_int_equal(atomic_load(&segment_key(&b->segment, key)->ahead), 1);
	assert_true(in_reserve(b, key) == 0);
	assert_true(value(b, "/a", "memory.events", "max") == 0);
	assert_int_equal(set(b, "/a", "memory.max", "512K"), 0);
	send_ahead(b, a, key);
	assert_true(in_reserve(b, key) == BATCH);
	/* Nothing for a key that the client has closed meanwhile. */
	assert_int_equal(set(b, "/", "pool.drain", ""), 0);
	segment_reserve_close(segment_key(&b->segment, key));
	send_ahead(b, a, key);
	assert_figures(b, "/a", 0, 0);
}

/* ------------------------------------------------------------------ files and pools */

static void test_files(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key = attach(b, "/a/b");

	assert_int_equal(create(b, "/a"), -EEXIST);
	assert_int_equal(create(b, "/x/y"), -ENOENT);
	assert_int_equal(create(b, "/c"), 0);
	assert_int_equal(charge(b, b->last_attachment, key, 4096), 0);

	assert_text(b, "/a", "memory.current", "4096\n");
	assert_text(b, "/a", "memory.max", "max\n");
	assert_text(b, "/a", "memory.peak", "266240\n");
	assert_text(b, "/a", "memory.stat",
		"held 4096\nstock 262144\npersistent 0\noverdraft 0\nanon 0\nfile 0\nshmem 0\n"
		"sock 0\nslab 0\nhugetlb 0\nalloc 0\nfree 0\n");
	assert_text(b, "/a", "memory.events",
		"low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\nreclaim 0\nforce 0\nwould_refuse 0\n");
	assert_text(b, "/a", "cgroup.events", "populated 1\nfrozen 0\n");
	assert_text(b, "/c", "cgroup.events", "populated 0\nfrozen 0\n");
	assert_text(b, "/a", "cgroup.stat", "nr_descendants 1\nnr_dying_descendants 0\n");
	assert_text(b, "/", "pool.children", "a\nc\n");
	assert_text(b, "/c", "pool.children", "");

	assert_int_equal(set(b, "/a", "memory.peak", "1"), 0);
	assert_int_equal(set(b, "/a", "pool.flush", ""), 0);
	assert_int_equal(set(b, "/a", "memory.current", "1"), -EACCES);
	assert_int_equal(set(b, "/a", "nothing", "1"), -ENOENT);
	assert_int_equal(set(b, "/nowhere", "memory.max", "1"), -ENOENT);
	assert_int_equal(get(b, "/a", "pool.drain", 0), -EACCES);
	assert_int_equal(get(b, "/a", "pool.flush", 0), -EACCES);
	assert_int_equal(get(b, "/a", "nothing", 0), -ENOENT);
	assert_int_equal(get(b, "/nowhere", "memory.max", 0), -ENOENT);
	assert_int_equal(get(b, "/", "cgroup.procs", 0), -ENOENT);
	assert_int_equal(get(b, "/", "pool.clients", 0), -ENOENT);
	assert_int_equal(get(b, "/", "tallyd.status", 0), -ENOENT);
	assert_int_equal(set(b, "/", "tallyd.reload", ""), -ENOENT);

	assert_int_equal(remove_pool(b, "/"), -EPERM);
	assert_int_equal(remove_pool(b, "/a"), -EBUSY);
	assert_int_equal(remove_pool(b, "/c"), 0);
	assert_int_equal(remove_pool(b, "/c"), -ENOENT);
}

/* The same questions to a daemon have the same answers. */
static void test_files_as_the_daemon(void **state _unused_)
{
	static const char *const files[] = {"memory.current", "memory.peak", "memory.max",
		"memory.events", "memory.events.local", "memory.stat", "memory.numa_stat",
		"cgroup.events", "cgroup.stat", "pool.children"};
	static const char conf[] = "[stat pages]\nunit = pages\n[pool a]\npath = /a\n"
				   "memory.max = 1M\n";
	struct box *b = &box;
	struct harness h;
	struct tally_pool *p;
	struct tally *t;
	uint32_t key;

	open_box(b, conf, PERCPU_ATOMIC);
	key = attach(b, "/a/b");
	assert_int_equal(charge(b, b->last_attachment, key, 2 * MIB), -ENOMEM);
	harness_start(&h, conf);
	t = harness_open(&h);
	p = harness_attach(t, "/a/b");
	assert_int_equal(tally_charge(p, 2 * MIB), -ENOMEM);
	for (unsigned i = 0; i < ELEMENTS(files); i++) {
		_cleanup_(freep) char *text = harness_get(t, "/a", files[i]);

		assert_text(b, "/a", files[i], text);
	}
	tally_detach(p);
	tally_close(t);
	harness_stop(&h);
	close_box(b);
}

static void test_long_text(void **state _unused_)
{
	struct box *b = &box;
	char path[270], *want, *end;
	unsigned fds = count_fds();

	want = end = calloc(200, 256 + 1);
	assert_non_null(want);
	for (unsigned i = 0; i < 200; i++) {
		snprintf(path, sizeof(path), "/%0255u", i);
		assert_int_equal(create(b, path), 0);
		end += sprintf(end, "%s\n", path + 1);
	}
	assert_true(strlen(want) > WIRE_TEXT_MAX);
	assert_text(b, "/", "pool.children", want);
	assert_true(b->answer.text.in_memfd);
	assert_int_equal(count_fds(), fds);
	free(want);
}

/* Who looks, and when. */
static void test_flags_of_get(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key;

	open_box(b, "[daemon]\nflush_interval = 1h\n", PERCPU_ATOMIC);
	key = attach(b, "/a");
	assert_int_equal(charge(b, b->last_attachment, key, 4096), 0);
	assert_int_equal(get(b, "/a", "memory.current", WIRE_GET_CACHED), 0);
	assert_string_equal(b->text, "0\n");
	assert_int_equal(get(b, "/a", "memory.current", WIRE_GET_RATELIMITED), 0);
	assert_string_equal(b->text, "0\n");
	assert_int_equal(get(b, "/a", "memory.current", 0), 0);
	assert_string_equal(b->text, "4096\n");
	/* What was found there is in all above it, too. */
	assert_int_equal(get(b, "/", "memory.current", WIRE_GET_CACHED), 0);
	assert_string_equal(b->text, "4096\n");
	assert_int_equal(get(b, "/", "memory.current", WIRE_GET_EXACT), 0);
	assert_string_equal(b->text, "4096\n");
	close_box(b);
}

static int force_is_seen(void *userdata)
{
	struct box *b = userdata;

	return get(b, "/a", "memory.events", 0) == 0 && strstr(b->text, "force 1\n");
}

static int current_is_seen(void *userdata)
{
	struct box *b = userdata;

	return get(b, "/a", "memory.current", WIRE_GET_RATELIMITED) == 0 &&
		strcmp(b->text, "5000\n") == 0;
}

/* As a client does, which tells of what it has changed. */
static void force(struct box *b, uint32_t key, uint64_t bytes)
{
	struct segment_spot spot = segment_spot(&b->segment, key);

	atomic_fetch_add(&segment_key(&b->segment, key)->force, bytes);
	segment_mark(&spot, spot.cell, segment_page(&b->segment, 0), SEGMENT_CREDIT);
	atomic_store(&segment_header(&b->segment)->touched[0], 1);
}

/* A read does what the daemon does now and then. */
static void test_late_reads(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key;

	open_box(b, "[daemon]\nflush_interval = 100ms\n", PERCPU_ATOMIC);
	key = attach(b, "/a");
	force(b, key, 4096);
	assert_true(harness_wait(force_is_seen, b, HARNESS_PATIENCE_MS));
	force(b, key, 904);
	assert_true(harness_wait(current_is_seen, b, HARNESS_PATIENCE_MS));
	close_box(b);
}

/* ------------------------------------------------------------------ waiting */

struct waiter {
	struct box *box;
	pthread_t thread;
	uint64_t attachment, need, deadline_usec;
	uint32_t key;
	_Atomic int result; /* 1: none yet */
};

static void *run_waiter(void *arg)
{
	struct waiter *w = arg;
	struct wire_charge m = make_charge(w->box, w->attachment, w->key, 1, w->need);

	m.flags = WIRE_CHARGE_QUEUE;
	m.deadline_usec = w->deadline_usec;
	atomic_store(&w->result, send_charge(w->box, &m));
	return NULL;
}

static void start_waiter(struct waiter *w, const char *path, uint64_t need, uint64_t deadline_usec)
{
	*w = (struct waiter){
		.box = &box, .need = need, .deadline_usec = deadline_usec, .result = 1};
	w->key = attach(&box, path);
	w->attachment = box.last_attachment;
	assert_int_equal(pthread_create(&w->thread, NULL, run_waiter, w), 0);
}

static int join_waiter(struct waiter *w)
{
	assert_int_equal(pthread_join(w->thread, NULL), 0);
	return atomic_load(&w->result);
}

struct max_events {
	const char *path;
	uint64_t n;
};

static int has_max_events(void *userdata)
{
	const struct max_events *m = userdata;

	return value(&box, m->path, "memory.events.local", "max") >= m->n;
}

/* Starts one that will not fit at that pool, and waits until that has been found: then it queues. */
static void start_waiting_at(
	const char *at, struct waiter *w, const char *path, uint64_t need, uint64_t deadline_usec)
{
	struct max_events m = {at, value(&box, at, "memory.events.local", "max") + 1};

	start_waiter(w, path, need, deadline_usec);
	assert_true(harness_wait(has_max_events, &m, HARNESS_PATIENCE_MS));
}

static int has_result(void *userdata)
{
	return atomic_load(&((struct waiter *)userdata)->result) != 1;
}

static void uncharge(uint32_t key, uint64_t bytes)
{
	uint64_t total;

	segment_reserve_add(segment_key(&box.segment, key), key, bytes, &total);
}

static void test_queue(void **state _unused_)
{
	uint64_t deadline = harness_now() + LONG_USEC, a, other_a;
	struct box *b = &box;
	struct waiter big, small;
	uint32_t key = attach(b, "/a"), other;
	int r;

	a = b->last_attachment;
	other = attach(b, "/a/z");
	other_a = b->last_attachment;
	assert_int_equal(set(b, "/a", "memory.max", "1M"), 0);
	assert_int_equal(charge(b, a, key, 1 * MIB), 0);
	start_waiting_at("/a", &big, "/a/x", 600 * KIB, deadline);
	start_waiter(&small, "/a/y", 100 * KIB, deadline);

	/* What comes free goes to the head first, however little the others need, and without
	 * a word to the engine: it lies in a reserve. The small one may have come by now or not. */
	uncharge(key, 599 * KIB);
	/* While anyone waits, nobody gets more than needed; and nothing once the head has waited for
	 * a while, as it may have by now. */
	r = charge(b, other_a, other, 1 * KIB);
	assert_true(r == 0 || r == -ENOMEM);
	if (r == 0) {
		assert_true(b->keys[other].last.amount == 1 * KIB);
		uncharge(other, 1 * KIB);
	}
	poll(NULL, 0, 60);
	assert_int_equal(atomic_load(&big.result), 1);
	assert_int_equal(atomic_load(&small.result), 1);
	assert_int_equal(charge(b, other_a, other, 1 * KIB), -ENOMEM);
	uncharge(key, 1 * KIB);
	assert_true(harness_wait(has_result, &big, HARNESS_PATIENCE_MS));
	assert_int_equal(join_waiter(&big), 0);
	assert_true(b->keys[big.key].last.amount == 600 * KIB);
	assert_int_equal(atomic_load(&small.result), 1);
	detach(b, a, key);
	assert_int_equal(join_waiter(&small), 0);
	assert_figures(b, "/a", 700 * KIB, 0);
}

/* One that must wait elsewhere does not hold up those behind it. */
static void test_head_that_waits_elsewhere(void **state _unused_)
{
	uint64_t deadline = harness_now() + LONG_USEC;
	struct box *b = &box;
	struct waiter first, second;
	uint32_t top = attach(b, "/a"), low;
	uint64_t top_a = b->last_attachment, low_a;

	low = attach(b, "/a/x");
	low_a = b->last_attachment;
	assert_int_equal(set(b, "/a", "memory.max", "1M"), 0);
	assert_int_equal(charge(b, top_a, top, 900 * KIB), 0);
	assert_int_equal(charge(b, low_a, low, 100 * KIB), 0);
	start_waiting_at("/a", &first, "/a/x", 100 * KIB, deadline);
	start_waiter(&second, "/a/y", 100 * KIB, deadline);
	assert_int_equal(set(b, "/a/x", "memory.max", "100K"), 0);
	uncharge(top, 100 * KIB);
	assert_int_equal(join_waiter(&second), 0);
	assert_int_equal(atomic_load(&first.result), 1);
	uncharge(top, 100 * KIB);
	uncharge(low, 100 * KIB);
	assert_int_equal(join_waiter(&first), 0);
	assert_figures(b, "/a/x", 100 * KIB, 0);
}

static void test_deadline(void **state _unused_)
{
	struct box *b = &box;
	struct waiter late, behind;
	uint32_t key = attach(b, "/a");

	assert_int_equal(set(b, "/a", "memory.max", "1M"), 0);
	assert_int_equal(charge(b, b->last_attachment, key, 1 * MIB), 0);
	start_waiter(&late, "/a", 2 * MIB, harness_now() + 30000);
	assert_int_equal(join_waiter(&late), -ETIMEDOUT);
	assert_true(value(b, "/a", "memory.events", "oom") == 1);
	/* One whose time is over when it comes is refused all the same. */
	start_waiter(&late, "/a", 2 * MIB, 1);
	assert_int_equal(join_waiter(&late), -ETIMEDOUT);

	/* The end of the head's time is the turn of who stands behind it. */
	uncharge(key, 1000);
	start_waiting_at("/a", &late, "/a", 2 * MIB, harness_now() + 100000);
	start_waiter(&behind, "/a", 1000, harness_now() + LONG_USEC);
	assert_int_equal(join_waiter(&late), -ETIMEDOUT);
	assert_int_equal(join_waiter(&behind), 0);
	/* What fits does not wait. */
	uncharge(key, 1000);
	start_waiter(&behind, "/a", 1000, harness_now() + LONG_USEC);
	assert_int_equal(join_waiter(&behind), 0);
}

/* A waiting charge holds up nobody else, and goes with its attachment, or the session. */
static void test_waiter_is_dropped(void **state _unused_)
{
	struct box *b = &box;
	struct waiter one, two;
	uint32_t key = attach(b, "/a");
	uint64_t a = b->last_attachment;
	unsigned answers;

	assert_int_equal(set(b, "/a", "memory.max", "1M"), 0);
	assert_int_equal(charge(b, a, key, 1 * MIB), 0);
	start_waiting_at("/a", &one, "/a", 2 * MIB, harness_now() + LONG_USEC);
	start_waiter(&two, "/b", 3 * MIB, harness_now() + LONG_USEC);
	assert_int_equal(join_waiter(&two), 0);

	answers = atomic_load(&b->keys[one.key].n);
	detach(b, one.attachment, one.key);
	assert_int_equal(join_waiter(&one), -ENODEV);
	assert_int_equal(atomic_load(&b->keys[one.key].n), answers);

	start_waiting_at("/a", &one, "/a", 2 * MIB, harness_now() + LONG_USEC);
	assert_int_equal(ASK(b, WIRE_BYE, struct wire_bye m = {0}), 0);
	assert_answer(b, WIRE_DONE);
	assert_int_equal(join_waiter(&one), -ENODEV);
	assert_int_equal(charge(b, a, key, 1), -ENOTCONN);
	assert_int_equal(get(b, "/", "memory.max", 0), -ENOTCONN);
}

/* ------------------------------------------------------------------ without waiting */

static struct box *inside;
static int inside_results[2];

static void send_from_inside(void *userdata, const void *message, size_t n, int *fds)
{
	struct wire_ring ring = {.h = WIRE_HEADER(WIRE_RING, struct wire_ring, 0)};
	struct wire_get text = {.h = WIRE_HEADER(WIRE_GET, struct wire_get, 0)};

	if (inside == userdata) {
		inside_results[0] = tell(inside, &ring, sizeof(ring), false);
		inside_results[1] = tell(inside, &text, sizeof(text), false);
		inside = NULL;
	}
	on_message(userdata, message, n, fds);
}

/* What does not wait finds a thread inside, be it its own, and keeps errno. */
static void test_without_waiting(void **state _unused_)
{
	struct box *b = &box;
	struct embedded_owner o = {.on_message = send_from_inside, .gate = on_gate, .userdata = b};
	struct wire_charge m;
	struct wire_key k;
	struct wire_bye bye = {.h = WIRE_HEADER(WIRE_BYE, struct wire_bye, 0)};
	union {
		struct wire_get m;
		char bytes[64];
	} text;
	const char *strings[WIRE_STRINGS_MAX] = {"/", "memory.max"};
	uint32_t key;
	int n;

	memset(b, 0, sizeof(*b));
	b->fd = -1;
	assert_int_equal(embedded_new(NULL, PERCPU_ATOMIC, &o, &b->engine), 0);
	assert_int_equal(hello(b, WIRE_VERSION, 0), 0);
	key = attach(b, "/a");
	inside = b;
	inside_results[0] = inside_results[1] = 1;
	assert_int_equal(charge(b, b->last_attachment, key, 1), 0);
	assert_null(inside);
	assert_int_equal(inside_results[0], -EAGAIN);
	assert_int_equal(inside_results[1], -EPROTO);

	m = make_charge(b, b->last_attachment, key, 0, 1 * MIB);
	b->keys[key].need = m.need;
	errno = 12345;
	assert_int_equal(tell(b, &m, sizeof(m), false), 0);
	assert_int_equal(errno, 12345);
	assert_int_equal(b->keys[key].last.status, 0);
	m.flags = WIRE_CHARGE_QUEUE;
	m.seq++;
	assert_int_equal(tell(b, &m, sizeof(m), false), -EOPNOTSUPP);

	/* A key of an item, also where that needs another extent. */
	for (unsigned i = 0; i < SEGMENT_FIRST_KEYS - 1; i++)
		attach(b, "/a");
	k = (struct wire_key){.h = WIRE_HEADER(WIRE_KEY, struct wire_key, 0),
		.attachment = b->last_attachment,
		.item = 1};
	assert_int_equal(tell(b, &k, sizeof(k), false), 0);
	assert_int_equal(b->answer.key.status, 0);
	assert_int_equal(b->answer.key.extent, 2);
	assert_int_equal(b->segment.n_extents, 3);

	n = wire_pack(&text, &(struct wire_get){0}, sizeof(struct wire_get), WIRE_GET, 0, strings);
	assert_true(n > 0);
	assert_int_equal(tell(b, &text, (size_t)n, false), -EOPNOTSUPP);
	assert_int_equal(tell(b, &bye, sizeof(bye), false), 0);
	close_box(b);
}

static struct {
	uint64_t attachment;
	uint32_t key;
	unsigned done, busy;
} handler;

static void on_alarm(int signal _unused_)
{
	struct wire_charge m = make_charge(&box, handler.attachment, handler.key, 0, 1000);
	int r;

	m.flags = WIRE_CHARGE_NOWAIT;
	r = tell(&box, &m, sizeof(m), false);
	if (r == -EAGAIN) {
		box.keys[handler.key].seq[0]--;
		handler.busy++;
	} else if (r == 0) {
		handler.done++;
	} else {
		abort();
	}
}

/* A signal handler that charges comes in anywhere: while its thread is inside, and while that sleeps
 * in a queue. */
static void test_signals(void **state _unused_)
{
	struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
	struct sigaction sa = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, before;
	struct box *b = &box;
	uint32_t key = attach(b, "/a");
	uint64_t a = b->last_attachment, held = 0, end = harness_now() + HARNESS_PATIENCE_MS * 1000;
	struct wire_charge m;

	assert_int_equal(set(b, "/a", "memory.max", "1M"), 0);
	handler.key = attach(b, "/a");
	handler.attachment = b->last_attachment;
	handler.done = handler.busy = 0;
	assert_int_equal(sigaction(SIGALRM, &sa, &before), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
	for (unsigned i = 0; (handler.done < 100 || handler.busy < 3) && harness_now() < end; i++) {
		if (charge_by_reserve(b, a, key, 100) == 0)
			held += 100;
		if (i % 100 == 0) {
			m = make_charge(b, a, key, 1, 2 * MIB);
			m.flags = WIRE_CHARGE_QUEUE;
			m.deadline_usec = harness_now() + 2000;
			assert_int_equal(send_charge(b, &m), -ETIMEDOUT);
		}
	}
	assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
	assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
	assert_true(handler.done >= 100 && handler.busy >= 3);
	assert_true(value(b, "/a", "memory.current", NULL) == held);
	assert_int_equal(set(b, "/a", "pool.drain", ""), 0);
	assert_figures(b, "/a", held, 0);
}

/* ------------------------------------------------------------------ all at once */

#define WORKERS 3
#define ROUNDS 20000

struct worker {
	pthread_t thread;
	struct box *box;
	uint64_t attachment;
	uint32_t key;
	uint64_t held;
};

static void put(struct worker *w, uint64_t bytes)
{
	struct box *b = w->box;
	struct stock_carry carry[2];
	uint32_t cpu = percpu_cpu(&b->stocks), put_on;
	_Atomic uint32_t *moving;
	unsigned n;

	cpu = cpu < b->stocks.n_cpus ? cpu : 0;
	atomic_store(&segment_header(&b->segment)->touched[cpu], 1);
	moving = stock_move_begin(&b->stocks, cpu);
	n = stock_put(&b->stocks, w->key, bytes, BATCH / 2, BATCH / 4, carry, &put_on);
	if (put_on < b->stocks.n_cpus)
		atomic_store(&segment_header(&b->segment)->touched[put_on], 1);
	for (unsigned i = 0; i < n; i++) {
		uint64_t total;

		segment_reserve_add(segment_key(&b->segment, carry[i].key), carry[i].key,
			carry[i].bytes, &total);
	}
	stock_move_end(moving);
}

static void *run_worker(void *arg)
{
	struct worker *w = arg;
	unsigned seed = w->key;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t bytes = (uint64_t)rand_r(&seed) % 8192 + 1;

		if (w->held > 300000 || (w->held >= bytes && rand_r(&seed) % 2)) {
			bytes = bytes < w->held ? bytes : w->held;
			w->held -= bytes;
			if (!stock_add(&w->box->stocks, w->key, bytes, BATCH / 2))
				put(w, bytes);
			continue;
		}
		if (stock_consume(&w->box->stocks, w->key, bytes) ||
			charge_by_reserve(w->box, w->attachment, w->key, bytes) == 0)
			w->held += bytes;
	}
	return NULL;
}

/* Threads that charge and uncharge under a limit, and drains without pause: what is granted is what
 * the threads hold and what lies idle. */
static void play_all_at_once(enum percpu_kind kind)
{
	struct worker workers[WORKERS];
	struct box *b = &box;
	uint64_t held = 0;

	open_box(b, NULL, kind);
	assert_int_equal(create(b, "/a"), 0);
	assert_int_equal(set(b, "/a", "memory.max", "700K"), 0);
	for (unsigned i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){.box = b, .key = attach(b, "/a/x")};
		workers[i].attachment = b->last_attachment;
	}
	for (unsigned i = 0; i < WORKERS; i++)
		assert_int_equal(
			pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]), 0);
	for (unsigned i = 0; i < 300; i++) {
		assert_int_equal(set(b, "/a", "pool.drain", ""), 0);
		assert_true(value(b, "/a", "memory.current", NULL) <= 700 * KIB);
		poll(NULL, 0, 1);
	}
	for (unsigned i = 0; i < WORKERS; i++) {
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
		held += workers[i].held;
	}
	assert_true(value(b, "/a", "memory.current", NULL) == held);
	assert_int_equal(set(b, "/a", "pool.drain", ""), 0);
	assert_figures(b, "/a", held, 0);
	assert_true(value(b, "/a", "memory.stat", "overdraft") == 0);
	assert_true(value(b, "/a", "memory.peak", NULL) <= 700 * KIB);
	for (unsigned i = 0; i < WORKERS; i++)
		detach(b, workers[i].attachment, workers[i].key);
	assert_figures(b, "/", 0, 0);
	assert_int_equal(b->opened, b->closed);
	close_box(b);
}

static void test_all_at_once_by_atomics(void **state _unused_)
{
	play_all_at_once(PERCPU_ATOMIC);
}

static void test_all_at_once_by_sequences(void **state _unused_)
{
	if (!percpu_has_rseq())
		skip();
	play_all_at_once(PERCPU_RSEQ);
	assert_true(box.closed > 0);
}

/* A forked child that closes touches nothing of its parent's. */
static int free_in_child(void *userdata)
{
	struct box *b = userdata;

	return embedded_free(b->engine) ? 1 : 0;
}

static void test_fork(void **state _unused_)
{
	struct box *b = &box;
	uint32_t key = attach(b, "/a");
	struct waiter w;

	assert_int_equal(set(b, "/a", "memory.max", "1M"), 0);
	assert_int_equal(charge(b, b->last_attachment, key, 1 * MIB), 0);
	start_waiting_at("/a", &w, "/a", 1000, harness_now() + LONG_USEC);
	harness_join(harness_fork(free_in_child, b), 0);
	assert_figures(b, "/a", 1 * MIB, 0);
	assert_true(atomic_load(&segment_figures(&b->segment, key)->granted) == 1 * MIB);
	uncharge(key, 1000);
	assert_int_equal(join_waiter(&w), 0);
}

int main(void)
{
#define BOX_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hello),
		cmocka_unit_test(test_kind),
		cmocka_unit_test(test_configuration),
		BOX_TEST(test_broken_messages),
		BOX_TEST(test_attach),
		BOX_TEST(test_extents),
		BOX_TEST(test_detach_gives_everything_back),
		BOX_TEST(test_overdraft),
		BOX_TEST(test_detach_after_force),
		BOX_TEST(test_key_reuse),
		cmocka_unit_test(test_key_reuse_behind_the_gate),
		BOX_TEST(test_no_key_under_a_mover),
		BOX_TEST(test_forget),
		BOX_TEST(test_batch),
		BOX_TEST(test_limit_is_exact),
		BOX_TEST(test_refusal),
		BOX_TEST(test_items),
		BOX_TEST(test_force),
		BOX_TEST(test_drain),
		cmocka_unit_test(test_drain_behind_the_gate),
		BOX_TEST(test_lowered_limit),
		BOX_TEST(test_ring),
		cmocka_unit_test(test_lost_ring),
		cmocka_unit_test(test_late_force),
		BOX_TEST(test_nowait),
		BOX_TEST(test_ahead),
		BOX_TEST(test_files),
		cmocka_unit_test(test_files_as_the_daemon),
		BOX_TEST(test_long_text),
		cmocka_unit_test(test_flags_of_get),
		cmocka_unit_test(test_late_reads),
		BOX_TEST(test_queue),
		BOX_TEST(test_head_that_waits_elsewhere),
		BOX_TEST(test_deadline),
		BOX_TEST(test_waiter_is_dropped),
		cmocka_unit_test(test_without_waiting),
		BOX_TEST(test_signals),
		cmocka_unit_test(test_all_at_once_by_atomics),
		cmocka_unit_test(test_all_at_once_by_sequences),
		BOX_TEST(test_fork),
	};

	syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
