/* SPDX-License-Identifier: MIT */

/*
 * Making, sealing, mapping and checking the extents of a segment, and the reserve's operations. The
 * seals are what protects both sides: without them a client could shrink its memfd and end the
 * daemon with SIGBUS.
 */

#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "memfd.h"

#define SEALS_RW (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define SEALS_RO (SEALS_RW | F_SEAL_FUTURE_WRITE)

static size_t whole_pages(size_t n)
{
	return (n + STOCK_PAGE - 1) / STOCK_PAGE * STOCK_PAGE;
}

/* Bytes before the blocks in an extent of keys. */
static size_t blocks_offset(uint32_t e)
{
	return whole_pages((size_t)segment_keys_of_extent(e) *
		(sizeof(struct segment_key) + sizeof(struct segment_pending)));
}

static size_t size_of_block(uint32_t e)
{
	size_t n = segment_keys_of_extent(e);

	return whole_pages(
		n * sizeof(struct segment_cell) + SEGMENT_MARKS * (n + n / SEGMENT_GROUP));
}

static size_t size_rw(uint32_t e, uint32_t n_cpus)
{
	return e == 0 ? segment_stocks_offset(n_cpus) + ((size_t)n_cpus + 1) * STOCK_PAGE
		      : blocks_offset(e) + ((size_t)n_cpus + 1) * size_of_block(e);
}

static size_t size_ro(uint32_t e)
{
	return e == 0 ? STOCK_PAGE
		      : segment_keys_of_extent(e) *
			(sizeof(struct segment_figures) + sizeof(struct segment_pool));
}

struct segment_cells segment_cells(const struct segment *s, uint32_t key)
{
	uint32_t i, e = segment_extent_of(key, &i);

	return (struct segment_cells){.block = (char *)s->rw[e] + blocks_offset(e),
		.stride = size_of_block(e),
		.n = segment_keys_of_extent(e),
		.index = i,
		.extent = e};
}

static uint32_t bytes_behind(const void *p, const char *first)
{
	return (uint32_t)((const char *)p - first);
}

struct segment_spot segment_spot(const struct segment *s, uint32_t key)
{
	struct segment_cells c = segment_cells(s, key);
	struct segment_spot spot = {.cell = (char *)segment_cell(&c, 0), .stride = c.stride};

	for (unsigned which = 0; which < SEGMENT_MARKS; which++) {
		const void *marks = segment_key_marks(&c, 0, which) + c.index;
		const void *groups = segment_group_marks(&c, 0, which) + c.index / SEGMENT_GROUP;

		spot.mark[which].key = bytes_behind(marks, spot.cell);
		spot.mark[which].group = bytes_behind(groups, spot.cell);
		spot.mark[which].page =
			(uint32_t)(offsetof(struct stock_page, changed[which]) + c.extent);
	}
	return spot;
}

static void unmap(void *p, size_t size)
{
	if (p)
		munmap(p, size);
}

static void adopt(struct segment *s, void *rw, void *ro)
{
	uint32_t e = s->n_extents;

	s->rw[e] = rw;
	s->ro[e] = ro;
	s->n_extents = e + 1;
	if (e > 0)
		atomic_fetch_add_explicit(
			&s->n_keys, segment_keys_of_extent(e), memory_order_release);
}

static int make(const char *name, size_t size, int *ret_fd, void **ret_map)
{
	_cleanup_(close_fdp) int fd = memfd_make(name);
	void *p;

	if (fd < 0)
		return fd;
	/* 0777 otherwise, and then whoever holds a read-only one could reopen it for writing. */
	if (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)size) < 0)
		return -errno;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;

	*ret_fd = take_fd(&fd);
	*ret_map = p;
	return 0;
}

static int seal(int fd, int seals)
{
	return fcntl(fd, F_ADD_SEALS, seals) < 0 ? -errno : 0;
}

static bool is_kind(uint32_t kind)
{
	return kind == PERCPU_ATOMIC || (kind == PERCPU_RSEQ && PERCPU_HAS_RSEQ);
}

