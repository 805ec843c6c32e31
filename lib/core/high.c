/* SPDX-License-Identifier: MIT */

/*
 * The overage is a fraction of the limit, and the delay grows with its square: a pool that is a
 * little above goes on almost as before, one that is far above hardly at all. Charges are weighed by
 * their size, so that it is all the same whether memory is taken in small pieces or in big ones.
 */

#include "high.h"

#include <stdbool.h>

#define PRECISION 20               /* bits of the overage behind the point */
#define SCALE 14                   /* of its square, what is not taken off as precision */
#define UNIT (UINT64_C(64) * 4096) /* a charge of so many bytes is delayed just so long */
#define LEAST_HIGH UINT64_C(4096)  /* a limit below it counts as this one */
#define USEC_PER_SEC UINT64_C(1000000)
/* From here on the delay of the smallest charge is the longest one. */
#define OVERAGE_MAX (UINT64_C(1) << 48)

/* As a fraction of the limit. */
static uint64_t overage_of(uint64_t usage, uint64_t high)
{
	unsigned __int128 over;

	if (usage <= high)
		return 0;
	over = ((unsigned __int128)(usage - high) << PRECISION) /
		(high > LEAST_HIGH ? high : LEAST_HIGH);
	return over < OVERAGE_MAX ? (uint64_t)over : OVERAGE_MAX;
}

static uint64_t delay_of(uint64_t overage, uint64_t bytes)
{
	unsigned __int128 usec = (unsigned __int128)overage * overage;

	usec = (usec * USEC_PER_SEC) >> PRECISION >> SCALE;
	/* Before it is weighed: 128 bits hold no more. */
	usec = usec < UINT64_MAX ? usec : UINT64_MAX;
	usec = usec * bytes / UNIT;
	if (usec <= HIGH_DELAY_MIN_USEC)
		return 0;
	return usec < HIGH_DELAY_MAX_USEC ? (uint64_t)usec : HIGH_DELAY_MAX_USEC;
}

uint64_t high_delay(uint64_t usage, uint64_t high, uint64_t bytes)
{
	return delay_of(overage_of(usage, high), bytes);
}

static bool may_ask(struct pool *p)
{
	uint64_t now = p->tree->now ? p->tree->now() : 0;

	if (p->high_asked_usec != 0 && now - p->high_asked_usec < HIGH_ASK_USEC)
		return false;
	p->high_asked_usec = now;
	return true;
}

uint64_t high_charged(struct pool *p, uint64_t bytes, high_fn fn, void *userdata)
{
	uint64_t most = 0;

	for (; p; p = pool_above(p)) {
		uint64_t usage = counter_read(&p->counter), overage = overage_of(usage, p->high);

		if (usage <= p->high)
			continue;
		pool_count_event(p, POOL_HIGH);
		if (p->observe)
			continue;
		most = overage > most ? overage : most;
		if (may_ask(p))
			fn(userdata, p, usage - p->high);
	}
	return delay_of(most, bytes);
}
