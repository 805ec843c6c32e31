/* SPDX-License-Identifier: MIT */

/*
 * A segment is where a client that means ill meets a daemon that must not fall: what is sealed must
 * stay sealed for everyone, what is not a segment must not be mapped, and neither side may keep
 * anything when it is over. The reserve's operations are here too, alone and against each other.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "core/segment.h"
#include "core/util.h"
#include "harness.h"

/* The C library may be older than the kernel. */
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif

#define CPUS 3
#define KEEPS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Both ends of a session, and what went from one to the other. */
struct ends {
	struct segment daemon, client;
	int fds[SEGMENT_EXTENTS][2];
	uint32_t n_fds;
};

static void extend(struct ends *e)
{
	assert_int_equal(segment_extend(&e->daemon, CPUS, PERCPU_ATOMIC, e->fds[e->n_fds]), 0);
	e->n_fds++;
}

/* The base and so many extents of keys, at the daemon. */
static void make(struct ends *e, uint32_t extents)
{
	*e = (struct ends){0};
	for (uint32_t i = 0; i <= extents; i++)
		extend(e);
}

static void map_all(struct ends *e)
{
	for (uint32_t i = e->client.n_extents; i < e->n_fds; i++)
		assert_int_equal(segment_map(&e->client, e->fds[i]), 0);
}

static void clear(struct ends *e)
{
	segment_unmap(&e->client);
	segment_unmap(&e->daemon);
	while (e->n_fds > 0) {
		e->n_fds--;
		close_fd(e->fds[e->n_fds][0]);
		close_fd(e->fds[e->n_fds][1]);
	}
}

/* Descriptors of this process, and mappings of memfds. */
struct holdings {
	unsigned fds, maps;
};

static struct holdings count_holdings(void)
{
	struct holdings h = {0};
	DIR *dir = opendir("/proc/self/fd");
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];

	assert_non_null(dir);
	assert_non_null(maps);
	while (readdir(dir))
		h.fds++;
	while (fgets(line, sizeof(line), maps))
		h.maps += strstr(line, "/memfd:tally-") != NULL;
	closedir(dir);
	fclose(maps);
	return h;
}

static void assert_holds(struct holdings before)
{
	struct holdings now = count_holdings();

	assert_int_equal(now.fds, before.fds);
	assert_int_equal(now.maps, before.maps);
}

static void set_header(int fd, size_t offset, const void *value, size_t size)
{
	assert_int_equal(pwrite(fd, value, size, (off_t)offset), size);
}

/* ------------------------------------------------------------------ extents */

/* Every key has a place of its own, in order, and the next extent begins where the last ended. */
static void test_place_of_every_key(void **state _unused_)
{
	uint32_t extent = 1, index = 0;

	for (uint32_t key = 1; key <= SEGMENT_KEYS_MAX; key++) {
		uint32_t i, e = segment_extent_of(key, &i);

		if (e != extent || i != index)
			fail_msg("key %u is at %u in extent %u", key, i, e);
		if (++index == (uint32_t)SEGMENT_FIRST_KEYS << (extent - 1)) {
			extent++;
			index = 0;
		}
	}
	assert_int_equal(extent, SEGMENT_EXTENTS);
	assert_int_equal(index, 0);
	assert_true(SEGMENT_KEYS_MAX < WORD_KEY_VOID);
}

/* What one end writes at a key's place the other reads there, at the borders of all extents. */
static void test_all_extents(void **state _unused_)
{
	struct holdings before = count_holdings();
	int fds[2] = {-7, -8};
	struct ends e;
	uint32_t n = 0;

	make(&e, 0);
	map_all(&e);
	assert_int_equal(e.daemon.n_keys, 0);
	assert_null(segment_key(&e.daemon, 1));
	assert_null(segment_key(&e.client, 1));
	for (uint32_t extent = 1; extent < SEGMENT_EXTENTS; extent++) {
		uint32_t first = n + 1;

		extend(&e);
		map_all(&e);
		n += SEGMENT_FIRST_KEYS << (extent - 1);
		assert_int_equal(e.daemon.n_keys, n);
		assert_int_equal(e.client.n_keys, n);
		assert_null(segment_key(&e.daemon, 0));
		assert_null(segment_key(&e.client, 0));
		assert_null(segment_key(&e.daemon, n + 1));
		assert_null(segment_key(&e.client, n + 1));
		assert_null(segment_key(&e.client, n + SEGMENT_KEYS_MAX));
		for (uint32_t key = first; key <= n; key += n - first) {
			atomic_store(&segment_key(&e.client, key)->force, key);
			atomic_store(&segment_figures(&e.daemon, key)->granted, key);
		}
	}
	assert_int_equal(n, SEGMENT_KEYS_MAX);
	for (uint32_t key = 1, extent = 1; extent < SEGMENT_EXTENTS; extent++) {
		uint32_t last = key + (SEGMENT_FIRST_KEYS << (extent - 1)) - 1;

		for (; key <= last; key += last - key ? last - key : 1) {
			assert_int_equal(atomic_load(&segment_key(&e.daemon, key)->force), key);
			assert_int_equal(
				atomic_load(&segment_figures(&e.client, key)->granted), key);
		}
	}

	assert_int_equal(segment_extend(&e.daemon, CPUS, PERCPU_ATOMIC, fds), -ENOSPC);
	assert_int_equal(fds[0], -7);
	assert_int_equal(fds[1], -8);
	assert_int_equal(segment_map(&e.client, e.fds[1]), -EPROTO);
	assert_int_equal(e.client.n_extents, SEGMENT_EXTENTS);
	clear(&e);
	assert_int_equal(e.client.n_extents, 0);
	assert_null(segment_key(&e.client, 1));
	assert_holds(before);
}

