/* SPDX-License-Identifier: MIT */

#include "export.h"

#include <errno.h>
#include <string.h>

#include "exportdue.h"
#include "exporter.h"
#include "exportjob.h"
#include "exportset.h"
#include "log.h"

#define EXPORT_DIR "/pools"

/* In a batch: pools whose texts are made, and pools that are looked at. */
#define BATCH_MADE 64
#define BATCH_TAKEN 1024
/* One that is written, and one behind it. */
#define IN_FLIGHT 2
/* Looks at what is pending between two periodic flushes. */
#define TICKS 8
#define TICK_MS_MIN 50
/* Between two writings of what is in a hurry. */
#define HURRY_MS 10

struct export
{
	struct manager *manager;
	char *dir;
	struct exporter *exporter;
	struct exportset set;
	struct exportdue due;
	uv_timer_t tick;  /* for what is due before the periodic flush */
	uv_timer_t hurry; /* for what is in a hurry */
	unsigned handles;
	uint64_t hurried_ms; /* when that was last done */
	uint64_t n_hurried;  /* changes, at the head of the list, that are in a hurry */
	uint64_t left;       /* changes that are still to be taken */
	unsigned in_flight;
	struct exporter_jobs gone;  /* removals to be handed over */
	struct exporter_jobs again; /* those that have failed */
	uint64_t n_failed;          /* pools, and removals, whose last try failed */
	bool failing, lost, freeing;
};

static void free_jobs(struct exporter_jobs *jobs)
{
	struct exporter_job *j;

	while ((j = STAILQ_FIRST(jobs))) {
		STAILQ_REMOVE_HEAD(jobs, entry);
		exporter_job_free(j);
	}
}

static bool is_in(const struct pool *p)
{
	return p->export.state == EXPORTSET_IN;
}

/* What was written of it; it will all be written again. */
static void distrust(struct pool *p)
{
	exportjob_forget(p);
	if (is_in(p))
		pool_change(p);
}

static void distrust_all(struct export *e)
{
	for (uint32_t i = 0; i < e->set.n_levels; i++) {
		struct pool *p;

		TAILQ_FOREACH (p, &e->set.levels[i].in, export.entry)
			distrust(p);
	}
}

/* Returns `now`. */
static bool count_failed(struct export *e, bool before, bool now)
{
	e->n_failed += now;
	e->n_failed -= before;
	return now;
}

/* It is not in the set, or not any more. */
static void remove_files(struct export *e, struct pool *p)
{
	char path[PATH_MAX_BYTES + 1];
	struct exporter_job *j;

	exportjob_forget(p);
	p->export.failed = count_failed(e, p->export.failed, false);
	if (!p->export.has_files)
		return;
	p->export.has_files = false;
	j = exporter_job_new(pool_path_into(p, path, sizeof(path)), 0, 0);
	if (j)
		STAILQ_INSERT_TAIL(&e->gone, j, entry);
}

/* ------------------------------------------------------------------ what has changed */

static void add(struct export *e, struct pool *p)
{
	struct pool *out = exportset_add(&e->set, p);

	if (out)
		remove_files(e, out);
	e->manager->stats.exported_pools = e->set.n;
}

/* Whether its texts were made. */
static bool look_at(struct export *e, struct pool *p, struct exporter_batch *b)
{
	struct exporter_job *j;
	int r;

	if (p->export.state == EXPORTSET_UNSEEN)
		add(e, p);
	if (!is_in(p)) {
		p->export.hurried = false;
		return false;
	}
	if (p->export.busy) {
		/* One in a hurry comes back when it is settled. Behind what this run takes, so that what comes of the try is known by then. */
		pool_change(p);
		return false;
	}
	p->export.hurried = false;
	r = exportjob_make(e->manager, p, &j);
	if (r < 0) {
		distrust(p);
		e->left = 0;
	} else if (j) {
		j->userdata = pool_ref(p);
		p->export.busy = true;
		p->export.has_files = true;
		STAILQ_INSERT_TAIL(&b->jobs, j, entry);
	}
	return true;
}

static void on_done(struct exporter_batch *b);

/* One may be empty: it still goes round, so that the loop serves meanwhile. */
static struct exporter_batch *make_batch(struct export *e)
{
	struct exporter_batch *b = calloc(1, sizeof(*b));
	unsigned made = 0;

