/* SPDX-License-Identifier: MIT */

/*
 * Finding pools by parent and name: every pool that is there is found and no other, whatever names
 * look like; and no choice of names makes the search long.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/index.h"
#include "core/path.h"
#include "core/pool.h"
#include "core/util.h"

#define MANY 100000
#define CHAIN_MAX 64 /* far above what chance makes, far below what a choice of names could */

static bool memory_is_short;
static struct index table;

/* Stands before the C library's, so that memory can run short. */
void *reallocarray(void *p, size_t n, size_t size)
{
	return memory_is_short ? NULL : realloc(p, n * size);
}

static int set_up(void **state _unused_)
{
	memory_is_short = false;
	return index_init(&table);
}

static int tear_down(void **state _unused_)
{
	index_clear(&table);
	return 0;
}

static struct pool *find(const struct pool *parent, const char *name)
{
	return index_find(&table, parent, name, strlen(name));
}

static size_t longest_chain(void)
{
	size_t longest = 0;

	for (size_t i = 0; i < table.n_buckets; i++) {
		size_t n = 0;

		for (const struct pool *p = table.buckets[i]; p; p = p->next_in_bucket)
			n++;
		longest = n > longest ? n : longest;
	}
	return longest;
}

/* Pools with names of up to `room` bytes, of ids from 1 on; parents and names are still to be set. */
static struct pool *make_pools(size_t n, size_t room)
{
	struct pool *pools = calloc(n, sizeof(*pools));
	char *names = calloc(n, room + 1);

	assert_non_null(pools);
	assert_non_null(names);
	for (size_t i = 0; i < n; i++) {
		pools[i].id = i + 1;
		pools[i].name = names + i * (room + 1);
	}
	return pools;
}

static void free_pools(struct pool *pools)
{
	free(pools[0].name);
	free(pools);
}

/* ------------------------------------------------------------------ what is found */

static void test_empty(void **state _unused_)
{
	struct pool root = {.id = 1, .name = ""};

	assert_null(find(&root, "a"));
	assert_null(find(&root, ""));
	assert_int_equal(table.n, 0);
}

static void test_same_name_below_others(void **state _unused_)
{
	struct pool root = {.id = 1, .name = ""};
	struct pool a = {.id = 2, .parent = &root, .name = "a"};
	struct pool b = {.id = 3, .parent = &root, .name = "b"};
	struct pool a_a = {.id = 4, .parent = &a, .name = "a"};
	struct pool b_a = {.id = 5, .parent = &b, .name = "a"};

	index_add(&table, &a);
	index_add(&table, &b);
	index_add(&table, &a_a);
	index_add(&table, &b_a);
	assert_ptr_equal(find(&root, "a"), &a);
	assert_ptr_equal(find(&a, "a"), &a_a);
	assert_ptr_equal(find(&b, "a"), &b_a);
	assert_null(find(&a, "b"));
	assert_null(find(&a_a, "a"));
	index_remove(&table, &a_a);
	assert_null(find(&a, "a"));
	assert_ptr_equal(find(&root, "a"), &a);
	assert_ptr_equal(find(&b, "a"), &b_a);
	assert_int_equal(table.n, 3);
}

/* Names that are the beginnings of one another, of all lengths; the one that is sought ends where it is
 * said to end, whatever follows. */
static void test_prefixes(void **state _unused_)
{
	struct pool root = {.id = 1, .name = ""};
	struct pool *pools = make_pools(PATH_PART_MAX, PATH_PART_MAX);
	char longest[PATH_PART_MAX + 2];

	memset(longest, 'x', sizeof(longest));
	for (size_t i = 0; i < PATH_PART_MAX; i++) {
		memset(pools[i].name, 'x', i + 1);
		pools[i].parent = &root;
		if (i % 3 != 0)
			index_add(&table, &pools[i]);
	}
	for (size_t i = 0; i < PATH_PART_MAX; i++)
		assert_ptr_equal(
			index_find(&table, &root, longest, i + 1), i % 3 != 0 ? &pools[i] : NULL);
	free_pools(pools);
}

/* Each byte that a name may have, alone and at each place of a name, and signs for no byte's end. */
static void test_odd_bytes(void **state _unused_)
{
	struct pool root = {.id = 1, .name = ""};
	struct pool *pools = make_pools((size_t)256 * 18, 18);
	size_t n = 0;

	for (unsigned byte = 1; byte < 256; byte++)
		for (size_t at = 0; at < 17; at++) {
			struct pool *p = &pools[n];

			memset(p->name, 1, 17);
			p->name[at] = (char)byte;
			p->parent = &root;
			if (find(&root, p->name))
				continue;
			index_add(&table, p);
			n++;
		}
	assert_int_equal(n, 254 * 17 + 1);
	for (size_t i = 0; i < n; i++)
		assert_ptr_equal(find(&root, pools[i].name), &pools[i]);
	assert_null(find(&root, "\x01"));
	free_pools(pools);
}