/* A handle keeps a pointer to its words. */
static void test_addresses_stay(void **state _unused_)
{
	struct segment_key *key, *last;
	struct segment_info *info;
	struct ends e;

	make(&e, 1);
	map_all(&e);
	key = segment_key(&e.client, 1);
	last = segment_key(&e.client, SEGMENT_FIRST_KEYS);
	info = segment_info(&e.client);
	assert_ptr_equal(last, key + SEGMENT_FIRST_KEYS - 1);
	for (uint32_t i = 2; i < 8; i++)
		extend(&e);
	map_all(&e);
	assert_ptr_equal(segment_key(&e.client, 1), key);
	assert_ptr_equal(segment_key(&e.client, SEGMENT_FIRST_KEYS), last);
	assert_ptr_equal(segment_info(&e.client), info);
	clear(&e);
}

/* The base: a byte and a page a CPU, none over another, whatever their number. */
static void test_base(void **state _unused_)
{
	static const uint32_t numbers[] = {1, 2, 64, 4032, 4033, 5000, UINT16_MAX};

	for (size_t n = 0; n < ELEMENTS(numbers); n++) {
		struct segment daemon = {0}, client = {0};
		uint32_t last = numbers[n] - 1;
		struct percpu_area ours, theirs;
		struct segment_header *h;
		int fds[2];

		assert_int_equal(segment_extend(&daemon, numbers[n], PERCPU_ATOMIC, fds), 0);
		assert_int_equal(segment_map(&client, fds), 0);
		ours = segment_stocks(&daemon);
		theirs = segment_stocks(&client);
		assert_int_equal(ours.n_cpus, numbers[n]);
		assert_int_equal(theirs.n_cpus, numbers[n]);
		assert_int_equal((uintptr_t)theirs.pages % STOCK_PAGE, 0);

		h = segment_header(&client);
		assert_int_equal(h->kind, PERCPU_ATOMIC);
		atomic_store(&h->touched[last], 1);
		assert_true((char *)&h->touched[last] < (char *)theirs.pages);
		for (unsigned i = 0; i < STOCK_SLOTS; i++)
			assert_int_equal(atomic_load(&ours.pages[0].stock.slot[i]), 0);
		atomic_store(&theirs.pages[last].moving, 5);
		assert_int_equal(atomic_load(&ours.pages[last].moving), 5);
		assert_int_equal(atomic_load(&segment_header(&daemon)->touched[last]), 1);

		segment_unmap(&client);
		segment_unmap(&daemon);
		close_fd(fds[0]);
		close_fd(fds[1]);
	}
}

/* The daemon publishes, the client reads; the next extents take the base's number of CPUs. */
static void test_figures_are_shared(void **state _unused_)
{
	struct ends e;

	make(&e, 0);
	assert_int_equal(segment_extend(&e.daemon, 77, PERCPU_ATOMIC, e.fds[e.n_fds++]), 0);
	map_all(&e);
	assert_int_equal(e.daemon.n_cpus, CPUS);
	assert_int_equal(e.client.n_cpus, CPUS);
	segment_info(&e.daemon)->generation = 12;
	atomic_store(&segment_info(&e.daemon)->high, 34);
	atomic_store(&segment_figures(&e.daemon, 1)->attachment, 56);
	assert_int_equal(segment_info(&e.client)->generation, 12);
	assert_int_equal(atomic_load(&segment_info(&e.client)->high), 34);
	assert_int_equal(atomic_load(&segment_figures(&e.client, 1)->attachment), 56);
	clear(&e);
}

