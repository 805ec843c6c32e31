/* SPDX-License-Identifier: MIT */

#include "message.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "access.h"
#include "attachment.h"
#include "callback.h"
#include "core/memfd.h"
#include "core/refusal.h"
#include "files.h"
#include "flush.h"
#include "key.h"
#include "line.h"
#include "log.h"
#include "owner.h"
#include "packet.h"
#include "removal.h"
#include "request.h"
#include "transfer.h"
#include "turn.h"
#include "watch.h"

/* Handlers return false when the message breaks the protocol. */
typedef bool (*handler_fn)(
	struct session *s, const union message_buffer *m, const char *const *strings);

/* ------------------------------------------------------------------ sessions and attachments */

static bool on_hello(struct session *s, const union message_buffer *m, const char *const *strings)
{
	struct wire_welcome w = {.h = WIRE_HEADER(WIRE_WELCOME, struct wire_welcome, m->h.cookie),
		.version = WIRE_VERSION,
		.session = s->number};
	int fds[3] = {-1, -1, -1};

	if (s->state != SESSION_NEW || (m->hello.flags & ~WIRE_HELLO_RSEQ))
		return false;
	if (m->hello.version != WIRE_VERSION)
		w.status = -EPROTO;
	else if (strlen(strings[0]) > WIRE_NAME_MAX)
		w.status = -EINVAL;
	else
		w.status = session_hello(s, strings[0], m->hello.flags & WIRE_HELLO_RSEQ, fds);
	packet_send(s, &w, sizeof(w), fds, w.status == 0 ? 3 : 0);
	if (w.status < 0)
		session_end(s, "its HELLO was refused");
	return true;
}

/* Copies of an extent's descriptors, to be sent. */
static int copy_extent(const struct session *s, uint32_t extent, int ret_fds[static 2])
{
	_cleanup_(close_fdp) int rw = fcntl(s->extent_fds[extent][0], F_DUPFD_CLOEXEC, 0);
	_cleanup_(close_fdp) int ro = fcntl(s->extent_fds[extent][1], F_DUPFD_CLOEXEC, 0);

	if (rw < 0 || ro < 0)
		return -errno;
	ret_fds[0] = take_fd(&rw);
	ret_fds[1] = take_fd(&ro);
	return 0;
}

/* An extent that cannot be sent now is asked for by the client, when it finds no place for the key.
 */
static void send_key(struct session *s, uint32_t type, const struct wire_key_is *like, int status,
	const struct key *k, uint32_t extent)
{
	struct wire_key_is answer = *like;
	int fds[2] = {-1, -1};

	answer.h = WIRE_HEADER(type, struct wire_key_is, like->h.cookie);
	answer.status = status;
	if (status == 0) {
		answer.key = k->number;
		answer.place = k->attachment->place ? k->attachment->place->number : 0;
		answer.shift = item_shift(&s->manager->items.items[k->item]);
		if (k->item != 0 && s->manager->items.items[k->item].type == ITEM_EVENT)
			answer.flags |= WIRE_KEY_EVENT;
		if (extent && copy_extent(s, extent, fds) == 0)
			answer.extent = extent;
	}
	packet_send(s, &answer, sizeof(answer), fds, answer.extent ? 2 : 0);
}

static bool on_extent(struct session *s, const union message_buffer *m, const char *const *strings)
{
	struct wire_extent_is answer = {
		.h = WIRE_HEADER(WIRE_EXTENT_IS, struct wire_extent_is, m->h.cookie),
		.extent = m->extent.extent};
	int fds[2] = {-1, -1};

	(void)strings;
	if (m->extent.extent == 0 || m->extent.extent >= s->segment.n_extents)
		answer.status = -ENOENT;
	else
		answer.status = copy_extent(s, m->extent.extent, fds);
	packet_send(s, &answer, sizeof(answer), fds, answer.status == 0 ? 2 : 0);
	return true;
}

