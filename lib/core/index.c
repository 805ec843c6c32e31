/* SPDX-License-Identifier: MIT */

#include "index.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "pool.h"

#define FIRST_BUCKETS 64

/* Up to so many bytes at once a signal does not cut short. */
#define RANDOM_MAX 256

static bool draw_keys(struct index *x)
{
	char *at = (char *)x->keys;
	ssize_t got;

	for (size_t n = sizeof(x->keys); n > 0; n -= (size_t)got, at += got) {
		got = getrandom(at, n < RANDOM_MAX ? n : RANDOM_MAX, GRND_NONBLOCK);
		if (got <= 0)
			return false;
	}
	return true;
}

/* Keys for when the kernel has nothing random yet; good enough to tell names apart. */
static void make_keys(struct index *x)
{
	uint64_t seed = (uintptr_t)x;

	for (size_t i = 0; i < INDEX_KEYS; i++) {
		seed = (seed ^ seed >> 29) * UINT64_C(0xbf58476d1ce4e5b9) + i;
		x->keys[i] = seed ^ seed >> 32;
	}
}

/* The sums are of numbers of 32 bits, each times its key; their upper half is what is random. */
static uint32_t hash_of(
	const struct index *x, const struct pool *parent, const char *name, size_t n)
{
	const uint64_t *key = x->keys + 4;
	uint64_t sum = x->keys[0] + x->keys[1] * n + x->keys[2] * (uint32_t)parent->id +
		x->keys[3] * (parent->id >> 32);
	uint32_t word;

	for (; n >= sizeof(word); n -= sizeof(word), name += sizeof(word)) {
		memcpy(&word, name, sizeof(word));
		sum += *key++ * word;
	}
	if (n > 0) {
		word = 0;
		memcpy(&word, name, n);
		sum += *key * word;
	}
	return (uint32_t)(sum >> 32);
}

static struct pool **bucket_of(const struct index *x, uint32_t hash)
{
	return &x->buckets[hash & (x->n_buckets - 1)];
}

int index_init(struct index *x)
{
	*x = (struct index){.n_buckets = FIRST_BUCKETS};
	if (!draw_keys(x))
		make_keys(x);
	x->buckets = calloc(x->n_buckets, sizeof(struct pool *));
	return x->buckets ? 0 : -ENOMEM;
}

void index_clear(struct index *x)
{
	free(x->buckets);
	*x = (struct index){0};
}

struct pool *index_find(
	const struct index *x, const struct pool *parent, const char *name, size_t n)
{
	uint32_t hash = hash_of(x, parent, name, n);
	struct pool *p = *bucket_of(x, hash);

	while (p &&
		(p->hash != hash || p->parent != parent || strncmp(p->name, name, n) != 0 ||
			p->name[n] != '\0'))
		p = p->next_in_bucket;
	return p;
}

static void put(struct index *x, struct pool *p)
{
	struct pool **bucket = bucket_of(x, p->hash);

	p->next_in_bucket = *bucket;
	*bucket = p;
}

/* Twice as many buckets; where there is no memory for them yet, chains get longer. */
static void grow(struct index *x)
{
	struct pool **before = x->buckets, **buckets;
	size_t n_before = x->n_buckets;

	buckets = reallocarray(NULL, n_before, 2 * sizeof(struct pool *));
	if (!buckets)
		return;
	memset(buckets, 0, n_before * 2 * sizeof(struct pool *));
	x->buckets = buckets;
	x->n_buckets = n_before * 2;
	for (size_t i = 0; i < n_before; i++)
		for (struct pool *p = before[i], *next; p; p = next) {
			next = p->next_in_bucket;
			put(x, p);
		}
	free(before);
}

void index_add(struct index *x, struct pool *p)
{
	if (x->n >= x->n_buckets)
		grow(x);
	p->hash = hash_of(x, p->parent, p->name, strlen(p->name));
	put(x, p);
	x->n++;
}

void index_remove(struct index *x, struct pool *p)
{
	struct pool **at = bucket_of(x, p->hash);

	while (*at != p)
		at = &(*at)->next_in_bucket;
	*at = p->next_in_bucket;
	x->n--;
}
