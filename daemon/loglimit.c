/* SPDX-License-Identifier: MIT */

#include "loglimit.h"

#include "core/util.h"
#include "log.h"
#include "manager.h"

#define TICK_MS 5000
/* So many users who cause lines in one minute are told apart. */
#define BUDGETS 64

struct budget {
	uid_t uid;
	uint64_t since_usec; /* 0: nobody's */
	unsigned n;
	unsigned long left_out;
};

static struct budget budgets[BUDGETS], others;
static uv_timer_t timer;
static bool has_timer;

static bool is_over(const struct budget *b, uint64_t now)
{
	return b->since_usec == 0 || now - b->since_usec >= LOGLIMIT_USEC;
}

static void end(struct budget *b)
{
	if (b->left_out > 0 && b != &others)
		log_warning("uid %u: %lu more lines about its processes were left out",
			(unsigned)b->uid, b->left_out);
	else if (b->left_out > 0)
		log_warning(
			"%lu more lines about processes of other users were left out", b->left_out);
	*b = (struct budget){0};
}

static struct budget *find(uid_t uid, uint64_t now)
{
	struct budget *unused = NULL;

	for (size_t i = 0; i < BUDGETS; i++) {
		struct budget *b = &budgets[i];

		if (b->since_usec != 0 && b->uid == uid)
			return b;
		if (!unused && is_over(b, now))
			unused = b;
	}
	return unused ? unused : &others;
}

static void on_tick(uv_timer_t *t)
{
	uint64_t now = manager_now();
	bool left_out = false;

	for (size_t i = 0; i <= BUDGETS; i++) {
		struct budget *b = i < BUDGETS ? &budgets[i] : &others;

		if (is_over(b, now))
			end(b);
		left_out = left_out || b->left_out > 0;
	}
	if (!left_out)
		uv_timer_stop(t);
}

bool loglimit_allows(uid_t uid)
{
	uint64_t now = manager_now();
	struct budget *b = find(uid, now);

	if (is_over(b, now)) {
		end(b);
		*b = (struct budget){.uid = uid, .since_usec = now};
	}
	if (b->n < LOGLIMIT_LINES) {
		b->n++;
		return true;
	}
	if (b->left_out++ == 0 && has_timer)
		uv_timer_start(&timer, on_tick, TICK_MS, TICK_MS);
	return false;
}

void loglimit_open(uv_loop_t *loop)
{
	uv_timer_init(loop, &timer);
	has_timer = true;
}

void loglimit_close(void)
{
	if (has_timer)
		uv_close((uv_handle_t *)&timer, NULL);
	has_timer = false;
	for (size_t i = 0; i < BUDGETS; i++)
		end(&budgets[i]);
	end(&others);
}
