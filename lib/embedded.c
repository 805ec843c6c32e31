/* SPDX-License-Identifier: MIT */

/*
 * One handler a type of message, as in the daemon; what each does is the business of the modules
 * below. A handler answers through the owner, so that whatever one message changes and tells is
 * seen by others as one step.
 */

#include "embedded.h"

#include <errno.h>
#include <string.h>

#include "answer.h"
#include "core/pressure.h"
#include "core/refusal.h"
#include "core/util.h"
#include "core/wire.h"
#include "credit.h"
#include "engine.h"
#include "grant.h"
#include "idle.h"
#include "look.h"
#include "question.h"
#include "recall.h"
#include "record.h"
#include "turn.h"

/* 0, or what embedded_handle() is to return. */
typedef int (*handler_fn)(struct embedded *e, const void *message, const char *const *strings);

static int done(struct embedded *e, uint64_t cookie, int status)
{
	answer_done(e, cookie, status);
	return 0;
}

/* ------------------------------------------------------------------ session, attachments, keys */

static int make_base(struct embedded *e, bool rseq, int fds[static WIRE_FDS_MAX])
{
	int r = engine_begin(e, rseq, fds);

	if (r < 0)
		return r;
	return teller_open(e, &fds[2]);
}

static int on_hello(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_hello *m = message;
	struct wire_welcome w = {.h = WIRE_HEADER(WIRE_WELCOME, struct wire_welcome, m->h.cookie),
		.version = WIRE_VERSION,
		.session = EMBEDDED_SESSION};
	int fds[WIRE_FDS_MAX] = {-1, -1, -1};

	if (e->welcomed || (m->flags & ~WIRE_HELLO_RSEQ))
		return -EPROTO;
	e->welcomed = true;
	if (m->version != WIRE_VERSION)
		w.status = -EPROTO;
	else if (strlen(strings[0]) > WIRE_NAME_MAX)
		w.status = -EINVAL;
	else
		w.status = make_base(e, m->flags & WIRE_HELLO_RSEQ, fds);
	snprintf(e->name, sizeof(e->name), "%s", strings[0]);
	e->pid = getpid();
	e->closed = w.status < 0;
	answer_send_fds(e, &w, sizeof(w), fds);
	return 0;
}

static void send_key(struct embedded *e, uint32_t type, const struct wire_key_is *like, int status,
	const struct engine_key *k, uint32_t extent)
{
	struct wire_key_is answer = *like;

	answer.h = WIRE_HEADER(type, struct wire_key_is, like->h.cookie);
	answer.status = status;
	if (status == 0) {
		const struct engine_attachment *a = k->attachment;

		answer.key = k->number;
		answer.extent = extent;
		answer.place = a->place ? a->place->number : 0;
		answer.shift = item_shift(&e->items.items[k->item]);
		if (k->item != 0 && e->items.items[k->item].type == ITEM_EVENT)
			answer.flags |= WIRE_KEY_EVENT;
	}
	answer_send_extent(e, &answer, sizeof(answer), answer.extent);
	if (status == 0)
		answer_settle_extent(k);
}

/* The key of (attachment, item), made at its first use. */
static int find_key(
	struct engine_attachment *a, uint32_t item, struct engine_key **ret, uint32_t *ret_extent)
{
	struct engine_key *k;
	int r;

	TAILQ_FOREACH (k, &a->keys, entry)
		if (k->item == item) {
			*ret = k;
			return 0;
		}
	idle_collect(a->engine);
	r = engine_key_new(a, item, ret, ret_extent);
	if (r >= 0)
		credit_open(*ret);
	return r;
}

/* The same number again gives the same answer. */
static int attach(struct embedded *e, uint64_t number, struct pool *pool, struct engine_key **ret,
	uint32_t *ret_extent)
{
	struct engine_attachment *a;
	int r = engine_attach(e, number, pool, &a, ret_extent);

	if (r == -EEXIST)
		r = a->state == ENGINE_LIVE && a->pool == pool ? 0 : -EPROTO;
	if (r >= 0)
		r = find_key(a, 0, ret, ret_extent);
	if (r < 0 && r != -EPROTO && a->pool) {
		engine_leave(a);
		engine_drop(a);
	}
	return r;
}

