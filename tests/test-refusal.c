/* SPDX-License-Identifier: MIT */

/*
 * Records of refusals: the store by itself, what a daemon and the embedded engine put into it, and how
 * programs and people get at it.
 */

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/refusal.h"
#include "core/util.h"
#include "harness.h"

#define M (UINT64_C(1) << 20)

/* ------------------------------------------------------------------ the store */

struct store {
	struct item_table items;
	struct pool_tree *tree;
	struct refusals *refusals;
};

static void begin(struct store *s, size_t bytes)
{
	*s = (struct store){0};
	assert_int_equal(refusals_new(bytes, &s->refusals), 0);
	assert_int_equal(pool_tree_new(&s->items, &s->tree), 0);
	s->tree->refusals = s->refusals;
}

static void end(struct store *s)
{
	pool_tree_free(s->tree);
	assert_null(refusals_free(s->refusals));
	item_table_clear(&s->items);
}

static struct pool *make_pool(struct store *s, const char *path)
{
	struct pool *p;

	assert_int_equal(pool_create_all(s->tree, path, &p), 0);
	return p;
}

static uint64_t refuse(struct store *s, struct pool *p, uint64_t wanted)
{
	const struct refusal_facts f = {
		.session = 7, .pid = 17, .limit = 100, .held = 90, .wanted = wanted};
	const struct refusal_holder h = {.bytes = 80, .name = "a b", .pid = 17};

	return refusal_add(s->refusals, &f, p, (struct itemlimit_place){p, 0}, "one two", &h, 1);
}

