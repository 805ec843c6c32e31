/* SPDX-License-Identifier: MIT */

#include "decay.h"

#include <errno.h>

#include "drain.h"
#include "key.h"

/* So often it looks, and after so many looks that found the same the credit is drained: within
 * 8 seconds. A busy program whose sums happen to agree each time loses one miss by that. */
#define LOOK_MS 2000
#define SAME_LOOKS 3

struct decay {
	struct manager *manager;
	uv_timer_t timer;
	struct drain_wait *wait; /* NULL: no drain of idle credit is on its way */
};

/* Returns whether the key's credit is to be drained. */
static bool look_at(struct key *k)
{
	uint64_t idle = rstat_key_in_words(&k->stat);
	bool same = idle > 0 && idle == k->idle_seen && k->batch.last_usec == k->miss_seen;

	k->idle_looks = same ? k->idle_looks + 1 : 0;
	k->idle_seen = idle;
	k->miss_seen = k->batch.last_usec;
	k->stale = k->idle_looks >= SAME_LOOKS;
	return k->stale;
}

static void on_drained(void *userdata, uint64_t bytes)
{
	struct decay *d = userdata;

	(void)bytes;
	d->wait = NULL;
}

static void on_timer(uv_timer_t *t)
{
	struct decay *d = t->data;
	struct manager *m = d->manager;
	struct rstat_key *k;
	bool stale = false;

	if (d->wait)
		return;
	rstat_look(&m->rstats, m->tree->root, false);
	TAILQ_FOREACH (k, &m->rstats.idle, idle_entry)
		stale = look_at(container_of(k, struct key, stat)) || stale;
	if (stale)
		drain_stale(m->drain, on_drained, d, &d->wait);
}

int decay_new(struct manager *m, struct decay **ret)
{
	struct decay *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->manager = m;
	uv_timer_init(m->loop, &d->timer);
	d->timer.data = d;
	uv_timer_start(&d->timer, on_timer, LOOK_MS, LOOK_MS);
	*ret = d;
	return 0;
}

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

struct decay *decay_free(struct decay *d)
{
	if (!d)
		return NULL;
	drain_cancel(d->wait);
	uv_close((uv_handle_t *)&d->timer, on_closed);
	return NULL;
}
