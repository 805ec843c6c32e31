/* SPDX-License-Identifier: MIT */

#include "recall.h"

#include <errno.h>

#include "core/reclaim.h"
#include "idle.h"
#include "question.h"

#define ROUND_USEC UINT64_C(300000) /* what is waited for those who answer later */
#define LEAST_BYTES (UINT64_C(256) << 10)

static struct engine_attachment *attachment_of(struct pool_member *m)
{
	return container_of(m, struct engine_attachment, member);
}

static uint64_t own_bytes(struct pool_member *m, uint32_t item)
{
	const struct engine_attachment *a = attachment_of(m);
	const struct engine_key *k;
	uint64_t sum = 0;

	if (!question_can_run(a))
		return 0;
	TAILQ_FOREACH (k, &a->keys, entry)
		if (item == 0 || k->item == item)
			sum += k->granted;
	return sum;
}

bool recall_is_inside(const struct embedded *e)
{
	return e->recalls && pthread_equal(e->recaller, pthread_self());
}

/* From the beginning each time: nothing of what was known before a function ran is known after it. */
static struct engine_attachment *next_to_ask(struct embedded *e, struct pool *top)
{
	struct reclaim_cursor c = {.top = top};

	while (!e->closed && reclaim_next(&c))
		if (c.member->want > 0 && question_can_run(attachment_of(c.member)))
			return attachment_of(c.member);
	return NULL;
}

/* Of those that were asked since then, and answer later. */
static bool some_are_open(struct embedded *e, struct pool *top, uint64_t first_token)
{
	struct reclaim_cursor c = {.top = top};

	while (!e->closed && reclaim_next(&c))
		if (attachment_of(c.member)->asked >= first_token)
			return true;
	return false;
}

static void sleep_until(struct embedded *e, uint64_t usec)
{
	e->n_short++;
	engine_sleep(e, usec);
	e->n_short--;
}

static void ask_all(struct embedded *e, struct pool *top, struct recall_result *result)
{
	uint64_t deadline = engine_now() + ROUND_USEC, first = e->last_token + 1;
	struct engine_attachment *a;

	while ((a = next_to_ask(e, top))) {
		uint64_t want = a->member.want, said;

		a->member.want = 0;
		said = question_run(a, want, deadline);
		/* As over a daemon, no more counts than was asked for. */
		result->reclaimed += said < want ? said : want;
	}
	while (some_are_open(e, top, first) && engine_now() < deadline)
		sleep_until(e, deadline);
}

bool recall_run(
	struct embedded *e, struct itemlimit_place at, uint64_t bytes, struct recall_result *result)
{
	uint64_t asked;

	if (recall_is_inside(e))
		return false;
	if (e->recalls) {
		uint64_t until = engine_now() + ROUND_USEC;

		while (e->recalls && !e->closed && engine_now() < until)
			sleep_until(e, until);
		return true;
	}
	bytes = bytes > LEAST_BYTES ? bytes : LEAST_BYTES;
	asked = reclaim_plan(at, bytes, own_bytes);
	if (asked == 0)
		return false;
	result->asked += asked;
	e->recaller = pthread_self();
	e->recalls = true;
	pool_ref(at.pool);
	ask_all(e, at.pool, result);
	e->recalls = false;
	result->drained += idle_drain(e, at.pool);
	pool_unref(at.pool);
	engine_kick(e);
	return true;
}

/* As the daemon's: too little rather than too much. */
static uint64_t bytes_back(const struct pool *p, uint64_t usage, uint64_t drained)
{
	uint64_t now = counter_read(&p->counter), less = now < usage ? usage - now : 0;

	return less > drained ? less : drained;
}

int recall_bytes(struct embedded *e, struct pool *p, uint64_t bytes)
{
	struct itemlimit_place at = {p, 0};
	uint64_t usage = counter_read(&p->counter), back;
	struct recall_result result = {0};

	if (recall_is_inside(e))
		return -EDEADLK;
	pool_ref(p);
	result.drained = idle_drain(e, p);
	for (unsigned round = 0; round < RECALL_ROUNDS; round++) {
		uint64_t came = result.drained + result.reclaimed;

		back = bytes_back(p, usage, result.drained);
		if (back >= bytes || e->closed || !recall_run(e, at, bytes - back, &result))
			break;
		if (round == 0)
			pool_count_event(p, POOL_RECLAIM);
		if (result.drained + result.reclaimed == came && !e->recalls)
			break;
	}
	back = bytes_back(p, usage, result.drained);
	pool_unref(p);
	return back >= bytes ? 0 : -EAGAIN;
}
