/* SPDX-License-Identifier: MIT */

/*
 * A section names the daemon, an item or a pool; whatever else it is called must be told at its own
 * line, and the same name must mean the same thing in every file.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/section.h"
#include "core/util.h"
#include "core/value.h"

static int set_up(void **state)
{
	return conf_new_default((struct conf **)state);
}

static int tear_down(void **state)
{
	conf_free(*state);
	return 0;
}

static void *find(struct conf *c, const char *section, unsigned line, enum section_kind kind)
{
	_cleanup_(freep) char *error = NULL;
	enum section_kind found = SECTION_KINDS;
	void *target = NULL;
	int r = section_find(c, section, "f", line, &found, &target, &error);

	if (r != 0)
		fail_msg("[%s]: %s", section, error);
	assert_null(error);
	assert_int_equal(found, kind);
	assert_non_null(target);
	return target;
}

static void refuse(struct conf *c, const char *section, const char *what)
{
	_cleanup_(freep) char *error = NULL, *begin = NULL;
	enum section_kind kind = SECTION_KINDS;
	void *target = NULL;
	int n = asprintf(&begin, "f:7: [%.4s", section);

	assert_int_equal(section_find(c, section, "f", 7, &kind, &target, &error), -EINVAL);
	assert_int_equal(kind, SECTION_KINDS);
	assert_null(target);
	assert_non_null(error);
	if (strncmp(error, begin, (size_t)n) != 0 || !strstr(error, what))
		fail_msg("\"%s\" is not \"%s ... %s\"", error, begin, what);
}

static void test_daemon(void **state)
{
	struct conf *c = *state;

	assert_ptr_equal(find(c, "daemon", 3, SECTION_DAEMON), c);
}

static void test_pool(void **state)
{
	struct conf *c = *state;
	struct conf_pool *p = find(c, "pool a", 3, SECTION_POOL);

	assert_string_equal(p->name, "a");
	assert_string_equal(p->where, "f:3");
	assert_null(p->path);
	assert_true(p->values[LIMIT_MAX] == VALUE_MAX);
	assert_int_equal(p->flush_threshold, 0);
	p = find(c, "pool b", 4, SECTION_POOL);
	assert_string_equal(p->name, "b");
	assert_int_equal(c->n_pools, 2);
	/* the same again: the place stays the one that made it */
	p = find(c, "pool a", 9, SECTION_POOL);
	assert_ptr_equal(p, &c->pools[0]);
	assert_string_equal(p->where, "f:3");
	assert_int_equal(c->n_pools, 2);
}

static void test_stat(void **state)
{
	struct conf *c = *state;
	size_t n = c->n_items;
	struct conf_item *i = find(c, "stat shmem", 3, SECTION_STAT);

	assert_int_equal(c->n_items, n);
	assert_ptr_equal(i, &c->items[2]);
	assert_string_equal(i->where, "f:3");
	assert_string_equal(i->unit, "bytes");
	i = find(c, "stat gpu", 5, SECTION_STAT);
	assert_int_equal(c->n_items, n + 1);
	assert_string_equal(i->name, "gpu");
	assert_string_equal(i->where, "f:5");
	assert_string_equal(i->unit, "");
	assert_string_equal(i->help, "");
	assert_int_equal(i->type, ITEM_GAUGE);
}

static void test_names(void **state)
{
	struct conf *c = *state;
	size_t n = c->n_items;

	refuse(c, "stat Gpu", "a-z 0-9 _");
	refuse(c, "stat 9", "a-z 0-9 _");
	refuse(c, "stat ", "a-z 0-9 _");
	refuse(c, "stat a b", "a-z 0-9 _");
	refuse(c, "stat a234567890123456789012345678901234", "31 of a-z");
	refuse(c, "stat held", "none of held stock");
	refuse(c, "stat kernel_current", "none of held stock");
	refuse(c, "pool ", "empty");
	refuse(c, "pool  a", "blanks");
	refuse(c, "pool a b", "blanks");
	refuse(c, "pool\ta", "unknown section");
	assert_int_equal(c->n_items, n);
	assert_int_equal(c->n_pools, 0);
}

static void test_unknown(void **state)
{
	struct conf *c = *state;

	refuse(c, "match web", "unknown section; there are [daemon], [stat NAME] and [pool NAME]");
	refuse(c, "deamon", "perhaps daemon is meant; there are");
	refuse(c, "pools a", "perhaps pool is meant");
	refuse(c, "Stat a", "perhaps stat is meant");
	refuse(c, " daemon", "unknown section");
	refuse(c, "daemon ", "takes no name; write [daemon]");
	refuse(c, "daemon a", "takes no name; write [daemon]");
	refuse(c, "pool", "needs a name; write [pool NAME]");
	refuse(c, "stat", "needs a name; write [stat NAME]");
}

static void test_too_many_items(void **state)
{
	struct conf *c = *state;

	for (unsigned i = (unsigned)c->n_items; i < ITEM_MAX; i++) {
		char section[32];

		snprintf(section, sizeof(section), "stat item_%u", i);
		find(c, section, i, SECTION_STAT);
	}
	refuse(c, "stat one_more", "more than 64 items");
	assert_int_equal(c->n_items, ITEM_MAX);
	/* what is there may still be changed */
	find(c, "stat item_63", 1, SECTION_STAT);
	find(c, "stat anon", 1, SECTION_STAT);
}

static void test_where(void **state)
{
	char *where = NULL;

	(void)state;
	assert_int_equal(section_where("f", 12, &where), 0);
	assert_string_equal(where, "f:12");
	assert_int_equal(section_where("built in", 0, &where), 0);
	assert_string_equal(where, "built in");
	free(where);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_daemon, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_pool, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_stat, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_unknown, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_too_many_items, set_up, tear_down),
		cmocka_unit_test(test_where),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
