/* SPDX-License-Identifier: MIT */

/*
 * Finding or making what a section fills. Names of sections are checked here, at the line of the
 * section, so that no error of a name is blamed on the key below it.
 */

#include "section.h"

#include <errno.h>
#include <string.h>

#include "core/util.h"
#include "core/value.h"
#include "measure.h"
#include "nearest.h"

const char *const section_words[SECTION_KINDS] = {
	[SECTION_DAEMON] = "daemon",
	[SECTION_STAT] = "stat",
	[SECTION_POOL] = "pool",
};

int section_where(const char *file, unsigned line, char **where)
{
	char *text;
	int n = line ? asprintf(&text, "%s:%u", file, line) : asprintf(&text, "%s", file);

	if (n < 0)
		return -ENOMEM;
	free(*where);
	*where = text;
	return 0;
}

static int fail_unknown(const struct measure_place *at, char **ret_error)
{
	_cleanup_(freep) char *word = strndup(at->section, strcspn(at->section, " "));
	struct nearest nearest = {.typed = word};

	if (!word)
		return -ENOMEM;
	for (unsigned i = 0; i < SECTION_KINDS; i++)
		nearest_consider(&nearest, section_words[i]);
	if (nearest.name)
		return measure_fail(at, ret_error,
			"unknown section, perhaps %s is meant; there are [daemon], [stat NAME] and "
			"[pool NAME]",
			nearest.name);
	return measure_fail(
		at, ret_error, "unknown section; there are [daemon], [stat NAME] and [pool NAME]");
}

static int add_item(struct conf *c, const char *name)
{
	struct conf_item *items = reallocarray(c->items, c->n_items + 1, sizeof(*items)), *new;

	if (!items)
		return -ENOMEM;
	c->items = items;
	new = &items[c->n_items++];
	*new = (struct conf_item){
		.name = strdup(name), .unit = strdup(""), .help = strdup(""), .type = ITEM_GAUGE};
	return new->name &&new->unit &&new->help ? 0 : -ENOMEM;
}

/* Built-in items are items like others: a section adds to them or changes them. */
static int find_item(struct conf *c, const char *name, const struct measure_place *at, void **ret,
	char **ret_error)
{
	size_t i = 0;
	int r = 0;

	while (i < c->n_items && strcmp(c->items[i].name, name) != 0)
		i++;
	if (i == c->n_items) {
		if (item_check_name(name) < 0)
			return measure_fail(at, ret_error,
				"this cannot name an item; a name is a-z and then at most %d of "
				"a-z 0-9 _, "
				"and none of held stock persistent overdraft kernel_current",
				ITEM_NAME_MAX - 1);
		if (i == ITEM_MAX)
			return measure_fail(at, ret_error,
				"there are more than %d items; remove one (built-in ones count "
				"too)",
				ITEM_MAX);
		r = add_item(c, name);
	}
	if (r == 0)
		r = section_where(at->file, at->line, &c->items[i].where);
	if (r == 0)
		*ret = &c->items[i];
	return r;
}

static int find_pool(struct conf *c, const char *name, const struct measure_place *at, void **ret,
	char **ret_error)
{
	struct conf_pool *pools;
	size_t i = 0;

	if (*name == '\0' || strpbrk(name, " \t"))
		return measure_fail(at, ret_error,
			"the name is empty or has blanks; write [pool NAME] with one word and one "
			"blank");
	while (i < c->n_pools && strcmp(c->pools[i].name, name) != 0)
		i++;
	if (i < c->n_pools) {
		*ret = &c->pools[i];
		return 0;
	}
	pools = reallocarray(c->pools, i + 1, sizeof(*pools));
	if (!pools)
		return -ENOMEM;
	c->pools = pools;
	c->n_pools++;
	pools[i] = (struct conf_pool){.name = strdup(name),
		.uid = NAMES_NOBODY,
		.gid = NAMES_NOBODY,
		.mode = CONF_NO_MODE};
	for (unsigned l = 0; l < LIMITS; l++)
		pools[i].values[l] = limit_kinds[l].by_default;
	if (!pools[i].name || section_where(at->file, at->line, &pools[i].where) < 0)
		return -ENOMEM;
	*ret = &pools[i];
	return 0;
}

int section_find(struct conf *conf, const char *section, const char *file, unsigned line,
	enum section_kind *ret_kind, void **ret_target, char **ret_error)
{
	struct measure_place at = {file, line, section, NULL};
	const char *blank = strchr(section, ' ');
	size_t n = strcspn(section, " ");
	unsigned kind = 0;
	int r = 0;

	*ret_error = NULL;
	while (kind < SECTION_KINDS &&
		(strlen(section_words[kind]) != n || memcmp(section_words[kind], section, n) != 0))
		kind++;
	if (kind == SECTION_KINDS)
		return fail_unknown(&at, ret_error);
	if (kind == SECTION_DAEMON && blank)
		return measure_fail(
			&at, ret_error, "the section takes no name; write [daemon] alone");
	if (kind != SECTION_DAEMON && !blank)
		return measure_fail(&at, ret_error, "the section needs a name; write [%s NAME]",
			section_words[kind]);
	if (kind == SECTION_STAT)
		r = find_item(conf, blank + 1, &at, ret_target, ret_error);
	else if (kind == SECTION_POOL)
		r = find_pool(conf, blank + 1, &at, ret_target, ret_error);
	else
		*ret_target = conf;
	if (r == 0)
		*ret_kind = kind;
	return r;
}
