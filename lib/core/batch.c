/* SPDX-License-Identifier: MIT */

#include "batch.h"

#include "word.h"

static uint64_t bounded(uint64_t bytes, uint64_t least, uint64_t most)
{
	if (bytes > most)
		bytes = most;
	return bytes < least ? least : bytes;
}

uint64_t batch_now(const struct batch *b, uint64_t now_usec, uint64_t least, uint64_t most)
{
	uint64_t rest = (now_usec - b->last_usec) / BATCH_REST_USEC;

	return bounded(rest < 64 ? b->bytes >> rest : 0, least, most);
}

uint64_t batch_next(struct batch *b, uint64_t now_usec, uint64_t least, uint64_t most)
{
	uint64_t bytes = batch_now(b, now_usec, least, most);

	if (b->bytes != 0 && now_usec - b->last_usec < BATCH_FAST_USEC)
		bytes = bounded(bytes > most / 2 ? most : bytes * 2, least, most);
	b->bytes = bytes;
	b->last_usec = now_usec;
	return bytes;
}

uint64_t batch_high(uint64_t high, uint64_t bytes, uint64_t least)
{
	uint64_t most = bounded(least * BATCH_HIGH_TIMES, least, WORD_HIT_MAX - 1);
	uint64_t aim = bytes < most ? bounded(bytes * BATCH_HIGH_CHARGES, least, most) : most;

	high = bounded(high, least, most);
	return aim > high ? high + (aim - high + 3) / 4 : high - (high - aim + 3) / 4;
}