static bool on_attach(struct session *s, const union message_buffer *m, const char *const *strings)
{
	struct wire_key_is like = {.h.cookie = m->h.cookie, .attachment = m->attach.attachment};
	int r;
	struct key *k = NULL;
	uint32_t extent = 0;
	struct pool *p;

	if ((m->attach.flags & ~(WIRE_ATTACH_CREATE | WIRE_ATTACH_EPHEMERAL)) ||
		m->attach.attachment == 0)
		return false;
	if (!(m->attach.flags & WIRE_ATTACH_CREATE))
		r = owner_find(s, strings[0], &p);
	else
		r = owner_create(s, strings[0],
			m->attach.flags & WIRE_ATTACH_EPHEMERAL ? OWNER_EPHEMERAL : OWNER_ALL, &p);
	if (r >= 0) {
		r = access_check(s, p, ACCESS_ATTACH);
		if (r == 0)
			r = attachment_open(s, m->attach.attachment, p, &k, &extent);
		removal_sweep(s->manager, p);
	}
	if (r == -EPROTO)
		return false;
	send_key(s, WIRE_ATTACHED, &like, r, k, extent);
	return true;
}

static bool on_detach(struct session *s, const union message_buffer *m, const char *const *strings)
{
	struct attachment *a = attachment_find(s, m->detach.attachment);

	(void)strings;
	if ((m->detach.flags & ~WIRE_DETACH_LAST) ||
		m->detach.dropped > WORD_BYTES_MAX * (ITEM_MAX + 1))
		return false;
	if (a)
		attachment_detach(a, &m->detach);
	else
		packet_send_done(s, m->h.cookie, 0);
	return true;
}

static bool on_forget(struct session *s, const union message_buffer *m, const char *const *strings)
{
	struct attachment *a = attachment_find(s, m->forget.attachment);

	(void)strings;
	if (a)
		attachment_forget(a);
	return true;
}

static bool on_key(struct session *s, const union message_buffer *m, const char *const *strings)
{
	struct wire_key_is like = {.h.cookie = m->h.cookie,
		.attachment = m->key.attachment,
		.item = m->key.item,
		.flags = m->key.flags};
	struct attachment *a = attachment_find(s, m->key.attachment);
	struct key *k = NULL;
	uint32_t extent = 0;
	int r;

	(void)strings;
	if (m->key.flags & ~WIRE_KEY_STAT)
		return false;
	if (!a || a->state != ATTACHMENT_LIVE || a->removed_from)
		r = -ENODEV;
	else if (!item_may_have_key(&s->manager->items, m->key.item, m->key.flags & WIRE_KEY_STAT))
		r = -EINVAL;
	else
		r = attachment_key(a, m->key.item, &k, &extent);
	send_key(s, WIRE_KEYED, &like, r, k, extent);
	/* Without a cookie nobody waits for it. */
	if (a && m->h.cookie == 0 && !(m->key.flags & WIRE_KEY_STAT) && a->state == ATTACHMENT_LIVE)
		watches_credit(s, a->pool);
	return true;
}

/* ------------------------------------------------------------------ credit */

static bool on_charge(struct session *s, const union message_buffer *m, const char *const *strings)
{
	(void)strings;
	return request_handle(s, &m->charge);
}

static bool on_ring(struct session *s, const union message_buffer *m, const char *const *strings)
{
	struct key *k = key_find(s, m->ring.key, m->ring.attachment);

	(void)strings;
	s->manager->stats.rings++;
	if (k)
		attachment_trim_reserves(k->attachment);
	return true;
}

static bool on_ahead(struct session *s, const union message_buffer *m, const char *const *strings)
{
	(void)strings;
	request_ahead(s, &m->ahead);
	return true;
}

/* ------------------------------------------------------------------ pools and files */

static bool on_transfer(
	struct session *s, const union message_buffer *m, const char *const *strings)
{
	(void)strings;
	return transfer_handle(s, &m->transfer);
}

static bool on_define(struct session *s, const union message_buffer *m, const char *const *strings)
{
	struct wire_item_is answer = {
		.h = WIRE_HEADER(WIRE_ITEM_IS, struct wire_item_is, m->h.cookie)};
	struct pool *root = s->manager->tree->root;
	struct item_table *items = &s->manager->items;
	uint32_t before = items->n;

	answer.status = access_is_admin(s) ? item_define(items, strings[0], m->define.type,
						     strings[1], strings[2], &answer.item)
					   : -EPERM;
	if (answer.status == 0)
		answer.type = items->items[answer.item].type;
	/* All show one more from now on. */
	for (struct pool *p = root; p && items->n != before; p = pool_next_preorder(p, root))
		pool_change(p);
	packet_send(s, &answer, sizeof(answer), NULL, 0);
	return true;
}

