/* SPDX-License-Identifier: MIT */

#include "drain.h"

#include <errno.h>
#include <string.h>

#include "queue.h"
#include "row.h"

/*
 * What an answer brings beyond its need can be drained as soon as the client has accepted it, which
 * takes it a moment. A drain that comes just then finds nothing, and what fits would be refused. So
 * it is tried again a few times, but not for a client that has stopped.
 */
#define FLIGHT_USEC 100000
/* Who was told to try again has so long to do it, unless the room is needed for a charge. */
#define DEPOSIT_USEC UINT64_C(1000000)
#define PAUSE_MS 1
#define MOST_PAUSES 100

struct drain_wait {
	TAILQ_ENTRY(drain_wait) entry;
	struct drain *drain;
	struct itemlimit_place at;
	enum drain_scope scope;
	unsigned pauses;  /* for credit that was on its way */
	drain_done_fn fn; /* NULL: cancelled */
	void *userdata;
};

TAILQ_HEAD(wait_list, drain_wait);

struct drain {
	struct manager *manager;
	struct drainer *drainer;
	uv_idle_t
		begin; /* defers the beginning, so that nobody is called back from within a call */
	struct wait_list waiting; /* for their drain to begin */
	struct wait_list paused;  /* to be drained for once more, after the pause */
	uv_timer_t pause;
	unsigned handles;
	struct wait_list active;   /* for the running one */
	struct itemlimit_place at; /* of the running one; pool NULL: none runs */
	enum drain_scope scope;    /* of the running one */
	bool in_flight;            /* it has met answers that nobody has accepted yet */
	unsigned rounds;
	uint64_t now;   /* of the running round */
	uint64_t round; /* number of the last one, over all drains */
	uint64_t bytes;
	struct drainer_batch batch;
	bool *unreachable; /* by CPU: in the running one the drainer could not go there */
};

static void on_begin(uv_idle_t *idle);
static void on_pause_over(uv_timer_t *t);

static struct drain_wait *free_wait(struct drain_wait *w)
{
	pool_unref(w->at.pool);
	free(w);
	return NULL;
}

static void finish(struct drain *d)
{
	struct wait_list done = TAILQ_HEAD_INITIALIZER(done);
	struct drain_wait *w;
	uint64_t bytes = d->bytes;
	bool in_flight = d->in_flight && d->scope != DRAIN_STALE;

	d->manager->stats.drains++;
	d->manager->stats.drained_bytes += bytes;
	d->at.pool = pool_unref(d->at.pool);
	if (bytes > 0)
		queue_kick(d->manager);
	TAILQ_CONCAT(&done, &d->active, entry);
	if (!TAILQ_EMPTY(&d->waiting))
		uv_idle_start(&d->begin, on_begin);
	while ((w = TAILQ_FIRST(&done))) {
		TAILQ_REMOVE(&done, w, entry);
		if (bytes == 0 && in_flight && w->fn && w->pauses++ < MOST_PAUSES) {
			TAILQ_INSERT_TAIL(&d->paused, w, entry);
			uv_timer_start(&d->pause, on_pause_over, PAUSE_MS, 0);
			continue;
		}
		if (w->fn)
			w->fn(w->userdata, bytes);
		free_wait(w);
	}
}

static void on_pause_over(uv_timer_t *t)
{
	struct drain *d = t->data;

	TAILQ_CONCAT(&d->waiting, &d->paused, entry);
	if (!d->at.pool)
		uv_idle_start(&d->begin, on_begin);
}

static bool is_wanted(const struct drain *d, const struct key *k)
{
	return (d->at.item == 0 || k->item == d->at.item) &&
		(d->scope != DRAIN_STALE || k->stale) &&
		(d->scope != DRAIN_SURPLUS || k->deposited_usec == 0 ||
			d->now - k->deposited_usec >= DEPOSIT_USEC) &&
		(d->scope != DRAIN_REMOVED || k->attachment->removed_from);
}

static bool is_in_scope(const struct drain *d, const struct pool *p)
{
	return d->scope == DRAIN_COUNTED || d->scope == DRAIN_SURPLUS
		? pool_counts_in(p, d->at.pool)
		: pool_is_below(p, d->at.pool);
}

