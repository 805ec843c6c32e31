/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The configuration: tallyd.conf and its drop-ins, read by inih. inih cuts long lines and section
 * names and joins indented lines and repeated sections, so every file is measured before it is
 * parsed: what inih would cut or join is an error that names file and line. Nothing is ignored.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/item.h"
#include "core/limit.h"
#include "names.h"

#define CONF_LINE_MAX 198 /* bytes of a line, without newline: inih's buffer holds 199 and NUL */
#define CONF_NO_MODE ((mode_t)-1)
#define CONF_SECTION_MAX 40 /* bytes of a section name */

struct conf_item {
	char *name, *unit, *help;
	enum item_type type;
	char *where; /* "file:line" of its last section, or "built in"; for messages */
};

/* stat.<item>.max of a pool; every such item is a gauge of the configuration. */
struct conf_limit {
	char *item;
	uint64_t max; /* VALUE_MAX: none */
	char *where;  /* "file:line" */
};

struct conf_pool {
	char *name; /* of the section: [pool NAME] */
	char *path;
	uint64_t values[LIMITS];   /* the kinds' defaults where it says nothing */
	uint32_t observe;          /* its limits are counted and not enforced */
	uint32_t standalone;       /* what it has is not summed into the pools above it */
	uint64_t flush_threshold;  /* updates; 0: what holds above it */
	struct conf_limit *limits; /* n_limits of them, at most ITEM_MAX */
	size_t n_limits;
	uid_t uid; /* its owner; NAMES_NOBODY: it says nothing */
	gid_t gid;
	mode_t mode; /* CONF_NO_MODE: it says nothing */
	char *where; /* "file:line" of its path */
};

struct conf {
	uint64_t flush_interval_usec; /* 2s */
	uint64_t flush_threshold;     /* updates; 0: auto */
	uint64_t batch;               /* 256K; 4K to 1G */
	uint64_t batch_max;           /* 16M; 4K to 1G; batch, where that is more */
	uint64_t grace_usec;          /* 30s */
	mode_t socket_mode;           /* 0666 */
	uint32_t export_max;          /* 4096 */
	/* Whose members may do what root may; NAMES_NOBODY: it says nothing, or none. */
	gid_t admin_gid;
	bool has_admin_group; /* it says something */
	/* What the clients of one uid may have: 1024, 4096, 65536, 65536; at least 1 */
	uint32_t max_sessions_per_uid, max_pools_per_uid;
	uint32_t max_attachments_per_uid, max_queued_per_uid;
	char **export; /* patterns of pool paths, fnmatch(3) without FNM_PATHNAME; n_export of them
			*/
	size_t n_export;
	char **export_files; /* n_export_files of them */
	size_t n_export_files;
	char *export_files_where; /* "file:line" */
	struct conf_item *items;
	size_t n_items;
	struct conf_pool *pools; /* sorted by path */
	size_t n_pools;
};

/*
 * Reads `file` and the drop-ins of FILE.d (`tallyd.conf.d/` beside a file tallyd.conf); with file
 * NULL the standard places: the first tallyd.conf of /etc/tallyd, /run/tallyd, /usr/lib/tallyd, and
 * the drop-ins of all three (same name: the earlier directory of this list masks the later), in the
 * order of their names. An explicitly named file must exist; a standard one need not. `root` is put
 * before the standard directories (tests), normally "".
 *
 * 0, or a negative errno with one line in *ret_error (to be freed) that says file, line, key and
 * what to do (NULL when memory is short); *ret is then untouched.
 */
int conf_load(const char *file, const char *root, struct conf **ret, char **ret_error);

/* The built-in defaults: no pools, items anon file shmem sock slab hugetlb (gauges, bytes), alloc
 * free (events), export pattern "/ *" (without the blank), files memory.current memory.stat
 * memory.events. */
int conf_new_default(struct conf **ret);

/* Updates that may be pending before a read flushes, where no pool's section says otherwise: what
 * [daemon] says, or 64 for each possible CPU. */
uint64_t conf_flush_threshold(const struct conf *c, uint32_t n_cpus);

/* What the pool's section says of the limit of an item; VALUE_MAX: none, or nothing. */
uint64_t conf_item_max(const struct conf_pool *p, const char *item);

/* Returns NULL. */
struct conf *conf_free(struct conf *c);