/* ------------------------------------------------------------------ seals */

static void assert_size_kept(int fd)
{
	struct stat before, after;

	assert_int_equal(fstat(fd, &before), 0);
	assert_int_equal(before.st_mode & 07777, 0600);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_true(ftruncate(fd, 0) < 0);
	assert_true(ftruncate(fd, before.st_size - 1) < 0);
	assert_true(ftruncate(fd, before.st_size + 4096) < 0);
	assert_true(fallocate(fd, 0, 0, before.st_size + 4096) < 0);
	assert_true(pwrite(fd, "", 1, before.st_size + 4096) <= 0);
	assert_true(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) < 0);
	assert_int_equal(fstat(fd, &after), 0);
	assert_int_equal(after.st_size, before.st_size);
}

static void test_size_is_sealed(void **state _unused_)
{
	struct ends e;

	make(&e, 2);
	map_all(&e);
	for (uint32_t i = 0; i < e.n_fds; i++) {
		assert_int_equal(fcntl(e.fds[i][0], F_GET_SEALS) & ~F_SEAL_EXEC, KEEPS);
		assert_int_equal(fcntl(e.fds[i][1], F_GET_SEALS) & ~F_SEAL_EXEC,
			KEEPS | F_SEAL_FUTURE_WRITE);
		assert_size_kept(e.fds[i][0]);
		assert_size_kept(e.fds[i][1]);
	}
	clear(&e);
}

/* No way to change it through this descriptor, be it open for reading or for writing. */
static void assert_unwritable(int fd)
{
	struct stat st;
	void *p;

	assert_int_equal(fstat(fd, &st), 0);
	assert_true(pwrite(fd, "x", 1, 0) < 0);
	p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_equal(p, MAP_FAILED);
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_true(mprotect(p, (size_t)st.st_size, PROT_READ | PROT_WRITE) < 0);
	/* It is refused; qemu does nothing, and calls that a success. */
	(void)madvise(p, (size_t)st.st_size, MADV_REMOVE);
	assert_int_equal(munmap(p, (size_t)st.st_size), 0);
	assert_true(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, st.st_size) < 0);
}

