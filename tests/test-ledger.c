/* SPDX-License-Identifier: MIT */

/*
 * The ledger is what is true after a kill, so it is looked at from outside: through a mapping of
 * the file that the module knows nothing of. And it is a file, so there may be no room for it, or
 * something else in its place.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "core/util.h"
#include "ledger.h"

/* The file, as another program would know it. */
#define ROWS_AT 65536
#define ROW_BYTES 384
#define CHUNK_BYTES (LEDGER_CHUNK_ROWS * ROW_BYTES)

struct head {
	uint64_t magic;
	uint32_t version, row_bytes;
	uint64_t generation;
};

static char dir[512];
static int dir_fd = -1;

static int set_up(void **state _unused_)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/test-ledger-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(dir))
		return -1;
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir_fd < 0;
}

static int tear_down(void **state _unused_)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (unlinkat(dir_fd, e->d_name, 0) < 0)
			unlinkat(dir_fd, e->d_name, AT_REMOVEDIR);
	if (d)
		closedir(d);
	dir_fd = close_fd(dir_fd);
	return rmdir(dir);
}

static struct ledger *open_ledger(uint64_t expected_cleared)
{
	uint64_t cleared = 4711;
	struct ledger *l = NULL;

	assert_int_equal(ledger_open(dir_fd, "ledger", 77, &l, &cleared), 0);
	assert_int_equal(cleared, expected_cleared);
	assert_non_null(l);
	assert_int_equal(ledger_used(l), 0);
	return l;
}

static struct ledger_row *take(struct ledger *l)
{
	struct ledger_row *row = NULL;

	assert_int_equal(ledger_take(l, &row), 0);
	return row;
}

static void set(struct ledger_row *row, enum ledger_state state, uint64_t session)
{
	struct ledger_copy *c = ledger_edit(row);

	c->state = state;
	c->session = session;
	ledger_flip(row);
}