static unsigned count_lines(const char *text)
{
	unsigned n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

static unsigned count_records(struct store *s, struct pool *below)
{
	_cleanup_(freep) char *text = NULL;

	assert_int_equal(refusals_read(s->refusals, below, &text), 0);
	return count_lines(text);
}

static void test_line(void **state _unused_)
{
	struct store s;
	struct pool *p;
	_cleanup_(freep) char *text = NULL, *one = NULL;

	begin(&s, 65536);
	p = make_pool(&s, "/a b/c,d");
	assert_int_equal(count_records(&s, s.tree->root), 0);
	assert_int_equal(refuse(&s, p, 33), 1);
	assert_int_equal(refusals_read(s.refusals, p, &text), 0);
	assert_string_equal(text,
		"number=1 time_usec=0 pid=17 wanted=33 limit=100 held=90 idle=0 waited_usec=0 "
		"drained=0 asked=0 reclaimed=0 ahead=0 at=/a%20b/c%2Cd file=memory.max "
		"name=one%20two "
		"pool=/a%20b/c%2Cd holders=80:a%20b[17]\n");
	assert_int_equal(refusal_read(s.refusals, 1, 7, &one), 0);
	assert_string_equal(one, text);
	end(&s);
}

/* Another session's, one that never was. */
static void test_whose(void **state _unused_)
{
	struct store s;
	char *text = NULL;

	begin(&s, 65536);
	refuse(&s, s.tree->root, 1);
	assert_int_equal(refusal_read(s.refusals, 1, 8, &text), -ENOENT);
	assert_int_equal(refusal_read(s.refusals, 0, 7, &text), -ENOENT);
	assert_int_equal(refusal_read(s.refusals, 2, 7, &text), -ENOENT);
	assert_null(text);
	end(&s);
}

static void test_below(void **state _unused_)
{
	struct store s;
	struct pool *a, *b, *c;

	begin(&s, 65536);
	a = make_pool(&s, "/a");
	b = make_pool(&s, "/a/b");
	c = make_pool(&s, "/ab");
	refuse(&s, a, 1);
	refuse(&s, b, 2);
	refuse(&s, c, 3);
	refuse(&s, s.tree->root, 4);
	assert_int_equal(count_records(&s, s.tree->root), 4);
	assert_int_equal(count_records(&s, a), 2);
	assert_int_equal(count_records(&s, b), 1);
	assert_int_equal(count_records(&s, c), 1);
	/* Removed pools are still told of, above them. */
	assert_int_equal(pool_remove(b), 0);
	assert_int_equal(count_records(&s, a), 2);
	assert_int_equal(count_records(&s, c), 1);
	assert_int_equal(pool_remove(a), 0);
	assert_int_equal(count_records(&s, s.tree->root), 4);
	/* And a pool of that name that comes later shows what was refused there. */
	assert_int_equal(count_records(&s, make_pool(&s, "/a")), 2);
	end(&s);
}

/* A pool that refuses all the time loses its own oldest ones; what is shown has a bound too. */
static void test_bound_of_pool(void **state _unused_)
{
	_cleanup_(freep) char *text = NULL;
	struct pool *quiet, *loud;
	struct store s;

	begin(&s, REFUSALS_BYTES);
	quiet = make_pool(&s, "/quiet");
	loud = make_pool(&s, "/loud");
	refuse(&s, quiet, 1);
	for (uint64_t i = 0; i < 100000; i++)
		assert_int_equal(refuse(&s, loud, i), i + 2);
	assert_int_equal(count_records(&s, quiet), 1);
	assert_int_equal(count_records(&s, loud), REFUSALS_OF_POOL);
	assert_int_equal(count_records(&s, s.tree->root), REFUSALS_OF_POOL);
	assert_int_equal(refusals_read(s.refusals, loud, &text), 0);
	assert_non_null(strstr(text, "number=100001 "));
	assert_null(strstr(text, "number=99745 "));
	assert_non_null(strstr(text, "number=99746 "));
	end(&s);
}

/* Many pools with long paths: the oldest of all make room. */
static void test_bound_of_all(void **state _unused_)
{
	char path[PATH_MAX_BYTES + 1];
	struct store s;
	uint64_t last = 0;

	begin(&s, 65536);
	for (unsigned i = 0; i < 300; i++) {
		snprintf(path, sizeof(path), "/%u/%0200d/%0200d", i, 1, 2);
		last = refuse(&s, make_pool(&s, path), i);
		assert_int_equal(last, i + 1);
	}
	assert_in_range(count_records(&s, s.tree->root), 10, 100);
	/* One that is larger than all: there is none of it, and nothing is broken. */
	path[0] = '\0';
	for (unsigned i = 0; i < 2000; i++)
		strcat(path, "/%");
	for (unsigned i = 0; i < 30; i++) {
		refuse(&s, make_pool(&s, path), i);
		assert_true(count_records(&s, s.tree->root) > 0);
	}
	end(&s);
}

/* Without holders of its own a record has those of the one before, by the same limit. */
static void test_holders_again(void **state _unused_)
{
	const struct refusal_facts f = {.session = 7, .limit = 1};
	_cleanup_(freep) char *text = NULL, *bare = NULL;
	struct itemlimit_place at;
	struct store s;

	begin(&s, 65536);
	at = (struct itemlimit_place){make_pool(&s, "/a"), 0};
	assert_int_equal(refusal_add(s.refusals, &f, at.pool, at, "x", NULL, 0), 1);
	assert_int_equal(refusal_read(s.refusals, 1, 7, &bare), 0);
	assert_non_null(strstr(bare, " holders=\n"));
	refuse(&s, at.pool, 1);
	for (unsigned i = 0; i < 1000; i++)
		refusal_add(s.refusals, &f, at.pool, at, "x", NULL, 0);
	assert_int_equal(refusal_read(s.refusals, 1002, 7, &text), 0);
	assert_non_null(strstr(text, " holders=80:a%20b[17]\n"));
	end(&s);
}

static void no_client(struct pool_member *m, uint32_t item, struct refusal_holder *ret)
{
	(void)m;
	(void)item;
	(void)ret;
}

static void test_largest(void **state _unused_)
{
	static const uint64_t held[] = {5, 50, 20, 0, 40, 10};
	struct refusal_holder h[REFUSAL_HOLDERS];
	struct store s;
	char path[16];

	begin(&s, 65536);
	assert_int_equal(refusal_find_holders(
				 (struct itemlimit_place){s.tree->root, 0}, false, no_client, h),
		0);
	for (unsigned i = 0; i < ELEMENTS(held); i++) {
		struct pool *p;

		snprintf(path, sizeof(path), "/%u", i);
		p = make_pool(&s, path);
		counter_charge(&p->counter, held[i]);
	}
	assert_int_equal(refusal_find_holders(
				 (struct itemlimit_place){s.tree->root, 0}, false, no_client, h),
		3);
	assert_int_equal(h[0].bytes, 50);
	assert_int_equal(h[1].bytes, 40);
	assert_int_equal(h[2].bytes, 20);
	assert_string_equal(h[2].pool->name, "2");
	end(&s);
}

/* A look is due again when ten times of what it took has passed. */
static void test_looks(void **state _unused_)
{
	struct store s;
	struct pool *p;

	begin(&s, 65536);
	p = s.tree->root;
	assert_true(refusal_is_look_due(p, 1));
	refusal_count_look(p, 1000000, 10);
	assert_false(refusal_is_look_due(p, 1000001));
	assert_true(refusal_is_look_due(p, 1100000));
	refusal_count_look(p, 1000000, 200000);
	assert_false(refusal_is_look_due(p, 2900000));
	assert_true(refusal_is_look_due(p, 3000000));
	end(&s);
}

/* ------------------------------------------------------------------ both engines */

/* What a test needs of an engine: a session with "anon", and /a with 10 MiB. */
struct rig {
	struct harness h;
	struct tally *t;
};

static const char config[] = "[stat anon]\ntype = gauge\n"
			     "[pool a]\npath = /a\nmemory.max = 10M\nstat.anon.max = 4M\n";

static int set_up_daemon(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	harness_start(&rig->h, config);
	rig->t = harness_open(&rig->h);
	*state = rig;
	return 0;
}

static int tear_down_daemon(void **state)
{
	struct rig *rig = *state;

	tally_close(rig->t);
	harness_stop(&rig->h);
	free(rig);
	return 0;
}

static int set_up_embedded(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	char path[] = "/tmp/tally-refusal-XXXXXX";
	struct tally_options o = {.address = "embedded:", .name = "me", .config = path};
	int fd = mkstemp(path);

	assert_non_null(rig);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, config, strlen(config)), strlen(config));
	close(fd);
	assert_int_equal(tally_open_with(&o, sizeof(o), &rig->t), 0);
	unlink(path);
	*state = rig;
	return 0;
}