static int on_attach(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_attach *m = message;
	struct wire_key_is like = {.h.cookie = m->h.cookie, .attachment = m->attachment};
	struct engine_key *k = NULL;
	uint32_t extent = 0;
	struct pool *p;
	int r;

	if ((m->flags & ~(WIRE_ATTACH_CREATE | WIRE_ATTACH_EPHEMERAL)) || m->attachment == 0)
		return -EPROTO;
	if (!(m->flags & WIRE_ATTACH_CREATE))
		r = pool_find(e->tree, strings[0], &p);
	else if (m->flags & WIRE_ATTACH_EPHEMERAL)
		r = pool_create_ephemeral(e->tree, strings[0], &p);
	else
		r = pool_create_all(e->tree, strings[0], &p);
	if (r >= 0) {
		pool_ref(p);
		r = attach(e, m->attachment, p, &k, &extent);
		pool_sweep(p, NULL, NULL);
		pool_unref(p);
	}
	if (r == -EPROTO)
		return r;
	send_key(e, WIRE_ATTACHED, &like, r, k, extent);
	return 0;
}

static int on_key(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_key *m = message;
	struct wire_key_is like = {.h.cookie = m->h.cookie,
		.attachment = m->attachment,
		.item = m->item,
		.flags = m->flags};
	struct engine_attachment *a = engine_find(e, m->attachment);
	struct engine_key *k = NULL;
	uint32_t extent = 0;
	int r;

	(void)strings;
	if (m->flags & ~WIRE_KEY_STAT)
		return -EPROTO;
	if (!a || a->state != ENGINE_LIVE || a->removed_from)
		r = -ENODEV;
	else if (!item_may_have_key(&e->items, m->item, m->flags & WIRE_KEY_STAT))
		r = -EINVAL;
	else
		r = find_key(a, m->item, &k, &extent);
	send_key(e, WIRE_KEYED, &like, r, k, extent);
	/* Without a cookie nobody waits for it. */
	if (r >= 0 && m->h.cookie == 0 && !(m->flags & WIRE_KEY_STAT))
		teller_credit(e, a->pool);
	return 0;
}

static int on_extent(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_extent *m = message;
	struct wire_extent_is answer = {
		.h = WIRE_HEADER(WIRE_EXTENT_IS, struct wire_extent_is, m->h.cookie),
		.extent = m->extent};

	(void)strings;
	if (m->extent == 0 || m->extent >= SEGMENT_EXTENTS || e->extent_fds[m->extent][0] < 0)
		answer.status = -ENOENT;
	answer_send_extent(e, &answer, sizeof(answer), answer.status == 0 ? m->extent : 0);
	return 0;
}

static void forget(struct engine_attachment *a)
{
	struct engine_key *k;

	if (a->state != ENGINE_DETACHED)
		return;
	a->state = ENGINE_FORGOTTEN;
	TAILQ_FOREACH (k, &a->keys, entry)
		a->engine->n_forgotten_keys++;
}

static void detach(struct engine_attachment *a, uint64_t dropped)
{
	struct engine_key *k;

	grant_drop(a);
	pool_count_overdraft(a->pool, idle_excess(a, dropped));
	TAILQ_FOREACH (k, &a->keys, entry)
		credit_give_back(k);
	engine_leave(a);
	a->state = ENGINE_DETACHED;
	engine_kick(a->engine);
}

static int on_detach(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_detach *m = message;
	struct engine_attachment *a = engine_find(e, m->attachment);

	(void)strings;
	if ((m->flags & ~WIRE_DETACH_LAST) || m->dropped > WORD_BYTES_MAX * (ITEM_MAX + 1))
		return -EPROTO;
	if (a && a->state == ENGINE_LIVE)
		detach(a, m->dropped);
	if (a && (m->flags & WIRE_DETACH_LAST))
		forget(a);
	return done(e, m->h.cookie, 0);
}

static int on_forget(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_forget *m = message;
	struct engine_attachment *a = engine_find(e, m->attachment);

	(void)strings;
	if (a)
		forget(a);
	return 0;
}

/* ------------------------------------------------------------------ credit */

static int on_charge(struct embedded *e, const void *message, const char *const *strings)
{
	(void)strings;
	return grant_handle(e, message);
}

