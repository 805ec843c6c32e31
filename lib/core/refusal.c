/* SPDX-License-Identifier: MIT */

/*
 * A record is a block of figures and a chain of blocks of text, which is written as it will be read:
 * names, paths and holders, encoded. Records are in the order of their numbers in one list, and in
 * that of their pool, so that a pool which refuses all the time loses its own oldest ones and leaves
 * the others theirs.
 */

#include "refusal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "text.h"
#include "util.h"
#include "value.h"

#define BLOCK 256
#define LOOK_USEC 100000 /* at the holders of a pool, at most so often */
#define LOOK_SHARE 10    /* and not before so many times as long as the last one took */

struct refusal {
	TAILQ_ENTRY(refusal) entry, in_pool;
	struct pool *pool; /* NULL: it is gone */
	uint64_t number;
	struct refusal_facts facts;
	uint32_t item;
	uint32_t first;   /* block of the text */
	uint32_t n_text;  /* bytes of it */
	uint32_t holders; /* where in the text they begin */
};

struct block {
	uint32_t next; /* 0: none */
	char text[BLOCK - sizeof(uint32_t)];
};

union slot {
	struct refusal record;
	struct block block;
	char room[BLOCK];
};

_Static_assert(sizeof(union slot) == BLOCK, "a record's figures fit into a block");

struct refusals {
	union slot *slots;              /* the first one is never used: 0 is none */
	uint32_t n_slots, n_used, free; /* those from n_used on have not been used yet */
	TAILQ_HEAD(refusal_list, refusal) list;
	uint64_t last_number;
	char path[PATH_MAX_BYTES + 1];
};

/* A text that is being written, and what may not make room for it. */
struct writer {
	struct refusals *all;
	struct refusal *record;
	const struct refusal *kept;
	uint32_t last; /* block */
	bool failed;
};

/* ------------------------------------------------------------------ blocks */

int refusals_new(size_t bytes, struct refusals **ret)
{
	struct refusals *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->n_slots = (uint32_t)(bytes / BLOCK);
	r->n_used = 1;
	r->slots = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (r->slots == MAP_FAILED) {
		free(r);
		return -ENOMEM;
	}
	TAILQ_INIT(&r->list);
	*ret = r;
	return 0;
}

struct refusals *refusals_free(struct refusals *r)
{
	if (r)
		munmap(r->slots, (size_t)r->n_slots * BLOCK);
	free(r);
	return NULL;
}

static void give_slot(struct refusals *r, uint32_t i)
{
	r->slots[i].block.next = r->free;
	r->free = i;
}

static void drop(struct refusals *r, struct refusal *record)
{
	uint32_t next, i = record->first;

	for (; i; i = next) {
		next = r->slots[i].block.next;
		give_slot(r, i);
	}
	TAILQ_REMOVE(&r->list, record, entry);
	if (record->pool) {
		TAILQ_REMOVE(&record->pool->refusals.list, record, in_pool);
		record->pool->refusals.n--;
	}
	give_slot(r, (uint32_t)(container_of(record, union slot, record) - r->slots));
}

/* 0: all there is belongs to `kept`, and to the record that is being written. */
static uint32_t take_slot(struct refusals *r, const struct refusal *kept)
{
	struct refusal *oldest = TAILQ_FIRST(&r->list);
	uint32_t i;

	if (!r->free && r->n_used < r->n_slots)
		return r->n_used++;
	if (oldest && oldest == kept)
		oldest = TAILQ_NEXT(oldest, entry);
	if (!r->free && oldest)
		drop(r, oldest);
	i = r->free;
	if (i)
		r->free = r->slots[i].block.next;
	return i;
}

/* ------------------------------------------------------------------ writing */

