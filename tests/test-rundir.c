/* SPDX-License-Identifier: MIT */

#include "rundir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "core/util.h"

static char top[128], dir[160];

static int set_up(void **state)
{
	const char *tmp = getenv("TMPDIR");

	(void)state;
	umask(022);
	snprintf(top, sizeof(top), "%s/test-rundir-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(top));
	snprintf(dir, sizeof(dir), "%s/run", top);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int tear_down(void **state)
{
	(void)state;
	return nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static char *in(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void assert_file(const char *path, const char *text)
{
	char buf[64] = "";
	FILE *f = fopen(path, "re");

	assert_non_null(f);
	assert_non_null(fgets(buf, sizeof(buf), f));
	assert_string_equal(buf, text);
	fclose(f);
}

static void assert_refused(int error)
{
	struct rundir *r = NULL;

	assert_int_equal(rundir_open(dir, &r), error);
	assert_null(r);
}

static void test_made_and_private(void **state)
{
	struct rundir *r;
	struct stat st;

	(void)state;
	assert_int_equal(rundir_open(dir, &r), 0);
	assert_true(rundir_is_ours(r));
	assert_int_equal(stat(in("state"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_null(rundir_close(r));
	assert_null(rundir_close(NULL));

	/* A later daemon finds it, with whatever an earlier one left there. */
	write_file(in("state/ledger"), "x");
	assert_int_equal(mkdir(in("pools"), 0755), 0);
	assert_int_equal(chmod(in("state"), 0755), 0);
	assert_int_equal(rundir_open(dir, &r), 0);
	assert_int_equal(stat(in("state"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	rundir_close(r);
}

static void test_no_parent(void **state)
{
	struct rundir *r;

	(void)state;
	assert_int_equal(rundir_open(in("run"), &r), -ENOENT);
}

static void test_one_owner(void **state)
{
	struct rundir *r;

	(void)state;
	assert_int_equal(rundir_open(dir, &r), 0);
	assert_refused(-EALREADY);
	rundir_close(r);
	assert_int_equal(rundir_open(dir, &r), 0);
	rundir_close(r);
}

static void test_foreign_things_stay(void **state)
{
	(void)state;
	assert_int_equal(mkdir(dir, 0755), 0);
	assert_int_equal(mkdir(in("pools"), 0755), 0);
	write_file(in("pools/memory.stat"), "mine");
	assert_refused(-EEXIST);
	assert_file(in("pools/memory.stat"), "mine");
	assert_int_equal(access(in("state"), F_OK), -1);
}

static void test_foreign_state_stays(void **state)
{
	(void)state;
	assert_int_equal(mkdir(dir, 0755), 0);
	assert_int_equal(mkdir(in("state"), 0755), 0);
	write_file(in("state/ledger"), "mine");
	assert_refused(-EEXIST);
	assert_file(in("state/ledger"), "mine");
}

/* The service manager has made its socket before; a file of that name is somebody's. */
static void test_socket_before_the_first_start(void **state)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct rundir *r;
	int fd;

	(void)state;
	assert_int_equal(mkdir(dir, 0755), 0);
	write_file(in("tallyd.sock"), "mine");
	assert_refused(-EEXIST);
	assert_int_equal(unlink(in("tallyd.sock")), 0);
	assert_true(strlen(in("tallyd.sock")) < sizeof(sa.sun_path));
	strcpy(sa.sun_path, in("tallyd.sock"));
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(rundir_open(dir, &r), 0);
	rundir_close(r);
	close(fd);
}

static void test_state_is_no_link(void **state)
{
	char elsewhere[256];
	struct rundir *r;

	(void)state;
	assert_int_equal(rundir_open(dir, &r), 0);
	rundir_close(r);
	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", top);
	assert_int_equal(rename(in("state"), elsewhere), 0);
	assert_int_equal(symlink(elsewhere, in("state")), 0);
	assert_int_not_equal(rundir_open(dir, &r), 0);
}

static void test_writable_by_others(void **state)
{
	(void)state;
	assert_int_equal(mkdir(dir, 0755), 0);
	assert_int_equal(chmod(dir, 0777), 0);
	assert_refused(-EPERM);
	assert_int_equal(chmod(dir, 01775), 0);
	assert_refused(-EPERM);
}

static void test_of_another_user(void **state)
{
	(void)state;
	if (geteuid() != 0) {
		print_message("skipped: only root can give a directory away\n");
		skip();
	}
	assert_int_equal(mkdir(dir, 0755), 0);
	assert_int_equal(chown(dir, 65534, 65534), 0);
	assert_refused(-EPERM);
}

static void test_replaced(void **state)
{
	struct rundir *old, *new;

	(void)state;
	assert_int_equal(rundir_open(dir, &old), 0);
	assert_int_equal(nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
	assert_false(rundir_is_ours(old));
	assert_int_equal(rundir_open(dir, &new), 0);
	assert_false(rundir_is_ours(old));
	assert_true(rundir_is_ours(new));
	rundir_close(new);
	rundir_close(old);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_made_and_private),
		CASE(test_no_parent),
		CASE(test_one_owner),
		CASE(test_foreign_things_stay),
		CASE(test_foreign_state_stays),
		CASE(test_socket_before_the_first_start),
		CASE(test_state_is_no_link),
		CASE(test_writable_by_others),
		CASE(test_of_another_user),
		CASE(test_replaced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