static bool on_item(struct session *s, const union message_buffer *m, const char *const *strings)
{
	struct wire_item_is answer = {
		.h = WIRE_HEADER(WIRE_ITEM_IS, struct wire_item_is, m->h.cookie)};
	const struct item_table *items = &s->manager->items;

	answer.status = item_lookup(items, strings[0], &answer.item);
	if (answer.status == 0)
		answer.type = items->items[answer.item].type;
	packet_send(s, &answer, sizeof(answer), NULL, 0);
	return true;
}

static void send_text(struct session *s, uint64_t cookie, int status, const char *text)
{
	struct {
		struct wire_text t;
		char tail[WIRE_TEXT_MAX];
	} answer;
	size_t n = status == 0 ? strlen(text) : 0, tail = 0;
	int fd = -1;

	answer.t = (struct wire_text){.status = status, .length = n};
	if (n > WIRE_TEXT_MAX) {
		fd = memfd_of_text("tally-text", text, n);
		answer.t.in_memfd = 1;
		if (fd < 0)
			answer.t = (struct wire_text){.status = fd};
	} else if (n > 0) {
		memcpy(answer.tail, text, n);
		tail = n;
	}
	answer.t.h = (struct wire_header){
		.size = (uint32_t)(sizeof(answer.t) + tail), .type = WIRE_TEXT, .cookie = cookie};
	packet_send(s, &answer, answer.t.h.size, &fd, fd >= 0 ? 1 : 0);
}

static bool on_get(struct session *s, const union message_buffer *m, const char *const *strings)
{
	struct manager *mgr = s->manager;
	_cleanup_(freep) char *text = NULL;
	uint64_t flags = m->get.flags;
	struct pool *p;
	int r;

	if ((flags & ~(WIRE_GET_EXACT | WIRE_GET_RATELIMITED | WIRE_GET_CACHED)) ||
		(flags & (flags - 1)))
		return false;
	r = pool_find(mgr->tree, strings[0], &p);
	if (r == 0)
		r = files_check_read(s, p, strings[1]);
	if (r == 0)
		r = flush_for_read(mgr->flush, p, strings[1], flags);
	if (r == 0)
		r = files_read(mgr, p, strings[1], &text);
	send_text(s, m->h.cookie, r, text);
	return true;
}

/* Nobody else's: it tells of pools that the session need not be allowed to see. */
static bool on_refusal(struct session *s, const union message_buffer *m, const char *const *strings)
{
	_cleanup_(freep) char *text = NULL;
	int r = refusal_read(s->manager->refusals, m->refusal.number, s->number, &text);

	(void)strings;
	send_text(s, m->h.cookie, r, text);
	return true;
}

static bool on_set(struct session *s, const union message_buffer *m, const char *const *strings)
{
	struct pool *p;
	int r = pool_find(s->manager->tree, strings[0], &p);

	if (r == 0)
		r = files_check_write(s, p, strings[1]);
	if (r < 0)
		packet_send_done(s, m->h.cookie, r);
	else
		files_write(s, m->h.cookie, p, strings[1], strings[2]);
	return true;
}

static bool on_create(struct session *s, const union message_buffer *m, const char *const *strings)
{
	struct pool *p;

	packet_send_done(s, m->h.cookie, owner_create(s, strings[0], OWNER_LAST, &p));
	return true;
}

static bool on_remove(struct session *s, const union message_buffer *m, const char *const *strings)
{
	struct pool *p;
	int r;

	if (m->remove.flags & ~WIRE_REMOVE_FORCE)
		return false;
	r = pool_find(s->manager->tree, strings[0], &p);
	if (r == 0)
		r = access_check(s, p, ACCESS_REMOVE);
	if (r == 0 && (m->remove.flags & WIRE_REMOVE_FORCE)) {
		r = removal_by_force(s, m->h.cookie, p);
		if (r == 0)
			return true;
	} else if (r == 0)
		r = removal_run(s->manager, p);
	packet_send_done(s, m->h.cookie, r);
	return true;
}