static int on_ring(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_ring *m = message;
	struct engine_key *k = engine_find_key(e, m->key, m->attachment);

	(void)strings;
	if (k)
		idle_trim(k->attachment);
	return 0;
}

static int on_ahead(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_ahead *m = message;
	struct engine_key *k = engine_find_key(e, m->key, m->attachment);

	(void)strings;
	if (k)
		grant_ahead(k);
	return 0;
}

/* ------------------------------------------------------------------ places in line */

/* All that is kept of a queue are its places. */
static int on_queue(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_queue *m = message;
	struct wire_queue_is answer = {
		.h = WIRE_HEADER(WIRE_QUEUE_IS, struct wire_queue_is, m->h.cookie)};

	(void)strings;
	answer_send(e, &answer, sizeof(answer));
	return 0;
}

static int on_request(struct embedded *e, const void *message, const char *const *strings)
{
	(void)strings;
	return turn_request(e, message);
}

static int on_cancel(struct embedded *e, const void *message, const char *const *strings)
{
	(void)strings;
	return turn_cancel(e, message);
}

static int on_fetch(struct embedded *e, const void *message, const char *const *strings)
{
	(void)strings;
	return turn_fetch(e, message);
}

/* As the daemon's transfer.c. */
static int try_transfer(const struct wire_transfer *m, struct engine_key *from,
	struct engine_key *to, struct itemlimit_place *ret_failed)
{
	struct pool *common = pool_common(from->attachment->pool, to->attachment->pool);
	int r;

	credit_fold(from);
	if (from->granted < m->bytes)
		return -EINVAL;
	*ret_failed = (struct itemlimit_place){to->attachment->pool, 0};
	r = m->bytes > credit_room(to) ? -ENOMEM
				       : itemlimit_try_charge_below(to->attachment->pool, common,
						 to->item, m->bytes, ret_failed);
	if (r == 0)
		credit_transfer(from, to, m->bytes, common);
	return r;
}

static int transfer(struct embedded *e, const struct wire_transfer *m, struct engine_key *from,
	struct engine_key *to, uint64_t *ret_refusal)
{
	struct record_request record = {.key = to, .wanted = m->bytes, .since_usec = engine_now()};
	struct itemlimit_place failed;
	int r = try_transfer(m, from, to, &failed);

	if (r != -ENOMEM)
		return r;
	pool_count_event(failed.pool, POOL_MAX);
	record.drained = idle_drain(e, failed.pool);
	if (record.drained > 0)
		r = try_transfer(m, from, to, &failed);
	if (r == -ENOMEM) {
		pool_count_event(failed.pool, POOL_OOM);
		*ret_refusal = record_refusal(&record, failed);
	}
	return r;
}

static int on_transfer(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_transfer *m = message;
	struct engine_key *from = engine_find_key(e, m->from_key, m->from);
	struct engine_key *to = engine_find_key(e, m->to_key, m->to);
	uint64_t refusal = 0;
	int r;

	(void)strings;
	if (m->bytes == 0 || m->bytes > WORD_BYTES_MAX)
		return -EPROTO;
	if (!from || !to || from->attachment->removed_from || to->attachment->removed_from)
		return done(e, m->h.cookie, -ENODEV);
	if (from->item != to->item || item_is_event(&e->items, from->item))
		return -EPROTO;
	r = from == to ? 0 : transfer(e, m, from, to, &refusal);
	if (r == 0)
		engine_kick(e);
	answer_refused(e, m->h.cookie, r, refusal);
	return 0;
}

/* ------------------------------------------------------------------ items, files, pools */

static int send_item(struct embedded *e, uint64_t cookie, int status, uint32_t item)
{
	struct wire_item_is answer = {
		.h = WIRE_HEADER(WIRE_ITEM_IS, struct wire_item_is, cookie), .status = status};

	if (status == 0) {
		answer.item = item;
		answer.type = e->items.items[item].type;
	}
	answer_send(e, &answer, sizeof(answer));
	return 0;
}

static int on_item(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_item *m = message;
	uint32_t item = 0;
	int r = item_lookup(&e->items, strings[0], &item);

	return send_item(e, m->h.cookie, r, item);
}