static struct pool *next_pool(const struct drain *d, struct pool *p)
{
	switch (d->scope) {
	case DRAIN_COUNTED:
	case DRAIN_SURPLUS:
		return pool_next_counted(p, d->at.pool);
	case DRAIN_REMOVED:
		return NULL;
	default:
		return pool_next_preorder(p, d->at.pool);
	}
}

/* A slot of a key of the subtree that may be drained now. */
static struct key *find_key(struct drain *d, struct session *s, word w)
{
	uint32_t number = word_key(w);
	struct key *k;

	/* Of a removed pool a slot with nothing in it is to be nobody's: an uncharge would fill it. */
	if ((word_bytes(w) == 0 && d->scope != DRAIN_REMOVED) || number > s->segment.n_keys)
		return NULL;
	k = s->keys[number];
	if (!k || !is_wanted(d, k) || k->attachment->state != ATTACHMENT_LIVE ||
		!row_is_settled(k) || !is_in_scope(d, k->attachment->pool))
		return NULL;
	return k;
}

static void add_slot(
	struct drain *d, struct session *s, uint32_t cpu, uint32_t i, percpu_word *slot)
{
	word w = percpu_load(slot);
	struct key *k = find_key(d, s, w);
	struct drainer_word *dw;

	if (!k)
		return;
	dw = drainer_batch_add(&d->batch);
	if (!dw)
		return;
	row_intend_slot(k, cpu, i, w);
	s->in_drainer++;
	dw->op = k->attachment->removed_from ? DRAINER_EXPEL : DRAINER_TAKE;
	dw->area = &s->stocks;
	dw->slot = slot;
	dw->cpu = cpu;
	dw->key = k->number;
	dw->bytes = word_bytes(w);
	dw->parity = word_parity(w);
	dw->userdata = k;
}

static void add_session(struct drain *d, struct session *s, uint64_t round)
{
	struct segment_header *h = segment_header(&s->segment);

	if (s->drained == round || s->state == SESSION_ENDING)
		return;
	s->drained = round;
	for (uint32_t cpu = 0; cpu < s->stocks.n_cpus; cpu++) {
		if (d->unreachable[cpu] ||
			!atomic_load_explicit(&h->touched[cpu], memory_order_acquire))
			continue;
		for (unsigned i = 0; i < STOCK_SLOTS; i++)
			add_slot(d, s, cpu, i, &s->stocks.pages[cpu].stock.slot[i]);
	}
}

static void take_reserves(struct drain *d, struct attachment *a)
{
	struct key *k;

	if (a->session->state == SESSION_ENDING)
		return;
	TAILQ_FOREACH (k, &a->keys, entry)
		if (is_wanted(d, k)) {
			d->bytes += row_take_reserve(k, 0);
			d->in_flight = d->in_flight ||
				(row_is_in_flight(k) && d->now - k->answered_usec < FLIGHT_USEC);
		}
}

static void next_round(struct drain *d);

static void on_taken(struct drainer_batch *b)
{
	struct drain *d = b->userdata;

	for (size_t i = 0; i < b->n; i++) {
		struct key *k = b->words[i].userdata;

		d->bytes += row_settle(k, b->words[i].done);
		d->manager->stats.steals_missed += !b->words[i].done;
		if (b->words[i].unreachable)
			d->unreachable[b->words[i].cpu] = true;
	}
	/* Only now may sessions and attachments go on that waited for the drainer to leave them. */
	for (size_t i = 0; i < b->n; i++) {
		struct key *k = b->words[i].userdata;

		b->words[i].userdata = k->attachment->session;
	}
	for (size_t i = 0; i < b->n; i++)
		session_left_drainer(b->words[i].userdata);
	b->n = 0;
	next_round(d);
}

/* Reserves once more in every round: what is drained from stocks may have been put back there. */
static void next_round(struct drain *d)
{
	struct pool *p;
	struct pool_member *m;
	uint64_t round = ++d->round;

	d->now = manager_now();
	if (d->rounds++ < d->manager->n_cpus + 2)
		for (p = d->at.pool; p; p = next_pool(d, p))
			TAILQ_FOREACH (m, &p->members, entry) {
				take_reserves(d, attachment_of(m));
				add_session(d, attachment_of(m)->session, round);
			}
	if (d->batch.n == 0)
		finish(d);
	else
		drainer_submit(d->drainer, &d->batch);
}

