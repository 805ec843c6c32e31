/* SPDX-License-Identifier: MIT */

/*
 * Opening and closing a session, and the calls that wait for an answer. Attachments are in
 * attach.c, charging in handle.c and key.c.
 */

#include "client.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "key.h"

#define DEFAULT_ADDRESS "unix:/run/tallyd/tallyd.sock"
#define BYE_USEC UINT64_C(1000000)

/* A request that waits for its answer, on the asker's stack. */
struct call {
	TAILQ_ENTRY(call) entry;
	uint64_t cookie;
	void *answer;
	size_t n_answer;
	char **ret_text; /* NULL: no text is wanted */
	int error;       /* the answer came, and could not be taken */
	_Atomic uint64_t done;
};

/* ------------------------------------------------------------------ answers */

struct client_key *client_key(struct tally *t, uint32_t number)
{
	uint32_t e, i;

	if (number == 0 || number > atomic_load_explicit(&t->segment.n_keys, memory_order_acquire))
		return NULL;
	e = segment_extent_of(number, &i);
	return &t->keys[e][i];
}

/* The client's side of the keys comes first: a key that has words has that too. */
static int take_extent(struct tally *t, uint32_t extent, const int *fds)
{
	uint32_t first = t->segment.n_keys + 1, n = SEGMENT_FIRST_KEYS << (extent - 1);
	struct client_key *keys;
	int r;

	if (extent != t->segment.n_extents || extent >= SEGMENT_EXTENTS)
		return -EPROTO;
	keys = calloc(n, sizeof(*keys));
	if (!keys)
		return -ENOMEM;
	t->keys[extent] = keys;
	r = segment_map(&t->segment, fds);
	if (r < 0) {
		t->keys[extent] = NULL;
		free(keys);
		return r;
	}
	for (uint32_t i = 0; i < n; i++) {
		keys[i].tally = t;
		keys[i].number = first + i;
		keys[i].words = segment_key(&t->segment, first + i);
	}
	return 0;
}

static int read_text(const struct wire_text *m, size_t n, int fd, char **ret)
{
	_cleanup_(freep) char *text = NULL;

	if (m->length > SIZE_MAX - 1 || (!m->in_memfd && m->length != n - sizeof(*m)) ||
		(m->in_memfd && fd < 0))
		return -EPROTO;
	text = malloc(m->length + 1);
	if (!text)
		return -ENOMEM;
	if (!m->in_memfd)
		memcpy(text, m + 1, m->length);
	else if (pread(fd, text, m->length, 0) != (ssize_t)m->length)
		return -EPROTO;
	text[m->length] = '\0';
	*ret = take_ptr(text);
	return 0;
}

/* What an answer brings besides its fixed part. The lock is held. */
static int take_extras(struct tally *t, struct call *c, const void *message, size_t n, int *fds)
{
	const struct wire_header *h = message;

	if (h->type == WIRE_ATTACHED || h->type == WIRE_KEYED) {
		uint32_t extent = ((const struct wire_key_is *)message)->extent;

		return extent ? take_extent(t, extent, fds) : 0;
	}
	if (h->type == WIRE_WELCOME && ((const struct wire_welcome *)message)->status == 0) {
		t->event_fd = take_fd(&fds[2]);
		return segment_map(&t->segment, fds);
	}
	if (h->type == WIRE_TEXT && c && c->ret_text &&
		((const struct wire_text *)message)->status == 0)
		return read_text(message, n, fds[0], c->ret_text);
	return 0;
}

static void on_message(void *userdata, const void *message, size_t n, int *fds, unsigned n_fds)
{
	const struct wire_header *h = message;
	struct tally *t = userdata;
	struct call *c;
	int r;

	(void)n_fds;
	if (h->type == WIRE_GRANT) {
		const struct wire_grant *g = message;
		struct client_key *k = client_key(t, g->key);

		if (k && g->lane < SEGMENT_LANES)
			key_accept(k, g);
		return;
	}

	pthread_mutex_lock(&t->lock);
	TAILQ_FOREACH (c, &t->calls, entry)
		if (c->cookie == h->cookie)
			break;
	r = take_extras(t, c, message, n, fds);
	if (c) {
		TAILQ_REMOVE(&t->calls, c, entry);
		c->error = r;
		memcpy(c->answer, message, c->n_answer < n ? c->n_answer : n);
		atomic_store(&c->done, 1);
	}
	pthread_mutex_unlock(&t->lock);
	if (c)
		link_wake(&t->link, &c->done);
}

/* ------------------------------------------------------------------ calls */

int client_check(const struct tally *t)
{
	if (!t->live->is_parent)
		return -ECHILD;
	return atomic_load(&t->closed) ? -ENODEV : 0;
}

static void begin_call(struct tally *t, struct call *c)
{
	pthread_mutex_lock(&t->lock);
	c->cookie = ++t->last_cookie;
	TAILQ_INSERT_TAIL(&t->calls, c, entry);
	pthread_mutex_unlock(&t->lock);
}

/* True: the answer has come after all. */
static bool end_call(struct tally *t, struct call *c)
{
	bool done;

	pthread_mutex_lock(&t->lock);
	done = atomic_load(&c->done);
	if (!done)
		TAILQ_REMOVE(&t->calls, c, entry);
	pthread_mutex_unlock(&t->lock);
	return done;
}

