/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Finding a pool by its parent and its name: one hash table for a whole tree. A search tree for each
 * parent is shorter to write; but where pools are many it costs a cache miss and a comparison for
 * each of its levels, and that was half of what a read took.
 *
 * Names are chosen by clients, so the hash is drawn at random from a family (multilinear) of which two
 * given names meet in one place no more often than by chance, whatever they are: a hash that mixes with
 * a secret number has differences that it hands on whatever the number is.
 */

#include <stddef.h>
#include <stdint.h>

#include "path.h"

struct pool;

/* For a name's words of four bytes, and for what comes before them: a constant, its length, and the
 * two halves of its parent's id. */
#define INDEX_KEYS (4 + (PATH_PART_MAX + 3) / 4)

struct index {
	struct pool **buckets; /* n_buckets of them, a power of 2 */
	size_t n_buckets, n;
	uint64_t keys[INDEX_KEYS];
};

/* -ENOMEM. */
int index_init(struct index *x);
void index_clear(struct index *x);

/* The child of that name, n bytes without NUL; NULL: there is none. */
struct pool *index_find(
	const struct index *x, const struct pool *parent, const char *name, size_t n);

/* Of a pool that has its parent and its name; they stay as they are until it is removed. */
void index_add(struct index *x, struct pool *p);
void index_remove(struct index *x, struct pool *p);
