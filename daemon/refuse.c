/* SPDX-License-Identifier: MIT */

#include "refuse.h"

#include <inttypes.h>

#include "core/refusal.h"
#include "core/text.h"
#include "core/value.h"
#include "flush.h"
#include "log.h"
#include "loglimit.h"
#include "queue.h"
#include "request.h"

#define LOG_USEC UINT64_C(60000000) /* of one pool */
#define AHEAD_TEXT_MAX 64

/* Of an attachment's keys, as of the last look. */
static void find_client(struct pool_member *m, uint32_t item, struct refusal_holder *ret)
{
	const struct attachment *a = attachment_of(m);
	const struct key *k;

	ret->name = a->session->name;
	ret->pid = a->session->pid;
	TAILQ_FOREACH (k, &a->keys, entry)
		if (item == 0 || k->item == item)
			ret->bytes += k->stat.held;
}

/* The limit may have been removed while somebody waited there. */
static void find_figures(struct itemlimit_place at, uint64_t *ret_held, uint64_t *ret_idle)
{
	const struct figures *sum = &at.pool->sum;
	const struct counter *c = itemlimit_counter(at);
	uint64_t granted = c ? counter_read(c) : 0, held, idle;

	if (at.item == 0) {
		idle = figures_clamp(sum->stock);
		*ret_idle = idle < granted ? idle : granted;
		*ret_held = granted - *ret_idle;
		return;
	}
	held = sum->items ? figures_clamp(sum->items[at.item]) : 0;
	*ret_held = held;
	*ret_idle = granted > held ? granted - held : 0;
}

/* " /a holds 12.5M, name[17] holds 1K"; to be freed, NULL when memory is short. */
static char *tell_holders(const struct refusal_holder *holders, size_t n)
{
	char path[PATH_MAX_BYTES + 1], bytes[VALUE_TEXT_MAX], pid[16];
	struct text t = {0};
	char *told = NULL;

	for (size_t i = 0; i < n; i++) {
		const struct refusal_holder *h = &holders[i];

		text_add(&t, i == 0 ? "; most is held by " : ", ");
		if (h->pool) {
			text_add(&t, pool_path_into(h->pool, path, sizeof(path)));
		} else {
			snprintf(pid, sizeof(pid), "[%d]", (int)h->pid);
			text_add(&t, h->name);
			text_add(&t, pid);
		}
		text_add(&t, " (");
		text_add(&t, value_format_human(h->bytes, bytes));
		text_add(&t, ")");
	}
	return text_take(&t, &told) < 0 ? NULL : told;
}

static void log_limit(const struct request *r, struct itemlimit_place place,
	const struct refusal_facts *f, const struct refusal_holder *holders, size_t n)
{
	_cleanup_(freep) char *most = tell_holders(holders, n);
	const struct session *s = r->key->attachment->session;
	char at[PATH_MAX_BYTES + 1], of[PATH_MAX_BYTES + 1], max[VALUE_TEXT_MAX];
	char file[REFUSAL_FILE_MAX], ahead[AHEAD_TEXT_MAX] = "";

	if (f->ahead > 0)
		snprintf(ahead, sizeof(ahead), ", and %" PRIu64 " bytes are waited for by others",
			f->ahead);

	pool_path_into(place.pool, at, sizeof(at));
	pool_path_into(r->key->attachment->pool, of, sizeof(of));
	if (place.item == 0 && f->limit == COUNTER_MAX)
		log_warning("%s: refused %" PRIu64
			    " bytes to pid %d (%s): an attachment holds at most %" PRIu64 " bytes",
			of, r->need, (int)s->pid, s->name, WORD_BYTES_MAX);
	else
		log_warning("%s: refused %" PRIu64
			    " bytes to pid %d (%s) in %s: %s of %s is %s, held %" PRIu64
			    ", idle %" PRIu64 "%s; drained %" PRIu64
			    ", clients were asked for %" PRIu64 " and gave back %" PRIu64 "%s",
			at, r->need, (int)s->pid, s->name, of, refusal_file(place, f->limit, file),
			at, value_format_limit(f->limit, max), f->held, f->idle, ahead, f->drained,
			f->asked, f->reclaimed, most ? most : "");
}

static void log_refusal(const struct request *r, struct itemlimit_place place,
	const struct refusal_facts *f, const struct refusal_holder *holders, size_t n)
{
	char at[PATH_MAX_BYTES + 1];
	struct pool *p = place.pool;
	uint64_t now = manager_now();

	if ((p->refusal_logged_usec != 0 && now - p->refusal_logged_usec < LOG_USEC) ||
		!loglimit_allows(r->key->attachment->session->uid)) {
		p->refusals_unlogged++;
		return;
	}
	if (p->refusals_unlogged > 0)
		log_warning("%s: %" PRIu64 " more refusals since the last line about one",
			pool_path_into(p, at, sizeof(at)), p->refusals_unlogged);
	log_limit(r, place, f, holders, n);
	p->refusal_logged_usec = now;
	p->refusals_unlogged = 0;
}

/* Looks at who holds most, if it is time to: their number, else -1. */
static ssize_t look(struct manager *m, struct itemlimit_place at, struct refusal_holder *ret)
{
	uint64_t now = manager_now();
	size_t n;

	if (!refusal_is_look_due(at.pool, now))
		return -1;
	flush_pool(m->flush, at.pool, false);
	n = refusal_find_holders(at, true, find_client, ret);
	refusal_count_look(at.pool, now, manager_now() - now);
	return (ssize_t)n;
}

uint64_t refuse_record(const struct request *r, struct itemlimit_place at)
{
	const struct attachment *a = r->key->attachment;
	struct refusal_holder holders[REFUSAL_HOLDERS];
	struct refusal_facts f = {.session = a->session->number,
		.time_usec = refusal_time(),
		.pid = a->session->pid,
		.limit = itemlimit_read(at.pool, at.item),
		.wanted = r->need,
		.waited_usec = manager_now() - r->since_usec,
		.drained = r->drained_bytes,
		.asked = r->asked_bytes,
		.reclaimed = r->reclaimed_bytes,
		.ahead = queue_ahead(r, at)};
	ssize_t n = look(a->session->manager, at, holders);

	find_figures(at, &f.held, &f.idle);
	log_refusal(r, at, &f, holders, n > 0 ? (size_t)n : 0);
	return refusal_add(a->session->manager->refusals, &f, a->pool, at, a->session->name,
		n >= 0 ? holders : NULL, n > 0 ? (size_t)n : 0);
}
