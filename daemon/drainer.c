/* SPDX-License-Identifier: MIT */

/*
 * The thread and its two queues: batches to do, batches done.
 */

#include "drainer.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PRIORITY (-20)
#define GO_TRIES 4

STAILQ_HEAD(batch_list, drainer_batch);

struct drainer {
	uv_thread_t thread;
	uv_mutex_t mutex;
	uv_cond_t work;
	uv_async_t finished;
	struct batch_list todo, done;
	bool stop;
};

static int by_cpu(const void *a, const void *b)
{
	const struct drainer_word *x = a, *y = b;

	return x->cpu < y->cpu ? -1 : x->cpu > y->cpu;
}

static int go_to(uint32_t cpu)
{
	cpu_set_t *set = CPU_ALLOC(cpu + 1);
	size_t size = CPU_ALLOC_SIZE(cpu + 1);
	int r = 0;

	if (!set)
		return -ENOMEM;
	CPU_ZERO_S(size, set);
	CPU_SET_S(cpu, size, set);
	if (sched_setaffinity(0, size, set) < 0)
		r = -errno;
	CPU_FREE(set);
	return r;
}

static int change(const struct drainer_word *w)
{
	return w->op == DRAINER_TAKE
		? stock_take(w->area, w->slot, w->cpu, w->key, w->bytes, w->parity)
		: stock_clear(w->area, w->slot, w->cpu, w->key);
}

/* It may be moved away between its arrival and the change: then it goes there again. */
static void change_there(struct drainer_word *w)
{
	int r = change(w);

	for (unsigned try = 0; r == -EXDEV && try < GO_TRIES; try++) {
		if (go_to(w->cpu) < 0) {
			w->unreachable = true;
			return;
		}
		r = change(w);
	}
	w->done = r == 0;
}

/* A CPU after the other, so that each is gone to once. */
static void carry_out(struct drainer_batch *b)
{
	const struct drainer_word *lost = NULL;

	if (b->n > 0)
		qsort(b->words, b->n, sizeof(*b->words), by_cpu);
	for (size_t i = 0; i < b->n; i++) {
		struct drainer_word *w = &b->words[i];

		if (lost && lost->cpu == w->cpu && w->area->kind == PERCPU_RSEQ) {
			w->unreachable = true;
			continue;
		}
		change_there(w);
		if (w->unreachable)
			lost = w;
	}
}

static void run(void *arg)
{
	struct drainer *d = arg;

	/* Where it is not allowed to, it waits its turn on a busy CPU. */
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), PRIORITY);
	uv_mutex_lock(&d->mutex);
	for (;;) {
		struct drainer_batch *b;

		while (STAILQ_EMPTY(&d->todo) && !d->stop)
			uv_cond_wait(&d->work, &d->mutex);
		b = STAILQ_FIRST(&d->todo);
		if (!b)
			break;
		STAILQ_REMOVE_HEAD(&d->todo, entry);
		uv_mutex_unlock(&d->mutex);

		carry_out(b);

		uv_mutex_lock(&d->mutex);
		STAILQ_INSERT_TAIL(&d->done, b, entry);
		uv_async_send(&d->finished);
	}
	uv_mutex_unlock(&d->mutex);
}

static void on_finished(uv_async_t *async)
{
	struct drainer *d = async->data;

	for (;;) {
		struct drainer_batch *b;

		uv_mutex_lock(&d->mutex);
		b = STAILQ_FIRST(&d->done);
		if (b)
			STAILQ_REMOVE_HEAD(&d->done, entry);
		uv_mutex_unlock(&d->mutex);
		if (!b)
			return;
		b->done(b);
	}
}

static void on_closed(uv_handle_t *h)
{
	struct drainer *d = h->data;

	uv_cond_destroy(&d->work);
	uv_mutex_destroy(&d->mutex);
	free(d);
}

int drainer_new(uv_loop_t *loop, struct drainer **ret)
{
	struct drainer *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return -ENOMEM;
	STAILQ_INIT(&d->todo);
	STAILQ_INIT(&d->done);
	r = uv_mutex_init(&d->mutex);
	if (r < 0)
		goto fail;
	r = uv_cond_init(&d->work);
	if (r < 0)
		goto fail_mutex;
	r = uv_async_init(loop, &d->finished, on_finished);
	if (r < 0)
		goto fail_cond;
	d->finished.data = d;
	r = uv_thread_create(&d->thread, run, d);
	if (r < 0) {
		uv_close((uv_handle_t *)&d->finished, on_closed);
		return r;
	}
	*ret = d;
	return 0;

fail_cond:
	uv_cond_destroy(&d->work);
fail_mutex:
	uv_mutex_destroy(&d->mutex);
fail:
	free(d);
	return r;
}

struct drainer *drainer_free(struct drainer *d)
{
	struct drainer_batch *b;

	if (!d)
		return NULL;
	uv_mutex_lock(&d->mutex);
	d->stop = true;
	uv_cond_signal(&d->work);
	uv_mutex_unlock(&d->mutex);
	uv_thread_join(&d->thread);
	on_finished(&d->finished);
	/* What comes of that is done here: the thread is gone, and with it the need to hurry. */
	while ((b = STAILQ_FIRST(&d->todo))) {
		STAILQ_REMOVE_HEAD(&d->todo, entry);
		carry_out(b);
		b->done(b);
	}
	uv_close((uv_handle_t *)&d->finished, on_closed);
	return NULL;
}

void drainer_submit(struct drainer *d, struct drainer_batch *b)
{
	uv_mutex_lock(&d->mutex);
	STAILQ_INSERT_TAIL(&d->todo, b, entry);
	uv_cond_signal(&d->work);
	uv_mutex_unlock(&d->mutex);
}

struct drainer_word *drainer_batch_add(struct drainer_batch *b)
{
	if (b->n == b->room) {
		size_t room = b->room ? b->room * 2 : 64;
		struct drainer_word *words = realloc(b->words, room * sizeof(*words));

		if (!words)
			return NULL;
		b->words = words;
		b->room = room;
	}
	b->words[b->n] = (struct drainer_word){0};
	return &b->words[b->n++];
}