	if (!b)
		return NULL;
	b->done = on_done;
	b->userdata = e;
	STAILQ_INIT(&b->jobs);
	STAILQ_CONCAT(&b->jobs, &e->gone);
	for (unsigned i = 0; i < BATCH_TAKEN && made < BATCH_MADE && e->left > 0; i++) {
		struct pool *p = pool_take_change(e->manager->tree);

		e->left = p ? e->left - 1 : 0;
		if (p)
			made += look_at(e, p, b);
	}
	/* Those that lost their place to what was looked at. */
	STAILQ_CONCAT(&b->jobs, &e->gone);
	return b;
}

static void hand_over(struct export *e)
{
	while (!e->freeing && e->in_flight < IN_FLIGHT &&
		(e->left > 0 || !STAILQ_EMPTY(&e->gone))) {
		struct exporter_batch *b = make_batch(e);

		if (!b) {
			e->left = 0;
			return;
		}
		e->in_flight++;
		exporter_submit(e->exporter, b);
	}
}

/* Where a new pool of that path has its files by now, they are its own. */
static void try_again(struct export *e)
{
	struct exporter_job *j;

	while ((j = STAILQ_FIRST(&e->again))) {
		struct pool *p;

		STAILQ_REMOVE_HEAD(&e->again, entry);
		if (pool_find(e->manager->tree, j->path, &p) == 0 && p->export.has_files) {
			count_failed(e, j->failed, false);
			exporter_job_free(j);
		} else
			STAILQ_INSERT_TAIL(&e->gone, j, entry);
	}
}

void export_run(struct export *e)
{
	try_again(e);
	e->left = e->manager->tree->n_changes;
	hand_over(e);
}

void export_change_access(struct export *e, struct pool *p)
{
	struct pool *below = p;

	/* Its files before those of others: what they tell is not to be read any more. */
	if (is_in(p)) {
		distrust(p);
		pool_hurry_change(p);
	}
	/* A directory that is there for those below alone gets its mode with their files. */
	while (!is_in(p) && (below = pool_next_preorder(below, p)))
		if (is_in(below))
			distrust(below);
	export_run(e);
}

void export_forget(struct export *e, struct pool *p)
{
	struct pool *in = exportset_remove(&e->set, p);

	remove_files(e, p);
	if (in)
		pool_change(in);
	e->manager->stats.exported_pools = e->set.n;
	hand_over(e);
}

/* ------------------------------------------------------------------ what is in a hurry */

static void on_hurry(uv_timer_t *t)
{
	struct export *e = t->data;

	e->hurried_ms = uv_now(t->loop);
	e->left += e->n_hurried;
	e->n_hurried = 0;
	hand_over(e);
}

/* It is in the list of changes. */
static void hurry_one(struct export *e, struct pool *p)
{
	uint64_t now = uv_now(e->hurry.loop), next = e->hurried_ms + HURRY_MS;

	p->export.hurried = true;
	pool_hurry_change(p);
	e->n_hurried++;
	if (!uv_is_active((uv_handle_t *)&e->hurry))
		uv_timer_start(&e->hurry, on_hurry, next > now ? next - now : 0, 0);
}

void export_hurry(struct export *e, struct pool *p)
{
	if (!e || e->freeing)
		return;
	for (; p; p = p->parent)
		if (!p->export.hurried && (is_in(p) || p->export.state == EXPORTSET_UNSEEN))
			hurry_one(e, p);
}

/* ------------------------------------------------------------------ what came of it */

static void settle_pool(struct export *e, struct exporter_job *j)
{
	struct pool *p = j->userdata;

	p->export.busy = false;
	if (is_in(p)) {
		p->export.failed = count_failed(e, p->export.failed, j->result < 0);
		if (p->export.failed)
			distrust(p);
		if (p->export.hurried && p->in_tree) {
			pool_change(p);
			hurry_one(e, p);
		}
	}
	pool_unref(p);
	exporter_job_free(j);
}

static void settle(struct export *e, struct exporter_job *j)
{
	e->manager->stats.export_errors += j->result < 0;
	if (j->userdata) {
		settle_pool(e, j);
		return;
	}
	j->failed = count_failed(e, j->failed, j->result < 0);
	if (j->failed)
		STAILQ_INSERT_TAIL(&e->again, j, entry);
	else
		exporter_job_free(j);
}

static void log_lost(struct export *e, bool lost)
{
	if (lost && !e->lost)
		log_error("%s: was removed or replaced while tallyd runs; nothing is exported any "
			  "more: restart tallyd",
			e->manager->runtime_dir);
	e->lost = lost;
}

