/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the keys of the configuration mean: the one table of them, with the values that each takes.
 * A new key is a line in that table. Where the text comes from is conf.c's affair.
 */

#include <stdbool.h>
#include <stdint.h>

#include "conf.h"
#include "section.h"

/* Where the reading of one file stands. Start a file with setting_begin(). */
struct setting {
	struct conf *conf;
	const char *file;
	unsigned line;                      /* of the key that is applied */
	unsigned section_line;              /* of the section that it stands in */
	char section[CONF_SECTION_MAX + 1]; /* the section in force, "" before the first */
	enum section_kind kind;             /* of that section */
	void *target;                       /* the conf, conf_item or conf_pool that it fills */
	const char *key;                    /* that is applied */
	uint64_t seen;        /* keys of that section, bits by their place in the table of keys */
	uint64_t seen_limits; /* limits of items there, bits by their place in the conf_pool */
	bool again;           /* the key that is applied is among them */
	const char *bad;      /* the part of a value that was refused */
	size_t bad_size;
	const char *unknown; /* what it should name, and does not; NULL: that is not it */
};

/* Whether that is the name of the file, and of the key, stat.<item>.max, of whatever item; its name
 * then in ret_item. */
bool setting_is_item_max(const char *name, char ret_item[static CONF_LINE_MAX + 1]);

void setting_begin(struct setting *s, struct conf *conf, const char *file);

/*
 * Applies `key = value` of `section`, a section that stands in the file once. Keys that an earlier
 * file gave are overridden. -EINVAL or -ENOMEM with one line in *ret_error; the conf then holds
 * what was applied before.
 */
int setting_apply(struct setting *s, const char *section, const char *key, const char *value,
	char **ret_error);