static int tear_down_embedded(void **state)
{
	struct rig *rig = *state;

	tally_close(rig->t);
	free(rig);
	return 0;
}

static void test_none(void **state)
{
	struct rig *rig = *state;
	struct tally_refusal f = {.wanted = 5};
	struct tally_pool *p = harness_attach(rig->t, "/a");

	assert_int_equal(tally_last_refusal(rig->t, sizeof(f), &f), -ENODATA);
	assert_int_equal(tally_charge(p, M), 0);
	assert_int_equal(tally_last_refusal(rig->t, sizeof(f), &f), -ENODATA);
	assert_int_equal(f.wanted, 5);
	assert_int_equal(tally_last_refusal(rig->t, sizeof(f), NULL), -EINVAL);
	tally_detach(p);
}

static void test_charge(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p = harness_attach(rig->t, "/a/b"), *q = harness_attach(rig->t, "/a/c");
	struct tally_refusal f;
	char *text;

	assert_int_equal(tally_charge(p, 6 * M), 0);
	assert_int_equal(tally_charge(q, 1 * M), 0);
	assert_int_equal(tally_charge(q, 5 * M), -ENOMEM);
	assert_int_equal(tally_last_refusal(rig->t, sizeof(f), &f), 0);
	assert_int_equal(f.limit, 10 * M);
	assert_int_equal(f.wanted, 5 * M);
	assert_int_equal(f.held, 7 * M);
	assert_int_equal(f.idle, 0);
	assert_string_equal(f.pool, "/a");
	assert_string_equal(f.file, "memory.max");
	assert_string_equal(f.holders, "6291456 /a/b\n1048576 /a/c\n");
	text = harness_get(rig->t, "/a", "pool.refusals");
	assert_int_equal(count_lines(text), 1);
	assert_non_null(strstr(text, " at=/a file=memory.max "));
	assert_non_null(strstr(text, " pool=/a/c "));
	free(text);
	/* It is the limit's pool that refuses. */
	text = harness_get(rig->t, "/a/c", "pool.refusals");
	assert_string_equal(text, "");
	free(text);
	assert_int_equal(tally_set(rig->t, "/a", "pool.refusals", "1"), -EACCES);
	tally_detach(p);
	tally_detach(q);
}

