/* SPDX-License-Identifier: MIT */

/*
 * The table of items. It only grows, because a number that went out in a key must mean the same
 * item for as long as any client may use it; and it is small, so a name is found by looking at all.
 */

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "item.h"
#include "util.h"

/* What memory.stat says itself; an item of that name would make one key appear twice. */
static const char *const fixed_keys[] = {
	"held",
	"stock",
	"persistent",
	"overdraft",
	"kernel_current",
};

int item_check_name(const char *name)
{
	size_t n;

	if (!name || name[0] < 'a' || name[0] > 'z')
		return -EINVAL;
	n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
	if (n > ITEM_NAME_MAX || name[n] != '\0')
		return -EINVAL;
	for (size_t i = 0; i < ELEMENTS(fixed_keys); i++)
		if (strcmp(name, fixed_keys[i]) == 0)
			return -EINVAL;
	return 0;
}

int item_lookup(const struct item_table *t, const char *name, uint32_t *ret)
{
	for (uint32_t i = 1; i <= t->n; i++)
		if (strcmp(t->items[i].name, name) == 0) {
			*ret = i;
			return 0;
		}
	return -ENOENT;
}

static bool is_same(
	const struct item *item, enum item_type type, const char *unit, const char *help)
{
	return item->type == type && strcmp(item->unit, unit) == 0 && strcmp(item->help, help) == 0;
}

static int add(struct item_table *t, const char *name, enum item_type type, const char *unit,
	const char *help)
{
	_cleanup_(freep) char *name_copy = strdup(name);
	_cleanup_(freep) char *unit_copy = strdup(unit);
	_cleanup_(freep) char *help_copy = strdup(help);

	if (!name_copy || !unit_copy || !help_copy)
		return -ENOMEM;

	t->items[++t->n] = (struct item){
		.name = take_ptr(name_copy),
		.unit = take_ptr(unit_copy),
		.help = take_ptr(help_copy),
		.type = type,
	};
	return 0;
}

int item_define(struct item_table *t, const char *name, enum item_type type, const char *unit,
	const char *help, uint32_t *ret)
{
	uint32_t number;
	int r;

	if (item_check_name(name) < 0 || (type != ITEM_GAUGE && type != ITEM_EVENT))
		return -EINVAL;
	unit = unit ? unit : "";
	help = help ? help : "";

	if (item_lookup(t, name, &number) == 0) {
		if (!is_same(&t->items[number], type, unit, help))
			return -EEXIST;
		*ret = number;
		return 0;
	}

	if (t->n == ITEM_MAX)
		return -ENOSPC;
	r = add(t, name, type, unit, help);
	if (r < 0)
		return r;
	*ret = t->n;
	return 0;
}

uint32_t item_shift(const struct item *item)
{
	return item->unit && strcmp(item->unit, "bytes") == 0 ? 12 : 0;
}

void item_table_clear(struct item_table *t)
{
	if (!t)
		return;
	for (uint32_t i = 1; i <= t->n; i++) {
		free(t->items[i].name);
		free(t->items[i].unit);
		free(t->items[i].help);
	}
	*t = (struct item_table){0};
}
