/* SPDX-License-Identifier: MIT */

/*
 * Levenshtein's distance, one row at a time. Names are short, so that a name longer than the row is
 * near to nothing.
 */

#include "nearest.h"

#include <string.h>

#define NAME_MAX_BYTES 63
#define NEAR_ENOUGH 2 /* two slips, or two letters swapped */

static unsigned find_distance(const char *a, const char *b, unsigned n)
{
	unsigned row[NAME_MAX_BYTES + 1];

	for (unsigned j = 0; j <= n; j++)
		row[j] = j;
	for (unsigned i = 0; a[i]; i++) {
		unsigned diagonal = row[0];

		row[0] = i + 1;
		for (unsigned j = 1; j <= n; j++) {
			unsigned least = diagonal + (a[i] != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < least)
				least = row[j] + 1;
			if (row[j - 1] + 1 < least)
				least = row[j - 1] + 1;
			row[j] = least;
		}
	}
	return row[n];
}

void nearest_consider(struct nearest *n, const char *name)
{
	size_t size = strlen(name);
	unsigned distance;

	if (size > NAME_MAX_BYTES)
		return;
	distance = find_distance(n->typed, name, (unsigned)size);
	if (distance > NEAR_ENOUGH || distance >= size || (n->name && distance >= n->distance))
		return;
	n->name = name;
	n->distance = distance;
}
