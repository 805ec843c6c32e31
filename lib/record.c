/* SPDX-License-Identifier: MIT */

#include "record.h"

#include "core/refusal.h"

static const struct engine_attachment *attachment_of(const struct pool_member *m)
{
	return (const struct engine_attachment *)(const void *)m;
}

static void find_client(struct pool_member *m, uint32_t item, struct refusal_holder *ret)
{
	const struct engine_attachment *a = attachment_of(m);
	const struct engine_key *k;

	ret->name = a->engine->name;
	ret->pid = a->engine->pid;
	TAILQ_FOREACH (k, &a->keys, entry)
		if (item == 0 || k->item == item)
			ret->bytes += k->granted;
}

/* What lies in words of the keys that count below the limit. */
static uint64_t find_idle(struct embedded *e, struct itemlimit_place at)
{
	const struct engine_key *k;
	struct pool_member *m;
	uint64_t idle = 0;

	rstat_scan(&e->rstat);
	for (struct pool *p = at.pool; p; p = pool_next_counted(p, at.pool))
		TAILQ_FOREACH (m, &p->members, entry)
			TAILQ_FOREACH (k, &attachment_of(m)->keys, entry)
				if (at.item == 0 || k->item == at.item)
					idle += rstat_key_in_words(&k->stat);
	return idle;
}

uint64_t record_refusal(const struct record_request *r, struct itemlimit_place at)
{
	const struct engine_attachment *a = r->key->attachment;
	const struct counter *c = itemlimit_counter(at);
	struct refusal_holder holders[REFUSAL_HOLDERS];
	uint64_t now = engine_now();
	struct refusal_facts f = {.session = EMBEDDED_SESSION,
		.time_usec = refusal_time(),
		.pid = a->engine->pid,
		.limit = itemlimit_read(at.pool, at.item),
		.held = c ? counter_read(c) : 0,
		.wanted = r->wanted,
		.waited_usec = now - r->since_usec,
		.drained = r->drained,
		.asked = r->asked,
		.reclaimed = r->reclaimed,
		.ahead = r->ahead};
	bool look = refusal_is_look_due(at.pool, now);
	size_t n = 0;

	if (look) {
		uint64_t idle = find_idle(a->engine, at);

		f.idle = idle < f.held ? idle : f.held;
		f.held -= f.idle;
		n = refusal_find_holders(at, false, find_client, holders);
		refusal_count_look(at.pool, now, engine_now() - now);
	}
	return refusal_add(
		a->engine->refusals, &f, a->pool, at, a->engine->name, look ? holders : NULL, n);
}