static void put(struct writer *w, char c)
{
	size_t room = sizeof(((struct block *)0)->text), at = w->record->n_text % room;

	if (w->failed)
		return;
	if (at == 0) {
		uint32_t i = take_slot(w->all, w->kept);

		if (!i) {
			w->failed = true;
			return;
		}
		w->all->slots[i].block.next = 0;
		if (w->last)
			w->all->slots[w->last].block.next = i;
		else
			w->record->first = i;
		w->last = i;
	}
	w->all->slots[w->last].block.text[at] = c;
	w->record->n_text++;
}

static void put_text(struct writer *w, const char *text)
{
	while (*text)
		put(w, *text++);
}

static void put_number(struct writer *w, uint64_t n)
{
	char digits[24], *at = digits + sizeof(digits) - 1;

	*at = '\0';
	do
		*--at = (char)('0' + n % 10);
	while (n /= 10);
	put_text(w, at);
}

/* A line is blank-separated words, and holders are separated by commas. */
static bool is_plain(unsigned char c)
{
	return c > 0x20 && c != 0x7f && c != '%' && c != ',';
}

/* The character as it stands in a line. Returns ret. */
static const char *encode(char character, char ret[static 4])
{
	static const char digits[] = "0123456789ABCDEF";
	unsigned char c = (unsigned char)character;

	if (is_plain(c))
		memcpy(ret, (char[4]){character}, 4);
	else
		memcpy(ret, (char[4]){'%', digits[c >> 4], digits[c & 0xf]}, 4);
	return ret;
}

static void put_encoded(struct writer *w, const char *text)
{
	char piece[4];

	for (; *text; text++)
		for (const char *c = encode(*text, piece); *c; c++)
			put(w, *c);
}

static void put_path(struct writer *w, const struct pool *p)
{
	put_encoded(w, pool_path_into(p, w->all->path, sizeof(w->all->path)));
}

static void put_holders(struct writer *w, const struct refusal_holder *holders, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct refusal_holder *h = &holders[i];

		if (i > 0)
			put(w, ',');
		put_number(w, h->bytes);
		put(w, ':');
		if (h->pool) {
			put_path(w, h->pool);
			continue;
		}
		put_encoded(w, h->name);
		put(w, '[');
		put_number(w, (uint64_t)h->pid);
		put(w, ']');
	}
}

/* Fn is called for the text from `from` on, piece by piece. */
static void each_piece(const struct refusals *r, const struct refusal *record, uint32_t from,
	void (*fn)(void *userdata, const char *piece, size_t n), void *userdata)
{
	const uint32_t room = sizeof(((struct block *)0)->text);
	uint32_t begin = 0;

	for (uint32_t i = record->first; i; i = r->slots[i].block.next, begin += room) {
		uint32_t end = record->n_text - begin < room ? record->n_text - begin : room;
		uint32_t skip = from > begin ? from - begin : 0;

		if (skip < end)
			fn(userdata, r->slots[i].block.text + skip, end - skip);
	}
}

static void copy_piece(void *userdata, const char *piece, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put(userdata, piece[i]);
}

static const struct refusal *last_of(struct itemlimit_place at)
{
	const struct refusal *record;

	TAILQ_FOREACH_REVERSE(record, &at.pool->refusals.list, pool_refusal_list, in_pool)
	if (record->item == at.item)
		return record;
	return NULL;
}

const char *refusal_file(struct itemlimit_place at, uint64_t limit, char buf[REFUSAL_FILE_MAX])
{
	if (at.item != 0)
		snprintf(buf, REFUSAL_FILE_MAX, "stat.%s.max",
			at.pool->tree->items->items[at.item].name);
	else
		snprintf(buf, REFUSAL_FILE_MAX, "%s", limit == COUNTER_MAX ? "" : "memory.max");
	return buf;
}

