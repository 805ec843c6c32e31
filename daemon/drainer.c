/* SPDX-License-Identifier: MIT */

/*
 * What is done to the words, each on its CPU.
 */

#include "drainer.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/util.h"

#define PRIORITY (-20)
#define GO_TRIES 4

struct drainer {
	struct worker *worker;
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
	switch (w->op) {
	case DRAINER_TAKE:
		return stock_take(w->area, w->slot, w->cpu, w->key, w->bytes, w->parity);
	case DRAINER_EXPEL:
		return stock_expel(w->area, w->slot, w->cpu, w->key, w->bytes, w->parity);
	default:
		return stock_clear(w->area, w->slot, w->cpu, w->key);
	}
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
static void carry_out(struct worker_task *t, void *userdata)
{
	struct drainer_batch *b = container_of(t, struct drainer_batch, task);
	const struct drainer_word *lost = NULL;

	(void)userdata;
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

/* Where it is not allowed to, it waits its turn on a busy CPU. */
static void begin(void)
{
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), PRIORITY);
}

static void done(struct worker_task *t, void *userdata)
{
	struct drainer_batch *b = container_of(t, struct drainer_batch, task);

	(void)userdata;
	b->done(b);
}

int drainer_new(uv_loop_t *loop, struct drainer **ret)
{
	const struct worker_owner owner = {.begin = begin, .carry_out = carry_out, .done = done};
	struct drainer *d = calloc(1, sizeof(*d));
	int r = d ? worker_new(loop, &owner, &d->worker) : -ENOMEM;

	if (r < 0) {
		free(d);
		return r;
	}
	*ret = d;
	return 0;
}

struct drainer *drainer_free(struct drainer *d)
{
	if (!d)
		return NULL;
	worker_free(d->worker, true);
	free(d);
	return NULL;
}

void drainer_submit(struct drainer *d, struct drainer_batch *b)
{
	worker_submit(d->worker, &b->task);
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