/* ------------------------------------------------------------------ places in line */

static bool on_queue(struct session *s, const union message_buffer *m, const char *const *strings)
{
	struct wire_queue_is answer = {
		.h = WIRE_HEADER(WIRE_QUEUE_IS, struct wire_queue_is, m->h.cookie)};
	int fd = -1;

	(void)strings;
	answer.status = line_new(s, m->queue.queue, &fd);
	if (answer.status == -EEXIST)
		return false;
	packet_send(s, &answer, sizeof(answer), &fd, answer.status == 0 ? 1 : 0);
	return true;
}

static bool on_request(struct session *s, const union message_buffer *m, const char *const *strings)
{
	(void)strings;
	return turn_request(s, &m->request);
}

static bool on_cancel(struct session *s, const union message_buffer *m, const char *const *strings)
{
	(void)strings;
	return turn_cancel(s, &m->cancel);
}

static bool on_fetch(struct session *s, const union message_buffer *m, const char *const *strings)
{
	(void)strings;
	return turn_fetch(s, &m->fetch);
}

/* ------------------------------------------------------------------ what it is told and asked */

static bool on_watch(struct session *s, const union message_buffer *m, const char *const *strings)
{
	struct pool *p;
	int r = pool_find(s->manager->tree, strings[0], &p);

	if (r == 0)
		r = access_check(s, p, ACCESS_READ);
	if (r >= 0)
		r = watches_add(s, m->watch.watch, p);
	if (r == -EEXIST)
		return false;
	packet_send_done(s, m->h.cookie, r);
	return true;
}

static bool on_unwatch(struct session *s, const union message_buffer *m, const char *const *strings)
{
	(void)strings;
	watches_remove(s, m->unwatch.watch);
	return true;
}

static bool on_reclaim(struct session *s, const union message_buffer *m, const char *const *strings)
{
	struct attachment *a = attachment_find(s, m->on_reclaim.attachment);
	uint64_t flags = m->on_reclaim.flags;

	(void)strings;
	if (flags & ~WIRE_ON_RECLAIM_SET)
		return false;
	packet_send_done(s, m->h.cookie, a ? callback_set(a, flags) : -ENODEV);
	return true;
}

/* ------------------------------------------------------------------ the end */

static bool on_bye(struct session *s, const union message_buffer *m, const char *const *strings)
{
	(void)strings;
	packet_send_done(s, m->h.cookie, 0);
	session_end(s, "it said BYE");
	return true;
}

static const handler_fn handlers[WIRE_REQUESTS_END] = {
	[WIRE_HELLO] = on_hello,
	[WIRE_ATTACH] = on_attach,
	[WIRE_DETACH] = on_detach,
	[WIRE_FORGET] = on_forget,
	[WIRE_KEY] = on_key,
	[WIRE_EXTENT] = on_extent,
	[WIRE_CHARGE] = on_charge,
	[WIRE_RING] = on_ring,
	[WIRE_AHEAD] = on_ahead,
	[WIRE_ITEM] = on_item,
	[WIRE_DEFINE] = on_define,
	[WIRE_GET] = on_get,
	[WIRE_SET] = on_set,
	[WIRE_CREATE] = on_create,
	[WIRE_REMOVE] = on_remove,
	[WIRE_BYE] = on_bye,
	[WIRE_TRANSFER] = on_transfer,
	[WIRE_WATCH] = on_watch,
	[WIRE_UNWATCH] = on_unwatch,
	[WIRE_ON_RECLAIM] = on_reclaim,
	[WIRE_REFUSAL] = on_refusal,
	[WIRE_QUEUE] = on_queue,
	[WIRE_REQUEST] = on_request,
	[WIRE_CANCEL] = on_cancel,
	[WIRE_FETCH] = on_fetch,
};

bool message_handle(struct session *s, const union message_buffer *m, size_t n, unsigned n_fds)
{
	const char *strings[WIRE_STRINGS_MAX];

	if (wire_check_request(m, n, n_fds, strings) < 0)
		return false;
	if (s->state == SESSION_NEW && m->h.type != WIRE_HELLO)
		return false;
	return handlers[m->h.type](s, m, strings);
}