static off_t file_size(void)
{
	struct stat st;

	assert_int_equal(fstatat(dir_fd, "ledger", &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_size;
}

static unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* A mapping of the test's own. */
static const char *look(size_t *ret_size)
{
	int fd = openat(dir_fd, "ledger", O_RDONLY | O_CLOEXEC);
	void *p;

	assert_true(fd >= 0);
	*ret_size = (size_t)file_size();
	p = mmap(NULL, *ret_size, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	close_fd(fd);
	return p;
}

/* The row of a session, found as an auditor finds it. */
static const struct ledger_row *find(const char *file, size_t size, uint64_t session)
{
	const struct ledger_row *found = NULL;

	for (size_t at = ROWS_AT; at + ROW_BYTES <= size; at += ROW_BYTES) {
		const struct ledger_row *row = (const struct ledger_row *)(file + at);

		if (ledger_read(row)->session != session)
			continue;
		assert_null(found);
		found = row;
	}
	return found;
}

static bool all_zero(const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (((const char *)p)[i])
			return false;
	return true;
}

/* ------------------------------------------------------------------ rows */

static void test_take_and_free(void **state _unused_)
{
	struct ledger *l = open_ledger(0);
	struct ledger_row *a, *b;

	assert_int_equal(file_size(), ROWS_AT);
	a = take(l);
	b = take(l);
	assert_ptr_not_equal(a, b);
	assert_int_equal(ledger_used(l), 2);
	assert_true(all_zero(ledger_read(a), sizeof(struct ledger_copy)));
	assert_int_equal(ledger_read(a)->state, LEDGER_FREE);

	set(a, LEDGER_LIVE, 5);
	assert_null(ledger_free(l, a));
	assert_true(all_zero(ledger_read(a), sizeof(struct ledger_copy)));
	assert_int_equal(ledger_used(l), 1);
	assert_null(ledger_free(l, NULL));
	assert_int_equal(ledger_used(l), 1);

	/* What is freed is used again, before the file grows. */
	assert_ptr_equal(take(l), a);
	assert_true(all_zero(ledger_read(a), sizeof(struct ledger_copy)));
	assert_int_equal(file_size(), ROWS_AT + CHUNK_BYTES);
	assert_null(ledger_close(l));
	assert_null(ledger_close(NULL));
}

static int by_address(const void *a, const void *b)
{
	const struct ledger_row *x = *(struct ledger_row *const *)a;
	const struct ledger_row *y = *(struct ledger_row *const *)b;

	return x < y ? -1 : x > y;
}

static void test_growth(void **state _unused_)
{
	enum {
		N = 3 * LEDGER_CHUNK_ROWS + 1,
	};
	struct ledger_row **rows = calloc(N, sizeof(*rows)), **again = calloc(N, sizeof(*again));
	struct ledger *l = open_ledger(0);
	const char *file;
	size_t size;

	assert_true(rows && again);
	for (unsigned i = 0; i < N; i++) {
		rows[i] = take(l);
		set(rows[i], LEDGER_LIVE, i + 1);
		assert_int_equal(
			file_size(), ROWS_AT + (off_t)CHUNK_BYTES * (i / LEDGER_CHUNK_ROWS + 1));
	}
	assert_int_equal(ledger_used(l), N);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(ledger_read(rows[i])->session, i + 1);

	/* In the file too, each in a place of its own. */
	file = look(&size);
	for (unsigned i = 0; i < N; i += 512)
		assert_non_null(find(file, size, i + 1));
	munmap((void *)file, size);

	for (unsigned i = 0; i < N; i++)
		ledger_free(l, rows[(i * 7) % N]);
	assert_int_equal(ledger_used(l), 0);
	for (unsigned i = 0; i < N; i++)
		again[i] = take(l);
	qsort(rows, N, sizeof(*rows), by_address);
	qsort(again, N, sizeof(*again), by_address);
	assert_memory_equal(rows, again, N * sizeof(*rows));
	for (unsigned i = 1; i < N; i++)
		assert_true(again[i - 1] < again[i]);
	assert_int_equal(file_size(), ROWS_AT + 4 * (off_t)CHUNK_BYTES);
	ledger_close(l);
	free(rows);
	free(again);
}

/* ------------------------------------------------------------------ flips */

/* A change that was not flipped shows nowhere, be it of a single byte or of all. */
static void test_edit_does_not_count(void **state _unused_)
{
	struct ledger *l = open_ledger(0);
	struct ledger_row *row = take(l);
	const struct ledger_row *outside;
	struct ledger_copy counted;
	const char *file;
	size_t size;

	set(row, LEDGER_LIVE, 42);
	file = look(&size);
	outside = find(file, size, 42);
	assert_non_null(outside);
	for (unsigned round = 0; round < 2; round++) {
		for (size_t i = 0; i < sizeof(counted); i++) {
			unsigned char *edited = (unsigned char *)ledger_edit(row);

			counted = *ledger_read(outside);
			assert_memory_equal(edited, &counted, sizeof(counted));
			edited[i] ^= 0xff;
			assert_memory_equal(ledger_read(outside), &counted, sizeof(counted));
			assert_memory_equal(ledger_read(row), &counted, sizeof(counted));
		}
		memset(ledger_edit(row), 0xcc, sizeof(counted));
		assert_memory_equal(ledger_read(outside), &counted, sizeof(counted));

		/* Begun anew, it holds none of that. */
		assert_memory_equal(ledger_edit(row), &counted, sizeof(counted));
		ledger_edit(row)->granted = 4711 + round;
		ledger_flip(row);
		counted.granted = 4711 + round;
		assert_memory_equal(ledger_read(outside), &counted, sizeof(counted));
		assert_memory_equal(ledger_read(row), &counted, sizeof(counted));
	}
	ledger_free(l, row);
	assert_null(find(file, size, 42));
	assert_true(all_zero(ledger_read(outside), sizeof(counted)));
	munmap((void *)file, size);
	ledger_close(l);
}

/* Granted and seq belong together; which of the two states a kill leaves depends on the flip. */
static int change_and_die(bool flipped)
{
	struct ledger_row *row;
	struct ledger_copy *c;
	struct ledger *l;
	uint64_t cleared;

	if (ledger_open(dir_fd, "ledger", 1, &l, &cleared) < 0 || ledger_take(l, &row) < 0)
		return 1;
	set(row, LEDGER_LIVE, 42);
	for (uint64_t seq = 1; seq <= 10; seq++) {
		c = ledger_edit(row);
		c->granted += 100;
		c->seq[0] = seq;
		if (seq < 10 || flipped)
			ledger_flip(row);
	}
	kill(getpid(), SIGKILL);
	return 1;
}

static void die(bool flipped)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(change_and_die(flipped));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
}

static void test_kill(void **state _unused_)
{
	for (unsigned flipped = 0; flipped < 2; flipped++) {
		const struct ledger_copy *c;
		const char *file;
		size_t size;

		die(flipped);
		file = look(&size);
		c = ledger_read(find(file, size, 42));
		assert_int_equal(c->seq[0], flipped ? 10 : 9);
		assert_int_equal(c->granted, flipped ? 1000 : 900);
		munmap((void *)file, size);
		ledger_close(open_ledger(1));
	}
}

/* ------------------------------------------------------------------ what was there before */

static void test_cleared(void **state _unused_)
{
	struct ledger *l = open_ledger(0);
	const struct head *h;
	const char *file;
	size_t size;

	for (unsigned i = 0; i < LEDGER_CHUNK_ROWS + 10; i++) {
		struct ledger_row *row = take(l);

		set(row, i % 5 == 0 ? LEDGER_DYING : LEDGER_LIVE, i + 1);
		if (i % 5 == 1)
			ledger_free(l, row);
	}
	/* An edit is no row. */
	ledger_edit(take(l))->state = LEDGER_LIVE;
	ledger_close(l);

	/* Of five rows three are live; freed ones were used again. */
	l = open_ledger((LEDGER_CHUNK_ROWS + 10) * 3 / 5);
	assert_int_equal(file_size(), ROWS_AT);
	file = look(&size);
	h = (const struct head *)file;
	assert_true(h->magic != 0);
	assert_int_equal(h->version, LEDGER_VERSION);
	assert_int_equal(h->row_bytes, ROW_BYTES);
	assert_int_equal(h->generation, 77);
	munmap((void *)file, size);
	/* Nothing of the earlier rows is in the new ones. */
	for (unsigned i = 0; i < 2 * LEDGER_CHUNK_ROWS; i++)
		assert_true(all_zero(take(l), ROW_BYTES));
	ledger_close(l);
	ledger_close(open_ledger(0));
}

/* Files that begin like a ledger with some live rows, and then differ. */
static void write_file(const struct head *h, unsigned live, size_t size)
{
	struct ledger_row row = {.copy[0].state = LEDGER_LIVE};
	int fd = openat(dir_fd, "ledger", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, h, sizeof(*h), 0), sizeof(*h));
	for (unsigned i = 0; i < live; i++)
		assert_int_equal(
			pwrite(fd, &row, sizeof(row), ROWS_AT + (off_t)i * ROW_BYTES), ROW_BYTES);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	close_fd(fd);
}

static struct head real_head(void)
{
	const char *file;
	struct head h;
	size_t size;

	ledger_close(open_ledger(0));
	file = look(&size);
	memcpy(&h, file, sizeof(h));
	munmap((void *)file, size);
	return h;
}

static void assert_serves(struct ledger *l)
{
	struct ledger_row *row = take(l);

	assert_true(all_zero(row, ROW_BYTES));
	set(row, LEDGER_LIVE, 1);
	assert_int_equal(ledger_read(row)->session, 1);
	ledger_free(l, row);
	ledger_close(l);
}

static void test_other_files(void **state _unused_)
{
	const size_t whole = ROWS_AT + CHUNK_BYTES;
	const struct head h = real_head();
	struct head other;

	write_file(&h, 3, whole);
	assert_serves(open_ledger(3));
	/* Cut off, from nothing on. */
	for (size_t size = 0; size <= ROWS_AT + 1; size += size < sizeof(h) + 1 ? 1 : 4070) {
		write_file(&h, 3, size);
		assert_serves(open_ledger(0));
	}
	/* Rows that are wholly there are there. */
	write_file(&h, 3, whole - 1);
	assert_serves(open_ledger(3));
	write_file(&h, LEDGER_CHUNK_ROWS + 1, whole + ROW_BYTES - 1);
	assert_serves(open_ledger(LEDGER_CHUNK_ROWS));

	for (unsigned i = 0; i < sizeof(h) - sizeof(h.generation); i++) {
		other = h;
		((unsigned char *)&other)[i] ^= 1;
		write_file(&other, 3, whole);
		assert_serves(open_ledger(0));
	}
	/* Of another generation it is nevertheless a ledger. */
	other = h;
	other.generation++;
	write_file(&other, 3, whole);
	assert_serves(open_ledger(3));
}

static void test_garbage(void **state _unused_)
{
	static unsigned char noise[ROWS_AT + 2 * CHUNK_BYTES + 100];
	uint64_t seed = 1, cleared, live = 0;
	struct head h = real_head();
	struct ledger *l;
	int fd;

	for (size_t i = 0; i < sizeof(noise); i++) {
		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
		noise[i] = (unsigned char)(seed >> 56);
	}
	for (unsigned with_head = 0; with_head < 2; with_head++) {
		if (with_head)
			memcpy(noise, &h, sizeof(h));
		fd = openat(dir_fd, "ledger", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		assert_true(fd >= 0);
		assert_int_equal(write(fd, noise, sizeof(noise)), sizeof(noise));
		close_fd(fd);
		assert_int_equal(ledger_open(dir_fd, "ledger", 77, &l, &cleared), 0);
		assert_in_range(cleared, 0, with_head ? 2 * LEDGER_CHUNK_ROWS : 0);
		live += cleared;
		assert_serves(l);
	}
	assert_int_equal(live, 0);
}

/* ------------------------------------------------------------------ what is no file of ours */

static void assert_not_opened(const char *name, int error)
{
	struct ledger *l = (struct ledger *)&dir;
	uint64_t cleared = 4711;
	unsigned fds = count_fds();
	int r = ledger_open(dir_fd, name, 1, &l, &cleared);

	assert_true(error ? r == error : r < 0);
	assert_ptr_equal(l, &dir);
	assert_int_equal(cleared, 4711);
	assert_int_equal(count_fds(), fds);
}

static void test_cannot_open(void **state _unused_)
{
	struct stat st;
	int fd;

	assert_not_opened("none/ledger", -ENOENT);
	assert_int_equal(mkdirat(dir_fd, "directory", 0700), 0);
	assert_not_opened("directory", -EISDIR);

	fd = openat(dir_fd, "target", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "precious", 8), 8);
	close_fd(fd);
	assert_int_equal(symlinkat("target", dir_fd, "link"), 0);
	assert_not_opened("link", -ELOOP);
	assert_int_equal(fstatat(dir_fd, "target", &st, 0), 0);
	assert_int_equal(st.st_size, 8);

	assert_int_equal(mkfifoat(dir_fd, "fifo", 0600), 0);
	assert_not_opened("fifo", 0);
}

/* Nobody else reads or writes it, whatever the umask is. */
static void test_private(void **state _unused_)
{
	mode_t mask = umask(0);
	unsigned fds = count_fds();
	struct ledger *l = open_ledger(0);
	char path[64], target[1024];
	struct stat st;
	bool seen = false;

	umask(mask);
	assert_int_equal(fstatat(dir_fd, "ledger", &st, 0), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	for (int fd = 0; fd < 256; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		if (!strstr(target, "test-ledger-") || !strstr(target, "/ledger"))
			continue;
		seen = true;
		assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	}
	assert_true(seen);
	ledger_close(l);
	assert_int_equal(count_fds(), fds);
}

/* ------------------------------------------------------------------ no room */

enum outcome {
	FINE,
	BROKEN,
	NO_TMPFS,
};

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			return BROKEN;                                                             \
		}                                                                                  \
	} while (0)

