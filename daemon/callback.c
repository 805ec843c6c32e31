/* SPDX-License-Identifier: MIT */

#include "callback.h"

#include <errno.h>
#include <string.h>

#include "channel.h"

struct callback {
	struct notice notice;
	struct attachment *attachment;
	uint64_t token, want, deadline_usec;
	bool asked, sent;
	callback_done_fn done; /* NULL: nobody waits */
	void *userdata;
};

static size_t pack(const struct notice *n, void *buf)
{
	const struct callback *c = container_of(n, struct callback, notice);
	const struct wire_reclaim m = {.h = WIRE_HEADER(WIRE_RECLAIM, struct wire_reclaim, 0),
		.attachment = c->attachment->number,
		.token = c->token,
		.want = c->want,
		.deadline_usec = c->deadline_usec};

	memcpy(buf, &m, sizeof(m));
	return sizeof(m);
}

static void on_sent(struct notice *n)
{
	container_of(n, struct callback, notice)->sent = true;
}

/* What was asked is over. */
static void finish(struct callback *c, uint64_t bytes)
{
	callback_done_fn done = c->done;

	channel_forget(&c->notice);
	c->asked = c->sent = false;
	c->done = NULL;
	if (done)
		done(c->userdata, c->attachment, bytes);
}

int callback_set(struct attachment *a, bool on)
{
	struct callback *c;

	if (a->state != ATTACHMENT_LIVE || a->removed_from)
		return -ENODEV;
	if (!on) {
		callback_end(a);
		return 0;
	}
	if (a->callback)
		return 0;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->attachment = a;
	c->notice.pack = pack;
	c->notice.sent = on_sent;
	a->callback = c;
	pool_set_reclaims(a->pool, &a->member, true);
	return 0;
}

bool callback_can_ask(const struct attachment *a)
{
	return a->callback && !a->callback->asked;
}

bool callback_is_busy(const struct attachment *a)
{
	return a->callback && a->callback->asked;
}

void callback_ask(struct attachment *a, uint64_t want, uint64_t deadline_usec,
	callback_done_fn done, void *userdata)
{
	struct callback *c = a->callback;

	c->asked = true;
	c->token = ++a->session->last_token;
	c->want = want;
	c->deadline_usec = deadline_usec;
	c->done = done;
	c->userdata = userdata;
	channel_post(a->session->channel, &c->notice);
}

void callback_cancel(struct attachment *a)
{
	struct callback *c = a->callback;

	if (!c || !c->asked)
		return;
	c->done = NULL;
	if (!c->sent)
		finish(c, 0);
}

void callback_answer(struct session *s, const struct wire_reclaimed *m)
{
	struct attachment *a = attachment_find(s, m->attachment);
	struct callback *c = a ? a->callback : NULL;

	if (c && c->sent && c->token == m->token)
		finish(c, m->bytes);
}

void callback_end(struct attachment *a)
{
	struct callback *c = a->callback;

	if (!c)
		return;
	a->callback = NULL;
	pool_set_reclaims(a->pool, &a->member, false);
	finish(c, 0);
	free(c);
}

void callback_end_all(struct session *s)
{
	struct attachment *a;

	TAILQ_FOREACH (a, &s->attachments, entry)
		callback_end(a);
}