/* ------------------------------------------------------------------ many */

static void check_all(struct pool *pools, const struct pool *root, bool odd_ones)
{
	for (size_t i = 0; i < MANY; i++)
		assert_ptr_equal(
			find(root, pools[i].name), i % 2 == 0 || odd_ones ? &pools[i] : NULL);
}

static void test_many_children(void **state _unused_)
{
	struct pool root = {.id = MANY + 1, .name = ""};
	struct pool *pools = make_pools(MANY, 8);

	for (size_t i = 0; i < MANY; i++) {
		snprintf(pools[i].name, 9, "%zu", i);
		pools[i].parent = &root;
		index_add(&table, &pools[i]);
		assert_true(table.n_buckets >= table.n);
	}
	assert_int_equal(table.n, MANY);
	assert_true(longest_chain() < CHAIN_MAX);
	check_all(pools, &root, true);
	assert_null(find(&root, "100000"));
	assert_null(find(&root, "-1"));

	for (size_t i = 1; i < MANY; i += 2)
		index_remove(&table, &pools[i]);
	assert_int_equal(table.n, MANY / 2);
	check_all(pools, &root, false);
	for (size_t i = 1; i < MANY; i += 2)
		index_add(&table, &pools[i]);
	check_all(pools, &root, true);
	for (size_t i = 0; i < MANY; i++)
		index_remove(&table, &pools[i]);
	assert_int_equal(table.n, 0);
	assert_int_equal(longest_chain(), 0);
	free_pools(pools);
}

/* Without memory for more buckets it goes on as it is. */
static void test_no_memory_to_grow(void **state _unused_)
{
	struct pool root = {.id = MANY, .name = ""};
	struct pool *pools = make_pools(1000, 8);
	size_t n_buckets = table.n_buckets;

	memory_is_short = true;
	for (size_t i = 0; i < 1000; i++) {
		snprintf(pools[i].name, 9, "%zu", i);
		pools[i].parent = &root;
		index_add(&table, &pools[i]);
	}
	assert_int_equal(table.n_buckets, n_buckets);
	memory_is_short = false;
	for (size_t i = 0; i < 1000; i++)
		assert_ptr_equal(find(&root, pools[i].name), &pools[i]);
	index_remove(&table, &pools[999]);
	index_remove(&table, &pools[998]);
	index_add(&table, &pools[998]);
	index_add(&table, &pools[999]);
	assert_true(table.n_buckets > n_buckets);
	for (size_t i = 0; i < 1000; i++)
		assert_ptr_equal(find(&root, pools[i].name), &pools[i]);
	free_pools(pools);
}

/* ------------------------------------------------------------------ names chosen to meet */

/* Differences that a multiplication by an odd number hands on unchanged, whichever it is: in the
 * highest bit of a word, and again where a shift has put it. */
static void test_chosen_names(void **state _unused_)
{
	enum { BLOCKS = 12, N = 1 << BLOCKS };
	struct pool root = {.id = N + 1, .name = ""};
	struct pool *pools = make_pools(N, (size_t)BLOCKS * 16);

	for (size_t i = 0; i < N; i++) {
		memset(pools[i].name, 'a', (size_t)BLOCKS * 16);
		for (size_t block = 0; block < BLOCKS; block++) {
			char *at = pools[i].name + block * 16;

			if (!(i >> block & 1))
				continue;
			at[7] ^= (char)0x80;
			at[8 + 3] ^= (char)0x80;
			at[8 + 7] ^= (char)0x80;
		}
		pools[i].parent = &root;
		index_add(&table, &pools[i]);
	}
	assert_true(longest_chain() < CHAIN_MAX);
	for (size_t i = 0; i < N; i++)
		assert_ptr_equal(find(&root, pools[i].name), &pools[i]);
	free_pools(pools);
}

/* Names that make up for the differences of their parents' ids, which are no secret. */
static void test_chosen_parents(void **state _unused_)
{
	enum { N = 4096 };
	struct pool *parents = make_pools(N, 0), *pools = make_pools(N, 8);

	for (size_t i = 0; i < N; i++) {
		uint64_t word = UINT64_C(0x8181818181818181) ^ parents[i].id;

		memcpy(pools[i].name, &word, sizeof(word));
		pools[i].parent = &parents[i];
		index_add(&table, &pools[i]);
	}
	assert_true(longest_chain() < CHAIN_MAX);
	free_pools(parents);
	free_pools(pools);
}

#define WITH_TABLE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_TABLE(test_empty),
		WITH_TABLE(test_same_name_below_others),
		WITH_TABLE(test_prefixes),
		WITH_TABLE(test_odd_bytes),
		WITH_TABLE(test_many_children),
		WITH_TABLE(test_no_memory_to_grow),
		WITH_TABLE(test_chosen_names),
		WITH_TABLE(test_chosen_parents),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
