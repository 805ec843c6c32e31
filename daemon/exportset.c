/* SPDX-License-Identifier: MIT */

#include "exportset.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "exportfile.h"
#include "log.h"

/* ------------------------------------------------------------------ which are wanted */

static bool is_wanted(const struct conf *c, const char *path)
{
	for (size_t i = 0; i < c->n_export; i++)
		if (fnmatch(c->export[i], path, 0) == 0)
			return true;
	return false;
}

static bool has_name_of_file(const struct conf *c, const char *name)
{
	for (size_t i = 0; i < c->n_export_files; i++)
		if (exportfile_uses_name(c->export_files[i], name))
			return true;
	return false;
}

/* A pool whose directory would have the name of its parent's file, or no name that the file system
 * takes, has none. */
static bool is_fit(struct exportset *s, const struct pool *p, const char *path)
{
	bool fit = strlen(s->dir) + strlen(path) + ITEM_NAME_MAX + 64 < PATH_MAX;

	for (; fit && p->parent; p = p->parent)
		fit = !has_name_of_file(s->conf, p->name);
	if (!fit && !s->unfit_logged) {
		log_warning("not exported: a pool whose name is that of an exported file, or whose "
			    "path is too long for a file (%s%s)",
			s->dir, path);
		s->unfit_logged = true;
	}
	return fit;
}

/* ------------------------------------------------------------------ the lists */

static uint32_t depth_of(const struct pool *p)
{
	uint32_t depth = 0;

	while ((p = p->parent))
		depth++;
	return depth;
}

static struct exportset_level *level_of(struct exportset *s, const struct pool *p)
{
	while (s->n_levels <= p->export.depth) {
		TAILQ_INIT(&s->levels[s->n_levels].in);
		TAILQ_INIT(&s->levels[s->n_levels].waiting);
		s->n_levels++;
	}
	return &s->levels[p->export.depth];
}

static void let_in(struct exportset *s, struct pool *p)
{
	TAILQ_INSERT_TAIL(&level_of(s, p)->in, p, export.entry);
	if (s->deepest < p->export.depth)
		s->deepest = p->export.depth;
	p->export.state = EXPORTSET_IN;
	s->n++;
}

static void wait_behind(struct exportset *s, struct pool *p, bool as_first)
{
	struct exportset_list *list = &level_of(s, p)->waiting;

	if (as_first)
		TAILQ_INSERT_HEAD(list, p, export.entry);
	else
		TAILQ_INSERT_TAIL(list, p, export.entry);
	if (s->n_waiting == 0 || s->shallowest > p->export.depth)
		s->shallowest = p->export.depth;
	p->export.state = EXPORTSET_WAITING;
	s->n_waiting++;
}

static void take_out(struct exportset *s, struct pool *p)
{
	if (p->export.state == EXPORTSET_IN) {
		TAILQ_REMOVE(&level_of(s, p)->in, p, export.entry);
		s->n--;
	} else if (p->export.state == EXPORTSET_WAITING) {
		TAILQ_REMOVE(&level_of(s, p)->waiting, p, export.entry);
		s->n_waiting--;
	}
	p->export.state = EXPORTSET_UNSEEN;
}

/* The last of the deepest ones. There are some. */
static struct pool *last_in(struct exportset *s)
{
	while (TAILQ_EMPTY(&s->levels[s->deepest].in))
		s->deepest--;
	return TAILQ_LAST(&s->levels[s->deepest].in, exportset_list);
}

/* The first of the least deep ones. There are some. */
static struct pool *first_waiting(struct exportset *s)
{
	while (TAILQ_EMPTY(&s->levels[s->shallowest].waiting))
		s->shallowest++;
	return TAILQ_FIRST(&s->levels[s->shallowest].waiting);
}

static void log_full(struct exportset *s)
{
	if (!s->full_logged)
		log_warning("more than export_max = %" PRIu32
			    " pools match `export`; the deeper ones are not written",
			s->conf->export_max);
	s->full_logged = true;
}

struct pool *exportset_add(struct exportset *s, struct pool *p)
{
	char path[PATH_MAX_BYTES + 1];
	struct pool *last = NULL;

	pool_path_into(p, path, sizeof(path));
	if (!is_wanted(s->conf, path) || !is_fit(s, p, path)) {
		p->export.state = EXPORTSET_UNWANTED;
		return NULL;
	}
	p->export.depth = (uint16_t)depth_of(p);
	if (s->n < s->conf->export_max) {
		let_in(s, p);
		return NULL;
	}
	log_full(s);
	if (s->n > 0)
		last = last_in(s);
	if (!last || last->export.depth <= p->export.depth) {
		wait_behind(s, p, false);
		return NULL;
	}
	take_out(s, last);
	wait_behind(s, last, true);
	let_in(s, p);
	return last;
}

struct pool *exportset_remove(struct exportset *s, struct pool *p)
{
	struct pool *first;

	take_out(s, p);
	if (s->n_waiting == 0 || s->n >= s->conf->export_max)
		return NULL;
	first = first_waiting(s);
	take_out(s, first);
	let_in(s, first);
	return first;
}

void exportset_begin(struct exportset *s, const char *dir, const struct conf *c, struct pool *root)
{
	for (struct pool *p = root; p; p = pool_next_preorder(p, root))
		take_out(s, p);
	s->dir = dir;
	s->conf = c;
	s->full_logged = s->unfit_logged = false;
}
