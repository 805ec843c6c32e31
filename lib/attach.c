/* SPDX-License-Identifier: MIT */

/*
 * Attachments from the client's side: how a handle gets its keys, and how it loses them. A handle's
 * key words are the switch: once they are void no charge finds credit any more, and whoever was
 * under way keeps the handle referenced, and so the key from being used again.
 */

#include <errno.h>
#include <string.h>

#include "client.h"
#include "key.h"

static const char *const no_strings[WIRE_STRINGS_MAX];

/* After a wait that was too short: the answer may still make the attachment. What is asked later is
 * heard later, so this undoes it. */
static void abandon(struct tally *t, uint64_t attachment)
{
	struct wire_detach m = {.h = WIRE_HEADER(WIRE_DETACH, struct wire_detach, 0),
		.attachment = attachment,
		.flags = WIRE_DETACH_LAST};

	link_send(&t->link, &m, sizeof(m), link_now() + CLIENT_WAIT_USEC);
}

/* Makes the key of an answer the handle's. */
static int adopt_key(struct tally_pool *p, const struct wire_key_is *answer)
{
	struct client_key *k = client_key(p->tally, answer->key);

	if (!k)
		return -EPROTO;
	key_open(k, p->attachment);
	atomic_store(&p->key[answer->item], answer->key);
	return 0;
}

static struct tally_pool *new_handle(struct tally *t, const char *path)
{
	size_t n = strlen(path) + 1;
	struct tally_pool *p = calloc(1, sizeof(*p) + n);

	if (!p)
		return NULL;
	p->live = t->live;
	p->tally = client_ref(t);
	p->refs = 1;
	for (unsigned i = 0; i <= ITEM_MAX; i++)
		p->key[i] = WORD_KEY_VOID;
	pthread_mutex_init(&p->lock, NULL);
	memcpy(p->path, path, n);

	pthread_mutex_lock(&t->lock);
	p->attachment = ++t->last_attachment;
	pthread_mutex_unlock(&t->lock);
	return p;
}

void client_free_pool(struct tally_pool *p)
{
	pthread_mutex_destroy(&p->lock);
	client_unref(p->tally);
	free(p);
}

int client_attach(struct tally *t, const char *path, uint64_t flags, struct tally_pool **ret)
{
	const char *strings[WIRE_STRINGS_MAX] = {path};
	struct wire_attach m = {.flags = flags & TALLY_CREATE ? WIRE_ATTACH_CREATE : 0};
	struct wire_key_is answer;
	struct tally_pool *p = new_handle(t, path);
	int r;

	if (!p)
		return -ENOMEM;
	m.attachment = p->attachment;
	r = client_call(t, WIRE_ATTACH, &m, sizeof(m), strings, &answer, sizeof(answer), NULL);
	if (r == 0)
		r = answer.status;
	if (r == 0)
		r = adopt_key(p, &answer);
	else if (r == -ETIMEDOUT)
		abandon(t, p->attachment);
	if (r < 0) {
		client_free_pool(p);
		return r;
	}
	*ret = p;
	return 0;
}

static int ask_for_key(struct tally_pool *p, tally_item item)
{
	struct wire_key m = {.attachment = p->attachment, .item = item};
	struct wire_key_is answer;
	int r = client_call(
		p->tally, WIRE_KEY, &m, sizeof(m), no_strings, &answer, sizeof(answer), NULL);

	if (r == 0)
		r = answer.status;
	if (r == 0 && answer.item != item)
		r = -EPROTO;
	return r < 0 ? r : adopt_key(p, &answer);
}

int client_key_of(struct tally_pool *p, tally_item item, struct client_key **ret)
{
	uint32_t number = atomic_load(&p->key[item]);
	int r = 0;

	if (number == WORD_KEY_VOID) {
		pthread_mutex_lock(&p->lock);
		if (atomic_load(&p->detached))
			r = -ENODEV;
		else if (atomic_load(&p->key[item]) == WORD_KEY_VOID)
			r = ask_for_key(p, item);
		number = atomic_load(&p->key[item]);
		pthread_mutex_unlock(&p->lock);
	}
	if (r == 0)
		*ret = client_key(p->tally, number);
	return r;
}

/* Voids the handle's keys and closes them; returns what lay in their reserves. */
static uint64_t void_keys(struct tally_pool *p)
{
	uint64_t dropped = 0;

	for (unsigned item = 0; item <= ITEM_MAX; item++) {
		uint32_t number = atomic_exchange(&p->key[item], WORD_KEY_VOID);

		if (number != WORD_KEY_VOID)
			dropped += key_close(client_key(p->tally, number));
	}
	return dropped;
}

void client_detach(struct tally_pool *p, bool last)
{
	struct tally *t = p->tally;
	struct wire_detach m = {.attachment = p->attachment, .flags = last ? WIRE_DETACH_LAST : 0};
	struct wire_done done;

	if (client_check(t) < 0)
		return;
	pthread_mutex_lock(&p->lock);
	atomic_store(&p->detached, true);
	m.dropped = void_keys(p);
	pthread_mutex_unlock(&p->lock);
	client_call(t, WIRE_DETACH, &m, sizeof(m), no_strings, &done, sizeof(done), NULL);
}

void client_forget(struct tally_pool *p)
{
	struct wire_forget m = {
		.h = WIRE_HEADER(WIRE_FORGET, struct wire_forget, 0), .attachment = p->attachment};

	if (client_check(p->tally) == 0)
		link_send(&p->tally->link, &m, sizeof(m), link_now() + CLIENT_WAIT_USEC);
}
