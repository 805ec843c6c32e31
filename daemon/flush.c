/* SPDX-License-Identifier: MIT */

#include "flush.h"

#include <errno.h>

#include "export.h"
#include "row.h"

struct flush {
	struct manager *manager;
	uv_timer_t timer;
	uint64_t last_usec; /* of the whole tree */
};

/*
 * Idle credit of a key: in slots, in the reserve, and in answers that nobody has accepted yet.
 * Never more than was granted: the words are the client's to write.
 */
static uint64_t idle_of(const struct key *k)
{
	struct session *s = k->attachment->session;
	struct segment_key *words = key_words(k);
	const struct ledger_copy *c = ledger_read(k->row);
	word w = atomic_load(&words->reserve);
	uint64_t idle = s->idle[k->number];

	if (word_key(w) == k->number)
		idle += word_bytes(w);
	for (unsigned lane = 0; lane < SEGMENT_LANES; lane++)
		if (atomic_load(&words->accepted[lane]) != c->seq[lane] &&
			c->last[lane] != LEDGER_DEPOSITED)
			idle += c->last[lane];
	return idle < c->granted ? idle : c->granted;
}

static int add_attachment(struct pool *p, struct attachment *a, uint64_t look)
{
	struct key *k;
	int ret = 0;

	session_scan(a->session, look);
	TAILQ_FOREACH (k, &a->keys, entry) {
		uint64_t idle, held;
		int r = 0;

		row_fold(k);
		idle = idle_of(k);
		held = ledger_read(k->row)->granted - idle;
		p->own.held += held;
		p->own.stock += idle;
		if (k->item != 0)
			r = figures_add_item(&p->own, k->item, held);
		ret = r < 0 ? r : ret;
	}
	return ret;
}

static int look_at_own(struct pool *p, uint64_t look)
{
	uint64_t overdraft = p->own.overdraft;
	struct pool_member *m;
	int ret = 0;

	figures_reset(&p->own);
	p->own.overdraft = overdraft;
	TAILQ_FOREACH (m, &p->members, entry) {
		int r = add_attachment(p, attachment_of(m), look);

		ret = r < 0 ? r : ret;
	}
	return ret;
}

static int sum_up(struct pool *p)
{
	uint64_t peak = atomic_load(&p->counter.peak);
	struct figures sum = {0};
	struct pool *child;
	int ret = figures_add(&sum, &p->own);

	TAILQ_FOREACH (child, &p->children, sibling) {
		int r = figures_add(&sum, &child->sum);

		ret = r < 0 ? r : ret;
	}
	if (!figures_equal(&sum, &p->sum) || p->seen_peak != peak)
		p->version++;
	p->seen_peak = peak;
	figures_clear(&p->sum);
	p->sum = sum;
	return ret;
}

int flush_pool(struct flush *f, struct pool *root)
{
	uint64_t look = ++f->manager->last_look;
	int ret = 0;

	f->manager->stats.flushes++;
	for (struct pool *p = root; p; p = pool_next_preorder(p, root)) {
		int r = look_at_own(p, look);

		ret = r < 0 ? r : ret;
	}
	for (struct pool *p = pool_first_postorder(root); p; p = pool_next_postorder(p, root)) {
		int r = sum_up(p);

		ret = r < 0 ? r : ret;
	}
	if (!root->parent)
		f->last_usec = manager_now();
	return ret;
}

void flush_attachment(
	struct flush *f, const struct attachment *a, uint64_t *ret_held, uint64_t *ret_idle)
{
	uint64_t held = 0, idle = 0;
	struct key *k;

	session_scan(a->session, ++f->manager->last_look);
	TAILQ_FOREACH (k, &a->keys, entry) {
		uint64_t one;

		row_fold(k);
		one = idle_of(k);
		idle += one;
		held += ledger_read(k->row)->granted - one;
	}
	*ret_held = held;
	*ret_idle = idle;
}

/* Doorbells that were lost to a full socket, or rung too soon after another. */
static void look_at_reserves(struct manager *m)
{
	struct session *s;
	struct attachment *a;

	TAILQ_FOREACH (s, &m->sessions, entry)
		TAILQ_FOREACH (a, &s->attachments, entry)
			attachment_trim_reserves(a);
}

static void on_timer(uv_timer_t *t)
{
	struct flush *f = t->data;

	look_at_reserves(f->manager);
	flush_pool(f, f->manager->tree->root);
	export_run(f->manager->export);
}

int flush_new(struct manager *m, struct flush **ret)
{
	struct flush *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->manager = m;
	f->last_usec = manager_now();
	uv_timer_init(m->loop, &f->timer);
	f->timer.data = f;
	flush_reconfigure(f);
	*ret = f;
	return 0;
}

void flush_reconfigure(struct flush *f)
{
	uint64_t ms = f->manager->conf->flush_interval_usec / 1000;

	uv_timer_start(&f->timer, on_timer, ms, ms);
}

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

struct flush *flush_free(struct flush *f)
{
	if (f)
		uv_close((uv_handle_t *)&f->timer, on_closed);
	return NULL;
}

uint64_t flush_age(const struct flush *f)
{
	return manager_now() - f->last_usec;
}
