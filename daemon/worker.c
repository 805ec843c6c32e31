/* SPDX-License-Identifier: MIT */

/*
 * The thread, and the two queues between it and the loop.
 */

#include "worker.h"

#include <errno.h>
#include <stdlib.h>

STAILQ_HEAD(task_list, worker_task);

struct worker {
	struct worker_owner owner;
	uv_thread_t thread;
	uv_mutex_t mutex;
	uv_cond_t work;
	uv_async_t finished;
	struct task_list todo, done;
	bool stop, finish;
};

static void run(void *arg)
{
	struct worker *w = arg;

	if (w->owner.begin)
		w->owner.begin();
	uv_mutex_lock(&w->mutex);
	for (;;) {
		struct worker_task *t;

		while (STAILQ_EMPTY(&w->todo) && !w->stop)
			uv_cond_wait(&w->work, &w->mutex);
		t = STAILQ_FIRST(&w->todo);
		if (!t || (w->stop && !w->finish))
			break;
		STAILQ_REMOVE_HEAD(&w->todo, entry);
		uv_mutex_unlock(&w->mutex);

		w->owner.carry_out(t, w->owner.userdata);

		uv_mutex_lock(&w->mutex);
		STAILQ_INSERT_TAIL(&w->done, t, entry);
		uv_async_send(&w->finished);
	}
	uv_mutex_unlock(&w->mutex);
}

/* NULL: the queue is empty. */
static struct worker_task *take(struct worker *w, struct task_list *list)
{
	struct worker_task *t;

	uv_mutex_lock(&w->mutex);
	t = STAILQ_FIRST(list);
	if (t)
		STAILQ_REMOVE_HEAD(list, entry);
	uv_mutex_unlock(&w->mutex);
	return t;
}

static void on_finished(uv_async_t *async)
{
	struct worker *w = async->data;
	struct worker_task *t;

	while ((t = take(w, &w->done)))
		w->owner.done(t, w->owner.userdata);
}

static void on_closed(uv_handle_t *h)
{
	struct worker *w = h->data;

	uv_cond_destroy(&w->work);
	uv_mutex_destroy(&w->mutex);
	free(w);
}

int worker_new(uv_loop_t *loop, const struct worker_owner *o, struct worker **ret)
{
	struct worker *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->owner = *o;
	STAILQ_INIT(&w->todo);
	STAILQ_INIT(&w->done);
	r = uv_mutex_init(&w->mutex);
	if (r < 0)
		goto fail;
	r = uv_cond_init(&w->work);
	if (r < 0)
		goto fail_mutex;
	r = uv_async_init(loop, &w->finished, on_finished);
	if (r < 0)
		goto fail_cond;
	w->finished.data = w;
	r = uv_thread_create(&w->thread, run, w);
	if (r < 0) {
		uv_close((uv_handle_t *)&w->finished, on_closed);
		return r;
	}
	*ret = w;
	return 0;

fail_cond:
	uv_cond_destroy(&w->work);
fail_mutex:
	uv_mutex_destroy(&w->mutex);
fail:
	free(w);
	return r;
}

struct worker *worker_free(struct worker *w, bool finish)
{
	struct worker_task *t;

	if (!w)
		return NULL;
	uv_mutex_lock(&w->mutex);
	w->stop = true;
	w->finish = finish;
	uv_cond_signal(&w->work);
	uv_mutex_unlock(&w->mutex);
	uv_thread_join(&w->thread);
	on_finished(&w->finished);
	/* What came of that, too: the thread is gone, and with it the need to hurry. */
	while ((t = take(w, &w->todo))) {
		if (finish)
			w->owner.carry_out(t, w->owner.userdata);
		w->owner.done(t, w->owner.userdata);
	}
	uv_close((uv_handle_t *)&w->finished, on_closed);
	return NULL;
}

void worker_submit(struct worker *w, struct worker_task *t)
{
	uv_mutex_lock(&w->mutex);
	STAILQ_INSERT_TAIL(&w->todo, t, entry);
	uv_cond_signal(&w->work);
	uv_mutex_unlock(&w->mutex);
}
