/* SPDX-License-Identifier: MIT */

#include "question.h"

void question_set(struct engine_attachment *a, bool on)
{
	a->asked = 0;
	pool_set_reclaims(a->pool, &a->member, on);
}

bool question_can_run(const struct engine_attachment *a)
{
	return a->state == ENGINE_LIVE && a->member.reclaims && a->asked == 0;
}

uint64_t question_run(struct engine_attachment *a, uint64_t want, uint64_t deadline_usec)
{
	struct embedded *e = a->engine;
	uint64_t number = a->number, token = ++e->last_token;
	int64_t freed;

	a->asked = token;
	engine_unlock(e);
	freed = e->owner.on_reclaim(e->owner.userdata, number, token, want, deadline_usec);
	pthread_mutex_lock(&e->mutex);
	if (freed >= 0)
		question_answer(e, number, token);
	return freed > 0 ? (uint64_t)freed : 0;
}

void question_answer(struct embedded *e, uint64_t attachment, uint64_t token)
{
	struct engine_attachment *a = engine_find(e, attachment);

	if (a && a->asked == token)
		a->asked = 0;
	engine_kick(e);
}
