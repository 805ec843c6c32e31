/* SPDX-License-Identifier: MIT */

#include "owed.h"

#include <errno.h>

#include "packet.h"

/* Nobody needs as many at a time, and each takes memory and a drain. */
#define OWED_MAX 64

int owed_new(struct session *s, uint64_t cookie, struct owed **ret)
{
	struct owed *o;

	if (s->n_owed == OWED_MAX)
		return -EAGAIN;
	o = malloc(sizeof(*o));
	if (!o)
		return -ENOMEM;
	s->n_owed++;
	*o = (struct owed){.manager = s->manager, .session = s->number, .cookie = cookie};
	*ret = o;
	return 0;
}

struct session *owed_session(const struct owed *o)
{
	struct session *s;

	TAILQ_FOREACH (s, &o->manager->sessions, entry)
		if (s->number == o->session)
			return s;
	return NULL;
}

void owed_refused(struct owed *o, int status, uint64_t refusal)
{
	struct session *s = owed_session(o);

	if (s)
		packet_send_refused(s, o->cookie, status, refusal);
	owed_free(o);
}

void owed_done(struct owed *o, int status)
{
	owed_refused(o, status, 0);
}

struct owed *owed_free(struct owed *o)
{
	struct session *s = o ? owed_session(o) : NULL;

	if (s)
		s->n_owed--;
	free(o);
	return NULL;
}
