/* SPDX-License-Identifier: MIT */

/*
 * Jobs, and how they are carried out.
 */

#include "exporter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/util.h"

struct exporter {
	const struct rundir *rundir;
	char *dir;
	struct worker *worker;
};

/* ------------------------------------------------------------------ jobs */

struct exporter_job *exporter_job_new(const char *path, size_t room, size_t n_levels)
{
	struct exporter_job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->path = strdup(path);
	j->files = room ? calloc(room, sizeof(*j->files)) : NULL;
	j->access = room ? calloc(n_levels, sizeof(*j->access)) : NULL;
	return j->path && ((j->files && j->access) || room == 0) ? j : exporter_job_free(j);
}

int exporter_job_add(struct exporter_job *j, const char *name, char *text)
{
	struct exportfile *f = &j->files[j->n_files];

	*f = (struct exportfile){.name = strdup(name), .text = text};
	if (!f->name) {
		free(text);
		return -ENOMEM;
	}
	j->n_files++;
	return 0;
}

struct exporter_job *exporter_job_free(struct exporter_job *j)
{
	if (!j)
		return NULL;
	for (size_t i = 0; i < j->n_files; i++) {
		free(j->files[i].name);
		free(j->files[i].text);
	}
	free(j->files);
	free(j->access);
	free(j->path);
	free(j);
	return NULL;
}

/* ------------------------------------------------------------------ the thread */

static void carry_out(struct worker_task *t, void *userdata)
{
	struct exporter_batch *b = container_of(t, struct exporter_batch, task);
	const struct exporter *x = userdata;
	struct exporter_job *j;

	/* Whose directory it is by now is not known: nothing is written there, nothing removed. */
	b->lost = !rundir_is_ours(x->rundir);
	STAILQ_FOREACH(j, &b->jobs, entry)
	{
		if (b->lost)
			j->result = -ESTALE;
		else if (j->n_files > 0)
			j->result = exportfile_write(x->dir, j->path, j->access, j->files,
				j->n_files, j->known, &b->wrote);
		else
			j->result = exportfile_remove(x->dir, j->path);
	}
}

static void done(struct worker_task *t, void *userdata)
{
	struct exporter_batch *b = container_of(t, struct exporter_batch, task);

	(void)userdata;
	b->done(b);
}

void exporter_submit(struct exporter *x, struct exporter_batch *b)
{
	worker_submit(x->worker, &b->task);
}

/* ------------------------------------------------------------------ from the start to the end */

int exporter_new(
	uv_loop_t *loop, const struct rundir *rundir, const char *dir, struct exporter **ret)
{
	_cleanup_(freep) struct exporter *x = calloc(1, sizeof(*x));
	_cleanup_(freep) char *copy = strdup(dir);
	struct worker_owner owner = {.carry_out = carry_out, .done = done, .userdata = x};
	int r;

	if (!x || !copy)
		return -ENOMEM;
	r = exportfile_remove_all(dir);
	if (r < 0)
		return r;
	x->rundir = rundir;
	x->dir = copy;
	r = worker_new(loop, &owner, &x->worker);
	if (r < 0)
		return r;
	take_ptr(copy);
	*ret = take_ptr(x);
	return 0;
}

struct exporter *exporter_free(struct exporter *x)
{
	if (!x)
		return NULL;
	worker_free(x->worker, false);
	if (rundir_is_ours(x->rundir))
		exportfile_remove_all(x->dir);
	free(x->dir);
	free(x);
	return NULL;
}
