/* SPDX-License-Identifier: MIT */

#include "look.h"

#include <errno.h>
#include <string.h>

#include "core/statfmt.h"
#include "core/util.h"
#include "core/value.h"
#include "core/wire.h"
#include "idle.h"
#include "recall.h"

int look_at(struct embedded *e, struct pool *root, bool moved)
{
	return place_flush(&e->rstats, root, moved, moved ? engine_now() : 0);
}

/* What the daemon does by a timer. */
static int look_at_all(struct embedded *e)
{
	int r;

	e->flushed_usec = engine_now();
	r = place_flush_all(&e->rstats, e->flushed_usec);
	idle_trim_listed(e);
	return r;
}

/* ------------------------------------------------------------------ files */

static int write_drain(struct embedded *e, struct pool *p, const char *value)
{
	(void)value;
	for (struct pool *below = p; below; below = pool_next_preorder(below, p))
		if (below == p || below->standalone)
			idle_drain(e, below);
	return 0;
}

static int write_flush(struct embedded *e, struct pool *p, const char *value)
{
	(void)value;
	return look_at(e, p, true);
}

static int write_reclaim(struct embedded *e, struct pool *p, const char *value)
{
	uint64_t bytes;
	int r = value_parse_bytes(value, &bytes);

	return r < 0 ? r : recall_bytes(e, p, bytes);
}

/* Files that only make something happen. What a daemon knows of its clients, and of itself, has no
 * file here. */
static const struct command {
	const char *file;
	int (*run)(struct embedded *e, struct pool *p, const char *value);
} commands[] = {
	{"memory.reclaim", write_reclaim},
	{"pool.drain", write_drain},
	{"pool.flush", write_flush},
};

static const struct command *find_command(const char *file)
{
	for (size_t i = 0; i < ELEMENTS(commands); i++)
		if (strcmp(commands[i].file, file) == 0)
			return &commands[i];
	return NULL;
}

static uint64_t age_of_flush(const struct embedded *e)
{
	uint64_t now = engine_now_about();

	return now > e->flushed_usec ? now - e->flushed_usec : 0;
}

/*
 * There is no periodic look but this: the first read after its time has come. What is charged is
 * looked at by every read that shows it, what programs only tell by those that ask for it, or when
 * enough of it is pending.
 */
static int look_for_read(struct embedded *e, struct pool *p, const char *file, uint64_t flags)
{
	uint64_t interval = e->conf->flush_interval_usec, age;

	if (flags & WIRE_GET_CACHED)
		return 0;
	age = age_of_flush(e);
	if (age > ((flags & WIRE_GET_RATELIMITED) ? 2 * interval : interval))
		return look_at_all(e);
	if ((flags & WIRE_GET_RATELIMITED) || !statfmt_shows_figures(file))
		return 0;
	return look_at(e, p, (flags & WIRE_GET_EXACT) || place_is_due(p));
}

int look_read(struct embedded *e, struct pool *p, const char *file, uint64_t flags, char **ret_text)
{
	int r = find_command(file) ? -EACCES : look_for_read(e, p, file, flags);

	return r < 0 ? r : statfmt_read(p, file, ret_text);
}

int look_write(struct embedded *e, struct pool *p, const char *file, const char *value)
{
	const struct command *c = find_command(file);
	int r = c ? c->run(e, p, value) : statfmt_write(p, file, value);

	if (r >= 0 && !c) {
		place_publish_pool(p, 0);
		idle_drain_above_limit(e, p);
	}
	if (r >= 0)
		engine_kick(e);
	return r;
}
