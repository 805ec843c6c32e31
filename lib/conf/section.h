/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The kinds of sections, and what a section stands for: the daemon itself, one item or one pool. A
 * section of the same name in a later file means the same item or pool.
 */

#include "conf.h"

enum section_kind {
	SECTION_DAEMON, /* [daemon] */
	SECTION_STAT,   /* [stat NAME] */
	SECTION_POOL,   /* [pool NAME] */
	SECTION_KINDS,
};

extern const char *const section_words[SECTION_KINDS];

/*
 * What the section that begins at that line of `file` fills: `conf` itself, a conf_item or a
 * conf_pool, made if there is none of that name yet; it is good until the next section is found.
 * -EINVAL with one line in *ret_error, or -ENOMEM.
 */
int section_find(struct conf *conf, const char *section, const char *file, unsigned line,
	enum section_kind *ret_kind, void **ret_target, char **ret_error);

/* "FILE:LINE", or "FILE" for line 0, in the place of *where, which is freed. -ENOMEM. */
int section_where(const char *file, unsigned line, char **where);
