/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The known name that was probably meant by a misspelt one, so that an error can name it.
 */

struct nearest {
	const char *typed;
	const char *name;  /* NULL: none is near enough */
	unsigned distance; /* of name */
};

/* Offers a known name: it becomes `name` if it is near enough and nearer than what is there. */
void nearest_consider(struct nearest *n, const char *name);
