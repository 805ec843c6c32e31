/* SPDX-License-Identifier: MIT */

/*
 * The thread, and the two queues between it and the loop.
 */

#include "exporter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/util.h"

STAILQ_HEAD(batch_list, exporter_batch);

struct exporter {
	const struct rundir *rundir;
	char *dir;
	uv_thread_t thread;
	uv_mutex_t mutex;
	uv_cond_t work;
	uv_async_t finished;
	struct batch_list todo, done;
	bool stop;
};

/* ------------------------------------------------------------------ jobs */

struct exporter_job *exporter_job_new(const char *path, size_t room)
{
	struct exporter_job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->path = strdup(path);
	j->files = room ? calloc(room, sizeof(*j->files)) : NULL;
	return j->path && (j->files || room == 0) ? j : exporter_job_free(j);
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
	free(j->path);
	free(j);
	return NULL;
}

/* ------------------------------------------------------------------ the thread */

static void carry_out(const struct exporter *x, struct exporter_batch *b)
{
	struct exporter_job *j;

	/* Whose directory it is by now is not known: nothing is written there, nothing removed. */
	b->lost = !rundir_is_ours(x->rundir);
	STAILQ_FOREACH(j, &b->jobs, entry)
	{
		if (b->lost)
			j->result = -ESTALE;
		else if (j->n_files > 0)
			j->result = exportfile_write(
				x->dir, j->path, j->files, j->n_files, j->known, &b->wrote);
		else
			j->result = exportfile_remove(x->dir, j->path);
	}
}

static void run(void *arg)
{
	struct exporter *x = arg;

	uv_mutex_lock(&x->mutex);
	for (;;) {
		struct exporter_batch *b;

		while (STAILQ_EMPTY(&x->todo) && !x->stop)
			uv_cond_wait(&x->work, &x->mutex);
		if (x->stop)
			break;
		b = STAILQ_FIRST(&x->todo);
		STAILQ_REMOVE_HEAD(&x->todo, entry);
		uv_mutex_unlock(&x->mutex);

		carry_out(x, b);

		uv_mutex_lock(&x->mutex);
		STAILQ_INSERT_TAIL(&x->done, b, entry);
		uv_async_send(&x->finished);
	}
	uv_mutex_unlock(&x->mutex);
}

static void on_finished(uv_async_t *async)
{
	struct exporter *x = async->data;

	for (;;) {
		struct exporter_batch *b;

		uv_mutex_lock(&x->mutex);
		b = STAILQ_FIRST(&x->done);
		if (b)
			STAILQ_REMOVE_HEAD(&x->done, entry);
		uv_mutex_unlock(&x->mutex);
		if (!b)
			return;
		b->done(b);
	}
}

void exporter_submit(struct exporter *x, struct exporter_batch *b)
{
	uv_mutex_lock(&x->mutex);
	STAILQ_INSERT_TAIL(&x->todo, b, entry);
	uv_cond_signal(&x->work);
	uv_mutex_unlock(&x->mutex);
}

/* ------------------------------------------------------------------ from the start to the end */

static void on_closed(uv_handle_t *h)
{
	struct exporter *x = h->data;

	uv_cond_destroy(&x->work);
	uv_mutex_destroy(&x->mutex);
	free(x->dir);
	free(x);
}

/* x is consumed. */
static int begin(uv_loop_t *loop, struct exporter *x, struct exporter **ret)
{
	int r = uv_mutex_init(&x->mutex);

	if (r < 0)
		goto fail;
	r = uv_cond_init(&x->work);
	if (r < 0)
		goto fail_mutex;
	r = uv_async_init(loop, &x->finished, on_finished);
	if (r < 0)
		goto fail_cond;
	x->finished.data = x;
	r = uv_thread_create(&x->thread, run, x);
	if (r < 0) {
		uv_close((uv_handle_t *)&x->finished, on_closed);
		return r;
	}
	*ret = x;
	return 0;

fail_cond:
	uv_cond_destroy(&x->work);
fail_mutex:
	uv_mutex_destroy(&x->mutex);
fail:
	free(x->dir);
	free(x);
	return r;
}

int exporter_new(
	uv_loop_t *loop, const struct rundir *rundir, const char *dir, struct exporter **ret)
{
	_cleanup_(freep) struct exporter *x = calloc(1, sizeof(*x));
	_cleanup_(freep) char *copy = strdup(dir);
	int r;

	if (!x || !copy)
		return -ENOMEM;
	r = exportfile_remove_all(dir);
	if (r < 0)
		return r;
	x->rundir = rundir;
	x->dir = take_ptr(copy);
	STAILQ_INIT(&x->todo);
	STAILQ_INIT(&x->done);
	return begin(loop, take_ptr(x), ret);
}

struct exporter *exporter_free(struct exporter *x)
{
	if (!x)
		return NULL;
	uv_mutex_lock(&x->mutex);
	x->stop = true;
	uv_cond_signal(&x->work);
	uv_mutex_unlock(&x->mutex);
	uv_thread_join(&x->thread);
	STAILQ_CONCAT(&x->done, &x->todo);
	on_finished(&x->finished);
	if (rundir_is_ours(x->rundir))
		exportfile_remove_all(x->dir);
	uv_close((uv_handle_t *)&x->finished, on_closed);
	return NULL;
}
