/* SPDX-License-Identifier: MIT */

#include "collect.h"

#include <string.h>

#include "attachment.h"
#include "drain.h"
#include "drainer.h"
#include "key.h"

/* A quarter of all keys: fewer free ones, and as many that wait to be collected, begin a
 * collection. */
#define MANY_KEYS(s) ((s)->segment.n_keys / 4)

enum phase {
	WAIT_BEFORE, /* for `moving`, before the slots are cleared */
	CLEARING,
	WAIT_AFTER,
};

struct collect {
	struct session *session;
	enum phase phase;
	uint8_t *quiet; /* by CPU: seen with nobody moving, in this phase */
	struct drainer_batch batch;
	bool missed; /* a slot could not be cleared */
};

static void advance(struct collect *c);

/* True when every CPU was seen quiet since the phase began. */
static bool all_quiet(struct collect *c)
{
	struct segment_header *h = segment_header(&c->session->segment);
	const struct percpu_area *a = &c->session->stocks;
	bool all = true;

	for (uint32_t cpu = 0; cpu < a->n_cpus; cpu++) {
		/* A CPU without a page has nobody moving on it; reading there would make one. */
		if (c->quiet[cpu] || !atomic_load(&h->touched[cpu]))
			continue;
		c->quiet[cpu] = atomic_load(&a->pages[cpu].moving) == 0;
		all = all && c->quiet[cpu];
	}
	return all;
}

static void enter(struct collect *c, enum phase phase)
{
	c->phase = phase;
	memset(c->quiet, 0, c->session->segment.n_cpus);
}

static bool is_collected(const struct session *s, uint32_t key)
{
	const struct key *k = key <= s->segment.n_keys ? s->keys[key] : NULL;

	return k && k->attachment->collecting;
}

static void on_cleared(struct drainer_batch *b)
{
	struct collect *c = b->userdata;
	struct session *s = c->session;
	bool missed;

	for (size_t i = 0; i < b->n; i++)
		c->missed = c->missed || !b->words[i].done;
	b->n = 0;
	/* A slot of a CPU that cannot be reached stays; with the next key that is wanted it is tried
	 * again, and not at once. */
	missed = c->missed;
	c->missed = false;
	enter(c, missed ? WAIT_BEFORE : WAIT_AFTER);
	if (s->state != SESSION_ENDING && !missed)
		advance(c);
	session_left_drainer(s);
}

static void clear_slots(struct collect *c)
{
	struct session *s = c->session;
	struct segment_header *h = segment_header(&s->segment);

	for (uint32_t cpu = 0; cpu < s->stocks.n_cpus; cpu++) {
		if (!atomic_load(&h->touched[cpu]))
			continue;
		for (unsigned i = 0; i < STOCK_SLOTS; i++) {
			percpu_word *slot = &s->stocks.pages[cpu].stock.slot[i];
			word w = percpu_load(slot);
			struct drainer_word *d;

			if (!is_collected(s, word_key(w)))
				continue;
			d = drainer_batch_add(&c->batch);
			if (!d) {
				c->missed = true;
				continue;
			}
			d->op = DRAINER_CLEAR;
			d->area = &s->stocks;
			d->slot = slot;
			d->cpu = cpu;
			d->key = word_key(w);
		}
	}
	c->batch.done = on_cleared;
	c->batch.userdata = c;
	c->phase = CLEARING;
	s->in_drainer++;
	drain_submit(s->manager->drain, &c->batch);
}

static void finish(struct collect *c)
{
	struct session *s = c->session;
	struct attachment *a, *next;

	for (a = TAILQ_FIRST(&s->attachments); a; a = next) {
		next = TAILQ_NEXT(a, entry);
		if (a->collecting)
			attachment_free(a);
	}
	s->collect = collect_free(c);
}

static void advance(struct collect *c)
{
	if (c->phase == CLEARING || !all_quiet(c))
		return;
	if (c->phase == WAIT_BEFORE)
		clear_slots(c);
	else
		finish(c);
}

static struct collect *begin(struct session *s)
{
	struct collect *c = calloc(1, sizeof(*c));
	struct attachment *a;

	if (!c)
		return NULL;
	c->session = s;
	c->quiet = calloc(s->segment.n_cpus, sizeof(*c->quiet));
	if (!c->quiet)
		return collect_free(c);
	TAILQ_FOREACH (a, &s->attachments, entry)
		a->collecting = a->state == ATTACHMENT_FORGOTTEN;
	return c;
}

/* It is short of keys, or what has died counts for its uid by now. */
static bool is_due(const struct session *s)
{
	if (s->n_free_keys < MANY_KEYS(s) && s->n_forgotten_keys >= MANY_KEYS(s))
		return true;
	return s->n_dead_attachments > ATTACHMENT_DEAD_FREE &&
		s->n_forgotten_keys >= ATTACHMENT_DEAD_FREE / 2;
}

void collect_run(struct session *s)
{
	if (!s->collect && is_due(s))
		s->collect = begin(s);
	if (s->collect)
		advance(s->collect);
}

struct collect *collect_free(struct collect *c)
{
	if (!c)
		return NULL;
	free(c->batch.words);
	free(c->quiet);
	free(c);
	return NULL;
}
