/* SPDX-License-Identifier: MIT */

/*
 * Building the engine from a configuration, and the numbers that stand in words: which keys there
 * are and whose. What happens to the credit of a key is in credit.c.
 */

#include "engine.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <search.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "conf/cpus.h"
#include "conf/nodes.h"
#include "core/itemlimit.h"
#include "core/pressure.h"
#include "core/refusal.h"
#include "core/util.h"
#include "credit.h"
#include "turn.h"

static uint64_t now_by(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

uint64_t engine_now(void)
{
	return now_by(CLOCK_MONOTONIC);
}

uint64_t engine_now_about(void)
{
	return now_by(CLOCK_MONOTONIC_COARSE);
}

/* ------------------------------------------------------------------ the mutex */

/* The mark is set before another try, and looked at after the mutex was let go: one of the two sees
 * what the other did. */
bool engine_trylock(struct embedded *e)
{
	if (pthread_mutex_trylock(&e->mutex) == 0)
		return true;
	atomic_store(&e->turned_away, true);
	return pthread_mutex_trylock(&e->mutex) == 0;
}

void engine_unlock(struct embedded *e)
{
	pthread_mutex_unlock(&e->mutex);
	while (atomic_load(&e->turned_away) && pthread_mutex_trylock(&e->mutex) == 0) {
		if (atomic_exchange(&e->turned_away, false))
			teller_credit(e, NULL);
		pthread_mutex_unlock(&e->mutex);
	}
}

/* ------------------------------------------------------------------ waiting */

void engine_kick(struct embedded *e)
{
	if (TAILQ_EMPTY(&e->waiting) && e->n_short == 0)
		return;
	atomic_fetch_add(&e->freed, 1);
	syscall(SYS_futex, &e->freed, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void engine_sleep(struct embedded *e, uint64_t until_usec)
{
	struct timespec t = {.tv_sec = (time_t)(until_usec / 1000000),
		.tv_nsec = (long)(until_usec % 1000000) * 1000};
	uint32_t seen = atomic_load(&e->freed);

	engine_unlock(e);
	syscall(SYS_futex, &e->freed, FUTEX_WAIT_BITSET_PRIVATE, seen, &t, NULL,
		FUTEX_BITSET_MATCH_ANY);
	pthread_mutex_lock(&e->mutex);
}

/* ------------------------------------------------------------------ building */

static int load_conf(struct embedded *e, const char *config)
{
	_cleanup_(freep) char *error = NULL;

	return config ? conf_load(config, "", &e->conf, &error) : conf_new_default(&e->conf);
}

static uint64_t sum_of_members(const struct pool *p, uint32_t item)
{
	const struct pool_member *m;
	const struct engine_key *k;
	uint64_t sum = 0;

	TAILQ_FOREACH (m, &p->members, entry)
		TAILQ_FOREACH (k, &((const struct engine_attachment *)(const void *)m)->keys, entry)
			if (k->item == item)
				sum += k->granted;
	return sum;
}

/* What the subtree's keys of the item were granted. */
static uint64_t sum_granted(struct pool *root, uint32_t item)
{
	uint64_t sum = 0;

	for (struct pool *p = root; p; p = pool_next_counted(p, root))
		sum += sum_of_members(p, item);
	return sum;
}

static int apply_conf(struct embedded *e)
{
	const struct conf *c = e->conf;
	uint64_t by_default = conf_flush_threshold(c, e->n_cpus);

	for (size_t i = 0; i < c->n_items; i++) {
		const struct conf_item *item = &c->items[i];
		uint32_t number;
		int r = item_define(
			&e->items, item->name, item->type, item->unit, item->help, &number);

		if (r < 0)
			return r;
	}
	pool_set_threshold(e->tree->root, 0, by_default);
	for (size_t i = 0; i < c->n_pools; i++) {
		struct pool *p;
		int r = pool_create_configured(e->tree, c->pools[i].path, &p);

		if (r < 0)
			return r;
		p->configured = true;
		for (unsigned l = 0; l < LIMITS; l++)
			limit_set(p, l, c->pools[i].values[l]);
		limit_observe(p, c->pools[i].observe);
		r = pool_set_standalone(p, c->pools[i].standalone);
		pool_set_threshold(p, c->pools[i].flush_threshold, by_default);
		for (uint32_t item = 1; r >= 0 && item <= e->items.n; item++)
			r = itemlimit_set(
				p, item, conf_item_max(&c->pools[i], e->items.items[item].name));
		if (r < 0)
			return r;
	}
	return 0;
}

static int load_nodes(struct embedded *e)
{
	_cleanup_(freep) char *error = NULL;

	return nodes_load("", &e->tree->n_nodes, &e->node_of_cpu, &error);
}

static struct rstat_key *find_stat(struct rstat *r, uint32_t number)
{
	struct engine_key *k = engine_key(container_of(r, struct embedded, rstat), number);

	return k ? &k->stat : NULL;
}

static int each_stat(struct pool_member *m, int (*fn)(struct rstat_key *k, bool moved), bool moved)
{
	struct engine_attachment *a = container_of(m, struct engine_attachment, member);
	struct engine_key *k;
	int ret = 0;

	TAILQ_FOREACH (k, &a->keys, entry) {
		int r = fn(&k->stat, moved);

		ret = r < 0 ? r : ret;
	}
	return ret;
}

static void init_rstats(struct embedded *e)
{
	rstat_host_init(&e->rstats, e->tree);
	e->rstats.node_of_cpu = e->node_of_cpu;
	e->rstats.read = credit_read;
	e->rstats.find = find_stat;
	e->rstats.each = each_stat;
}

int engine_new(const char *config, enum percpu_kind kind, const struct embedded_owner *o,
	struct embedded **ret)
{
	struct embedded *e = calloc(1, sizeof(*e));
	int r;

	if (!e)
		return -ENOMEM;
	e->owner = *o;
	e->kind = kind;
	e->n_cpus = cpus_possible();
	e->tidied_usec = e->flushed_usec = engine_now();
	pthread_mutex_init(&e->mutex, NULL);
	TAILQ_INIT(&e->free_keys);
	TAILQ_INIT(&e->attachments);
	TAILQ_INIT(&e->collected);
	TAILQ_INIT(&e->waiting);
	TAILQ_INIT(&e->short_ones);
	teller_init(e);
	for (unsigned i = 0; i < SEGMENT_EXTENTS; i++)
		e->extent_fds[i][0] = e->extent_fds[i][1] = -1;
	e->quiet = calloc(e->n_cpus, sizeof(*e->quiet));
	r = e->quiet ? load_conf(e, config) : -ENOMEM;
	if (r >= 0)
		r = pool_tree_new(&e->items, &e->tree);
	if (r >= 0)
		r = load_nodes(e);
	if (r >= 0)
		r = refusals_new(REFUSALS_BYTES_SMALL, &e->refusals);
	if (r >= 0) {
		e->tree->refusals = e->refusals;
		e->tree->sum_granted = sum_granted;
		e->tree->now = engine_now;
		e->tree->on_event = watch_event;
		e->tree->on_drop = watch_removed;
		init_rstats(e);
		r = apply_conf(e);
	}
	if (r < 0) {
		engine_free(e);
		return r;
	}
	*ret = e;
	return 0;
}

static void free_all(struct engine_attachments *list)
{
	struct engine_attachment *a;
	struct engine_key *k;

	while ((a = TAILQ_FIRST(list))) {
		TAILQ_FOREACH (k, &a->keys, entry)
			rstat_key_free(&k->stat);
		TAILQ_REMOVE(list, a, entry);
		if (a->pool)
			engine_leave(a);
		free(a);
	}
}

static void keep(void *attachment)
{
	(void)attachment;
}

static size_t size_of_keys(uint32_t extent)
{
	return ((size_t)SEGMENT_FIRST_KEYS << (extent - 1)) * sizeof(struct engine_key);
}

struct embedded *engine_free(struct embedded *e)
{
	if (!e)
		return NULL;
	/* In a child whose fork came upon a change half made nothing of it can be relied on. */
	if (pthread_mutex_trylock(&e->mutex) != 0)
		return NULL;
	pthread_mutex_unlock(&e->mutex);
	turn_free_all(e);
	tdestroy(e->attachment_index, keep);
	free_all(&e->attachments);
	free_all(&e->collected);
	teller_clear(e);
	for (uint32_t i = 1; i < SEGMENT_EXTENTS; i++) {
		if (e->keys[i])
			munmap(e->keys[i], size_of_keys(i));
		close_fd(e->extent_fds[i][0]);
		close_fd(e->extent_fds[i][1]);
	}
	rstat_end(&e->rstat);
	segment_unmap(&e->segment);
	pool_tree_free(e->tree);
	refusals_free(e->refusals);
	item_table_clear(&e->items);
	conf_free(e->conf);
	free(e->node_of_cpu);
	free(e->quiet);
	pthread_mutex_destroy(&e->mutex);
	free(e);
	return NULL;
}

/* As the daemon's session_publish_marks(). */
static void publish_marks(struct embedded *e)
{
	struct segment_info *info = segment_info(&e->segment);

	segment_set_batch(info, e->conf->batch);
}

int engine_begin(struct embedded *e, bool rseq, int ret_fds[static 2])
{
	enum percpu_kind kind = rseq ? e->kind : PERCPU_ATOMIC;
	int r = segment_extend(&e->segment, e->n_cpus, kind, ret_fds);

	if (r < 0)
		return r;
	e->stocks = segment_stocks(&e->segment);
	r = rstat_begin(&e->rstat, &e->rstats, &e->segment);
	if (r < 0)
		return r;
	segment_info(&e->segment)->session = 1;
	segment_info(&e->segment)->generation = 1;
	atomic_store(&segment_info(&e->segment)->flushed_usec, e->flushed_usec);
	publish_marks(e);
	return 0;
}

/* ------------------------------------------------------------------ attachments */

static int by_number(const void *a, const void *b)
{
	uint64_t x = ((const struct engine_attachment *)a)->number;
	uint64_t y = ((const struct engine_attachment *)b)->number;

	return x < y ? -1 : x > y;
}

struct engine_attachment *engine_find(struct embedded *e, uint64_t number)
{
	struct engine_attachment wanted = {.number = number};
	void *found = tfind(&wanted, &e->attachment_index, by_number);

	return found ? *(struct engine_attachment **)found : NULL;
}

static void free_collected(struct embedded *e)
{
	struct engine_attachment *a;

	TAILQ_FOREACH (a, &e->collected, entry)
		tdelete(a, &e->attachment_index, by_number);
	free_all(&e->collected);
}

void engine_leave(struct engine_attachment *a)
{
	struct pool *p = a->pool;

	a->place = place_unref(a->place);
	pool_remove_member(p, &a->member);
	a->pool = NULL;
	a->removed_from = pool_unref(a->removed_from);
	pool_sweep(p, NULL, NULL);
	pool_unref(p);
}

void engine_move(struct pool_member *m, struct pool *to, void *userdata)
{
	struct engine_attachment *a = container_of(m, struct engine_attachment, member);
	struct engine_key *k;

	(void)userdata;
	/* Its place is that of the first pool, and keeps that. */
	if (a->removed_from)
		pool_unref(a->pool);
	else
		a->removed_from = a->pool;
	a->pool = pool_ref(to);
	TAILQ_FOREACH (k, &a->keys, entry) {
		credit_move(k);
		credit_take_reserve(k, 0);
	}
}

void engine_drop(struct engine_attachment *a)
{
	struct embedded *e = a->engine;
	struct engine_key *k;

	while ((k = TAILQ_FIRST(&a->keys))) {
		TAILQ_REMOVE(&a->keys, k, entry);
		k->attachment = NULL;
		TAILQ_INSERT_HEAD(&e->free_keys, k, entry);
		e->n_free_keys++;
	}
	TAILQ_REMOVE(&e->attachments, a, entry);
	TAILQ_INSERT_TAIL(&e->collected, a, entry);
}

/* ------------------------------------------------------------------ keys */

/* More keys: the next extent. The engine's side of them comes first: afterwards nothing may fail. */
static int extend(struct embedded *e, uint32_t *ret_extent)
{
	uint32_t extent = e->segment.n_extents, first = e->segment.n_keys + 1;
	struct engine_key *keys;
	int r;

	if (extent >= SEGMENT_EXTENTS)
		return -ENOSPC;
	keys = mmap(NULL, size_of_keys(extent), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	if (keys == MAP_FAILED)
		return -errno;
	r = segment_extend(&e->segment, 0, e->segment.kind, e->extent_fds[extent]);
	if (r < 0) {
		munmap(keys, size_of_keys(extent));
		return r;
	}
	e->keys[extent] = keys;
	for (uint32_t i = 0; i < size_of_keys(extent) / sizeof(*keys); i++) {
		keys[i].number = first + i;
		TAILQ_INSERT_TAIL(&e->free_keys, &keys[i], entry);
		e->n_free_keys++;
	}
	*ret_extent = extent;
	return 0;
}

/* Places are fewer than keys only where pools are deep: the extent that one needs has the other. */
static int find_room(struct embedded *e, struct pool *pool, uint32_t *ret_extent)
{
	int r = 0;

	if (!place_has_room(&e->rstat, pool))
		r = extend(e, ret_extent);
	return r == -ENOSPC ? 0 : r;
}

int engine_attach(struct embedded *e, uint64_t number, struct pool *pool,
	struct engine_attachment **ret, uint32_t *ret_extent)
{
	struct engine_attachment *a = engine_find(e, number);
	int r;

	if (a) {
		*ret = a;
		return -EEXIST;
	}
	free_collected(e);
	r = find_room(e, pool, ret_extent);
	if (r < 0)
		return r;
	/* Whoever waits later may not allocate. */
	r = pressure_prepare(pool);
	if (r < 0)
		return r;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->engine = e;
	a->number = number;
	TAILQ_INIT(&a->keys);
	r = place_ref(&e->rstat, pool, &a->place);
	if ((r < 0 && r != -ENOSPC) || !tsearch(a, &e->attachment_index, by_number)) {
		place_unref(a->place);
		free(a);
		return -ENOMEM;
	}
	a->pool = pool_ref(pool);
	pool_add_member(pool, &a->member);
	TAILQ_INSERT_TAIL(&e->attachments, a, entry);
	*ret = a;
	return 0;
}

int engine_key_new(
	struct engine_attachment *a, uint32_t item, struct engine_key **ret, uint32_t *ret_extent)
{
	struct embedded *e = a->engine;
	struct engine_key *k;

	if (TAILQ_EMPTY(&e->free_keys)) {
		int r = extend(e, ret_extent);

		if (r < 0)
			return r;
	}
	k = TAILQ_FIRST(&e->free_keys);
	TAILQ_REMOVE(&e->free_keys, k, entry);
	e->n_free_keys--;
	*k = (struct engine_key){.number = k->number, .item = item, .attachment = a};
	TAILQ_INSERT_TAIL(&a->keys, k, entry);
	*ret = k;
	return 0;
}

struct engine_key *engine_key(struct embedded *e, uint32_t number)
{
	uint32_t extent, i;

	if (number == 0 || number > e->segment.n_keys)
		return NULL;
	extent = segment_extent_of(number, &i);
	return e->keys[extent][i].attachment ? &e->keys[extent][i] : NULL;
}

struct engine_key *engine_find_key(struct embedded *e, uint32_t number, uint64_t attachment)
{
	struct engine_key *k = engine_key(e, number);

	if (!k || k->attachment->number != attachment || k->attachment->state != ENGINE_LIVE)
		return NULL;
	return k;
}
