/* SPDX-License-Identifier: MIT */

#include "line.h"

#include <errno.h>
#include <stdlib.h>

#include "turn.h"
#include "user.h"

static void free_line(struct line *l)
{
	struct session *s = l->session;

	turn_free_all(l);
	l->channel = channel_free(l->channel);
	TAILQ_REMOVE(&s->lines, l, entry);
	user_give(s->user, USER_QUEUED, 1);
	free(l);
}

/* Nothing is to be reported on it. */
static bool on_report(void *userdata, const void *message, size_t n)
{
	(void)userdata;
	(void)message;
	(void)n;
	return false;
}

static void on_gone(void *userdata, bool broken)
{
	struct line *l = userdata;

	if (broken)
		session_break(l->session);
	else
		free_line(l);
}

static size_t pack_look(const struct notice *n, void *buf)
{
	const struct line *l = container_of(n, struct line, look);
	struct wire_turn *m = buf;

	*m = (struct wire_turn){
		.h = WIRE_HEADER(WIRE_TURN, struct wire_turn, 0), .queue = l->number};
	return sizeof(*m);
}

int line_new(struct session *s, uint64_t number, int *ret_fd)
{
	_cleanup_(freep) struct line *l = NULL;
	struct channel_owner owner = {.on_report = on_report, .on_gone = on_gone};
	int r;

	if (number == 0 || line_find(s, number))
		return -EEXIST;
	r = user_take(s->user, USER_QUEUED, 1);
	if (r < 0)
		return r;
	owner.userdata = l = calloc(1, sizeof(*l));
	r = l ? channel_new(s->manager->loop, &owner, ret_fd, &l->channel) : -ENOMEM;
	if (r < 0) {
		user_give(s->user, USER_QUEUED, 1);
		return r;
	}
	l->session = s;
	l->number = number;
	l->look.pack = pack_look;
	TAILQ_INIT(&l->turns);
	TAILQ_INSERT_TAIL(&s->lines, l, entry);
	l = NULL;
	return 0;
}

struct line *line_find(struct session *s, uint64_t number)
{
	struct line *l;

	TAILQ_FOREACH (l, &s->lines, entry)
		if (l->number == number)
			return l;
	return NULL;
}

void line_look(struct line *l)
{
	channel_post(l->channel, &l->look);
}

void line_free_all(struct session *s)
{
	while (!TAILQ_EMPTY(&s->lines))
		free_line(TAILQ_FIRST(&s->lines));
}
