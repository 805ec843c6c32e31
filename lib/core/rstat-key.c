/* SPDX-License-Identifier: MIT */

/*
 * One key: what it has is compared with what the figures of its pool, and of all above it, have of it,
 * and the difference is added to them.
 *
 * What a client writes is believed as far as it concerns its own figures, and bounded: a key has no
 * more idle than it was granted, and moves no more than 2^43 either way in all.
 */

#include "rstat-key.h"

#include <errno.h>
#include <stdlib.h>

#define MOVED_MAX ((int64_t)WORD_BYTES_MAX)

static bool is_event(const struct rstat_key *k)
{
	return item_is_event(k->pool->tree->items, k->item);
}

static uint32_t node_of(const struct rstat_host *h, uint32_t cpu)
{
	return h->node_of_cpu ? h->node_of_cpu[cpu] : 0;
}

/* ------------------------------------------------------------------ into the figures */

static int need_items(struct pool *p)
{
	int r = 0;

	for (; p && r == 0; p = pool_above(p))
		r = figures_need_items(&p->sum);
	return r;
}

static int need_moved(struct pool *p)
{
	int r = 0;

	for (; p && r == 0; p = pool_above(p))
		r = figures_need_moved(&p->sum, p->tree->n_nodes);
	return r;
}

static int64_t difference(uint64_t now, uint64_t before)
{
	return (int64_t)(now - before);
}

static void list_idle(struct rstat_key *k)
{
	struct rstat_host *h = k->rstat->host;

	if (k->has_idle == (k->idle > 0))
		return;
	k->has_idle = k->idle > 0;
	if (k->has_idle)
		TAILQ_INSERT_TAIL(&h->idle, k, idle_entry);
	else
		TAILQ_REMOVE(&h->idle, k, idle_entry);
}

static int show_credit(struct rstat_key *k, uint64_t held, uint64_t idle)
{
	int64_t more_held = difference(held, k->held), more_idle = difference(idle, k->idle);

	if (more_held == 0 && more_idle == 0)
		return 0;
	if (k->item != 0 && more_held != 0) {
		int r = need_items(k->pool);

		if (r < 0)
			return r;
	}
	k->held = held;
	k->idle = idle;
	list_idle(k);
	for (struct pool *p = k->pool; p; p = pool_above(p)) {
		figures_add(&p->sum.held, more_held);
		figures_add(&p->sum.stock, more_idle);
		if (k->item != 0 && more_held != 0)
			figures_add(&p->sum.items[k->item], more_held);
		pool_change(p);
	}
	return 0;
}

uint64_t rstat_key_in_words(const struct rstat_key *k)
{
	word w = atomic_load(&segment_key(k->rstat->segment, k->number)->reserve);

	return k->slots + (word_key(w) == k->number ? word_bytes(w) : 0);
}

int rstat_key_settle(struct rstat_key *k)
{
	uint64_t granted, unaccepted, idle = rstat_key_in_words(k);
	int r;

	k->rstat->host->read(k, &granted, &unaccepted);
	idle += unaccepted;
	idle = idle < granted ? idle : granted;
	r = show_credit(k, granted - idle, idle);
	if (r == 0 && k->touched) {
		TAILQ_REMOVE(&k->rstat->touched, k, touch);
		k->touched = false;
	}
	return r;
}

static void show_moved(struct rstat_key *k, uint32_t node, int64_t more)
{
	size_t at = node * (ITEM_MAX + 1) + k->item;

	figures_add(&k->moved[node], more);
	for (struct pool *p = k->pool; p; p = pool_above(p)) {
		figures_add(&p->sum.moved[at], more);
		pool_change(p);
	}
}

/* What of a change the figures take. */
static int64_t bound_moved(const struct rstat_key *k, int64_t now, int64_t more)
{
	if (is_event(k))
		return more < 0 || more > MOVED_MAX ? 0 : more;
	if (more > MOVED_MAX - now && more > 0)
		return MOVED_MAX - now;
	if (more < -MOVED_MAX - now && more < 0)
		return -MOVED_MAX - now;
	return more;
}

static int64_t **previous_of(struct rstat *r, const struct segment_cells *c)
{
	if (!r->previous[c->extent])
		r->previous[c->extent] = calloc(rstat_n_cpus(r), sizeof(*r->previous[c->extent]));
	return r->previous[c->extent];
}

/* The cell of a key on a CPU, whose marks have been cleared. */
static int read_cell(struct rstat_key *k, const struct segment_cells *c, uint32_t cpu)
{
	const struct rstat_host *h = k->rstat->host;
	int64_t **previous = previous_of(k->rstat, c), value, more;

	if (k->still)
		return 0;
	if (!previous)
		return -ENOMEM;
	value = atomic_load_explicit(&segment_cell(c, cpu)->value, memory_order_relaxed);
	if (!previous[cpu]) {
		if (value == 0)
			return 0;
		previous[cpu] = calloc(c->n, sizeof(*previous[cpu]));
		if (!previous[cpu])
			return -ENOMEM;
	}
	if (value == previous[cpu][c->index])
		return 0;
	if (!k->moved)
		k->moved = calloc(k->pool->tree->n_nodes, sizeof(*k->moved));
	if (!k->moved || need_moved(k->pool) < 0)
		return -ENOMEM;
	more = difference((uint64_t)value, (uint64_t)previous[cpu][c->index]);
	previous[cpu][c->index] = value;
	show_moved(k, node_of(h, cpu), bound_moved(k, k->moved[node_of(h, cpu)], more));
	return 0;
}