/* A client holds it, and the caller knows a part of the struct alone, or more than there is. */
static void test_sizes(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p = harness_attach(rig->t, "/a");
	struct {
		struct tally_refusal f;
		uint64_t more;
	} long_one = {.more = 1};
	struct {
		uint64_t limit, more;
	} short_one = {0, 1};

	assert_int_equal(tally_charge(p, 9 * M), 0);
	assert_int_equal(tally_charge(p, 2 * M), -ENOMEM);
	assert_int_equal(tally_last_refusal(rig->t, sizeof(long_one), &long_one.f), 0);
	assert_int_equal(long_one.f.wanted, 2 * M);
	assert_int_equal(long_one.more, 0);
	assert_non_null(strstr(long_one.f.holders, "9437184 "));
	assert_non_null(strstr(long_one.f.holders, "]\n"));
	assert_int_equal(tally_last_refusal(rig->t, sizeof(uint64_t),
				 (struct tally_refusal *)(void *)&short_one),
		0);
	assert_int_equal(short_one.limit, 10 * M);
	assert_int_equal(short_one.more, 1);
	tally_detach(p);
}

static void test_item(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p = harness_attach(rig->t, "/a");
	struct tally_refusal f;
	tally_item anon;

	assert_int_equal(tally_item_lookup(rig->t, "anon", &anon), 0);
	assert_int_equal(tally_charge(p, 2 * M), 0);
	assert_int_equal(tally_charge_item(p, anon, 3 * M), 0);
	assert_int_equal(tally_charge_item(p, anon, 2 * M), -ENOMEM);
	assert_int_equal(tally_last_refusal(rig->t, sizeof(f), &f), 0);
	assert_string_equal(f.file, "stat.anon.max");
	assert_string_equal(f.pool, "/a");
	assert_int_equal(f.limit, 4 * M);
	assert_int_equal(f.held, 3 * M);
	assert_non_null(strstr(f.holders, "3145728 "));
	tally_detach(p);
}

/* The one that tells "known full" gets the record of the refusal that it knows of. */
static void test_try(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p = harness_attach(rig->t, "/a");
	struct tally_refusal f;
	int r = -EAGAIN;

	for (unsigned i = 0; r == -EAGAIN && i < HARNESS_PATIENCE_MS; i++) {
		r = tally_try_charge(p, 11 * M);
		if (r == -EAGAIN)
			usleep(1000);
	}
	assert_int_equal(r, -ENOMEM);
	assert_int_equal(tally_last_refusal(rig->t, sizeof(f), &f), 0);
	assert_int_equal(f.wanted, 11 * M);
	tally_detach(p);
}

static void test_deadline(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p = harness_attach(rig->t, "/a");
	struct timespec now;
	struct tally_charge_args a = {.bytes = 2 * M};
	struct tally_refusal f;

	assert_int_equal(tally_charge(p, 9 * M), 0);
	clock_gettime(CLOCK_MONOTONIC, &now);
	a.deadline_usec = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000 + 50000;
	assert_int_equal(tally_charge_with(p, &a, sizeof(a)), -ETIMEDOUT);
	assert_int_equal(tally_last_refusal(rig->t, sizeof(f), &f), 0);
	assert_int_equal(f.wanted, 2 * M);
	assert_true(f.waited_usec > 1000);
	assert_string_equal(f.file, "memory.max");
	tally_detach(p);
}

#define THREADS 16

struct thread {
	struct rig *rig;
	uint64_t bytes;
	pthread_barrier_t *barrier;
};

static void *be_refused(void *userdata)
{
	struct thread *own = userdata;
	struct tally_pool *p = harness_attach(own->rig->t, "/a");
	struct tally_refusal f;

	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(tally_charge(p, own->bytes + i), -ENOMEM);
		if (i % 4 == 0)
			pthread_barrier_wait(own->barrier);
		assert_int_equal(tally_last_refusal(own->rig->t, sizeof(f), &f), 0);
		assert_int_equal(f.wanted, own->bytes + i);
	}
	tally_detach(p);
	return NULL;
}