static int reopen_read_only(int fd)
{
	char path[sizeof("/proc/self/fd/") + 11];
	int r;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	r = open(path, O_RDONLY | O_CLOEXEC);
	return r < 0 ? -errno : r;
}

int segment_extend(struct segment *s, uint32_t n_cpus, enum percpu_kind kind, int ret_fds[static 2])
{
	_cleanup_(close_fdp) int rw_fd = -1, ro_fd = -1, ro_only = -1;
	uint32_t e = s->n_extents;
	void *rw = NULL, *ro = NULL;
	int r;

	if (e >= SEGMENT_EXTENTS)
		return -ENOSPC;
	if (e > 0)
		n_cpus = s->n_cpus;
	if (n_cpus == 0 || n_cpus > SEGMENT_CPUS_MAX || (e == 0 && !is_kind(kind)))
		return -EINVAL;

	r = make("tally-rw", size_rw(e, n_cpus), &rw_fd, &rw);
	if (r < 0)
		return r;
	r = make("tally-ro", size_ro(e), &ro_fd, &ro);
	if (r < 0)
		goto fail;

	if (e == 0) {
		struct segment_header *h = rw;
		struct segment_info *info = ro;

		h->magic = SEGMENT_MAGIC_RW;
		h->version = SEGMENT_VERSION;
		h->kind = kind;
		h->n_cpus = n_cpus;
		info->magic = SEGMENT_MAGIC_RO;
		info->version = SEGMENT_VERSION;
	}

	r = seal(rw_fd, SEALS_RW);
	if (r < 0)
		goto fail;
	r = seal(ro_fd, SEALS_RO);
	if (r < 0)
		goto fail;
	r = reopen_read_only(ro_fd);
	if (r < 0)
		goto fail;
	ro_only = r;

	if (e == 0) {
		s->n_cpus = n_cpus;
		s->kind = kind;
	}
	adopt(s, rw, ro);
	ret_fds[0] = take_fd(&rw_fd);
	ret_fds[1] = take_fd(&ro_only);
	return 0;

fail:
	unmap(rw, size_rw(e, n_cpus));
	unmap(ro, size_ro(e));
	return r;
}

void segment_set_batch(struct segment_info *info, uint64_t batch)
{
	atomic_store(&info->batch, batch);
	atomic_store(&info->high, batch < WORD_HIT_MAX / 2 ? batch : WORD_HIT_MAX / 2);
}

static bool is_sealed(int fd, int seals)
{
	int have = fcntl(fd, F_GET_SEALS);

	return have >= 0 && (have & seals) == seals;
}