static bool write_map(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) > 0;

	close_fd(fd);
	return ok;
}

/* Mounts of its own; an ordinary user is root in a user namespace of its own for that. */
static bool enter_namespace(void)
{
	char uid[32], gid[32];

	if (unshare(CLONE_NEWNS) == 0)
		return true;
	snprintf(uid, sizeof(uid), "0 %u 1", geteuid());
	snprintf(gid, sizeof(gid), "0 %u 1", getegid());
	return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
		write_map("/proc/self/setgroups", "deny") && write_map("/proc/self/uid_map", uid) &&
		write_map("/proc/self/gid_map", gid);
}

/* A tmpfs over the test's directory that only this process sees. */
static bool mount_tmpfs(const char *options)
{
	if (!enter_namespace())
		return false;
	if (mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("tmpfs", dir, "tmpfs", 0, options) < 0)
		return false;
	close_fd(dir_fd);
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir_fd >= 0;
}

/* Until nothing more fits, to the last page. */
static bool fill_up(void)
{
	static char page[4096];
	int fd = openat(dir_fd, "ballast", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	while (write(fd, page, sizeof(page)) > 0)
		;
	close_fd(fd);
	return fd >= 0 && errno == ENOSPC;
}

/* Two chunks fit, a third does not; what was taken stays good. */
static int grow_until_full(void)
{
	static struct ledger_row *rows[4 * LEDGER_CHUNK_ROWS];
	struct ledger_row *row = (struct ledger_row *)&dir;
	unsigned n = 0;
	struct ledger *l;
	uint64_t cleared;
	int r;

	CHECK(ledger_open(dir_fd, "ledger", 1, &l, &cleared) == 0);
	while (n < ELEMENTS(rows) && (r = ledger_take(l, &rows[n])) == 0)
		set(rows[n], LEDGER_LIVE, n + 1), n++;
	CHECK(r == -ENOSPC && n == 2 * LEDGER_CHUNK_ROWS);
	for (unsigned i = 0; i < 3; i++)
		CHECK(ledger_take(l, &row) == -ENOSPC && row == (struct ledger_row *)&dir);
	CHECK(ledger_used(l) == n);

	/* Even when nothing at all is left, every row can be changed, freed and used again. */
	CHECK(fill_up());
	for (unsigned i = 0; i < n; i++) {
		CHECK(ledger_read(rows[i])->session == i + 1);
		set(rows[i], LEDGER_DYING, i + 7);
		CHECK(ledger_read(rows[i])->session == i + 7);
	}
	ledger_free(l, rows[5]);
	CHECK(ledger_take(l, &row) == 0 && row == rows[5]);

	/* Room again: it grows again. */
	CHECK(ledger_take(l, &row) == -ENOSPC);
	CHECK(unlinkat(dir_fd, "ballast", 0) == 0);
	for (unsigned i = 0; i < n; i++)
		ledger_free(l, rows[i]);
	ledger_close(l);
	CHECK(ledger_open(dir_fd, "ledger", 1, &l, &cleared) == 0 && cleared == 0);
	CHECK(ledger_take(l, &row) == 0);
	ledger_close(l);
	return FINE;
}

static int open_when_full(void)
{
	struct ledger *l = NULL;
	struct ledger_row *row;
	uint64_t cleared;

	CHECK(fill_up());
	CHECK(ledger_open(dir_fd, "ledger", 1, &l, &cleared) == -ENOSPC && !l);
	CHECK(unlinkat(dir_fd, "ballast", 0) == 0);
	CHECK(ledger_open(dir_fd, "ledger", 1, &l, &cleared) == 0);
	CHECK(fill_up());
	CHECK(ledger_take(l, &row) == -ENOSPC);
	CHECK(unlinkat(dir_fd, "ballast", 0) == 0);
	CHECK(ledger_take(l, &row) == 0);
	ledger_close(l);
	return FINE;
}

/* A ledger that was copied with holes: even looking at those needs room on a tmpfs. */
static int look_back_at_holes(void)
{
	struct head h;
	struct ledger *l;
	uint64_t cleared;
	int fd;

	CHECK(ledger_open(dir_fd, "ledger", 1, &l, &cleared) == 0);
	ledger_close(l);
	fd = openat(dir_fd, "ledger", O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0 && pread(fd, &h, sizeof(h), 0) == sizeof(h));
	CHECK(ftruncate(fd, ROWS_AT + 3 * CHUNK_BYTES) == 0);
	close_fd(fd);
	CHECK(fill_up());
	CHECK(ledger_open(dir_fd, "ledger", 1, &l, &cleared) == 0 && cleared == 0);
	ledger_close(l);
	return FINE;
}

static _Atomic unsigned signals;

static void on_signal(int signal _unused_)
{
	atomic_fetch_add(&signals, 1);
}

/* A tmpfs lets go of what it was allocating when a signal comes. */
static int grow_under_signals(void)
{
	struct itimerval often = {.it_value.tv_usec = 200, .it_interval.tv_usec = 200}, never = {0};
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	struct ledger_row *row;
	struct ledger *l;
	uint64_t cleared;
	int r = 0;

	CHECK(ledger_open(dir_fd, "ledger", 1, &l, &cleared) == 0);
	CHECK(sigaction(SIGALRM, &sa, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (unsigned i = 0; i < 150 * LEDGER_CHUNK_ROWS && r == 0; i++)
		r = ledger_take(l, &row);
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	CHECK(r == 0);
	CHECK(atomic_load(&signals) > 0);
	ledger_close(l);
	return FINE;
}

static void run_on_tmpfs(const char *options, int (*fn)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		/* cmocka's handler would go on with the next test. */
		signal(SIGBUS, SIG_DFL);
		_exit(mount_tmpfs(options) ? fn() : NO_TMPFS);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		fail_msg("ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	if (WEXITSTATUS(status) == NO_TMPFS) {
		print_message("skipped: no tmpfs can be mounted in a namespace of its own\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), FINE);
}

static void test_grow_until_full(void **state _unused_)
{
	run_on_tmpfs("size=2m", grow_until_full);
}

static void test_open_when_full(void **state _unused_)
{
	run_on_tmpfs("size=1m", open_when_full);
}

static void test_look_back_at_holes(void **state _unused_)
{
	run_on_tmpfs("size=512k", look_back_at_holes);
}

static void test_grow_under_signals(void **state _unused_)
{
	run_on_tmpfs("size=128m", grow_under_signals);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_take_and_free, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_growth, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_edit_does_not_count, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_kill, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_cleared, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_other_files, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_garbage, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_cannot_open, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_private, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_grow_until_full, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_open_when_full, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_look_back_at_holes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_grow_under_signals, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