static int call_until(struct tally *t, uint32_t type, void *fixed, size_t n_fixed,
	const char *const strings[static WIRE_STRINGS_MAX], void *ret_answer, size_t n_answer,
	char **ret_text, uint64_t deadline_usec)
{
	struct call c = {.answer = ret_answer, .n_answer = n_answer, .ret_text = ret_text};
	_cleanup_(freep) void *buf = NULL;
	size_t size = n_fixed;
	int r;

	for (unsigned i = 0; i < WIRE_STRINGS_MAX && strings[i]; i++)
		size += strlen(strings[i]) + 1;
	if (size > WIRE_MAX)
		return -E2BIG;
	buf = malloc(size);
	if (!buf)
		return -ENOMEM;

	begin_call(t, &c);
	r = wire_pack(buf, fixed, n_fixed, type, c.cookie, strings);
	if (r >= 0)
		r = link_send(&t->link, buf, (size_t)r, deadline_usec);
	if (r >= 0)
		r = link_wait(&t->link, &c.done, 0, deadline_usec);
	if (end_call(t, &c))
		return c.error;
	return r < 0 && atomic_load(&t->closed) ? -ENODEV : r;
}

int client_call(struct tally *t, uint32_t type, void *fixed, size_t n_fixed,
	const char *const strings[static WIRE_STRINGS_MAX], void *ret_answer, size_t n_answer,
	char **ret_text)
{
	int r = client_check(t);

	if (r < 0)
		return r;
	return call_until(t, type, fixed, n_fixed, strings, ret_answer, n_answer, ret_text,
		link_now() + CLIENT_WAIT_USEC);
}

/* ------------------------------------------------------------------ opening and closing */

static int make_live(struct live **ret)
{
	long page = sysconf(_SC_PAGESIZE);
	struct live *l = mmap(
		NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (l == MAP_FAILED)
		return -errno;
	if (madvise(l, (size_t)page, MADV_WIPEONFORK) < 0) {
		int r = -errno;

		munmap(l, (size_t)page);
		return r;
	}
	l->is_parent = true;
	*ret = l;
	return 0;
}

static int parse_address(const char *address, const char **ret_path)
{
	static const char scheme[] = "unix:";

	if (!address)
		address = secure_getenv("TALLY_ADDRESS");
	if (!address || !*address)
		address = DEFAULT_ADDRESS;
	if (strcmp(address, "embedded:") == 0)
		return -EOPNOTSUPP;
	if (strncmp(address, scheme, strlen(scheme)) != 0 || !address[strlen(scheme)])
		return -EINVAL;
	*ret_path = address + strlen(scheme);
	return 0;
}

static int say_hello(struct tally *t, const char *name, uint64_t deadline_usec)
{
	struct wire_hello hello = {.version = WIRE_VERSION};
	const char *strings[WIRE_STRINGS_MAX] = {name};
	struct wire_welcome w;
	int r = call_until(
		t, WIRE_HELLO, &hello, sizeof(hello), strings, &w, sizeof(w), NULL, deadline_usec);

	if (r < 0)
		return r;
	if (w.status < 0)
		return w.status;
	t->live->pages = segment_stocks(&t->segment).pages;
	atomic_store(&t->live->high, atomic_load(&segment_info(&t->segment)->high));
	atomic_store(&t->live->n_cpus, t->segment.n_cpus);
	return 0;
}

static void free_tally(struct tally *t)
{
	if (t->live)
		munmap(t->live, (size_t)sysconf(_SC_PAGESIZE));
	link_close(&t->link);
	close_fd(t->event_fd);
	/* In a child nothing of it is mapped, and another mapping may lie there by now. */
	if (t->mapped_by == getpid())
		segment_unmap(&t->segment);
	for (unsigned e = 0; e < SEGMENT_EXTENTS; e++)
		free(t->keys[e]);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

int client_open(const struct tally_options *o, struct tally **ret)
{
	uint64_t timeout = o->connect_timeout_usec ? o->connect_timeout_usec : CLIENT_WAIT_USEC;
	uint64_t deadline = link_now() + timeout;
	const char *path, *name = o->name ? o->name : program_invocation_short_name;
	struct tally *t;
	int r;

	if (o->flags & TALLY_FAIL_OPEN)
		return -EOPNOTSUPP;
	if (o->flags || o->fail_open_max || o->config || strlen(name) > WIRE_NAME_MAX)
		return -EINVAL;
	r = parse_address(o->address, &path);
	if (r < 0)
		return r;

	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->refs = 1;
	t->link = (struct link){.fd = -1, .on_message = on_message, .userdata = t};
	t->event_fd = -1;
	t->mapped_by = getpid();
	TAILQ_INIT(&t->calls);
	pthread_mutex_init(&t->lock, NULL);
	r = make_live(&t->live);
	if (r >= 0)
		r = link_connect(&t->link, path, deadline);
	if (r >= 0)
		r = say_hello(t, name, deadline);
	if (r < 0) {
		free_tally(t);
		return r;
	}
	*ret = t;
	return 0;
}

struct tally *client_ref(struct tally *t)
{
	atomic_fetch_add(&t->refs, 1);
	return t;
}

struct tally *client_unref(struct tally *t)
{
	if (t && atomic_fetch_sub(&t->refs, 1) == 1)
		free_tally(t);
	return NULL;
}

void client_close(struct tally *t)
{
	static const char *const none[WIRE_STRINGS_MAX];
	struct wire_bye bye = {0};
	struct wire_done done;

	if (client_check(t) == 0 && !atomic_exchange(&t->closed, true)) {
		atomic_store(&t->live->n_cpus, 0);
		call_until(t, WIRE_BYE, &bye, sizeof(bye), none, &done, sizeof(done), NULL,
			link_now() + BYE_USEC);
		link_shut(&t->link);
	}
	client_unref(t);
}