static int reopen(int fd, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

/* The daemon's own user may open it for writing (its mode says so), and root anything: the seal
 * stops them none the less. */
static void test_figures_cannot_be_forged(void **state _unused_)
{
	static const int ways[] = {O_RDONLY, O_RDWR, O_WRONLY, O_RDWR | O_TRUNC};
	struct ends e;

	make(&e, 2);
	map_all(&e);
	atomic_store(&segment_info(&e.daemon)->batch, 4711);
	atomic_store(&segment_figures(&e.daemon, 1)->granted, 4711);
	for (uint32_t i = 0; i < e.n_fds; i++) {
		assert_int_equal(fcntl(e.fds[i][1], F_GETFL) & O_ACCMODE, O_RDONLY);
		assert_unwritable(e.fds[i][1]);
		for (size_t w = 0; w < ELEMENTS(ways); w++) {
			int fd = reopen(e.fds[i][1], ways[w]);

			if (fd < 0)
				continue;
			if ((ways[w] & O_ACCMODE) == O_WRONLY)
				assert_true(pwrite(fd, "x", 1, 0) < 0);
			else
				assert_unwritable(fd);
			close_fd(fd);
		}
	}
	assert_int_equal(atomic_load(&segment_info(&e.client)->batch), 4711);
	assert_int_equal(atomic_load(&segment_figures(&e.client, 1)->granted), 4711);
	/* The daemon goes on writing what was sealed. */
	atomic_store(&segment_info(&e.daemon)->batch, 4712);
	assert_int_equal(atomic_load(&segment_info(&e.client)->batch), 4712);
	clear(&e);
}

static int try_as_another_user(const struct ends *e)
{
	static const int ways[] = {O_RDONLY, O_RDWR, O_WRONLY};

	if (setgid(65534) < 0 || setuid(65534) < 0)
		return 1;
	for (uint32_t i = 0; i < e->n_fds; i++)
		for (size_t w = 0; w < ELEMENTS(ways); w++)
			for (unsigned which = 0; which < 2; which++)
				if (reopen(e->fds[i][which], ways[w]) >= 0 ||
					fchmod(e->fds[i][which], 0666) == 0)
					return 2;
	return 0;
}

/* Another user has what it was handed, and gets no more out of that. */
static void test_another_user_cannot_reopen(void **state _unused_)
{
	struct ends e;
	int status;
	pid_t pid;

	if (geteuid() != 0) {
		print_message("skipped: only root can become another user\n");
		skip();
	}
	make(&e, 1);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(try_as_another_user(&e));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	clear(&e);
}

/* ------------------------------------------------------------------ what is not mapped */

/* Refused, without a trace. */
static void assert_refused(struct ends *e, int rw, int ro)
{
	struct segment before = e->client;
	struct holdings held = count_holdings();

	assert_int_equal(segment_map(&e->client, (int[]){rw, ro}), -EPROTO);
	assert_memory_equal(&e->client, &before, sizeof(before));
	assert_holds(held);
}

static void test_swapped(void **state _unused_)
{
	struct ends e;

	make(&e, 2);
	for (uint32_t i = 0; i < e.n_fds; i++) {
		assert_refused(&e, e.fds[i][1], e.fds[i][0]);
		assert_refused(&e, e.fds[i][0], e.fds[i][0]);
		assert_refused(&e, e.fds[i][1], e.fds[i][1]);
		assert_int_equal(segment_map(&e.client, e.fds[i]), 0);
	}
	clear(&e);
}

static void test_out_of_order(void **state _unused_)
{
	struct ends e;

	make(&e, 3);
	for (uint32_t next = 0; next < e.n_fds; next++) {
		for (uint32_t i = 0; i < e.n_fds; i++)
			if (i != next)
				assert_refused(&e, e.fds[i][0], e.fds[i][1]);
		assert_int_equal(segment_map(&e.client, e.fds[next]), 0);
	}
	clear(&e);
}

/* The same bytes in a memfd of the test's own, with these seals. */
static int copy_of(int fd, off_t grow, int seals)
{
	int copy = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char bytes[4096];
	struct stat st;

	assert_true(copy >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(ftruncate(copy, st.st_size), 0);
	for (off_t at = 0; at < st.st_size; at += (off_t)sizeof(bytes)) {
		ssize_t n = pread(fd, bytes, sizeof(bytes), at);

		assert_true(n > 0);
		assert_int_equal(pwrite(copy, bytes, (size_t)n, at), n);
	}
	assert_int_equal(ftruncate(copy, st.st_size + grow), 0);
	assert_int_equal(fcntl(copy, F_ADD_SEALS, seals), 0);
	return copy;
}

/* One of the two is replaced by a copy of it. */
static void assert_copy_refused(struct ends *e, unsigned which, off_t grow, int seals)
{
	const int *fds = e->fds[e->client.n_extents];
	int copy = copy_of(fds[which], grow, seals);

	assert_refused(e, which == 0 ? copy : fds[0], which == 0 ? fds[1] : copy);
	close_fd(copy);
}

static void test_wrong_seals_and_sizes(void **state _unused_)
{
	static const int all[] = {KEEPS, KEEPS | F_SEAL_FUTURE_WRITE};
	struct ends e;

	make(&e, 2);
	while (e.client.n_extents < e.n_fds) {
		for (unsigned which = 0; which < 2; which++) {
			for (int seal = 1; seal <= all[which]; seal <<= 1)
				if (all[which] & seal)
					assert_copy_refused(&e, which, 0, all[which] & ~seal);
			assert_copy_refused(&e, which, 0, 0);
			assert_copy_refused(&e, which, -1, all[which]);
			assert_copy_refused(&e, which, 1, all[which]);
			assert_copy_refused(&e, which, 4096, all[which]);
		}
		assert_int_equal(segment_map(&e.client, e.fds[e.client.n_extents]), 0);
	}
	clear(&e);
}

/* Copies that are right in all but one number of the header; the copy itself is none of them. */
static void test_wrong_headers(void **state _unused_)
{
	static const struct {
		unsigned which;
		size_t offset, size;
		uint64_t value;
	} wrong[] = {
		{0, offsetof(struct segment_header, magic), 8, SEGMENT_MAGIC_RO},
		{0, offsetof(struct segment_header, magic), 8, 0},
		{0, offsetof(struct segment_header, version), 4, SEGMENT_VERSION + 1},
		{0, offsetof(struct segment_header, version), 4, 0},
		{0, offsetof(struct segment_header, kind), 4, 0},
		{0, offsetof(struct segment_header, kind), 4, PERCPU_RSEQ + 1},
		{0, offsetof(struct segment_header, n_cpus), 4, 0},
		{0, offsetof(struct segment_header, n_cpus), 4, CPUS - 1},
		{0, offsetof(struct segment_header, n_cpus), 4, CPUS + 1},
		{0, offsetof(struct segment_header, n_cpus), 4, UINT16_MAX + 1},
		{0, offsetof(struct segment_header, n_cpus), 4, UINT32_MAX},
		{1, offsetof(struct segment_info, magic), 8, SEGMENT_MAGIC_RW},
		{1, offsetof(struct segment_info, magic), 8, 0},
		{1, offsetof(struct segment_info, version), 4, SEGMENT_VERSION + 1},
		{1, offsetof(struct segment_info, version), 4, 0},
	};
	static const int all[] = {KEEPS, KEEPS | F_SEAL_FUTURE_WRITE};
	struct ends e;

	make(&e, 0);
	for (size_t i = 0; i < ELEMENTS(wrong); i++) {
		unsigned which = wrong[i].which;
		int copy = copy_of(e.fds[0][which], 0, 0);

		set_header(copy, wrong[i].offset, &wrong[i].value, wrong[i].size);
		assert_int_equal(fcntl(copy, F_ADD_SEALS, all[which]), 0);
		assert_refused(
			&e, which == 0 ? copy : e.fds[0][0], which == 0 ? e.fds[0][1] : copy);
		close_fd(copy);
	}
	for (unsigned which = 0; which < 2; which++) {
		int copy = copy_of(e.fds[0][which], 0, all[which]);

		assert_int_equal(segment_map(&e.client,
					 (int[]){which == 0 ? copy : e.fds[0][0],
						 which == 0 ? e.fds[0][1] : copy}),
			0);
		segment_unmap(&e.client);
		close_fd(copy);
	}
	clear(&e);
}

/* Numbers of CPUs that a machine cannot have, however well the sizes agree with them. */
static void test_impossible_cpus(void **state _unused_)
{
	static const uint32_t numbers[] = {0, UINT16_MAX + 1};

	for (size_t i = 0; i < ELEMENTS(numbers); i++) {
		struct segment daemon = {0};
		struct ends e = {.n_fds = 1};

		if (segment_extend(&daemon, numbers[i], PERCPU_ATOMIC, e.fds[0]) < 0)
			continue;
		assert_refused(&e, e.fds[0][0], e.fds[0][1]);
		segment_unmap(&daemon);
		clear(&e);
	}
}

static void test_not_a_memfd(void **state _unused_)
{
	_cleanup_(fclosep) FILE *f = tmpfile();
	int file = f ? fileno(f) : -1, dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ends[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int others[4];
	struct ends e;

	make(&e, 1);
	assert_true(file >= 0 && dir >= 0 && null >= 0);
	assert_int_equal(pipe(ends), 0);
	for (unsigned extent = 0; extent < 2; extent++) {
		const int *fds = e.fds[extent];
		struct stat st;
		char *bytes;

		/* A file with all that a segment has, but seals. */
		assert_int_equal(fstat(fds[0], &st), 0);
		bytes = calloc(1, (size_t)st.st_size);
		assert_non_null(bytes);
		assert_int_equal(pread(fds[0], bytes, (size_t)st.st_size, 0), st.st_size);
		assert_int_equal(ftruncate(file, 0), 0);
		assert_int_equal(pwrite(file, bytes, (size_t)st.st_size, 0), st.st_size);
		free(bytes);

		memcpy(others, (int[]){file, null, dir, ends[0]}, sizeof(others));
		for (size_t i = 0; i < ELEMENTS(others); i++) {
			assert_refused(&e, fds[0], others[i]);
			assert_refused(&e, others[i], fds[1]);
		}
		assert_true(segment_map(&e.client, (int[]){fds[0], -1}) < 0);
		assert_true(segment_map(&e.client, (int[]){-1, fds[1]}) < 0);
		assert_int_equal(segment_map(&e.client, fds), 0);
	}
	close_fd(dir);
	close_fd(null);
	close_fd(ends[0]);
	close_fd(ends[1]);
	clear(&e);
}

/* ------------------------------------------------------------------ nothing stays behind */

static bool is_mapped(const void *p)
{
	unsigned char page;

	return mincore((void *)((uintptr_t)p & ~(uintptr_t)4095), 1, &page) == 0;
}

static int look_in_child(const struct ends *e)
{
	for (uint32_t i = 0; i < e->n_fds; i++)
		if (is_mapped(e->client.rw[i]) || is_mapped(e->client.ro[i]))
			return 1;
	return 0;
}

static void test_child_has_no_mapping(void **state _unused_)
{
	struct ends e;
	int status;
	pid_t pid;

	harness_skip_emulated("ignores MADV_DONTFORK");
	make(&e, 2);
	map_all(&e);
	for (uint32_t i = 0; i < e.n_fds; i++)
		assert_true(is_mapped(e.client.rw[i]) && is_mapped(e.client.ro[i]));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(look_in_child(&e));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	clear(&e);
}

static void test_unmap(void **state _unused_)
{
	struct holdings before = count_holdings();
	struct segment none = {0};
	struct ends e;

	make(&e, 4);
	map_all(&e);
	assert_int_equal(count_holdings().fds, before.fds + 10);
	assert_int_equal(count_holdings().maps, before.maps + 20);
	clear(&e);
	assert_holds(before);
	assert_memory_equal(&e.daemon, &none, sizeof(none));
	assert_memory_equal(&e.client, &none, sizeof(none));
	segment_unmap(&e.client);
}

/* Each descriptor that it needs is refused once: the daemon at its limit keeps what it had. */
static void test_no_descriptors(void **state _unused_)
{
	unsigned refused = 0;
	struct rlimit old, low;
	struct ends e;
	int fds[2], lowest, r;

	make(&e, 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	lowest = dup(0);
	assert_true(lowest >= 0);
	close_fd(lowest);
	for (rlim_t more = 0;; more++) {
		struct holdings held = count_holdings();

		low = old;
		low.rlim_cur = (rlim_t)lowest + more;
		fds[0] = fds[1] = -7;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
		r = segment_extend(&e.daemon, CPUS, PERCPU_ATOMIC, fds);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
		if (r == 0)
			break;
		assert_int_equal(r, -EMFILE);
		assert_int_equal(fds[0], -7);
		assert_int_equal(fds[1], -7);
		assert_int_equal(e.daemon.n_extents, 1);
		assert_int_equal(e.daemon.n_keys, 0);
		assert_holds(held);
		refused++;
	}
	assert_in_range(refused, 3, 20);
	assert_int_equal(segment_map(&e.client, e.fds[0]), 0);
	assert_int_equal(segment_map(&e.client, fds), 0);
	close_fd(fds[0]);
	close_fd(fds[1]);
	clear(&e);
}

/* ------------------------------------------------------------------ reserves */

static void assert_reserve(struct segment_key *k, uint32_t key, uint64_t bytes, unsigned parity)
{
	word w = atomic_load(&k->reserve);

	assert_int_equal(word_key(w), key);
	assert_int_equal(word_bytes(w), bytes);
	assert_int_equal(word_parity(w), parity);
}

static void test_reserve_open_and_close(void **state _unused_)
{
	for (unsigned parity = 0; parity < 2; parity++) {
		struct segment_key k = {.reserve = word_make(9, 1234, parity)};

		segment_reserve_open(&k, 7);
		assert_reserve(&k, 7, 0, parity);
		atomic_store(&k.reserve, word_make(7, 100, parity));
		assert_int_equal(segment_reserve_close(&k), 100);
		assert_reserve(&k, 0, 0, parity);
		assert_int_equal(segment_reserve_close(&k), 0);
		assert_reserve(&k, 0, 0, parity);
	}
}

static void test_reserve_add(void **state _unused_)
{
	for (unsigned parity = 0; parity < 2; parity++) {
		struct segment_key k = {.reserve = word_make(7, 10, parity)};
		uint64_t bytes = 4711;

		assert_false(segment_reserve_add(&k, 6, 5, &bytes));
		assert_false(segment_reserve_add(&k, 0, 5, &bytes));
		assert_int_equal(bytes, 4711);
		assert_reserve(&k, 7, 10, parity);
		assert_true(segment_reserve_add(&k, 7, 5, &bytes));
		assert_int_equal(bytes, 15);
		assert_reserve(&k, 7, 15, parity);
		assert_true(segment_reserve_add(&k, 7, 0, &bytes));
		assert_int_equal(bytes, 15);
	}
}

/* At the end of the word it stays there, and does not run over into the key. */
static void test_reserve_is_full(void **state _unused_)
{
	static const uint64_t much[] = {6, WORD_BYTES_MAX, UINT64_C(1) << 43};
	uint64_t bytes, left;

	for (size_t i = 0; i < ELEMENTS(much); i++)
		for (unsigned parity = 0; parity < 2; parity++) {
			struct segment_key k = {
				.reserve = word_make(7, WORD_BYTES_MAX - 5, parity)};

			assert_true(segment_reserve_add(&k, 7, much[i], &bytes));
			assert_true(bytes == WORD_BYTES_MAX);
			assert_reserve(&k, 7, WORD_BYTES_MAX, parity);
			assert_true(segment_reserve_take(&k, 7, 1, UINT64_MAX, &left) ==
				WORD_BYTES_MAX);
			assert_reserve(&k, 7, 0, parity);
		}
}

/* Nor does an absurd amount come round to a small one. */
static void test_reserve_does_not_wrap(void **state _unused_)
{
	struct segment_key k = {.reserve = word_make(7, 10, 0)};
	uint64_t bytes;

	assert_true(segment_reserve_add(&k, 7, UINT64_MAX, &bytes));
	assert_true(bytes == WORD_BYTES_MAX);
	assert_reserve(&k, 7, WORD_BYTES_MAX, 0);
}

static void test_reserve_take(void **state _unused_)
{
	for (unsigned parity = 0; parity < 2; parity++) {
		struct segment_key k = {.reserve = word_make(7, 100, parity)};
		uint64_t left = 4711;

		assert_int_equal(segment_reserve_take(&k, 6, 1, 10, &left), 0);
		assert_int_equal(segment_reserve_take(&k, 8, 0, 10, &left), 0);
		assert_int_equal(segment_reserve_take(&k, 7, 101, 200, &left), 0);
		assert_reserve(&k, 7, 100, parity);
		assert_int_equal(left, 4711);
		assert_int_equal(segment_reserve_take(&k, 7, 10, 30, &left), 30);
		assert_int_equal(left, 70);
		assert_reserve(&k, 7, 70, parity);
		assert_int_equal(segment_reserve_take(&k, 7, 0, 20, &left), 20);
		assert_reserve(&k, 7, 50, parity);
		assert_int_equal(segment_reserve_take(&k, 7, 50, 80, &left), 50);
		assert_int_equal(left, 0);
		assert_reserve(&k, 7, 0, parity);
		assert_int_equal(segment_reserve_take(&k, 7, 0, 10, &left), 0);
		assert_int_equal(segment_reserve_take(&k, 7, 1, 10, &left), 0);
		assert_reserve(&k, 7, 0, parity);
	}
}

static void test_reserve_steal(void **state _unused_)
{
	struct segment_key k = {.reserve = word_make(7, 100, 0)};

	assert_int_equal(segment_reserve_steal(&k, 7, 101, 0), -EAGAIN);
	assert_int_equal(segment_reserve_steal(&k, 7, 100, 1), -EAGAIN);
	assert_int_equal(segment_reserve_steal(&k, 8, 100, 0), -EAGAIN);
	assert_int_equal(segment_reserve_steal(&k, 0, 0, 0), -EAGAIN);
	assert_reserve(&k, 7, 100, 0);
	assert_int_equal(segment_reserve_steal(&k, 7, 40, 0), 0);
	assert_reserve(&k, 7, 60, 1);
	assert_int_equal(segment_reserve_steal(&k, 7, 40, 0), -EAGAIN);
	assert_int_equal(segment_reserve_steal(&k, 7, 60, 1), 0);
	assert_reserve(&k, 7, 0, 0);
}

static void test_reserve_give(void **state _unused_)
{
	struct segment_key k = {.reserve = word_make(7, 100, 0)};

	assert_int_equal(segment_reserve_give(&k, 7, 10, 1), -EAGAIN);
	assert_int_equal(segment_reserve_give(&k, 8, 10, 0), -EAGAIN);
	assert_int_equal(segment_reserve_give(&k, 0, 10, 0), -EAGAIN);
	assert_int_equal(segment_reserve_give(&k, 7, WORD_BYTES_MAX - 99, 0), -EAGAIN);
	assert_int_equal(segment_reserve_give(&k, 7, UINT64_MAX, 0), -EAGAIN);
	assert_reserve(&k, 7, 100, 0);
	assert_int_equal(segment_reserve_give(&k, 7, 40, 0), 0);
	assert_reserve(&k, 7, 140, 1);
	assert_int_equal(segment_reserve_give(&k, 7, 40, 0), -EAGAIN);
	assert_int_equal(segment_reserve_give(&k, 7, WORD_BYTES_MAX - 140, 1), 0);
	assert_reserve(&k, 7, WORD_BYTES_MAX, 0);
}

/* Two keys take turns with one reserve, as when a handle is closed and its key used again. */
#define FIRST 7
#define SECOND 8
#define ADDERS 3
#define ROUNDS 60000
#define MEETINGS 50
#define PATIENCE_SEC 60

struct mover {
	pthread_t thread;
	uint64_t seed;
	uint64_t sum; /* what it put there, or got */
};

static struct segment_key contended;
static _Atomic unsigned closed, stolen; /* how often anything came of it */
static _Atomic bool stop;
static time_t give_up;

static uint64_t next_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static bool all_met(void)
{
	return atomic_load(&closed) >= MEETINGS && atomic_load(&stolen) >= MEETINGS;
}

/* Both others are to have had their share, but are not waited for for ever. */
static bool goes_on(unsigned i)
{
	return i < ROUNDS || (!all_met() && time(NULL) < give_up);
}

/* Puts in more than it takes, so that there is something for the others. */
static void *run_adder(void *arg)
{
	struct mover *m = arg;
	uint64_t put = 0, got = 0, bytes, left;

	for (unsigned i = 0; goes_on(i); i++) {
		uint64_t random = next_random(&m->seed), n = random % 1000;
		uint32_t key = random >> 20 & 1 ? FIRST : SECOND;

		if (random >> 21 & 3)
			put += segment_reserve_add(&contended, key, n, &bytes) ? n : 0;
		else
			got += segment_reserve_take(&contended, key, n, n + 300, &left);
		/* On one CPU the others would hardly come to it. */
		if (i % 64 == 0)
			sched_yield();
	}
	m->sum = put - got;
	return NULL;
}

static void *run_owner(void *arg)
{
	struct mover *m = arg;

	while (!atomic_load(&stop)) {
		uint64_t bytes = segment_reserve_close(&contended), random = next_random(&m->seed);

		m->sum += bytes;
		atomic_fetch_add(&closed, bytes > 0);
		segment_reserve_open(&contended, random & 1 ? FIRST : SECOND);
		/* Not always just before the thief has its turn. */
		for (unsigned i = 0; i < (random >> 1) % 8; i++)
			sched_yield();
	}
	return NULL;
}

/* The parity is this thread's alone: every look must find what its last steal left. */
static void *run_thief(void *arg)
{
	struct mover *m = arg;
	unsigned parity = 0;

	while (!atomic_load(&stop)) {
		word w = atomic_load(&contended.reserve);
		uint64_t n = word_bytes(w) - word_bytes(w) / 3;

		if (word_parity(w) != parity)
			return m;
		if (n == 0 || segment_reserve_steal(&contended, word_key(w), n, parity) < 0) {
			sched_yield();
			continue;
		}
		m->sum += n;
		parity = !parity;
		atomic_fetch_add(&stolen, 1);
	}
	return NULL;
}

static void start(struct mover *m, uint64_t seed, void *(*run)(void *))
{
	*m = (struct mover){.seed = seed * UINT64_C(0x9e3779b97f4a7c15)};
	assert_int_equal(pthread_create(&m->thread, NULL, run, m), 0);
}

static void join(struct mover *m)
{
	void *result;

	assert_int_equal(pthread_join(m->thread, &result), 0);
	assert_null(result);
}

static void test_reserve_is_conserved(void **state _unused_)
{
	struct mover adders[ADDERS], owner, thief;
	uint64_t put = 0;

	atomic_store(&contended.reserve, word_make(FIRST, 0, 0));
	atomic_store(&stop, false);
	atomic_store(&closed, 0);
	atomic_store(&stolen, 0);
	give_up = time(NULL) + PATIENCE_SEC;
	start(&owner, 100, run_owner);
	start(&thief, 200, run_thief);
	for (unsigned i = 0; i < ADDERS; i++)
		start(&adders[i], i + 1, run_adder);
	for (unsigned i = 0; i < ADDERS; i++) {
		join(&adders[i]);
		put += adders[i].sum;
	}
	atomic_store(&stop, true);
	join(&owner);
	join(&thief);
	assert_true(all_met());
	assert_int_equal(put, owner.sum + thief.sum + word_bytes(atomic_load(&contended.reserve)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_place_of_every_key),
		cmocka_unit_test(test_all_extents),
		cmocka_unit_test(test_addresses_stay),
		cmocka_unit_test(test_base),
		cmocka_unit_test(test_figures_are_shared),
		cmocka_unit_test(test_size_is_sealed),
		cmocka_unit_test(test_figures_cannot_be_forged),
		cmocka_unit_test(test_another_user_cannot_reopen),
		cmocka_unit_test(test_swapped),
		cmocka_unit_test(test_out_of_order),
		cmocka_unit_test(test_wrong_seals_and_sizes),
		cmocka_unit_test(test_wrong_headers),
		cmocka_unit_test(test_impossible_cpus),
		cmocka_unit_test(test_not_a_memfd),
		cmocka_unit_test(test_child_has_no_mapping),
		cmocka_unit_test(test_unmap),
		cmocka_unit_test(test_no_descriptors),
		cmocka_unit_test(test_reserve_open_and_close),
		cmocka_unit_test(test_reserve_add),
		cmocka_unit_test(test_reserve_is_full),
		cmocka_unit_test(test_reserve_does_not_wrap),
		cmocka_unit_test(test_reserve_take),
		cmocka_unit_test(test_reserve_steal),
		cmocka_unit_test(test_reserve_give),
		cmocka_unit_test(test_reserve_is_conserved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
