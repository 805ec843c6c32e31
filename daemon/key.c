/* SPDX-License-Identifier: MIT */

#include "key.h"

#include <errno.h>

#include "row.h"

struct key *key_find(struct session *s, uint32_t number, uint64_t attachment)
{
	struct key *k = number <= s->segment.n_keys ? s->keys[number] : NULL;

	if (!k || k->attachment->number != attachment || k->attachment->state != ATTACHMENT_LIVE)
		return NULL;
	return k;
}

uint64_t key_batch(const struct key *k)
{
	const struct conf *c = k->attachment->session->manager->conf;

	return batch_now(&k->batch, manager_now(), c->batch, c->batch_max);
}

/* Room for the keys of one more extent, before the extent is made: afterwards nothing may fail. */
static int make_room(struct session *s)
{
	uint32_t n_keys = s->segment.n_keys + (SEGMENT_FIRST_KEYS << (s->segment.n_extents - 1));
	uint32_t *free_keys = realloc(s->free_keys, n_keys * sizeof(*free_keys));
	struct key **keys;

	if (!free_keys)
		return -ENOMEM;
	s->free_keys = free_keys;
	keys = realloc(s->keys, (n_keys + 1) * sizeof(*keys));
	if (!keys)
		return -ENOMEM;
	s->keys = keys;
	return 0;
}

int key_extend(struct session *s, uint32_t *ret_extent)
{
	uint32_t before = s->segment.n_keys;
	int r;

	if (s->segment.n_extents >= SEGMENT_EXTENTS)
		return -ENOSPC;
	r = make_room(s);
	if (r < 0)
		return r;
	r = segment_extend(&s->segment, 0, s->segment.kind, s->extent_fds[s->segment.n_extents]);
	if (r < 0)
		return r;
	*ret_extent = s->segment.n_extents - 1;
	for (uint32_t k = s->segment.n_keys; k > before; k--) {
		s->keys[k] = NULL;
		s->free_keys[s->n_free_keys++] = k;
	}
	return 0;
}

int key_new(struct attachment *a, uint32_t item, struct key **ret, uint32_t *ret_extent)
{
	struct session *s = a->session;
	struct ledger *l = s->manager->ledger;
	_cleanup_(freep) struct key *k = calloc(1, sizeof(*k));
	struct ledger_row *row;
	uint32_t extent = 0;
	int r;

	if (!k)
		return -ENOMEM;
	r = ledger_take(l, &row);
	if (r < 0)
		return r;
	if (s->n_free_keys == 0) {
		r = key_extend(s, &extent);
		if (r < 0) {
			ledger_free(l, row);
			return r;
		}
	}

	k->number = s->free_keys[--s->n_free_keys];
	k->item = item;
	k->attachment = a;
	k->row = row;
	TAILQ_INIT(&k->turns);
	s->keys[k->number] = k;
	TAILQ_INSERT_TAIL(&a->keys, k, entry);

	row_open(k);

	*ret_extent = extent ? extent : *ret_extent;
	*ret = k;
	k = NULL;
	return 0;
}

struct key *key_free(struct key *k)
{
	struct session *s = k->attachment->session;

	TAILQ_REMOVE(&k->attachment->keys, k, entry);
	rstat_key_free(&k->stat);
	k->row = ledger_free(s->manager->ledger, k->row);
	s->keys[k->number] = NULL;
	s->free_keys[s->n_free_keys++] = k->number;
	free(k);
	return NULL;
}
