/* SPDX-License-Identifier: MIT */

#include "look.h"

#include <errno.h>
#include <string.h>

#include "core/statfmt.h"
#include "core/util.h"
#include "core/wire.h"
#include "credit.h"
#include "idle.h"

static int add_attachment(struct pool *p, struct engine_attachment *a)
{
	struct engine_key *k;
	int ret = 0;

	TAILQ_FOREACH (k, &a->keys, entry) {
		uint64_t idle, held;
		int r = 0;

		credit_fold(k);
		idle = idle_of(k);
		held = k->granted - idle;
		p->own.held += held;
		p->own.stock += idle;
		if (k->item != 0)
			r = figures_add_item(&p->own, k->item, held);
		ret = r < 0 ? r : ret;
	}
	return ret;
}

static int look_at_own(struct pool *p)
{
	uint64_t overdraft = p->own.overdraft;
	struct pool_member *m;
	int ret = 0;

	figures_reset(&p->own);
	p->own.overdraft = overdraft;
	TAILQ_FOREACH (m, &p->members, entry) {
		int r = add_attachment(p, container_of(m, struct engine_attachment, member));

		ret = r < 0 ? r : ret;
	}
	return ret;
}

static int sum_up(struct pool *p)
{
	struct figures sum = {0};
	struct pool *child;
	int ret = figures_add(&sum, &p->own);

	TAILQ_FOREACH (child, &p->children, sibling) {
		int r = figures_add(&sum, &child->sum);

		ret = r < 0 ? r : ret;
	}
	figures_clear(&p->sum);
	p->sum = sum;
	return ret;
}

int look_at(struct embedded *e, struct pool *root)
{
	int ret = 0;

	idle_scan(e);
	for (struct pool *p = root; p; p = pool_next_preorder(p, root)) {
		int r = look_at_own(p);

		ret = r < 0 ? r : ret;
	}
	for (struct pool *p = pool_first_postorder(root); p; p = pool_next_postorder(p, root)) {
		int r = sum_up(p);

		ret = r < 0 ? r : ret;
	}
	if (!root->parent)
		e->flushed_usec = engine_now();
	return ret;
}

/* ------------------------------------------------------------------ files */

static int write_drain(struct embedded *e, struct pool *p)
{
	idle_drain(e, p);
	return 0;
}

/* Files that only make something happen. What a daemon knows of its clients, and of itself, has no
 * file here. */
static const struct command {
	const char *file;
	int (*run)(struct embedded *e, struct pool *p);
} commands[] = {
	{"pool.drain", write_drain},
	{"pool.flush", look_at},
};

static const struct command *find_command(const char *file)
{
	for (size_t i = 0; i < ELEMENTS(commands); i++)
		if (strcmp(commands[i].file, file) == 0)
			return &commands[i];
	return NULL;
}

static bool shows_figures(const char *file)
{
	return strcmp(file, "memory.current") == 0 || strcmp(file, "memory.stat") == 0;
}

/* There is no periodic look but this: the first read after its time has come. */
static int look_for_read(struct embedded *e, struct pool *p, const char *file, uint64_t flags)
{
	uint64_t interval = e->conf->flush_interval_usec, age = engine_now() - e->flushed_usec;

	if (flags & WIRE_GET_CACHED)
		return 0;
	if (age > ((flags & WIRE_GET_RATELIMITED) ? 2 * interval : interval)) {
		idle_tidy(e);
		return look_at(e, e->tree->root);
	}
	if ((flags & WIRE_GET_RATELIMITED) || !shows_figures(file))
		return 0;
	return look_at(e, p);
}

int look_read(struct embedded *e, struct pool *p, const char *file, uint64_t flags, char **ret_text)
{
	int r = find_command(file) ? -EACCES : look_for_read(e, p, file, flags);

	return r < 0 ? r : statfmt_read(p, file, ret_text);
}

int look_write(struct embedded *e, struct pool *p, const char *file, const char *value)
{
	const struct command *c = find_command(file);
	int r = c ? c->run(e, p) : statfmt_write(p, file, value);

	if (r >= 0 && !c)
		idle_drain_above_limit(e, p);
	if (r >= 0)
		engine_kick(e);
	return r;
}
