/* SPDX-License-Identifier: MIT */

#include "full.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "output.h"
#include "text.h"

static bool read_figure(const struct invocation *inv, const char *path, const char *file,
	const char *key, uint64_t *ret)
{
	_cleanup_(freep) char *text = NULL;

	if (tally_get(inv->tally, path, file, TALLY_CACHED, &text) < 0)
		return false;
	return (key ? text_find_number(text, key, ret) : text_parse_limit(text, ret)) == 0;
}

/* Whether this pool has no room for one so many levels below it; says so. */
static bool tell_tree(
	const struct invocation *inv, const char *path, const char *above, uint64_t depth)
{
	uint64_t max, there;

	if (read_figure(inv, above, "cgroup.max.depth", NULL, &max) && depth > max) {
		error_line(0,
			"%s: cgroup.max.depth of %s is %" PRIu64
			"; make the pool further up, or raise cgroup.max.depth",
			path, above, max);
		return true;
	}
	if (read_figure(inv, above, "cgroup.max.descendants", NULL, &max) &&
		read_figure(inv, above, "cgroup.stat", "nr_descendants", &there) && there >= max) {
		error_line(0,
			"%s: cgroup.max.descendants of %s is %" PRIu64 ", and there are %" PRIu64
			"; remove some, or raise cgroup.max.descendants",
			path, above, max, there);
		return true;
	}
	return false;
}

int full_tree(const struct invocation *inv, const char *path)
{
	char *above = text_parent_path(path);
	bool told = false;

	for (uint64_t depth = 1; above && !told; depth++) {
		char *next = strcmp(above, "/") ? text_parent_path(above) : NULL;

		told = tell_tree(inv, path, above, depth);
		free(above);
		above = next;
	}
	free(above);
	if (!told)
		error_line(0,
			"%s: there is no room below a pool above it, by its cgroup.max.depth or "
			"cgroup.max.descendants; remove some pools, or ask whom it belongs to",
			path);
	return STATUS_ERROR;
}

/* It would have fitted then, so others stood in line before it. */
static bool was_overtaking(const struct tally_refusal *r)
{
	return r->limit != UINT64_MAX && r->held <= r->limit && r->idle <= r->limit - r->held &&
		r->wanted <= r->limit - r->held - r->idle;
}

static void tell_limit(const struct tally_refusal *r, const char *path, const char *bytes)
{
	char held[OUTPUT_TEXT_MAX], idle[OUTPUT_TEXT_MAX], max[OUTPUT_TEXT_MAX];
	bool overtaking = was_overtaking(r);

	error_line(0,
		"%s: %s does not fit: %s%s of %s is %s, held %s, idle %s; %s ('tallyctl clients "
		"%s') or raise %s",
		path, ERROR_CUT(bytes), overtaking ? "others wait in line there: " : "", r->file,
		r->pool, output_limit(r->limit, max), output_bytes(r->held, held),
		output_bytes(r->idle, idle),
		overtaking ? "wait too, with --timeout, end a client" : "end a client", r->pool,
		r->file);
}

void full_limit(const struct invocation *inv, const char *path, const char *bytes)
{
	_cleanup_(freep) struct tally_refusal *r = calloc(1, sizeof(*r));

	if (!r || tally_last_refusal(inv->tally, sizeof(*r), r) < 0)
		error_line(0,
			"%s: %s does not fit under a limit of the pool or of one above it; try "
			"again, or see 'tallyctl tree'",
			path, ERROR_CUT(bytes));
	else if (!*r->file)
		error_line(0,
			"%s: %s does not fit: one client of a pool holds less than 8T of an item; "
			"use several processes",
			path, ERROR_CUT(bytes));
	else
		tell_limit(r, path, bytes);
}
