/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The drainer: the one thread that changes words of stocks. The loop decides what is to be taken
 * and records it; the drainer only carries it out, on the word's CPU, and reports. It owns nothing
 * and writes no row, so that the ledger keeps one writer.
 *
 * Words of sequences are changed on their own CPU alone: the drainer goes there, at the highest
 * priority that it may have, because a busy CPU lets it in sooner then. That it is there is checked
 * inside the sequence; a CPU that it cannot go to (offline, outside its cpuset) is told, and what
 * lies there stays counted.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "core/stock.h"
#include "worker.h"

enum drainer_op {
	DRAINER_TAKE,  /* exactly `bytes` of the key, if the parity is as recorded */
	DRAINER_EXPEL, /* the same; the key has no slot there any more when nothing is left in it */
	DRAINER_CLEAR, /* whatever lies there, if it is the key's */
};

struct drainer_word {
	enum drainer_op op;
	const struct percpu_area *area;
	percpu_word *slot;
	uint32_t cpu;
	uint32_t key;
	uint64_t bytes;
	uint32_t parity;
	bool done;        /* out: the word was changed (TAKE, EXPEL), is free of the key (CLEAR) */
	bool unreachable; /* out: its CPU is none that the drainer may run on */
	void *userdata;
};

struct drainer_batch {
	struct worker_task task;
	struct drainer_word *words;
	size_t n, room;
	void (*done)(struct drainer_batch *b); /* in the loop */
	void *userdata;
};

struct drainer;

int drainer_new(uv_loop_t *loop, struct drainer **ret);
/* Waits for the thread; batches on their way are finished. The memory goes when the loop has run
 * on. Returns NULL. */
struct drainer *drainer_free(struct drainer *d);

/* Hands a batch over until `done` is called. Its words may come back in another order. */
void drainer_submit(struct drainer *d, struct drainer_batch *b);

/* A zeroed word at the end of the batch, or NULL when memory is short. */
struct drainer_word *drainer_batch_add(struct drainer_batch *b);