static void test_threads(void **state)
{
	struct thread threads[THREADS];
	pthread_t ids[THREADS];
	pthread_barrier_t barrier;
	struct tally_refusal f;

	pthread_barrier_init(&barrier, NULL, THREADS);
	for (unsigned i = 0; i < THREADS; i++) {
		threads[i] = (struct thread){*state, 11 * M + i * 1000, &barrier};
		assert_int_equal(pthread_create(&ids[i], NULL, be_refused, &threads[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
	pthread_barrier_destroy(&barrier);
	/* This thread was not. */
	assert_int_equal(tally_last_refusal(((struct rig *)*state)->t, sizeof(f), &f), -ENODATA);
}

/* Many more than there is room for. */
static void test_storm(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p = harness_attach(rig->t, "/a");
	struct tally_refusal f;
	char *text;

	for (uint64_t i = 0; i < 3000; i++)
		assert_int_equal(tally_charge(p, 11 * M + i), -ENOMEM);
	assert_int_equal(tally_last_refusal(rig->t, sizeof(f), &f), 0);
	assert_int_equal(f.wanted, 11 * M + 2999);
	text = harness_get(rig->t, "/", "pool.refusals");
	assert_int_equal(count_lines(text), REFUSALS_OF_POOL);
	free(text);
	tally_detach(p);
}

/* ------------------------------------------------------------------ the daemon alone */

/* A child asks for what its parent was refused. */
static int ask_as_child(void *userdata)
{
	struct rig *rig = userdata;
	struct tally_refusal f;

	return tally_last_refusal(rig->t, sizeof(f), &f) == -ECHILD ? 0 : 1;
}

static void test_child(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p = harness_attach(rig->t, "/a");

	assert_int_equal(tally_charge(p, 11 * M), -ENOMEM);
	harness_join(harness_fork(ask_as_child, rig), 0);
	tally_detach(p);
}

static char *run_why(struct rig *rig, const char *arguments)
{
	char command[512], *text = calloc(1, 65536);
	FILE *f;

	assert_non_null(text);
	snprintf(command, sizeof(command), "%s --socket %s why %s", getenv("TALLYCTL"),
		rig->h.address, arguments);
	f = popen(command, "r");
	assert_non_null(f);
	assert_true(fread(text, 1, 65535, f) > 0);
	assert_int_equal(pclose(f), 0);
	return text;
}

static void test_why(void **state)
{
	struct rig *rig = *state;
	struct tally_pool *p = harness_attach(rig->t, "/a/b");
	char *text;

	if (!getenv("TALLYCTL"))
		skip();
	text = run_why(rig, "/");
	assert_non_null(strstr(text, "nothing was refused"));
	free(text);
	assert_int_equal(tally_charge(p, 9 * M), 0);
	assert_int_equal(tally_charge(p, 2 * M), -ENOMEM);
	text = run_why(rig, "");
	assert_non_null(strstr(text, "refused 2M to test-refusal"));
	assert_non_null(strstr(text, "memory.max of /a is 10M"));
	assert_non_null(strstr(text, "held 9M"));
	assert_non_null(strstr(text, "/a/b 9M"));
	free(text);
	text = run_why(rig, "/a --json");
	assert_non_null(strstr(text, "\"wanted\": 2097152"));
	assert_non_null(strstr(text, "\"who\": \"/a/b\""));
	free(text);
	tally_detach(p);
}

#define DAEMON_TEST(f) cmocka_unit_test_setup_teardown(f, set_up_daemon, tear_down_daemon)
#define EMBEDDED_TEST(f)                                                                           \
	{                                                                                          \
		.name = #f " embedded", .test_func = (f), .setup_func = set_up_embedded,           \
		.teardown_func = tear_down_embedded                                                \
	}
#define BOTH_TESTS(f) DAEMON_TEST(f), EMBEDDED_TEST(f)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_line),
		cmocka_unit_test(test_whose),
		cmocka_unit_test(test_below),
		cmocka_unit_test(test_bound_of_pool),
		cmocka_unit_test(test_bound_of_all),
		cmocka_unit_test(test_holders_again),
		cmocka_unit_test(test_largest),
		cmocka_unit_test(test_looks),
		BOTH_TESTS(test_none),
		BOTH_TESTS(test_charge),
		BOTH_TESTS(test_sizes),
		BOTH_TESTS(test_item),
		BOTH_TESTS(test_try),
		BOTH_TESTS(test_deadline),
		BOTH_TESTS(test_threads),
		BOTH_TESTS(test_storm),
		BOTH_TESTS(test_child),
		DAEMON_TEST(test_why),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
