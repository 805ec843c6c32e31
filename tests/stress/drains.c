/* SPDX-License-Identifier: MIT */

/*
 * The process that gives nobody any rest: it drains one pool after the other, and looks at the
 * figures in between. Whatever they are while charges move, a limit holds.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stress.h"

static uint64_t value_of(const char *text, const char *key)
{
	const char *line = strstr(text, key);

	assert_non_null(line);
	return strtoull(line + strlen(key), NULL, 10);
}

static void look(struct stress *s, struct tally *t, unsigned pool)
{
	char *text = harness_get(t, stress_pools[pool], "memory.stat");

	s->drains.looks++;
	if (pool == STRESS_LIMITED &&
		value_of(text, "held ") + value_of(text, "stock ") > STRESS_LIMIT)
		s->drains.above_limit++;
	free(text);
}

static void drain(struct stress *s, struct tally *t, unsigned pool)
{
	int r = tally_set(t, stress_pools[pool], "pool.drain", "1");

	assert_int_equal(r, 0);
	s->drains.drains++;
}

static void run(struct stress *s, struct tally *t)
{
	for (unsigned n = 0; !atomic_load(&s->stop); n++) {
		drain(s, t, n % STRESS_POOLS);
		look(s, t, n % 4 ? n % STRESS_POOLS : STRESS_LIMITED);
	}
}

int drains_main(struct stress *s, int fd)
{
	enum stress_order order = STRESS_END;
	struct tally *t;

	assert_int_equal(tally_open(s->address, 0, &t), 0);
	stress_answer(fd);
	while (stress_next_order(fd, &order) && order != STRESS_END) {
		if (order == STRESS_RUN)
			run(s, t);
		else
			stress_answer(fd);
	}
	tally_close(t);
	return order != STRESS_END;
}