static void write_text(struct writer *w, const struct pool *pool, struct itemlimit_place at,
	const char *name, const struct refusal_holder *holders, size_t n_holders)
{
	char file[REFUSAL_FILE_MAX];

	put_text(w, "at=");
	put_path(w, at.pool);
	put_text(w, " file=");
	put_text(w, refusal_file(at, w->record->facts.limit, file));
	put_text(w, " name=");
	put_encoded(w, name);
	put_text(w, " pool=");
	put_path(w, pool);
	put_text(w, " holders=");
	w->record->holders = w->record->n_text;
	if (holders)
		put_holders(w, holders, n_holders);
	else if (w->kept)
		each_piece(w->all, w->kept, w->kept->holders, copy_piece, w);
}

uint64_t refusal_add(struct refusals *r, const struct refusal_facts *facts, const struct pool *pool,
	struct itemlimit_place at, const char *name, const struct refusal_holder *holders,
	size_t n_holders)
{
	struct writer w = {.all = r, .kept = holders ? NULL : last_of(at)};
	struct pool_refusals *own = &at.pool->refusals;
	uint32_t i;

	if (own->n >= REFUSALS_OF_POOL && TAILQ_FIRST(&own->list) != w.kept)
		drop(r, TAILQ_FIRST(&own->list));
	i = take_slot(r, w.kept);
	if (!i)
		return 0;
	w.record = &r->slots[i].record;
	*w.record = (struct refusal){.number = r->last_number + 1,
		.facts = *facts,
		.item = at.item,
		.pool = at.pool->in_tree ? at.pool : NULL};
	write_text(&w, pool, at, name, holders, n_holders);
	TAILQ_INSERT_TAIL(&r->list, w.record, entry);
	if (w.record->pool) {
		TAILQ_INSERT_TAIL(&own->list, w.record, in_pool);
		own->n++;
	}
	if (w.failed) {
		drop(r, w.record);
		return 0;
	}
	return ++r->last_number;
}

void refusal_forget(struct pool *p)
{
	struct refusal *record;

	while ((record = TAILQ_FIRST(&p->refusals.list))) {
		TAILQ_REMOVE(&p->refusals.list, record, in_pool);
		record->pool = NULL;
	}
	p->refusals.n = 0;
}

/* ------------------------------------------------------------------ holders */

uint64_t refusal_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

bool refusal_is_look_due(const struct pool *p, uint64_t now_usec)
{
	return now_usec >= p->refusals.next_look_usec;
}

void refusal_count_look(struct pool *p, uint64_t now_usec, uint64_t cost_usec)
{
	uint64_t wait = cost_usec * LOOK_SHARE;

	p->refusals.next_look_usec = now_usec + (wait > LOOK_USEC ? wait : LOOK_USEC);
}

static size_t insert(struct refusal_holder *largest, size_t n, const struct refusal_holder *h)
{
	size_t i = n;

	if (h->bytes == 0)
		return n;
	while (i > 0 && largest[i - 1].bytes < h->bytes)
		i--;
	if (i == REFUSAL_HOLDERS)
		return n;
	n = n < REFUSAL_HOLDERS ? n + 1 : n;
	memmove(&largest[i + 1], &largest[i], (n - i - 1) * sizeof(*h));
	largest[i] = *h;
	return n;
}

static uint64_t held_by(struct pool *p, uint32_t item, bool looked)
{
	if (!looked && item == 0)
		return counter_read(&p->counter);
	if (!looked)
		return p->tree->sum_granted(p, item);
	if (item == 0)
		return figures_clamp(p->sum.held);
	return p->sum.items ? figures_clamp(p->sum.items[item]) : 0;
}

size_t refusal_find_holders(struct itemlimit_place at, bool looked, refusal_holder_fn fn,
	struct refusal_holder ret[REFUSAL_HOLDERS])
{
	struct pool *child;
	struct pool_member *m;
	size_t n = 0;

	TAILQ_FOREACH (child, &at.pool->children, sibling) {
		struct refusal_holder h = {.bytes = held_by(child, at.item, looked), .pool = child};

		/* What a standalone one holds is not held here. */
		if (pool_above(child))
			n = insert(ret, n, &h);
	}
	TAILQ_FOREACH (m, &at.pool->members, entry) {
		struct refusal_holder h = {0};

		fn(m, at.item, &h);
		n = insert(ret, n, &h);
	}
	return n;
}

