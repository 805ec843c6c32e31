/* SPDX-License-Identifier: MIT */

/*
 * From ATTACH to the last handle: which keys an attachment has, when its rows are opened and given
 * back. What happens to a row, and in which order, is in row.c.
 */

#include "attachment.h"

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <string.h>

#include "callback.h"
#include "collect.h"
#include "key.h"
#include "log.h"
#include "loglimit.h"
#include "packet.h"
#include "queue.h"
#include "removal.h"
#include "request.h"
#include "row.h"
#include "user.h"

static int by_number(const void *a, const void *b)
{
	uint64_t x = ((const struct attachment *)a)->number;
	uint64_t y = ((const struct attachment *)b)->number;

	return x < y ? -1 : x > y;
}

struct attachment *attachment_find(struct session *s, uint64_t number)
{
	struct attachment wanted = {.number = number};
	void *found = tfind(&wanted, &s->attachment_index, by_number);

	return found ? *(struct attachment **)found : NULL;
}

/* What a client claims to have dropped has no bound. */
static void add_saturating(uint64_t *sum, uint64_t n)
{
	if (__builtin_add_overflow(*sum, n, sum))
		*sum = UINT64_MAX;
}

void attachment_count_overdraft(struct attachment *a, uint64_t bytes)
{
	struct session *s = a->session;
	char path[PATH_MAX_BYTES + 1];

	if (bytes == 0)
		return;
	add_saturating(&a->overdraft, bytes);
	pool_count_overdraft(a->pool, bytes);
	if (s->overdraft_logged)
		return;
	s->overdraft_logged = true;
	if (!loglimit_allows(s->uid))
		return;
	log_warning("pid %d (%s) gave %" PRIu64 " bytes back to %s that it had never been granted; "
		    "they were dropped, and are counted as overdraft",
		(int)s->pid, s->name, bytes, pool_path_into(a->pool, path, sizeof(path)));
}

static uint64_t sum_of_members(const struct pool *p, uint32_t item)
{
	struct pool_member *m;
	uint64_t sum = 0;
	struct key *k;

	TAILQ_FOREACH (m, &p->members, entry)
		TAILQ_FOREACH (k, &attachment_of(m)->keys, entry)
			if (k->item == item)
				sum += ledger_read(k->row)->granted + k->set_aside;
	return sum;
}

uint64_t attachment_sum_granted(struct pool *root, uint32_t item)
{
	uint64_t sum = 0;

	for (struct pool *p = root; p; p = pool_next_counted(p, root))
		sum += sum_of_members(p, item);
	return sum;
}

static void stop_counting(struct attachment *a)
{
	if (a->counts)
		user_give(a->session->user, USER_ATTACHMENTS, 1);
	a->counts = false;
}

static void mark_dead(struct attachment *a)
{
	a->is_dead = true;
	if (a->session->n_dead_attachments++ < ATTACHMENT_DEAD_FREE)
		stop_counting(a);
}

static void drop(struct attachment *a)
{
	struct session *s = a->session;
	struct key *k;

	stop_counting(a);
	s->n_dead_attachments -= a->is_dead;

	while ((k = TAILQ_FIRST(&a->keys)))
		key_free(k);
	tdelete(a, &s->attachment_index, by_number);
	TAILQ_REMOVE(&s->attachments, a, entry);
	s->n_attachments--;
	free(a);
}

/* For the pool and all above it. Where an extent makes no room for all, those far above have none. */
static int find_places(struct attachment *a, uint32_t *ret_extent)
{
	struct session *s = a->session;
	int r = 0;

	if (!place_has_room(&s->rstat, a->pool))
		r = key_extend(s, ret_extent);
	if (r < 0 && r != -ENOSPC)
		return r;
	r = place_ref(&s->rstat, a->pool, &a->place);
	return r == -ENOSPC ? 0 : r;
}

int attachment_open(struct session *s, uint64_t number, struct pool *pool, struct key **ret_key,
	uint32_t *ret_extent)
{
	struct attachment *a = attachment_find(s, number);
	int r;

	if (a && a->state == ATTACHMENT_LIVE && a->pool == pool) {
		*ret_key = TAILQ_FIRST(&a->keys);
		return 0;
	}
	if (a)
		return -EPROTO;
	collect_run(s);

	r = user_take(s->user, USER_ATTACHMENTS, 1);
	if (r < 0)
		return r;
	a = calloc(1, sizeof(*a));
	if (!a) {
		user_give(s->user, USER_ATTACHMENTS, 1);
		return -ENOMEM;
	}
	a->session = s;
	a->counts = true;
	a->number = number;
	a->pool = pool;
	TAILQ_INIT(&a->keys);
	if (!tsearch(a, &s->attachment_index, by_number)) {
		stop_counting(a);
		free(a);
		return -ENOMEM;
	}
	TAILQ_INSERT_TAIL(&s->attachments, a, entry);
	s->n_attachments++;
	r = find_places(a, ret_extent);
	if (r >= 0)
		r = key_new(a, 0, ret_key, ret_extent);
	if (r < 0) {
		place_unref(a->place);
		drop(a);
		return r;
	}
	pool_ref(pool);
	pool_add_member(pool, &a->member);
	return 0;
}

int attachment_key(struct attachment *a, uint32_t item, struct key **ret_key, uint32_t *ret_extent)
{
	struct key *k;

	TAILQ_FOREACH (k, &a->keys, entry)
		if (k->item == item) {
			*ret_key = k;
			return 0;
		}
	collect_run(a->session);
	return key_new(a, item, ret_key, ret_extent);
}