static void on_begin(uv_idle_t *idle)
{
	struct drain *d = idle->data;
	struct drain_wait *w = TAILQ_FIRST(&d->waiting), *next;

	uv_idle_stop(idle);
	if (d->at.pool || !w)
		return;
	d->at = (struct itemlimit_place){pool_ref(w->at.pool), w->at.item};
	d->scope = w->scope;
	d->rounds = 0;
	d->bytes = 0;
	d->in_flight = false;
	memset(d->unreachable, 0, d->manager->n_cpus * sizeof(*d->unreachable));
	for (; w; w = next) {
		next = TAILQ_NEXT(w, entry);
		if (!itemlimit_is_same(w->at, d->at) || w->scope != d->scope)
			continue;
		TAILQ_REMOVE(&d->waiting, w, entry);
		TAILQ_INSERT_TAIL(&d->active, w, entry);
	}
	next_round(d);
}

int drain_new(struct manager *m, struct drain **ret)
{
	struct drain *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return -ENOMEM;
	d->manager = m;
	TAILQ_INIT(&d->waiting);
	TAILQ_INIT(&d->active);
	TAILQ_INIT(&d->paused);
	d->batch.done = on_taken;
	d->batch.userdata = d;
	d->unreachable = calloc(m->n_cpus, sizeof(*d->unreachable));
	r = d->unreachable ? drainer_new(m->loop, &d->drainer) : -ENOMEM;
	if (r < 0) {
		free(d->unreachable);
		free(d);
		return r;
	}
	uv_idle_init(m->loop, &d->begin);
	uv_timer_init(m->loop, &d->pause);
	d->begin.data = d->pause.data = d;
	d->handles = 2;
	*ret = d;
	return 0;
}

static void on_closed(uv_handle_t *h)
{
	struct drain *d = h->data;

	if (--d->handles > 0)
		return;
	free(d->batch.words);
	free(d->unreachable);
	free(d);
}

struct drain *drain_free(struct drain *d)
{
	struct drain_wait *w;

	if (!d)
		return NULL;
	TAILQ_CONCAT(&d->waiting, &d->paused, entry);
	while ((w = TAILQ_FIRST(&d->waiting))) {
		TAILQ_REMOVE(&d->waiting, w, entry);
		free_wait(w);
	}
	d->drainer = drainer_free(d->drainer);
	uv_close((uv_handle_t *)&d->begin, on_closed);
	uv_close((uv_handle_t *)&d->pause, on_closed);
	return NULL;
}

int drain_start_scope(struct drain *d, struct itemlimit_place at, enum drain_scope scope,
	drain_done_fn fn, void *userdata, struct drain_wait **ret)
{
	struct drain_wait *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	*w = (struct drain_wait){
		.drain = d, .at = at, .scope = scope, .fn = fn, .userdata = userdata};
	pool_ref(at.pool);
	TAILQ_INSERT_TAIL(&d->waiting, w, entry);
	if (!d->at.pool)
		uv_idle_start(&d->begin, on_begin);
	*ret = w;
	return 0;
}

int drain_start(struct drain *d, struct itemlimit_place at, drain_done_fn fn, void *userdata,
	struct drain_wait **ret)
{
	return drain_start_scope(d, at, DRAIN_COUNTED, fn, userdata, ret);
}

int drain_stale(struct drain *d, drain_done_fn fn, void *userdata, struct drain_wait **ret)
{
	struct itemlimit_place root = {d->manager->tree->root, 0};

	return drain_start_scope(d, root, DRAIN_STALE, fn, userdata, ret);
}

struct drain_wait *drain_cancel(struct drain_wait *w)
{
	if (w)
		w->fn = NULL;
	return NULL;
}

static void ignore(void *userdata, uint64_t bytes)
{
	(void)userdata;
	(void)bytes;
}

static void drain_above(struct drain *d, struct itemlimit_place at, const struct counter *c)
{
	struct drain_wait *wait;

	if (counter_read(c) > atomic_load(&c->max))
		drain_start(d, at, ignore, NULL, &wait);
}

void drain_above_limits(struct drain *d, struct pool *p)
{
	const struct itemlimit *l;

	/* At start there is nobody to drain. */
	if (!d)
		return;
	drain_above(d, (struct itemlimit_place){p, 0}, &p->counter);
	for (l = p->itemlimits; l; l = l->next)
		drain_above(d, (struct itemlimit_place){p, l->item}, &l->counter);
}

void drain_submit(struct drain *d, struct drainer_batch *b)
{
	drainer_submit(d->drainer, b);
}
