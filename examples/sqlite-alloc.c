/* SPDX-License-Identifier: MIT */

/*
 * A block is allocated by the thread of one tenant and may be freed by any thread, so the owner
 * rides in the block itself; only at its birth does the thread decide. The charge comes before the
 * memory and leaves after it: a pool never shows less than what is really in use.
 */

#include "sqlite-alloc.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>

struct block {
	_Alignas(ALLOC_HEADER) struct owner *owner;
	size_t size; /* of what follows */
};

_Static_assert(sizeof(struct block) == ALLOC_HEADER, "the data behind the header is aligned");

static struct owner *shared_owner;
static _Thread_local struct owner *current_owner;

static struct block *block_of(void *data)
{
	return (struct block *)data - 1;
}

static bool owner_charge(struct owner *o, size_t bytes)
{
	int r, none = 0;

	r = tally_charge(o->pool, bytes);
	if (r == -ENOMEM)
		atomic_fetch_add(&o->refused, 1);
	else if (r < 0)
		atomic_compare_exchange_strong(&o->error, &none, r);
	return r == 0;
}

static void owner_grow(struct owner *o, size_t bytes)
{
	uint64_t now = atomic_fetch_add(&o->bytes, bytes) + bytes;
	uint64_t peak = atomic_load(&o->peak);

	while (now > peak && !atomic_compare_exchange_weak(&o->peak, &peak, now))
		;
}

static void owner_shrink(struct owner *o, size_t bytes)
{
	atomic_fetch_sub(&o->bytes, bytes);
	tally_uncharge(o->pool, bytes);
}

static int alloc_roundup(int n)
{
	return (int)(((unsigned)n + ALLOC_HEADER - 1) & ~(unsigned)(ALLOC_HEADER - 1));
}

static int alloc_size(void *data)
{
	return (int)block_of(data)->size;
}

static void *alloc_malloc(int n)
{
	struct owner *o = current_owner ? current_owner : shared_owner;
	size_t size = (size_t)alloc_roundup(n);
	struct block *b;

	if (!owner_charge(o, ALLOC_HEADER + size))
		return NULL;

	b = malloc(ALLOC_HEADER + size);
	if (!b) {
		tally_uncharge(o->pool, ALLOC_HEADER + size);
		return NULL;
	}

	b->owner = o;
	b->size = size;
	atomic_fetch_add(&o->blocks, 1);
	owner_grow(o, ALLOC_HEADER + size);
	return b + 1;
}

static void alloc_free(void *data)
{
	struct block *b = block_of(data);
	struct owner *o = b->owner;
	size_t size = b->size;

	free(b);
	atomic_fetch_sub(&o->blocks, 1);
	owner_shrink(o, ALLOC_HEADER + size);
}

/* A block stays with its owner, whichever thread resizes it. */
static void *alloc_realloc(void *data, int n)
{
	struct block *b = block_of(data), *moved;
	struct owner *o = b->owner;
	size_t old = b->size, size = (size_t)alloc_roundup(n);

	if (size > old && !owner_charge(o, size - old))
		return NULL;

	moved = realloc(b, ALLOC_HEADER + size);
	if (!moved) {
		if (size > old)
			tally_uncharge(o->pool, size - old);
		return NULL;
	}

	moved->size = size;
	if (size > old)
		owner_grow(o, size - old);
	else
		owner_shrink(o, old - size);
	return moved + 1;
}

static int alloc_init(void *data __attribute__((unused)))
{
	return SQLITE_OK;
}

static void alloc_shutdown(void *data __attribute__((unused)))
{
}

int alloc_install(struct owner *shared)
{
	static const sqlite3_mem_methods methods = {
		.xMalloc = alloc_malloc,
		.xFree = alloc_free,
		.xRealloc = alloc_realloc,
		.xSize = alloc_size,
		.xRoundup = alloc_roundup,
		.xInit = alloc_init,
		.xShutdown = alloc_shutdown,
	};

	shared_owner = shared;
	return sqlite3_config(SQLITE_CONFIG_MALLOC, &methods);
}

void alloc_set_owner(struct owner *o)
{
	current_owner = o;
}