static int on_define(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_define *m = message;
	uint32_t item = 0;
	int r = item_define(&e->items, strings[0], m->type, strings[1], strings[2], &item);

	return send_item(e, m->h.cookie, r, item);
}

static int get(struct embedded *e, const char *path, const char *file, uint64_t flags, char **ret)
{
	struct pool *p;
	int r = pool_find(e->tree, path, &p);

	return r < 0 ? r : look_read(e, p, file, flags, ret);
}

static int on_get(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_get *m = message;
	_cleanup_(freep) char *text = NULL;
	int r;

	if ((m->flags & ~(WIRE_GET_EXACT | WIRE_GET_RATELIMITED | WIRE_GET_CACHED)) ||
		(m->flags & (m->flags - 1)))
		return -EPROTO;
	r = get(e, strings[0], strings[1], m->flags, &text);
	return answer_text(e, m->h.cookie, r, text);
}

static int on_refusal(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_refusal *m = message;
	_cleanup_(freep) char *text = NULL;
	int r = refusal_read(e->refusals, m->number, EMBEDDED_SESSION, &text);

	(void)strings;
	return answer_text(e, m->h.cookie, r, text);
}

static int on_set(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_set *m = message;
	struct pool *p;
	int r = pool_find(e->tree, strings[0], &p);

	if (r >= 0)
		r = look_write(e, p, strings[1], strings[2]);
	return done(e, m->h.cookie, r);
}

static int on_create(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_create *m = message;
	struct pool *p;

	return done(e, m->h.cookie, pool_create(e->tree, strings[0], &p));
}

/* As the daemon's removal_by_force(). */
static int remove_by_force(struct embedded *e, struct pool *p)
{
	struct pool_member *m;
	int r = pool_check_force(p);

	if (r < 0)
		return r;
	TAILQ_FOREACH (m, &p->members, entry) {
		grant_drop(container_of(m, struct engine_attachment, member));
		pool_set_reclaims(p, m, false);
	}
	pool_remove_by_force(p, engine_move, NULL);
	idle_expel(e);
	engine_kick(e);
	return 0;
}

static int on_remove(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_remove *m = message;
	struct pool *p, *parent;
	int r;

	if (m->flags & ~WIRE_REMOVE_FORCE)
		return -EPROTO;
	r = pool_find(e->tree, strings[0], &p);
	if (r >= 0) {
		parent = p->parent;
		r = m->flags & WIRE_REMOVE_FORCE ? remove_by_force(e, p) : pool_remove(p);
		pool_sweep(parent, NULL, NULL);
	}
	return done(e, m->h.cookie, r);
}

/* ------------------------------------------------------------------ what it is told and asked */

static int on_watch(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_watch *m = message;
	struct pool *p;
	int r = pool_find(e->tree, strings[0], &p);

	if (r >= 0)
		r = teller_watch(e, m->watch, p);
	return r == -EEXIST ? -EPROTO : done(e, m->h.cookie, r);
}

static int on_unwatch(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_unwatch *m = message;

	(void)strings;
	teller_unwatch(e, m->watch);
	return 0;
}

static int on_reclaim(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_on_reclaim *m = message;
	struct engine_attachment *a = engine_find(e, m->attachment);

	(void)strings;
	if (m->flags & ~WIRE_ON_RECLAIM_SET)
		return -EPROTO;
	if (!a || a->state != ENGINE_LIVE)
		return done(e, m->h.cookie, -ENODEV);
	question_set(a, m->flags);
	return done(e, m->h.cookie, 0);
}

/* ------------------------------------------------------------------ the end */

static int on_bye(struct embedded *e, const void *message, const char *const *strings)
{
	const struct wire_bye *m = message;

	(void)strings;
	e->closed = true;
	grant_drop_all(e);
	return done(e, m->h.cookie, 0);
}

/* ------------------------------------------------------------------ the table */

