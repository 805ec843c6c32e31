/* SPDX-License-Identifier: MIT */

#include "claim.h"

#include <errno.h>
#include <time.h>

/* Between two attempts: several that do not fit together but each for itself would spin. */
#define PAUSE_MS_MIN 5
#define PAUSE_MS_MAX 160

uint64_t claim_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void give_back(const struct claim *c, tally_item item)
{
	tally_uncharge_item(c->pool, item, c->bytes);
}

/* All but `has`, which is taken already (n: none is), without standing in line. On failure all of it
 * is given back, that one too. */
static int take_others(
	struct claim *claims, size_t n, tally_item item, size_t has, size_t *ret_failed)
{
	for (size_t i = 0; i < n; i++) {
		int r = i == has ? 0 : tally_charge_item(claims[i].pool, item, claims[i].bytes);

		if (r == 0)
			continue;
		for (size_t taken = 0; taken < n; taken++)
			if (taken < i || taken == has)
				give_back(&claims[taken], item);
		*ret_failed = i;
		return r;
	}
	return 0;
}

static int wait_for(const struct claim *c, tally_item item, uint64_t deadline_usec)
{
	struct tally_charge_args args = {
		.item = item, .bytes = c->bytes, .deadline_usec = deadline_usec};

	return tally_charge_with(c->pool, &args, sizeof(args));
}

static void pause_until(uint64_t deadline_usec, unsigned ms)
{
	struct timespec t = {.tv_nsec = (long)ms * 1000000};

	if (claim_now() + ms * UINT64_C(1000) < deadline_usec)
		nanosleep(&t, NULL);
}

int claim_all(
	struct claim *claims, size_t n, tally_item item, uint64_t deadline_usec, size_t *ret_failed)
{
	size_t has = n, failed = 0;
	unsigned ms = PAUSE_MS_MIN;
	int r;

	for (;;) {
		r = take_others(claims, n, item, has, &failed);
		if (r != -ENOMEM || deadline_usec == 0)
			break;
		if (has < n) {
			pause_until(deadline_usec, ms);
			ms = ms < PAUSE_MS_MAX ? ms * 2 : ms;
		}
		has = failed;
		r = wait_for(&claims[has], item, deadline_usec);
		if (r < 0)
			break;
	}
	if (r < 0)
		*ret_failed = failed;
	return r;
}
