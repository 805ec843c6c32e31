/* SPDX-License-Identifier: MIT */

#include "transfer.h"

#include <errno.h>

#include "drain.h"
#include "key.h"
#include "owed.h"
#include "packet.h"
#include "queue.h"
#include "refuse.h"
#include "request.h"
#include "row.h"

/* One that waits for a drain. */
struct transfer {
	struct owed *owed;
	struct wire_transfer message;
	uint64_t since_usec;
};

static struct key *find(struct session *s, uint32_t number, uint64_t attachment)
{
	struct key *k = key_find(s, number, attachment);

	return k && !k->attachment->removed_from ? k : NULL;
}

/* Word by word nothing changes: of what is charged the words say nothing, and what is held is what was
 * granted and does not lie idle. */
static int move(
	struct key *from, struct key *to, uint64_t bytes, struct itemlimit_place *ret_failed)
{
	struct pool *common = pool_common(from->attachment->pool, to->attachment->pool);
	int r;

	row_fold(from);
	if (ledger_read(from->row)->granted < bytes)
		return -EINVAL;
	*ret_failed = (struct itemlimit_place){to->attachment->pool, 0};
	if (row_room(to) < bytes)
		return -ENOMEM;
	r = itemlimit_try_charge_below(to->attachment->pool, common, to->item, bytes, ret_failed);
	if (r < 0)
		return r;
	row_transfer(from, to, bytes, common);
	rstat_look_pair(&from->stat, &to->stat);
	queue_kick(from->attachment->session->manager);
	return 0;
}

/* The limit that refuses (-ENOMEM) in *ret_failed. */
static int attempt(
	struct session *s, const struct wire_transfer *m, struct itemlimit_place *ret_failed)
{
	struct key *from = find(s, m->from_key, m->from), *to = find(s, m->to_key, m->to);

	if (!from || !to)
		return -ENODEV;
	return from == to ? 0 : move(from, to, m->bytes, ret_failed);
}

/* Returns the number of the record. */
static uint64_t refuse(
	const struct transfer *t, struct session *s, struct itemlimit_place at, uint64_t drained)
{
	struct key *to = find(s, t->message.to_key, t->message.to);
	const struct request like = {.key = to,
		.need = t->message.bytes,
		.since_usec = t->since_usec,
		.drained_bytes = drained};

	s->manager->stats.refusals++;
	s->refused++;
	to->attachment->refused++;
	pool_count_event(at.pool, POOL_OOM);
	return refuse_record(&like, at);
}

static void on_drained(void *userdata, uint64_t bytes)
{
	struct transfer *t = userdata;
	struct session *s = owed_session(t->owed);
	struct itemlimit_place failed;
	int r = s ? attempt(s, &t->message, &failed) : -ENODEV;
	uint64_t refusal = r == -ENOMEM ? refuse(t, s, failed, bytes) : 0;

	owed_refused(t->owed, r, refusal);
	free(t);
}

/* Once more, when what lies idle there is back. */
static int wait_for_drain(
	struct session *s, const struct wire_transfer *m, struct itemlimit_place at)
{
	struct transfer *t = calloc(1, sizeof(*t));
	struct drain_wait *wait;
	int r = t ? owed_new(s, m->h.cookie, &t->owed) : -ENOMEM;

	if (r == 0) {
		t->message = *m;
		t->since_usec = manager_now();
		r = drain_start(s->manager->drain, at, on_drained, t, &wait);
	}
	if (r < 0) {
		if (t)
			owed_free(t->owed);
		free(t);
	}
	return r;
}

/* Both keys are of one item, a gauge or none; or not there. */
static bool is_sound(struct session *s, const struct wire_transfer *m)
{
	const struct key *from = key_find(s, m->from_key, m->from);
	const struct key *to = key_find(s, m->to_key, m->to);

	if (m->bytes == 0 || m->bytes > WORD_BYTES_MAX)
		return false;
	return !from || !to ||
		(from->item == to->item && !item_is_event(&s->manager->items, from->item));
}

bool transfer_handle(struct session *s, const struct wire_transfer *m)
{
	struct itemlimit_place failed;
	int r;

	if (!is_sound(s, m))
		return false;
	r = attempt(s, m, &failed);
	if (r == -ENOMEM) {
		pool_count_event(failed.pool, POOL_MAX);
		r = wait_for_drain(s, m, failed);
		if (r == 0)
			return true;
	}
	packet_send_done(s, m->h.cookie, r);
	return true;
}
