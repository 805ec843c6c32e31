/* SPDX-License-Identifier: MIT */

/*
 * A subtree can be looked at in two ways: pool by pool, asking each key of it whether it is marked;
 * or session by session, following the marks, and leaving those of keys elsewhere. The first costs
 * what the subtree has, the second what has changed anywhere in its sessions; it is the first for
 * small subtrees.
 */

#include <errno.h>
#include <stdlib.h>

#include "rstat-key.h"

/* What a subtree has, pools and attachments, to be looked at pool by pool: that is about as dear for
 * SMALL_EACH of them as following the marks of a session in which nothing has changed. */
#define SMALL_LEAST 64
#define SMALL_EACH 16

/* The open key of that number. */
static struct rstat_key *find(struct rstat *r, uint32_t number)
{
	struct rstat_key *k = r->host->find(r, number);

	return k && k->pool ? k : NULL;
}

/* ------------------------------------------------------------------ marks */

/* A group of keys whose mark has been cleared; marks of keys elsewhere stay, and so the group's. */
static int look_at_group(struct rstat *r, struct segment_cells *c, uint32_t first, uint32_t cpu,
	enum segment_mark which, const struct pool *root)
{
	_Atomic uint8_t *marks = segment_key_marks(c, cpu, which);
	uint32_t base = c->index, end = base + SEGMENT_GROUP;
	bool left = false;
	int ret = 0;

	for (uint32_t i = base; (i = rstat_next_mark(marks, i, end)) < end; i++) {
		struct rstat_key *k;
		int e;

		k = find(r, first + i);
		if (k && !pool_is_below(k->pool, root)) {
			left = true;
			continue;
		}
		rstat_clear_mark(&marks[i]);
		c->index = i;
		e = k ? rstat_key_look_marked(k, c, cpu, which) : 0;
		ret = e < 0 ? e : ret;
	}
	if (left) {
		rstat_set_mark(segment_group_marks(c, cpu, which) + base / SEGMENT_GROUP);
		ret = ret < 0 ? ret : 1;
	}
	return ret;
}

/* Returns 1 when marks of keys elsewhere are left. */
static int look_at_block(struct rstat *r, uint32_t extent, uint32_t cpu, enum segment_mark which,
	const struct pool *root)
{
	uint32_t first = SEGMENT_FIRST_KEYS * ((1U << (extent - 1)) - 1) + 1;
	struct segment_cells c = segment_cells(r->segment, first);
	_Atomic uint8_t *groups = segment_group_marks(&c, cpu, which);
	uint32_t n = c.n / SEGMENT_GROUP;
	int ret = 0;

	for (uint32_t g = 0; (g = rstat_next_mark(groups, g, n)) < n; g++) {
		int e;

		rstat_clear_mark(&groups[g]);
		c.index = g * SEGMENT_GROUP;
		e = look_at_group(r, &c, first, cpu, which, root);
		ret = ret < 0 || e == 0 ? ret : e;
	}
	return ret;
}

static int look_at_marks(struct rstat *r, enum segment_mark which, const struct pool *root)
{
	int ret = 0;

	for (uint32_t cpu = 0; cpu < rstat_n_cpus(r); cpu++) {
		_Atomic uint8_t *changed;

		if (!rstat_is_touched(r, cpu))
			continue;
		changed = segment_page(r->segment, cpu)->changed[which];
		for (uint32_t e = 1; e < r->segment->n_extents; e++) {
			int n;

			if (!rstat_clear_mark(&changed[e]))
				continue;
			n = look_at_block(r, e, cpu, which, root);
			if (n != 0)
				rstat_set_mark(&changed[e]);
			ret = n < 0 ? n : ret;
		}
	}
	return ret;
}

/* ------------------------------------------------------------------ slots */

static uint32_t read_taken(struct rstat *r, struct rstat_seen *ret_seen)
{
	return r->host->taken ? r->host->taken(r, ret_seen) : 0;
}

static uint32_t read_stocks(struct rstat *r)
{
	const struct percpu_area stocks = segment_stocks(r->segment);
	uint32_t n = 0;

	for (uint32_t cpu = 0; cpu < stocks.n_cpus; cpu++) {
		if (!rstat_is_touched(r, cpu))
			continue;
		for (unsigned i = 0; i < STOCK_SLOTS; i++) {
			word w = percpu_load(&stocks.pages[cpu].stock.slot[i]);

			if (word_bytes(w) > 0 && word_key(w) <= r->segment->n_keys)
				r->seen[n++] = (struct rstat_seen){word_key(w), word_bytes(w)};
		}
	}
	return n;
}

