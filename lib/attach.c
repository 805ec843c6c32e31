/* SPDX-License-Identifier: MIT */

/*
 * Attachments from the client's side: how a handle gets its keys, and how it loses them. A handle's
 * key words are the switch: once they are void no charge finds credit any more, and whoever was
 * under way keeps the handle referenced, and so the key from being used again.
 */

#include <errno.h>
#include <search.h>
#include <string.h>

#include "client.h"
#include "force.h"
#include "key.h"
#include "stat.h"

static const char *const no_strings[WIRE_STRINGS_MAX];

/* After an attach that failed on this side: its answer may still come and make the attachment. What
 * is asked later is heard later, so this undoes it. */
static void abandon(struct tally *t, uint64_t attachment)
{
	struct wire_detach m = {.h = WIRE_HEADER(WIRE_DETACH, struct wire_detach, 0),
		.attachment = attachment,
		.flags = WIRE_DETACH_LAST};

	link_send_nowait(&t->link, &m, sizeof(m));
}

/* ------------------------------------------------------------------ which there are */

static int by_attachment(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static struct tally_pool *pool_of(const void *node)
{
	return container_of(*(uint64_t *const *)node, struct tally_pool, attachment);
}

static struct tally_pool *find_pool(struct tally *t, uint64_t attachment)
{
	void *found = tfind(&attachment, &t->pools, by_attachment);

	return found ? pool_of(found) : NULL;
}

struct walk {
	void (*fn)(struct tally_pool *p, void *userdata);
	void *userdata;
};

static void visit(const void *node, VISIT which, void *userdata)
{
	const struct walk *w = userdata;

	if (which == preorder || which == leaf)
		w->fn(pool_of(node), w->userdata);
}

void client_each_pool(
	struct tally *t, void (*fn)(struct tally_pool *p, void *userdata), void *userdata)
{
	struct walk w = {.fn = fn, .userdata = userdata};

	pthread_mutex_lock(&t->lock);
	if (t->pools)
		twalk_r(t->pools, visit, &w);
	pthread_mutex_unlock(&t->lock);
}

static void keep(void *number)
{
	(void)number;
}

void client_free_index(struct tally *t)
{
	/* In a child whose fork came upon a change half made nothing of it can be relied on. */
	if (pthread_mutex_trylock(&t->lock) != 0)
		return;
	tdestroy(t->pools, keep);
	pthread_mutex_unlock(&t->lock);
}

/* ------------------------------------------------------------------ answers */

/* Once only: charges may be using the key already when the same answer comes again. */
static void adopt_charged(struct tally_pool *p, tally_item item, struct client_key *k)
{
	if (atomic_load(&p->key[item]) != WORD_KEY_VOID)
		return;
	atomic_store(&p->items[item].known, k);
	if (item > 0)
		atomic_fetch_or(&p->charged, UINT64_C(1) << (item - 1));
	force_settle(p, item, k);
	atomic_store(&p->key[item], k->number);
}

static void adopt_moved(
	struct tally_pool *p, const struct wire_key_is *answer, struct client_key *k)
{
	if (!atomic_load(&p->stat[answer->item])) {
		key_set_moved(k, answer->shift, answer->flags & WIRE_KEY_EVENT);
		atomic_store(&p->stat[answer->item], k);
	}
	stat_settle(p, answer->item, k);
}

static void not_adopted(struct tally_pool *p, const struct wire_key_is *answer, int why)
{
	if (!(answer->flags & WIRE_KEY_STAT)) {
		atomic_store(&p->asked[answer->item],
			why == -EINVAL ? CLIENT_NO_SUCH_ITEM : CLIENT_NOT_ASKED);
		return;
	}
	if (why == -EINVAL)
		stat_drop(p, answer->item);
	atomic_store(&p->stat_asked[answer->item], CLIENT_NOT_ASKED);
}

int client_adopt_key(struct tally *t, const struct wire_key_is *answer)
{
	struct tally_pool *p = find_pool(t, answer->attachment);
	struct client_key *k = client_key(t, answer->key);
	int status = answer->status < 0 ? answer->status : k ? 0 : -ENXIO;

	if (!p || answer->item > ITEM_MAX)
		return 0;
	if (status < 0) {
		not_adopted(p, answer, status);
		return answer->status < 0 ? 0 : status;
	}
	if (answer->h.type == WIRE_ATTACHED)
		atomic_store(&p->place, answer->place);
	if (atomic_load(&k->attachment) != p->attachment)
		key_open(k, p->attachment);
	if (!(answer->flags & WIRE_KEY_EVENT))
		adopt_charged(p, answer->item, k);
	if (answer->item > 0)
		adopt_moved(p, answer, k);
	return 0;
}

/* ------------------------------------------------------------------ handles */

static struct tally_pool *new_handle(struct tally *t, const char *path)
{
	size_t n = strlen(path) + 1;
	struct tally_pool *p = calloc(1, sizeof(*p) + n);
	void *indexed;

	if (!p)
		return NULL;
	p->live = t->live;
	p->tally = client_ref(t);
	p->refs = 1;
	for (unsigned i = 0; i <= ITEM_MAX; i++)
		p->key[i] = WORD_KEY_VOID;
	memcpy(p->path, path, n);

	pthread_mutex_lock(&t->lock);
	p->attachment = ++t->last_attachment;
	indexed = tsearch(&p->attachment, &t->pools, by_attachment);
	pthread_mutex_unlock(&t->lock);
	if (!indexed) {
		client_free_pool(p);
		return NULL;
	}
	return p;
}

struct tally_pool *client_ref_pool(struct tally *t, uint64_t attachment)
{
	struct tally_pool *p;

	pthread_mutex_lock(&t->lock);
	p = find_pool(t, attachment);
	if (p) {
		uint32_t refs = atomic_load(&p->refs);

		/* Without one it is on its way out. */
		while (refs > 0 && !atomic_compare_exchange_weak(&p->refs, &refs, refs + 1))
			;
		p = refs > 0 ? p : NULL;
	}
	pthread_mutex_unlock(&t->lock);
	return p;
}

void client_free_pool(struct tally_pool *p)
{
	client_unref(p->tally);
	free(p);
}

bool client_is_lost(struct tally_pool *p)
{
	const struct client_key *k = atomic_load_explicit(&p->items[0].known, memory_order_acquire);

	if (!k || !key_is_lost(k))
		return false;
	for (unsigned item = 0; item <= ITEM_MAX; item++)
		atomic_store(&p->key[item], WORD_KEY_VOID);
	return true;
}

/* Takes the handle's keys away for good, and closes them; returns what lay in their reserves. */
static uint64_t void_keys(struct tally_pool *p)
{
	struct tally *t = p->tally;
	uint64_t dropped = 0;

	pthread_mutex_lock(&t->lock);
	atomic_store(&p->detached, true);
	tdelete(&p->attachment, &t->pools, by_attachment);
	for (unsigned item = 0; item <= ITEM_MAX; item++) {
		struct client_key *moved = atomic_exchange(&p->stat[item], NULL), *known;

		/* In this order: a charge by force that finds it unknown may rest on it that no
		 * uncharge finds the word. */
		atomic_store(&p->key[item], WORD_KEY_VOID);
		known = atomic_exchange(&p->items[item].known, NULL);

		/* Of a gauge both are the same. */
		if (known)
			dropped += key_close(known);
		else if (moved)
			dropped += key_close(moved);
	}
	pthread_mutex_unlock(&t->lock);
	return dropped;
}

/* Asks for a key; a second time when it came before the extent in which it has its place. */
static int ask(struct tally *t, uint32_t type, void *fixed, size_t n_fixed,
	const char *const strings[static WIRE_STRINGS_MAX])
{
	struct wire_key_is answer;
	int r = client_call(t, type, fixed, n_fixed, strings, &answer, sizeof(answer));

	if (r == -ENXIO) {
		r = client_fetch_extents(t, answer.key);
		if (r == 0)
			r = client_call(t, type, fixed, n_fixed, strings, &answer, sizeof(answer));
	}
	return r < 0 ? r : answer.status;
}

int client_attach(struct tally *t, const char *path, uint64_t flags, struct tally_pool **ret)
{
	const char *strings[WIRE_STRINGS_MAX] = {path};
	struct wire_attach m = {.flags = (flags & TALLY_CREATE ? WIRE_ATTACH_CREATE : 0) |
			(flags & TALLY_EPHEMERAL ? WIRE_ATTACH_EPHEMERAL : 0)};
	struct tally_pool *p = new_handle(t, path);
	int r;

	if (!p)
		return -ENOMEM;
	m.attachment = p->attachment;
	r = ask(t, WIRE_ATTACH, &m, sizeof(m), strings);
	if (r < 0) {
		void_keys(p);
		abandon(t, p->attachment);
		client_free_pool(p);
		return r;
	}
	*ret = p;
	return 0;
}

int client_key_of(struct tally_pool *p, tally_item item, struct client_key **ret)
{
	struct wire_key m = {.attachment = p->attachment, .item = item};
	uint32_t number = atomic_load(&p->key[item]);

	if (number == WORD_KEY_VOID) {
		int r = ask(p->tally, WIRE_KEY, &m, sizeof(m), no_strings);

		if (r < 0)
			return r;
		number = atomic_load(&p->key[item]);
	}
	if (number == WORD_KEY_VOID)
		return -ENODEV;
	*ret = client_key(p->tally, number);
	return 0;
}

/* Asks for a key once, without waiting. */
static int ask_nowait(struct tally_pool *p, tally_item item, uint32_t flags, _Atomic uint8_t *asked)
{
	struct wire_key m = {.h = WIRE_HEADER(WIRE_KEY, struct wire_key, 0),
		.attachment = p->attachment,
		.item = item,
		.flags = flags};
	uint8_t before = CLIENT_NOT_ASKED;
	int r;

	if (!atomic_compare_exchange_strong(asked, &before, CLIENT_ASKED))
		return -EAGAIN;
	r = link_send_nowait(&p->tally->link, &m, sizeof(m));
	if (r < 0)
		atomic_store(asked, CLIENT_NOT_ASKED);
	return r < 0 ? r : -EAGAIN;
}

int client_key_of_nowait(struct tally_pool *p, tally_item item, struct client_key **ret)
{
	uint32_t number;
	uint8_t asked;

	if (atomic_load(&p->key[item]) == WORD_KEY_VOID)
		link_read_nowait(&p->tally->link);
	number = atomic_load(&p->key[item]);
	if (number != WORD_KEY_VOID) {
		*ret = client_key(p->tally, number);
		return 0;
	}
	asked = CLIENT_NO_SUCH_ITEM;
	if (atomic_compare_exchange_strong(&p->asked[item], &asked, CLIENT_NOT_ASKED))
		return -EINVAL;
	return ask_nowait(p, item, 0, &p->asked[item]);
}

int client_stat_key(struct tally_pool *p, tally_item item)
{
	struct wire_key m = {.attachment = p->attachment, .item = item, .flags = WIRE_KEY_STAT};

	return ask(p->tally, WIRE_KEY, &m, sizeof(m), no_strings);
}

struct client_key *client_stat_key_nowait(struct tally_pool *p, tally_item item)
{
	struct client_key *k;

	link_read_nowait(&p->tally->link);
	k = atomic_load(&p->stat[item]);
	if (k)
		return k;
	ask_nowait(p, item, WIRE_KEY_STAT, &p->stat_asked[item]);
	return atomic_load(&p->stat[item]);
}

void client_detach(struct tally_pool *p, bool last)
{
	struct tally *t = p->tally;
	struct wire_detach m = {.attachment = p->attachment, .flags = last ? WIRE_DETACH_LAST : 0};
	struct wire_done done;

	if (client_check(t) == -ECHILD)
		return;
	stat_send(p);
	dispatch_end(p);
	m.dropped = void_keys(p);
	client_call(t, WIRE_DETACH, &m, sizeof(m), no_strings, &done, sizeof(done));
}

void client_forget(struct tally_pool *p)
{
	struct wire_forget m = {
		.h = WIRE_HEADER(WIRE_FORGET, struct wire_forget, 0), .attachment = p->attachment};

	if (client_check(p->tally) == 0)
		link_send(&p->tally->link, &m, sizeof(m), link_now() + CLIENT_WAIT_USEC);
}
