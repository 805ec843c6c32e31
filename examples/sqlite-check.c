/* SPDX-License-Identifier: MIT */

/*
 * The proof: what the daemon says of each pool, what the allocator counted for each tenant and what
 * SQLite counted for the process are three separate accounts of the same memory. They must agree to
 * the byte whenever the tenants stand still.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sqlite-tenants.h"

/* The number behind `key` in a file of lines "key number"; without a key the first number. */
static uint64_t daemon_figure(struct run *r, const char *path, const char *file, const char *key)
{
	uint64_t figure = 0;
	bool found = false;
	char *text, *line, *rest = NULL;
	size_t n = strlen(key);
	int e;

	e = tally_get(r->tally, path, file, TALLY_EXACT, &text);
	if (e < 0)
		die(path, strerror(-e));

	for (line = strtok_r(text, "\n", &rest); line && !found;
		line = strtok_r(NULL, "\n", &rest)) {
		found = strncmp(line, key, n) == 0 && (n == 0 || line[n] == ' ');
		if (found)
			figure = strtoull(line + n, NULL, 10);
	}
	free(text);
	if (!found)
		die(file, "does not have the expected lines");
	return figure;
}

static void expect(
	struct run *r, const char *when, const char *what, uint64_t found, uint64_t expected)
{
	if (found == expected)
		return;
	printf("check %s: %s: found %" PRIu64 ", expected %" PRIu64 "\n", when, what, found,
		expected);
	r->differences++;
}

/* What the daemon knows of a pool, which is to be what its owner has counted. */
static uint64_t check_owner(struct run *r, const char *when, const char *path, struct owner *o)
{
	uint64_t current = daemon_figure(r, path, "memory.current", "");

	expect(r, when, path, current, atomic_load(&o->bytes));
	expect(r, when, "held in memory.stat", daemon_figure(r, path, "memory.stat", "held"),
		current);
	return current;
}

void check_all(struct run *r, const char *when, bool closed)
{
	unsigned before = r->differences;
	sqlite3_int64 blocks = 0, unused;
	uint64_t sum, own_blocks, used;

	sum = check_owner(r, when, r->shared_path, &r->shared);
	own_blocks = atomic_load(&r->shared.blocks);
	for (struct tenant *t = r->tenants; t < r->tenants + r->n_tenants; t++) {
		uint64_t current = check_owner(r, when, t->path, &t->work.owner);

		if (closed)
			expect(r, when, t->path, current, 0);
		sum += current;
		own_blocks += atomic_load(&t->work.owner.blocks);
	}

	used = (uint64_t)sqlite3_memory_used();
	sqlite3_status64(SQLITE_STATUS_MALLOC_COUNT, &blocks, &unused, 0);
	expect(r, when, "blocks", own_blocks, (uint64_t)blocks);
	expect(r, when, "sum", sum, used + ALLOC_HEADER * (uint64_t)blocks);
	expect(r, when, r->base, daemon_figure(r, r->base, "memory.current", ""), sum);
	printf("check %s: daemon=%" PRIu64 " sqlite=%" PRIu64 " blocks=%" PRIu64 " %s\n", when, sum,
		used, (uint64_t)blocks, r->differences == before ? "exact" : "DIFFERENT");
}

void check_shut_down(struct run *r)
{
	uint64_t left = daemon_figure(r, r->base, "memory.current", "");

	expect(r, "shut down", r->base, left, 0);
	printf("check shut down: daemon=%" PRIu64 " %s\n", left, left ? "DIFFERENT" : "exact");
}
