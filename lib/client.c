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
#include "queue.h"
#include "stat.h"

#define DEFAULT_ADDRESS "unix:/run/tallyd/tallyd.sock"
#define BYE_USEC UINT64_C(1000000)

/* A request that waits for its answer, on the asker's stack. Whoever reads the answer allocates
 * nothing: it may be a thread that charges. */
struct call {
	TAILQ_ENTRY(call) entry;
	uint64_t cookie;
	void *answer;
	size_t n_answer;
	char *text; /* room for WIRE_TEXT_MAX bytes; NULL: no text is wanted */
	int fd;     /* what came with it: a longer text, a queue's socket; -1: none */
	int error;  /* the answer came, and could not be taken */
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

static size_t size_of_keys(uint32_t extent)
{
	return ((size_t)SEGMENT_FIRST_KEYS << (extent - 1)) * sizeof(struct client_key);
}

/* The client's side of the keys comes first: a key that has words has that too. */
static int take_extent(struct tally *t, uint32_t extent, const int *fds)
{
	uint32_t first = t->segment.n_keys + 1;
	struct client_key *keys;
	int r;

	if (fds[0] < 0 || fds[1] < 0)
		return -EMFILE;
	if (extent != t->segment.n_extents || extent >= SEGMENT_EXTENTS)
		return -EPROTO;
	keys = mmap(NULL, size_of_keys(extent), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	if (keys == MAP_FAILED)
		return -errno;
	for (uint32_t i = 0; i < size_of_keys(extent) / sizeof(*keys); i++) {
		keys[i].tally = t;
		keys[i].number = first + i;
	}
	t->keys[extent] = keys;
	r = segment_map(&t->segment, fds);
	if (r < 0) {
		t->keys[extent] = NULL;
		munmap(keys, size_of_keys(extent));
	}
	return r;
}

static int take_base(struct tally *t, int *fds)
{
	if (fds[0] < 0 || fds[1] < 0 || fds[2] < 0)
		return -EMFILE;
	t->event_fd = link_raise_fd(take_fd(&fds[2]));
	if (t->event_fd < 0)
		return t->event_fd;
	return segment_map(&t->segment, fds);
}

static int take_key(struct tally *t, const struct wire_key_is *m, const int *fds)
{
	int r = m->extent ? take_extent(t, m->extent, fds) : 0;

	return r < 0 ? r : client_adopt_key(t, m);
}

static int take_text(struct call *c, const struct wire_text *m, size_t n, int *fds)
{
	if (!c || !c->text || m->status != 0)
		return 0;
	if (m->in_memfd) {
		c->fd = take_fd(&fds[0]);
		return c->fd < 0 ? -EMFILE : 0;
	}
	if (m->length != n - sizeof(*m) || m->length > WIRE_TEXT_MAX)
		return -EPROTO;
	memcpy(c->text, m + 1, m->length);
	return 0;
}

/* What an answer brings besides its fixed part. */
static int take_extras(struct tally *t, struct call *c, const void *message, size_t n, int *fds)
{
	const struct wire_extent_is *extent = message;

	switch (((const struct wire_header *)message)->type) {
	case WIRE_WELCOME:
		return ((const struct wire_welcome *)message)->status == 0 ? take_base(t, fds) : 0;
	case WIRE_ATTACHED:
	case WIRE_KEYED:
		return take_key(t, message, fds);
	case WIRE_EXTENT_IS:
		return extent->status == 0 ? take_extent(t, extent->extent, fds) : 0;
	case WIRE_QUEUE_IS:
		if (c)
			c->fd = take_fd(&fds[0]);
		return 0;
	case WIRE_TEXT:
		return take_text(c, message, n, fds);
	default:
		return 0;
	}
}

static void on_message(void *userdata, const void *message, size_t n, int *fds)
{
	const struct wire_header *h = message;
	struct tally *t = userdata;
	struct call *c;
	int r;

	if (h->type == WIRE_GRANT) {
		const struct wire_grant *g = message;
		struct client_key *k = client_key(t, g->key);

		if (k && g->lane < SEGMENT_FETCH)
			key_accept(k, g);
		return;
	}

	if (h->type == WIRE_FETCHED) {
		queue_on_fetched(t, message);
		return;
	}
	TAILQ_FOREACH (c, &t->calls, entry)
		if (c->cookie == h->cookie)
			break;
	r = take_extras(t, c, message, n, fds);
	if (h->type == WIRE_KEYED)
		queue_on_key(t);
	if (!c)
		return;
	TAILQ_REMOVE(&t->calls, c, entry);
	c->error = r;
	memcpy(c->answer, message, c->n_answer < n ? c->n_answer : n);
	atomic_store(&c->done, 1);
	link_wake(&t->link, &c->done);
}

static bool lock(void *userdata, bool wait)
{
	struct tally *t = userdata;

	return (wait ? pthread_mutex_lock(&t->lock) : pthread_mutex_trylock(&t->lock)) == 0;
}

static void unlock(void *userdata)
{
	struct tally *t = userdata;

	pthread_mutex_unlock(&t->lock);
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

static int send_call(struct tally *t, uint32_t type, void *fixed, size_t n_fixed, uint64_t cookie,
	const char *const strings[static WIRE_STRINGS_MAX], uint64_t deadline_usec)
{
	_cleanup_(freep) void *buf = NULL;
	size_t size = n_fixed;
	int r;

	if (!strings[0]) {
		*(struct wire_header *)fixed = (struct wire_header){
			.size = (uint32_t)n_fixed, .type = type, .cookie = cookie};
		return link_send(&t->link, fixed, n_fixed, deadline_usec);
	}
	for (unsigned i = 0; i < WIRE_STRINGS_MAX && strings[i]; i++)
		size += strlen(strings[i]) + 1;
	if (size > WIRE_MAX)
		return -E2BIG;
	buf = malloc(size);
	if (!buf)
		return -ENOMEM;
	r = wire_pack(buf, fixed, n_fixed, type, cookie, strings);
	return r < 0 ? r : link_send(&t->link, buf, (size_t)r, deadline_usec);
}

static int call_until(struct tally *t, uint32_t type, void *fixed, size_t n_fixed,
	const char *const strings[static WIRE_STRINGS_MAX], struct call *c, uint64_t deadline_usec)
{
	int r;

	begin_call(t, c);
	r = send_call(t, type, fixed, n_fixed, c->cookie, strings, deadline_usec);
	if (r >= 0)
		r = link_wait(&t->link, &c->done, 0, deadline_usec);
	if (end_call(t, c))
		return c->error;
	return r == -ENOTCONN && atomic_load(&t->closed) ? -ENODEV : r;
}

int client_call(struct tally *t, uint32_t type, void *fixed, size_t n_fixed,
	const char *const strings[static WIRE_STRINGS_MAX], void *ret_answer, size_t n_answer)
{
	struct call c = {.answer = ret_answer, .n_answer = n_answer, .fd = -1};
	int r = client_check(t);

	if (r < 0)
		return r;
	return call_until(t, type, fixed, n_fixed, strings, &c, link_now() + CLIENT_WAIT_USEC);
}

int client_call_fd(struct tally *t, uint32_t type, void *fixed, size_t n_fixed,
	const char *const strings[static WIRE_STRINGS_MAX], void *ret_answer, size_t n_answer,
	int *ret_fd)
{
	struct call c = {.answer = ret_answer, .n_answer = n_answer, .fd = -1};
	int r = client_check(t);

	if (r < 0)
		return r;
	r = call_until(t, type, fixed, n_fixed, strings, &c, link_now() + CLIENT_WAIT_USEC);
	*ret_fd = c.fd;
	return r;
}

static int read_text(int fd, uint64_t length, char **ret)
{
	_cleanup_(freep) char *text = length < SIZE_MAX ? malloc(length + 1) : NULL;

	if (!text)
		return -ENOMEM;
	for (uint64_t done = 0; done < length;) {
		ssize_t n = pread(fd, text + done, length - done, (off_t)done);

		if (n <= 0)
			return n < 0 ? -errno : -EPROTO;
		done += (uint64_t)n;
	}
	text[length] = '\0';
	*ret = take_ptr(text);
	return 0;
}

int client_ask_text(struct tally *t, uint32_t type, void *fixed, size_t n_fixed,
	const char *const strings[static WIRE_STRINGS_MAX], char **ret)
{
	_cleanup_(freep) char *text = malloc(WIRE_TEXT_MAX + 1);
	_cleanup_(close_fdp) int fd = -1;
	struct wire_text answer = {0};
	struct call c = {.answer = &answer, .n_answer = sizeof(answer), .text = text, .fd = -1};
	int r;

	if (!text)
		return -ENOMEM;
	r = call_until(t, type, fixed, n_fixed, strings, &c, link_now() + CLIENT_WAIT_USEC);
	fd = c.fd;
	if (r < 0 || answer.status < 0)
		return r < 0 ? r : answer.status;
	if (fd >= 0)
		return read_text(fd, answer.length, ret);
	text[answer.length] = '\0';
	*ret = take_ptr(text);
	return 0;
}

int client_get(struct tally *t, const char *path, const char *file, uint64_t flags, char **ret)
{
	const char *strings[WIRE_STRINGS_MAX] = {path, file};
	struct wire_get m = {.flags = flags};
	int r = client_check(t);

	if (r < 0)
		return r;
	stat_send_all(t);
	if (t->embedded)
		return embedded_get(t->embedded, path, file, flags, ret);
	return client_ask_text(t, WIRE_GET, &m, sizeof(m), strings, ret);
}

int client_fetch_extents(struct tally *t, uint32_t key)
{
	static const char *const none[WIRE_STRINGS_MAX];

	while (!client_key(t, key)) {
		struct wire_extent m = {0};
		struct wire_extent_is answer;
		int r;

		pthread_mutex_lock(&t->lock);
		m.extent = t->segment.n_extents;
		pthread_mutex_unlock(&t->lock);
		r = client_call(t, WIRE_EXTENT, &m, sizeof(m), none, &answer, sizeof(answer));
		/* Another thread may have been faster. */
		if (!client_key(t, key) && (r < 0 || answer.status < 0))
			return r < 0 ? r : answer.status;
	}
	return 0;
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

/* NULL for the embedded engine. */
static int parse_address(const char *address, const char **ret_path)
{
	static const char scheme[] = "unix:";

	if (!address)
		address = secure_getenv("TALLY_ADDRESS");
	if (!address || !*address)
		address = DEFAULT_ADDRESS;
	if (strcmp(address, "embedded:") == 0) {
		*ret_path = NULL;
		return 0;
	}
	if (strncmp(address, scheme, strlen(scheme)) != 0 || !address[strlen(scheme)])
		return -EINVAL;
	*ret_path = address + strlen(scheme);
	return 0;
}

/* Which kind of per-CPU operation the program wants (0: any), and the best that it can have. A daemon
 * knows of the kernel by itself. */
static int choose_kind(bool embedded, uint32_t *ret_wanted, enum percpu_kind *ret_best)
{
	bool able = percpu_has_rseq();
	uint32_t wanted;
	int r = percpu_parse_kind(secure_getenv("TALLY_PERCPU"), &wanted);

	if (r < 0)
		return r;
	if (able && embedded && wanted != PERCPU_ATOMIC)
		able = percpu_kernel_is_sound() && delivery_has_barrier();
	if (wanted == PERCPU_RSEQ && !able)
		return -EOPNOTSUPP;
	*ret_wanted = wanted;
	*ret_best = able && wanted != PERCPU_ATOMIC ? PERCPU_RSEQ : PERCPU_ATOMIC;
	return 0;
}

static int say_hello(struct tally *t, const char *name, uint32_t wanted, enum percpu_kind best,
	uint64_t deadline_usec)
{
	struct wire_hello hello = {
		.version = WIRE_VERSION, .flags = best == PERCPU_RSEQ ? WIRE_HELLO_RSEQ : 0};
	const char *strings[WIRE_STRINGS_MAX] = {name};
	struct wire_welcome w = {0};
	struct call c = {.answer = &w, .n_answer = sizeof(w), .fd = -1};
	int r = call_until(t, WIRE_HELLO, &hello, sizeof(hello), strings, &c, deadline_usec);

	if (r < 0)
		return r;
	if (w.status < 0)
		return w.status;
	if (wanted == PERCPU_RSEQ && t->segment.kind != PERCPU_RSEQ)
		return -EOPNOTSUPP;
	if (t->segment.kind == PERCPU_RSEQ && best != PERCPU_RSEQ)
		return -EPROTO;
	t->live->stocks = segment_stocks(&t->segment);
	atomic_store(&t->live->high, atomic_load(&segment_info(&t->segment)->high));
	return 0;
}

static void free_tally(struct tally *t)
{
	if (t->live)
		munmap(t->live, (size_t)sysconf(_SC_PAGESIZE));
	embedded_free(t->embedded);
	link_close(&t->link);
	close_fd(t->event_fd);
	/* In a child nothing of it is mapped, and another mapping may lie there by now. */
	if (t->mapped_by == getpid())
		segment_unmap(&t->segment);
	for (uint32_t e = 1; e < SEGMENT_EXTENTS; e++)
		if (t->keys[e])
			munmap(t->keys[e], size_of_keys(e));
	client_free_index(t);
	dispatch_clear(&t->dispatch);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

int client_open(const struct tally_options *o, struct tally **ret)
{
	uint64_t timeout = o->connect_timeout_usec ? o->connect_timeout_usec : CLIENT_WAIT_USEC;
	uint64_t now = link_now();
	uint64_t deadline = timeout > UINT64_MAX - now ? UINT64_MAX : now + timeout;
	char name[WIRE_NAME_MAX + 1];
	enum percpu_kind best;
	const char *path;
	uint32_t wanted;
	struct tally *t;
	int r;

	if (o->flags & TALLY_FAIL_OPEN)
		return -EOPNOTSUPP;
	if (o->flags || o->fail_open_max || (o->name && strlen(o->name) > WIRE_NAME_MAX))
		return -EINVAL;
	/* A name that was asked for is taken whole or not at all; the program's is only shown. */
	snprintf(name, sizeof(name), "%s", o->name ? o->name : program_invocation_short_name);
	r = parse_address(o->address, &path);
	if (r < 0)
		return r;
	if (path && o->config)
		return -EINVAL;
	r = choose_kind(!path, &wanted, &best);
	if (r < 0)
		return r;

	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->refs = 1;
	t->link = (struct link){.fd = -1,
		.owner = {.on_message = on_message, .lock = lock, .unlock = unlock, .userdata = t}};
	t->event_fd = -1;
	t->mapped_by = getpid();
	TAILQ_INIT(&t->calls);
	TAILQ_INIT(&t->queues);
	pthread_mutex_init(&t->lock, NULL);
	dispatch_init(&t->dispatch);
	r = make_live(&t->live);
	if (r >= 0)
		r = path ? link_connect(&t->link, path, deadline)
			 : delivery_open(t, o->config, best);
	if (r >= 0)
		r = say_hello(t, name, wanted, best, deadline);
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

/* Every operation misses from now on. */
static void close_stocks(struct tally *t)
{
	/* In this order: who opens the gate looks at the second afterwards. */
	atomic_store(&t->live->stocks.n_cpus, 0);
	atomic_store(&t->live->stocks.n_open, 0);
	atomic_store(&t->live->stocks.n_adding, 0);
}

void client_close(struct tally *t)
{
	static const char *const none[WIRE_STRINGS_MAX];
	struct wire_bye bye = {0};
	struct wire_done done;
	struct call c = {.answer = &done, .n_answer = sizeof(done), .fd = -1};

	if (client_check(t) == 0)
		stat_send_all(t);
	if (client_check(t) == 0 && !atomic_exchange(&t->closed, true)) {
		close_stocks(t);
		call_until(t, WIRE_BYE, &bye, sizeof(bye), none, &c, link_now() + BYE_USEC);
		link_shut(&t->link);
		dispatch_stop(t);
	}
	client_unref(t);
}
