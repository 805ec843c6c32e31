/* SPDX-License-Identifier: MIT */

/*
 * The averages are those of the kernel's load: at the end of each period of 2 s the percentage of it
 * is mixed into them. Between two changes the state is one and the same, so that any number of
 * periods can be made up for exactly when somebody looks; as they come to rest after some of the same
 * kind, at most about 1200 steps are computed.
 */

#include "pressure.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "text.h"

#define PERIOD UINT64_C(2000000)
#define FIXED UINT64_C(2048) /* 1 */
#define FIXED_SHIFT 11

/* exp(-2 s / 10 s, 60 s, 300 s). */
static const uint64_t decay[PRESSURE_AVERAGES] = {1677, 1981, 2034};

/* ------------------------------------------------------------------ averages */

static uint64_t mix(uint64_t average, uint64_t kept, uint64_t active)
{
	uint64_t sum = average * kept + active * (FIXED - kept);

	/* Rounded towards where it goes to, or it would never come to rest there. */
	if (active >= average)
		sum += FIXED - 1;
	return sum / FIXED;
}

/* The end of a period; returns whether an average has changed. */
static bool end_period(struct pressure *f)
{
	bool changed = false;

	for (unsigned s = 0; s < PRESSURE_STATES; s++) {
		uint64_t active = f->state[s].period_usec * 100 / PERIOD * FIXED;

		for (unsigned i = 0; i < PRESSURE_AVERAGES; i++) {
			uint64_t *average = &f->state[s].average[i];
			uint64_t old = *average;

			*average = mix(old, decay[i], active);
			changed = changed || *average != old;
		}
		f->state[s].period_usec = 0;
	}
	f->period_usec += PERIOD;
	return changed;
}

static void add(struct pressure *f, const bool on[static PRESSURE_STATES], uint64_t until)
{
	for (unsigned s = 0; s < PRESSURE_STATES; s++)
		if (on[s]) {
			f->state[s].total_usec += until - f->since_usec;
			f->state[s].period_usec += until - f->since_usec;
		}
	f->since_usec = until;
}

/* Whole periods that change nothing but the total. */
static void skip(struct pressure *f, const bool on[static PRESSURE_STATES], uint64_t now)
{
	uint64_t usec = (now - f->period_usec) / PERIOD * PERIOD;

	for (unsigned s = 0; s < PRESSURE_STATES; s++)
		if (on[s])
			f->state[s].total_usec += usec;
	f->period_usec += usec;
	f->since_usec += usec;
}

/* The states have been the same since the last time. */
static void advance(struct pressure *f, const struct pool *p, uint64_t now)
{
	const bool on[PRESSURE_STATES] = {
		[PRESSURE_SOME] = p->n_stalled_below > 0,
		[PRESSURE_FULL] =
			p->n_stalled_below > 0 && p->n_stalled_below >= p->n_members_below,
	};

	if (now < f->since_usec)
		return;
	while (now - f->period_usec >= PERIOD) {
		bool whole = f->since_usec == f->period_usec;

		add(f, on, f->period_usec + PERIOD);
		if (!end_period(f) && whole)
			skip(f, on, now);
	}
	add(f, on, now);
}

static bool is_at_rest(const struct pressure *f)
{
	for (unsigned s = 0; s < PRESSURE_STATES; s++) {
		if (f->state[s].period_usec != 0)
			return false;
		for (unsigned i = 0; i < PRESSURE_AVERAGES; i++)
			if (f->state[s].average[i] != 0)
				return false;
	}
	return true;
}

/* ------------------------------------------------------------------ what changes */

static uint64_t now_of(const struct pool *p)
{
	return p->tree->now();
}

int pressure_prepare(struct pool *p)
{
	if (!p->tree->now)
		return 0;
	for (; p && p->in_tree; p = p->parent) {
		struct pressure *f;

		if (p->pressure)
			continue;
		f = calloc(1, sizeof(*f));
		if (!f)
			return -ENOMEM;
		f->pool = p;
		f->since_usec = f->period_usec = now_of(p);
		p->pressure = f;
	}
	return 0;
}

void pressure_catch_up(struct pool *p)
{
	if (p->pressure && p->in_tree)
		advance(p->pressure, p, now_of(p));
}

static void list(struct pressure *f)
{
	if (f->listed || !f->pool->in_tree)
		return;
	f->listed = true;
	TAILQ_INSERT_TAIL(&f->pool->tree->pressures, f, entry);
}

void pressure_unlist(struct pool *p)
{
	struct pressure *f = p->pressure;

	if (f && f->listed) {
		TAILQ_REMOVE(&p->tree->pressures, f, entry);
		f->listed = false;
	}
}

void pressure_free(struct pool *p)
{
	free(p->pressure);
}

void pressure_count(struct pool *p, int members)
{
	for (; p; p = p->parent) {
		pressure_catch_up(p);
		p->n_stalled_below += (uint32_t)members;
		if (p->pressure)
			list(p->pressure);
		pool_change(p);
	}
}

void pressure_begin(struct pool *p, struct pool_member *m)
{
	if (m->n_stalls++ == 0)
		pressure_count(p, 1);
}

void pressure_end(struct pool *p, struct pool_member *m)
{
	if (--m->n_stalls == 0)
		pressure_count(p, -1);
}

void pressure_age(struct pool_tree *t)
{
	struct pressure *f, *next;

	for (f = TAILQ_FIRST(&t->pressures); f; f = next) {
		next = TAILQ_NEXT(f, entry);
		pressure_catch_up(f->pool);
		pool_change(f->pool);
		if (f->pool->n_stalled_below == 0 && is_at_rest(f))
			pressure_unlist(f->pool);
	}
}

/* ------------------------------------------------------------------ text */

static void read_state(const struct pressure *f, const char *name, enum pressure_state s,
	char buf[static PRESSURE_TEXT_MAX])
{
	uint64_t whole[PRESSURE_AVERAGES], hundredths[PRESSURE_AVERAGES];

	for (unsigned i = 0; i < PRESSURE_AVERAGES; i++) {
		whole[i] = f->state[s].average[i] >> FIXED_SHIFT;
		hundredths[i] = (f->state[s].average[i] & (FIXED - 1)) * 100 >> FIXED_SHIFT;
	}
	snprintf(buf, PRESSURE_TEXT_MAX,
		"%s avg10=%" PRIu64 ".%02" PRIu64 " avg60=%" PRIu64 ".%02" PRIu64 " avg300=%" PRIu64
		".%02" PRIu64 " total=%" PRIu64 "\n",
		name, whole[0], hundredths[0], whole[1], hundredths[1], whole[2], hundredths[2],
		f->state[s].total_usec);
}

void pressure_read(const struct pool *p, struct text *t)
{
	struct pressure now = {0};
	char buf[PRESSURE_TEXT_MAX];

	if (p->pressure) {
		now = *p->pressure;
		if (p->in_tree)
			advance(&now, p, now_of(p));
	}
	read_state(&now, "some", PRESSURE_SOME, buf);
	text_add(t, buf);
	read_state(&now, "full", PRESSURE_FULL, buf);
	text_add(t, buf);
}
