/* SPDX-License-Identifier: MIT */

#include "flush.h"

#include <errno.h>

#include "attachment.h"
#include "core/place.h"
#include "core/pressure.h"
#include "core/statfmt.h"
#include "export.h"
#include "key.h"
#include "row.h"

struct flush {
	struct manager *manager;
	uv_timer_t timer;
	uint64_t last_usec; /* of the whole tree */
};

int flush_pool(struct flush *f, struct pool *p, bool moved)
{
	struct manager *m = f->manager;
	uint64_t now = manager_now();
	int r = place_flush(&m->rstats, p, moved, now);

	m->stats.flush_usec += manager_now() - now;
	m->stats.flushes += moved;
	return r;
}

static void flush_all(struct flush *f)
{
	struct manager *m = f->manager;

	f->last_usec = manager_now();
	place_flush_all(&m->rstats, f->last_usec);
	m->stats.flush_usec += manager_now() - f->last_usec;
	m->stats.flushes++;
}

int flush_for_read(struct flush *f, struct pool *p, const char *file, uint64_t flags)
{
	uint64_t interval = f->manager->conf->flush_interval_usec;
	bool moved;

	if (!statfmt_shows_figures(file))
		return 0;
	if ((flags & WIRE_GET_CACHED) ||
		((flags & WIRE_GET_RATELIMITED) && flush_age(f) <= 2 * interval)) {
		f->manager->stats.unflushed_reads++;
		return 0;
	}
	moved = (flags & (WIRE_GET_EXACT | WIRE_GET_RATELIMITED)) || place_is_due(p);
	if (!moved)
		f->manager->stats.unflushed_reads++;
	return flush_pool(f, p, moved);
}

void flush_attachment(const struct attachment *a, uint64_t *ret_held, uint64_t *ret_idle)
{
	uint64_t held = 0, idle = 0;
	struct key *k;

	rstat_scan(&a->session->rstat);
	TAILQ_FOREACH (k, &a->keys, entry) {
		rstat_look_key(&k->stat, false);
		idle += k->stat.idle;
		held += k->stat.held;
	}
	*ret_held = held;
	*ret_idle = idle;
}

/* Doorbells that were lost to a full socket, or rung too soon after another. */
static void look_at_reserves(struct manager *m)
{
	struct rstat_key *k;

	TAILQ_FOREACH (k, &m->rstats.idle, idle_entry)
		attachment_trim_reserves(container_of(k, struct key, stat)->attachment);
}

static void on_timer(uv_timer_t *t)
{
	struct flush *f = t->data;

	flush_all(f);
	look_at_reserves(f->manager);
	pressure_age(f->manager->tree);
	export_run(f->manager->export);
}

static void start_timer(struct flush *f)
{
	uint64_t ms = f->manager->conf->flush_interval_usec / 1000;

	uv_timer_start(&f->timer, on_timer, ms, ms);
}

int flush_new(struct manager *m, struct flush **ret)
{
	struct flush *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->manager = m;
	f->last_usec = manager_now();
	uv_timer_init(m->loop, &f->timer);
	f->timer.data = f;
	start_timer(f);
	*ret = f;
	return 0;
}

void flush_reconfigure(struct flush *f)
{
	flush_all(f);
	start_timer(f);
}

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

struct flush *flush_free(struct flush *f)
{
	if (f)
		uv_close((uv_handle_t *)&f->timer, on_closed);
	return NULL;
}

uint64_t flush_age(const struct flush *f)
{
	return manager_now() - f->last_usec;
}