/* ------------------------------------------------------------------ marks */

/* Its group's is looked at first: it lies with those of many keys, and so in the cache. Where it is not
 * set nobody has finished marking the key. */
static bool clear_key_mark(const struct segment_cells *c, uint32_t cpu, enum segment_mark which)
{
	return rstat_is_marked(segment_group_marks(c, cpu, which) + c->index / SEGMENT_GROUP) &&
		rstat_clear_mark(segment_key_marks(c, cpu, which) + c->index);
}

/* So that the next look sees it again. */
static void mark_again(
	struct rstat *r, const struct segment_cells *c, uint32_t cpu, enum segment_mark which)
{
	rstat_set_mark(segment_key_marks(c, cpu, which) + c->index);
	rstat_set_mark(segment_group_marks(c, cpu, which) + c->index / SEGMENT_GROUP);
	rstat_set_mark(&segment_page(r->segment, cpu)->changed[which][c->extent]);
}

/* The mark of a key has been cleared. */
int rstat_key_look_marked(
	struct rstat_key *k, const struct segment_cells *c, uint32_t cpu, enum segment_mark which)
{
	int r;

	k->rstat->host->keys++;
	r = which == SEGMENT_MOVED ? read_cell(k, c, cpu) : rstat_key_settle(k);
	if (r < 0)
		mark_again(k->rstat, c, cpu, which);
	return r;
}

int rstat_look_key(struct rstat_key *k, bool moved)
{
	struct segment_cells c = segment_cells(k->rstat->segment, k->number);
	bool credit = k->touched;
	int ret = 0;

	for (uint32_t cpu = 0; cpu < rstat_n_cpus(k->rstat); cpu++) {
		if (!rstat_is_touched(k->rstat, cpu))
			continue;
		credit = clear_key_mark(&c, cpu, SEGMENT_CREDIT) || credit;
		if (moved && clear_key_mark(&c, cpu, SEGMENT_MOVED)) {
			int r = rstat_key_look_marked(k, &c, cpu, SEGMENT_MOVED);

			ret = r < 0 ? r : ret;
		}
	}
	if (credit) {
		int r = rstat_key_settle(k);

		/* Touched, it is seen again. */
		if (r < 0)
			rstat_touch(k);
		ret = r < 0 ? r : ret;
	}
	return ret;
}

void rstat_look_pair(struct rstat_key *from, struct rstat_key *to)
{
	rstat_scan(from->rstat);
	rstat_key_settle(from);
	rstat_key_settle(to);
}

/* ------------------------------------------------------------------ beginning and end */

/* Whoever had the number before may have moved something after it was last looked at. Nobody writes
 * there now. */
static void begin_cells(struct rstat_key *k)
{
	struct segment_cells c = segment_cells(k->rstat->segment, k->number);
	int64_t **previous = k->rstat->previous[c.extent];

	for (uint32_t cpu = 0; cpu < rstat_n_cpus(k->rstat); cpu++) {
		struct segment_cell *cell;

		if (!rstat_is_touched(k->rstat, cpu))
			continue;
		cell = segment_cell(&c, cpu);
		if (previous && previous[cpu])
			previous[cpu][c.index] = atomic_load(&cell->value);
		else if (atomic_load(&cell->value) != 0)
			atomic_store(&cell->value, 0);
	}
}

void rstat_key_open(
	struct rstat_key *k, struct rstat *r, struct pool *p, uint32_t number, uint32_t item)
{
	*k = (struct rstat_key){.rstat = r, .pool = p, .number = number, .item = item};
	begin_cells(k);
}

/* All cells, marked or not: a client may have died between the two. */
static void read_cells(struct rstat_key *k)
{
	struct segment_cells c = segment_cells(k->rstat->segment, k->number);

	for (uint32_t cpu = 0; cpu < rstat_n_cpus(k->rstat); cpu++)
		if (rstat_is_touched(k->rstat, cpu))
			read_cell(k, &c, cpu);
}

void rstat_key_move(struct rstat_key *k, struct pool *parent)
{
	if (!k->pool)
		return;
	read_cells(k);
	k->still = true;
	k->pool = parent;
}

static void end_cells(struct rstat_key *k)
{
	read_cells(k);
	for (uint32_t node = 0; k->moved && !is_event(k) && node < k->pool->tree->n_nodes; node++)
		show_moved(k, node, difference(0, (uint64_t)k->moved[node]));
	free(k->moved);
	k->moved = NULL;
}

void rstat_key_close(struct rstat_key *k)
{
	if (!k->pool)
		return;
	end_cells(k);
	if (k->touched)
		TAILQ_REMOVE(&k->rstat->touched, k, touch);
	k->touched = false;
	/* What is held has its room, so this cannot fail. */
	show_credit(k, 0, 0);
	k->pool = NULL;
}

void rstat_key_free(struct rstat_key *k)
{
	free(k->moved);
	*k = (struct rstat_key){0};
}

void rstat_touch(struct rstat_key *k)
{
	if (k->touched || !k->pool)
		return;
	k->touched = true;
	TAILQ_INSERT_TAIL(&k->rstat->touched, k, touch);
}