/* Idle credit beyond what was granted came from uncharging too much. */
static void notice_overdraft(struct attachment *a, uint64_t dropped)
{
	uint64_t idle = dropped, granted = 0;
	struct key *k;

	rstat_scan(&a->session->rstat);
	TAILQ_FOREACH (k, &a->keys, entry) {
		uint64_t more = rstat_key_in_words(&k->stat);

		row_fold(k);
		idle = idle > WORD_BYTES_MAX ? idle : idle + more;
		granted += ledger_read(k->row)->granted;
	}
	if (idle > granted)
		attachment_count_overdraft(a, idle - granted);
}

static void leave_pool(struct attachment *a)
{
	struct pool *p = a->pool;

	throttle_end(a);
	a->place = place_unref(a->place);
	pool_remove_member(p, &a->member);
	a->pool = NULL;
	a->removed_from = pool_unref(a->removed_from);
	removal_sweep(a->session->manager, p);
	pool_unref(p);
}

/* Whatever lies idle goes back at once; what lies in slots, by a drain. */
void attachment_move(struct pool_member *m, struct pool *to, void *userdata)
{
	struct attachment *a = attachment_of(m);
	struct key *k;

	(void)userdata;
	/* Its place is that of the first pool, and keeps that. */
	if (a->removed_from)
		pool_unref(a->pool);
	else
		a->removed_from = a->pool;
	a->pool = pool_ref(to);
	TAILQ_FOREACH (k, &a->keys, entry) {
		row_remove(k);
		row_take_reserve(k, 0);
	}
}

static bool has_intent(const struct attachment *a)
{
	const struct key *k;

	TAILQ_FOREACH (k, &a->keys, entry)
		if (ledger_read(k->row)->intent != LEDGER_NO_INTENT)
			return true;
	return false;
}

static void finish_detach(struct attachment *a)
{
	struct session *s = a->session;
	struct key *k;

	notice_overdraft(a, a->detach_dropped);
	TAILQ_FOREACH (k, &a->keys, entry)
		row_give_back(k, LEDGER_DYING);
	leave_pool(a);
	mark_dead(a);
	a->state = ATTACHMENT_DETACHED;
	packet_send_done(s, a->detach_cookie, 0);
	if (a->forget)
		attachment_forget(a);
	queue_kick(s->manager);
}

void attachment_detach(struct attachment *a, const struct wire_detach *m)
{
	struct key *k;

	a->forget = a->forget || (m->flags & WIRE_DETACH_LAST);
	if (a->state != ATTACHMENT_LIVE) {
		packet_send_done(a->session, m->h.cookie, 0);
		return;
	}
	TAILQ_FOREACH (k, &a->keys, entry)
		request_drop_key(k);
	callback_end(a);
	a->detach_cookie = m->h.cookie;
	a->detach_dropped = m->dropped;
	a->state = ATTACHMENT_DETACHING;
	if (!has_intent(a))
		finish_detach(a);
}

void attachment_finish_detaches(struct session *s)
{
	struct attachment *a, *next;

	for (a = TAILQ_FIRST(&s->attachments); a; a = next) {
		next = TAILQ_NEXT(a, entry);
		if (a->state == ATTACHMENT_DETACHING && !has_intent(a))
			finish_detach(a);
	}
}

void attachment_forget(struct attachment *a)
{
	struct key *k;

	if (a->state != ATTACHMENT_DETACHED) {
		a->forget = true;
		return;
	}
	a->state = ATTACHMENT_FORGOTTEN;
	TAILQ_FOREACH (k, &a->keys, entry)
		a->session->n_forgotten_keys++;
}

void attachment_free(struct attachment *a)
{
	struct key *k;

	TAILQ_FOREACH (k, &a->keys, entry)
		a->session->n_forgotten_keys--;
	drop(a);
}

void attachment_trim_reserves(struct attachment *a)
{
	uint64_t taken = 0;
	struct key *k;

	if (a->state != ATTACHMENT_LIVE)
		return;
	TAILQ_FOREACH (k, &a->keys, entry) {
		struct segment_key *words = key_words(k);
		uint64_t batch = a->removed_from ? 0 : key_batch(k);

		/* The bell first: who puts more there from now on rings again. */
		atomic_store(&words->ring, 0);
		if (word_bytes(atomic_load(&words->reserve)) > SEGMENT_MARK(batch))
			taken += row_take_reserve(k, batch);
	}
	if (taken > 0)
		queue_kick(a->session->manager);
}

/* As a client does before it detaches: one that lives may be at its words still, and what goes from a
 * slot to a reserve while both are looked at would be seen twice. */
static uint64_t close_reserves(struct attachment *a)
{
	uint64_t dropped = 0;
	struct key *k;

	TAILQ_FOREACH (k, &a->keys, entry)
		dropped += segment_reserve_close(key_words(k));
	return dropped;
}

void attachment_release_all(struct session *s)
{
	struct attachment *a;
	struct key *k;

	while ((a = TAILQ_FIRST(&s->attachments))) {
		if (a->pool) {
			notice_overdraft(a, close_reserves(a));
			TAILQ_FOREACH (k, &a->keys, entry)
				row_give_back(k, LEDGER_FREE);
			leave_pool(a);
		}
		drop(a);
	}
}

int attachment_each_stat(
	struct pool_member *m, int (*fn)(struct rstat_key *k, bool moved), bool moved)
{
	struct key *k;
	int ret = 0;

	TAILQ_FOREACH (k, &attachment_of(m)->keys, entry) {
		int r = fn(&k->stat, moved);

		ret = r < 0 ? r : ret;
	}
	return ret;
}