static const struct {
	handler_fn handle;
	bool nowait; /* needs no memory */
} handlers[WIRE_REQUESTS_END] = {
	[WIRE_HELLO] = {on_hello, false},
	[WIRE_ATTACH] = {on_attach, false},
	[WIRE_DETACH] = {on_detach, true},
	[WIRE_FORGET] = {on_forget, true},
	[WIRE_KEY] = {on_key, true},
	[WIRE_EXTENT] = {on_extent, true},
	[WIRE_CHARGE] = {on_charge, true},
	[WIRE_RING] = {on_ring, true},
	[WIRE_AHEAD] = {on_ahead, true},
	[WIRE_ITEM] = {on_item, true},
	[WIRE_DEFINE] = {on_define, false},
	[WIRE_GET] = {on_get, false},
	[WIRE_SET] = {on_set, false},
	[WIRE_CREATE] = {on_create, false},
	[WIRE_REMOVE] = {on_remove, false},
	[WIRE_BYE] = {on_bye, true},
	[WIRE_TRANSFER] = {on_transfer, true},
	[WIRE_QUEUE] = {on_queue, true},
	/* These are not from signal handlers, and who brings them waits for nobody. */
	[WIRE_REQUEST] = {on_request, true},
	[WIRE_CANCEL] = {on_cancel, true},
	[WIRE_FETCH] = {on_fetch, true},
	[WIRE_REFUSAL] = {on_refusal, false},
	[WIRE_WATCH] = {on_watch, false},
	[WIRE_UNWATCH] = {on_unwatch, true},
	[WIRE_ON_RECLAIM] = {on_reclaim, true},
};

static bool may_wait(const struct wire_header *h)
{
	if (h->type != WIRE_CHARGE)
		return !handlers[h->type].nowait;
	return ((const struct wire_charge *)(const void *)h)->flags & WIRE_CHARGE_QUEUE;
}

static int handle(struct embedded *e, const void *message, const char *const *strings, bool wait)
{
	const struct wire_header *h = message;
	int r;

	if (!wait && may_wait(h))
		return -EOPNOTSUPP;
	if (wait)
		pthread_mutex_lock(&e->mutex);
	else if (!engine_trylock(e))
		return -EAGAIN;
	if (e->closed)
		r = -ENOTCONN;
	else if (!e->welcomed && h->type != WIRE_HELLO)
		r = -EPROTO;
	else
		r = handlers[h->type].handle(e, message, strings);
	engine_unlock(e);
	return r;
}

int embedded_new(const char *config, enum percpu_kind kind, const struct embedded_owner *o,
	struct embedded **ret)
{
	return engine_new(config, kind, o, ret);
}

struct embedded *embedded_free(struct embedded *e)
{
	return engine_free(e);
}

int embedded_handle(struct embedded *e, const void *message, size_t n, bool wait)
{
	const char *strings[WIRE_STRINGS_MAX];
	int saved = errno, r = -EPROTO;

	if (wire_check_request(message, n, 0, strings) >= 0)
		r = handle(e, message, strings, wait);
	errno = saved;
	return r;
}

int embedded_get(
	struct embedded *e, const char *path, const char *file, uint64_t flags, char **ret_text)
{
	int r;

	pthread_mutex_lock(&e->mutex);
	r = e->closed ? -ENOTCONN : get(e, path, file, flags, ret_text);
	engine_unlock(e);
	return r;
}

bool embedded_begin_delay(struct embedded *e, uint64_t attachment)
{
	struct engine_attachment *a;
	bool counts;

	pthread_mutex_lock(&e->mutex);
	a = engine_find(e, attachment);
	counts = a && a->state == ENGINE_LIVE;
	if (counts)
		pressure_begin(a->pool, &a->member);
	engine_unlock(e);
	return counts;
}

/* It may have been detached meanwhile; it is there, as the sleeper has a handle of it. */
void embedded_end_delay(struct embedded *e, uint64_t attachment)
{
	struct engine_attachment *a;

	pthread_mutex_lock(&e->mutex);
	a = engine_find(e, attachment);
	if (a)
		pressure_end(a->pool, &a->member);
	engine_unlock(e);
}

bool embedded_is_recalling(const struct embedded *e)
{
	return recall_is_inside(e);
}

int embedded_next_notice(struct embedded *e, void *buf)
{
	int r;

	pthread_mutex_lock(&e->mutex);
	r = e->closed ? -ENOTCONN : (int)teller_next(e, buf);
	engine_unlock(e);
	return r;
}

void embedded_reclaimed(struct embedded *e, uint64_t attachment, uint64_t token)
{
	pthread_mutex_lock(&e->mutex);
	question_answer(e, attachment, token);
	engine_unlock(e);
}