static void log_failing(struct export *e, const struct exporter_job *j)
{
	if (j->result == 0 || e->failing || e->lost)
		return;
	log_error("cannot export to %s%s: %s; serving goes on, and it is tried again at every "
		  "flush",
		e->dir, j->path, strerror(-j->result));
	e->failing = true;
}

static void drop(struct exporter_batch *b)
{
	struct exporter_job *j;

	STAILQ_FOREACH(j, &b->jobs, entry)
	pool_unref(j->userdata);
	free_jobs(&b->jobs);
	free(b);
}

static void on_done(struct exporter_batch *b)
{
	struct export *e = b->userdata;
	struct exporter_job *j;
	size_t n = 0, n_failed = 0;

	e->in_flight--;
	if (e->freeing) {
		drop(b);
		return;
	}
	e->manager->stats.exports += b->wrote.files;
	e->manager->stats.export_bytes += b->wrote.bytes;
	log_lost(e, b->lost);
	while ((j = STAILQ_FIRST(&b->jobs))) {
		STAILQ_REMOVE_HEAD(&b->jobs, entry);
		n++;
		n_failed += j->result < 0;
		log_failing(e, j);
		settle(e, j);
	}
	if (n > 0 && n_failed == n)
		/* The rest waits for the next flush. */
		e->left = 0;
	if (e->failing && e->n_failed == 0) {
		e->failing = false;
		log_info("exporting works again");
		/* What is there now may be what was there before. */
		distrust_all(e);
	}
	if (b->wrote.vanished)
		distrust_all(e);
	free(b);
	hand_over(e);
}

/* ------------------------------------------------------------------ from the start to the end */

static void on_tick(uv_timer_t *t)
{
	struct export *e = t->data;

	e->left += exportdue_run(&e->due, e->manager);
	hand_over(e);
}

static void set_tick(struct export *e)
{
	uint64_t ms = e->manager->conf->flush_interval_usec / 1000 / TICKS;

	ms = ms < TICK_MS_MIN ? TICK_MS_MIN : ms;
	uv_timer_start(&e->tick, on_tick, ms, ms);
}

void export_reconfigure(struct export *e, bool anew)
{
	struct manager *m = e->manager;
	struct pool *root = m->tree->root;

	e->set.conf = m->conf;
	set_tick(e);
	if (!anew)
		return;
	exportset_begin(&e->set, e->dir, m->conf, root);
	for (struct pool *p = root; p; p = pool_next_preorder(p, root))
		exportset_add(&e->set, p);
	for (struct pool *p = root; p; p = pool_next_preorder(p, root)) {
		if (is_in(p))
			distrust(p);
		else
			remove_files(e, p);
	}
	m->stats.exported_pools = e->set.n;
	export_run(e);
}

int export_new(struct manager *m, struct export **ret)
{
	struct export *e = calloc(1, sizeof(*e));
	int r;

	if (!e)
		return -ENOMEM;
	e->manager = m;
	STAILQ_INIT(&e->gone);
	STAILQ_INIT(&e->again);
	if (asprintf(&e->dir, "%s" EXPORT_DIR, m->runtime_dir) < 0) {
		free(e);
		return -ENOMEM;
	}
	r = exporter_new(m->loop, m->rundir, e->dir, &e->exporter);
	if (r < 0) {
		free(e->dir);
		free(e);
		return r;
	}
	exportset_begin(&e->set, e->dir, m->conf, m->tree->root);
	uv_timer_init(m->loop, &e->tick);
	uv_timer_init(m->loop, &e->hurry);
	e->tick.data = e->hurry.data = e;
	e->handles = 2;
	set_tick(e);
	*ret = e;
	return 0;
}

static void on_closed(uv_handle_t *h)
{
	struct export *e = h->data;

	if (--e->handles > 0)
		return;
	free(e->dir);
	free(e);
}

struct export *export_free(struct export *e)
{
	struct pool *root;

	if (!e)
		return NULL;
	e->freeing = true;
	e->exporter = exporter_free(e->exporter);
	root = e->manager->tree->root;
	for (struct pool *p = root; p; p = pool_next_preorder(p, root))
		exportjob_forget(p);
	free_jobs(&e->gone);
	free_jobs(&e->again);
	exportdue_clear(&e->due);
	uv_close((uv_handle_t *)&e->tick, on_closed);
	uv_close((uv_handle_t *)&e->hurry, on_closed);
	return NULL;
}