/* Nothing may pass out of a slot between the two. */
static uint32_t read_slots(struct rstat *r)
{
	uint32_t before, n, taken;

	do {
		before = read_taken(r, NULL);
		n = read_stocks(r);
		taken = read_taken(r, r->seen + n);
	} while (taken != before);
	return n + taken;
}

void rstat_scan(struct rstat *r)
{
	struct rstat_key *k;

	for (uint32_t i = 0; i < r->n_seen; i++)
		if ((k = find(r, r->seen[i].key))) {
			k->slots = 0;
			rstat_touch(k);
		}
	r->n_seen = read_slots(r);
	for (uint32_t i = 0; i < r->n_seen; i++)
		if ((k = find(r, r->seen[i].key))) {
			k->slots += r->seen[i].bytes;
			rstat_touch(k);
		}
}

/* ------------------------------------------------------------------ looks */

static void scan_once(struct rstat *r)
{
	if (r->look == r->host->looks)
		return;
	r->look = r->host->looks;
	rstat_scan(r);
}

static int look_one(struct rstat_key *k, bool moved)
{
	if (!k->pool)
		return 0;
	scan_once(k->rstat);
	return rstat_look_key(k, moved);
}

static int look_by_pools(struct rstat_host *h, struct pool *root, bool moved)
{
	struct pool_member *m;
	int ret = 0;

	for (struct pool *p = root; p; p = pool_next_preorder(p, root)) {
		h->pools++;
		TAILQ_FOREACH (m, &p->members, entry) {
			int r = h->each(m, look_one, moved);

			ret = r < 0 ? r : ret;
		}
	}
	return ret;
}

static int look_at_touched(struct rstat *r, const struct pool *root)
{
	struct rstat_key *k, *next;
	int ret = 0;

	for (k = TAILQ_FIRST(&r->touched); k; k = next) {
		int e;

		next = TAILQ_NEXT(k, touch);
		if (!pool_is_below(k->pool, root))
			continue;
		r->host->keys++;
		e = rstat_key_settle(k);
		ret = e < 0 ? e : ret;
	}
	return ret;
}

static int look_by_marks(struct rstat *r, const struct pool *root, bool moved)
{
	int credit, touched, cells;

	scan_once(r);
	touched = look_at_touched(r, root);
	credit = look_at_marks(r, SEGMENT_CREDIT, root);
	cells = moved ? look_at_marks(r, SEGMENT_MOVED, root) : 0;
	return touched < 0 ? touched : credit < 0 ? credit : cells;
}

static bool is_small(const struct rstat_host *h, const struct pool *root)
{
	uint64_t small = (uint64_t)SMALL_EACH * h->n_sessions;

	return (uint64_t)root->n_descendants + root->n_members_below <=
		(small < SMALL_LEAST ? SMALL_LEAST : small);
}

int rstat_look(struct rstat_host *h, struct pool *root, bool moved)
{
	struct rstat *r;
	int ret = 0;

	h->looks++;
	if (is_small(h, root))
		return look_by_pools(h, root, moved);
	TAILQ_FOREACH (r, &h->sessions, entry) {
		int e = look_by_marks(r, root, moved);

		ret = e < 0 ? e : ret;
	}
	return ret;
}

/* ------------------------------------------------------------------ sessions */

void rstat_host_init(struct rstat_host *h, struct pool_tree *tree)
{
	*h = (struct rstat_host){.tree = tree};
	TAILQ_INIT(&h->sessions);
	TAILQ_INIT(&h->idle);
}

int rstat_begin(struct rstat *r, struct rstat_host *h, const struct segment *s)
{
	struct rstat_seen *seen = calloc((size_t)s->n_cpus * STOCK_SLOTS * 2, sizeof(*seen));

	if (!seen)
		return -ENOMEM;
	*r = (struct rstat){.host = h, .segment = s, .seen = seen};
	TAILQ_INIT(&r->touched);
	TAILQ_INSERT_TAIL(&h->sessions, r, entry);
	h->n_sessions++;
	return 0;
}

void rstat_end(struct rstat *r)
{
	if (!r->host)
		return;
	for (unsigned e = 0; e < SEGMENT_EXTENTS; e++) {
		for (uint32_t cpu = 0; r->previous[e] && cpu < rstat_n_cpus(r); cpu++)
			free(r->previous[e][cpu]);
		free(r->previous[e]);
	}
	free(r->seen);
	free(r->places);
	free(r->free_places);
	TAILQ_REMOVE(&r->host->sessions, r, entry);
	r->host->n_sessions--;
	*r = (struct rstat){0};
}