/* Size and seals are looked at before anything is mapped: then nobody can take them away. */
static int map_checked(int fd, size_t size, int seals, int prot, void **ret)
{
	struct stat st;
	void *p;

	if (!is_sealed(fd, seals))
		return -EPROTO;
	if (fstat(fd, &st) < 0)
		return -errno;
	if ((size_t)st.st_size != size)
		return -EPROTO;
	p = mmap(NULL, size, prot, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	/* A forked child has no business there: it finds nothing to touch, and costs nothing. */
	if (madvise(p, size, MADV_DONTFORK) < 0) {
		int r = -errno;

		unmap(p, size);
		return r;
	}
	*ret = p;
	return 0;
}

/* The base tells its kind, and how many CPUs it has; its size must agree before it is believed. What
 * is no memfd is not even read: that might wait for ever. */
static int peek_header(int fd, uint32_t *ret_cpus, enum percpu_kind *ret_kind)
{
	struct segment_header h;
	ssize_t n = !is_sealed(fd, SEALS_RW)
		? -1
		: pread(fd, &h, offsetof(struct segment_header, touched), 0);

	if (n < 0 || (size_t)n < offsetof(struct segment_header, touched) ||
		h.magic != SEGMENT_MAGIC_RW || h.version != SEGMENT_VERSION || !is_kind(h.kind) ||
		h.n_cpus == 0 || h.n_cpus > SEGMENT_CPUS_MAX)
		return -EPROTO;
	*ret_cpus = h.n_cpus;
	*ret_kind = (enum percpu_kind)h.kind;
	return 0;
}

int segment_map(struct segment *s, const int fds[static 2])
{
	uint32_t e = s->n_extents, n_cpus = s->n_cpus;
	enum percpu_kind kind = s->kind;
	void *rw = NULL, *ro = NULL;
	int r;

	if (e >= SEGMENT_EXTENTS)
		return -EPROTO;
	if (e == 0) {
		r = peek_header(fds[0], &n_cpus, &kind);
		if (r < 0)
			return r;
	}
	r = map_checked(fds[0], size_rw(e, n_cpus), SEALS_RW, PROT_READ | PROT_WRITE, &rw);
	if (r < 0)
		return r;
	r = map_checked(fds[1], size_ro(e), SEALS_RO, PROT_READ, &ro);
	if (r < 0) {
		unmap(rw, size_rw(e, n_cpus));
		return r;
	}
	if (e == 0) {
		const struct segment_info *info = ro;

		if (info->magic != SEGMENT_MAGIC_RO || info->version != SEGMENT_VERSION) {
			unmap(rw, size_rw(e, n_cpus));
			unmap(ro, size_ro(e));
			return -EPROTO;
		}
	}
	/* The base alone: other threads read it from then on. */
	if (e == 0) {
		s->n_cpus = n_cpus;
		s->kind = kind;
	}
	adopt(s, rw, ro);
	return 0;
}

void segment_unmap(struct segment *s)
{
	for (uint32_t e = 0; e < s->n_extents; e++) {
		unmap(s->rw[e], size_rw(e, s->n_cpus));
		unmap(s->ro[e], size_ro(e));
	}
	memset(s, 0, sizeof(*s));
}

uint64_t segment_growth(const _Atomic uint64_t *cumulative, uint64_t *previous, uint64_t room)
{
	uint64_t now = atomic_load(cumulative);
	uint64_t delta = now - *previous;

	*previous = now;
	if (delta > WORD_BYTES_MAX)
		return 0;
	return delta < room ? delta : room;
}

/* Returns the bytes that lay there. */
static uint64_t hand_reserve_to(struct segment_key *k, uint32_t key)
{
	word w = atomic_load(&k->reserve);

	TALLY_STEP();
	while (!atomic_compare_exchange_weak(&k->reserve, &w, word_make(key, 0, word_parity(w))))
		;
	TALLY_STEP();
	return word_bytes(w);
}

void segment_reserve_open(struct segment_key *k, uint32_t key)
{
	hand_reserve_to(k, key);
}

uint64_t segment_reserve_close(struct segment_key *k)
{
	return hand_reserve_to(k, 0);
}

int segment_reserve_give(struct segment_key *k, uint32_t key, uint64_t bytes, unsigned parity)
{
	word w = atomic_load(&k->reserve);

	for (unsigned try = 0; try < PERCPU_TRIES; try++) {
		if (word_key(w) != key || word_parity(w) != parity ||
			bytes > WORD_BYTES_MAX - word_bytes(w))
			return -EAGAIN;
		if (atomic_compare_exchange_strong(&k->reserve, &w, (w + (bytes << 1)) ^ 1))
			return 0;
	}
	return -EAGAIN;
}

int segment_reserve_steal(struct segment_key *k, uint32_t key, uint64_t bytes, unsigned parity)
{
	word w = atomic_load(&k->reserve);

	for (unsigned try = 0; try < PERCPU_TRIES; try++) {
		if (word_key(w) != key || word_bytes(w) < bytes || word_parity(w) != parity)
			return -EAGAIN;
		if (atomic_compare_exchange_strong(&k->reserve, &w, (w - (bytes << 1)) ^ 1))
			return 0;
	}
	return -EAGAIN;
}