/* ------------------------------------------------------------------ reading */

static void add_figure(struct text *t, const char *key, uint64_t number)
{
	text_add(t, key);
	text_add_number(t, number);
}

static void add_piece(void *userdata, const char *piece, size_t n)
{
	char buf[BLOCK];

	memcpy(buf, piece, n);
	buf[n] = '\0';
	text_add(userdata, buf);
}

static void add_line(struct text *t, const struct refusals *r, const struct refusal *record)
{
	const struct refusal_facts *f = &record->facts;
	char limit[VALUE_TEXT_MAX];

	add_figure(t, "number=", record->number);
	add_figure(t, " time_usec=", f->time_usec);
	add_figure(t, " pid=", (uint64_t)f->pid);
	add_figure(t, " wanted=", f->wanted);
	text_add(t, " limit=");
	text_add(t, value_format_limit(f->limit, limit));
	add_figure(t, " held=", f->held);
	add_figure(t, " idle=", f->idle);
	add_figure(t, " waited_usec=", f->waited_usec);
	add_figure(t, " drained=", f->drained);
	add_figure(t, " asked=", f->asked);
	add_figure(t, " reclaimed=", f->reclaimed);
	add_figure(t, " ahead=", f->ahead);
	text_add(t, " ");
	each_piece(r, record, 0, add_piece, t);
	text_add(t, "\n");
}

/* Whether the record is one of a pool that is gone, with a path below `prefix` ("at=/a/b"). */
static bool was_below(const struct refusals *r, const struct refusal *record, const char *prefix)
{
	_cleanup_(freep) char *text = NULL;
	struct text t = {0};
	size_t n = strlen(prefix);

	each_piece(r, record, 0, add_piece, &t);
	if (text_take(&t, &text) < 0)
		return false;
	return strncmp(text, prefix, n) == 0 && (text[n] == '/' || text[n] == ' ');
}

/* "at=/a/b", as it stands in records; "at=" for the root. */
static int make_prefix(const struct pool *p, char **ret)
{
	_cleanup_(freep) char *path = pool_path(p);
	struct text t = {0};
	char piece[4];

	if (!path)
		return -ENOMEM;
	text_add(&t, "at=");
	for (const char *c = p->parent ? path : ""; *c; c++)
		text_add(&t, encode(*c, piece));
	return text_take(&t, ret);
}

static bool is_below(const struct refusals *r, const struct refusal *record,
	const struct pool *below, const char *prefix)
{
	if (!below->parent)
		return true;
	return record->pool ? pool_is_below(record->pool, below) : was_below(r, record, prefix);
}

int refusals_read(const struct refusals *r, const struct pool *below, char **ret_text)
{
	const struct refusal *record, *first = NULL;
	_cleanup_(freep) char *prefix = NULL;
	struct text t = {0};
	unsigned n = 0;
	int error = make_prefix(below, &prefix);

	if (error < 0)
		return error;
	TAILQ_FOREACH_REVERSE(record, &r->list, refusal_list, entry)
	{
		if (n == REFUSALS_OF_POOL)
			break;
		if (is_below(r, record, below, prefix)) {
			first = record;
			n++;
		}
	}
	for (record = first; record; record = TAILQ_NEXT(record, entry))
		if (is_below(r, record, below, prefix))
			add_line(&t, r, record);
	return text_take(&t, ret_text);
}

int refusal_read(const struct refusals *r, uint64_t number, uint64_t session, char **ret_text)
{
	const struct refusal *record;
	struct text t = {0};

	TAILQ_FOREACH_REVERSE(record, &r->list, refusal_list, entry)
	{
		if (record->number > number)
			continue;
		if (record->number < number || record->facts.session != session)
			break;
		add_line(&t, r, record);
		return text_take(&t, ret_text);
	}
	return -ENOENT;
}
