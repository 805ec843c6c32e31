/* SPDX-License-Identifier: MIT */

/*
 * Delays end in another order than they began, and there may be one for each attachment of the
 * host: so they lie on a wheel, a place for each tick within the longest delay, where beginning and
 * ending one costs the same whatever else is there.
 */

#include "throttle.h"

#include <errno.h>
#include <stdlib.h>

#include "attachment.h"
#include "core/high.h"
#include "core/pressure.h"
#include "drain.h"
#include "giveback.h"

#define TICK_MS UINT64_C(10)
#define TICK_USEC (TICK_MS * 1000)
#define PLACES 256

_Static_assert(HIGH_DELAY_MAX_USEC / TICK_USEC + 2 < PLACES, "a delay fits on the wheel");

TAILQ_HEAD(delay_list, throttle_delay);

struct throttle {
	uv_timer_t tick;
	uint64_t seen; /* number of the tick up to which delays have ended */
	unsigned n;
	struct delay_list places[PLACES];
};

static struct throttle *throttle_of(const struct attachment *a)
{
	return a->session->manager->throttle;
}

static struct delay_list *place_of(struct throttle *t, const struct throttle_delay *d)
{
	return &t->places[d->until_usec / TICK_USEC % PLACES];
}

static void take_off(struct throttle *t, struct throttle_delay *d)
{
	TAILQ_REMOVE(place_of(t, d), d, entry);
	d->until_usec = 0;
	if (--t->n == 0)
		uv_timer_stop(&t->tick);
}

void throttle_end(struct attachment *a)
{
	if (a->delay.until_usec == 0)
		return;
	take_off(throttle_of(a), &a->delay);
	pressure_end(a->pool, &a->member);
}

static void end_place(struct delay_list *place, uint64_t now)
{
	struct throttle_delay *d, *next;

	for (d = TAILQ_FIRST(place); d; d = next) {
		next = TAILQ_NEXT(d, entry);
		if (d->until_usec <= now)
			throttle_end(container_of(d, struct attachment, delay));
	}
}

static void on_tick(uv_timer_t *timer)
{
	struct throttle *t = timer->data;
	uint64_t now = manager_now(), tick = now / TICK_USEC;
	uint64_t from = tick - t->seen < PLACES ? t->seen : tick - PLACES + 1;

	/* That of the last tick once more: what ends within the present one was left there. */
	for (; from <= tick; from++)
		end_place(&t->places[from % PLACES], now);
	t->seen = tick;
}

void throttle_begin(struct attachment *a, uint64_t until_usec)
{
	struct throttle *t = throttle_of(a);
	struct throttle_delay *d = &a->delay;

	if (until_usec <= d->until_usec)
		return;
	if (d->until_usec == 0) {
		pressure_prepare(a->pool);
		pressure_begin(a->pool, &a->member);
	} else
		take_off(t, d);
	d->until_usec = until_usec;
	TAILQ_INSERT_TAIL(place_of(t, d), d, entry);
	if (t->n++ == 0) {
		t->seen = manager_now() / TICK_USEC;
		uv_timer_start(&t->tick, on_tick, TICK_MS, TICK_MS);
	}
}

void throttle_on_high(void *manager, struct pool *p, uint64_t bytes)
{
	giveback_in_background(manager, p, bytes);
}

void throttle_check(struct manager *m, struct pool *p)
{
	uint64_t usage = counter_read(&p->counter);

	/* At start there is nobody to ask. */
	if (m->drain && usage > p->high && !p->observe)
		throttle_on_high(m, p, usage - p->high);
}

int throttle_new(struct manager *m, struct throttle **ret)
{
	struct throttle *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	for (unsigned i = 0; i < PLACES; i++)
		TAILQ_INIT(&t->places[i]);
	uv_timer_init(m->loop, &t->tick);
	t->tick.data = t;
	*ret = t;
	return 0;
}

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

struct throttle *throttle_free(struct throttle *t)
{
	if (t)
		uv_close((uv_handle_t *)&t->tick, on_closed);
	return NULL;
}
