/* SPDX-License-Identifier: MIT */

/*
 * The file under the ledger: growing it, mapping it chunk by chunk so that rows never move, handing
 * out rows. Space is taken with posix_fallocate() before it is mapped: writing into a hole on a
 * full tmpfs would be SIGBUS.
 */

#include "ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "core/util.h"

#define LEDGER_MAGIC UINT64_C(0x72656764656c7401)
/* A multiple of every page size: what follows is mapped chunk by chunk. */
#define HEADER_BYTES 65536
#define CHUNK_BYTES (LEDGER_CHUNK_ROWS * sizeof(struct ledger_row))

static_assert(CHUNK_BYTES % HEADER_BYTES == 0, "chunks are mapped one by one");

struct ledger_header {
	uint64_t magic;
	uint32_t version;
	uint32_t row_bytes;
	uint64_t generation;
};

struct ledger {
	int fd;
	struct ledger_header *header;
	struct ledger_row **chunks;
	size_t n_chunks;
	struct ledger_row *
		*free_rows; /* a stack; room for every row, so that freeing cannot fail */
	size_t n_free;
	uint64_t used;
};

/* How many live rows an earlier daemon left behind; a file that is none of ours counts as empty. It
 * is read, not mapped: what was never written there must not cost a page now. */
static uint64_t look_back(int fd)
{
	_cleanup_(freep) struct ledger_row *rows = malloc(CHUNK_BYTES);
	struct ledger_header h;
	uint64_t live = 0;
	ssize_t n;

	if (!rows || pread(fd, &h, sizeof(h), 0) != sizeof(h) || h.magic != LEDGER_MAGIC ||
		h.version != LEDGER_VERSION || h.row_bytes != sizeof(*rows))
		return 0;
	for (off_t at = HEADER_BYTES; (n = pread(fd, rows, CHUNK_BYTES, at)) > 0; at += n)
		for (size_t i = 0; i < (size_t)n / sizeof(*rows); i++)
			live += ledger_is_live(ledger_read(&rows[i]));
	return live;
}

static int map_at(int fd, off_t offset, size_t size, void **ret)
{
	void *p;
	int r;

	do
		r = posix_fallocate(fd, offset, (off_t)size);
	while (r == EINTR);
	if (r != 0)
		return -r;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
	if (p == MAP_FAILED)
		return -errno;
	*ret = p;
	return 0;
}

int ledger_open(int dir_fd, const char *name, uint64_t generation, struct ledger **ret,
	uint64_t *ret_cleared)
{
	struct ledger *l = calloc(1, sizeof(*l));
	uint64_t cleared;
	void *header;
	int r;

	if (!l)
		return -ENOMEM;
	l->fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (l->fd < 0) {
		r = -errno;
		goto fail;
	}
	cleared = look_back(l->fd);
	if (fchmod(l->fd, 0600) < 0 || ftruncate(l->fd, 0) < 0) {
		r = -errno;
		goto fail;
	}
	r = map_at(l->fd, 0, HEADER_BYTES, &header);
	if (r < 0)
		goto fail;
	l->header = header;
	*l->header = (struct ledger_header){.magic = LEDGER_MAGIC,
		.version = LEDGER_VERSION,
		.row_bytes = sizeof(struct ledger_row),
		.generation = generation};

	*ret = l;
	*ret_cleared = cleared;
	return 0;

fail:
	ledger_close(l);
	return r;
}

struct ledger *ledger_close(struct ledger *l)
{
	if (!l)
		return NULL;
	for (size_t i = 0; i < l->n_chunks; i++)
		munmap(l->chunks[i], CHUNK_BYTES);
	if (l->header)
		munmap(l->header, HEADER_BYTES);
	close_fd(l->fd);
	free(l->chunks);
	free(l->free_rows);
	free(l);
	return NULL;
}

static int grow(struct ledger *l)
{
	size_t rows = (l->n_chunks + 1) * LEDGER_CHUNK_ROWS;
	struct ledger_row **free_rows, **chunks;
	void *chunk;
	int r;

	free_rows = realloc(l->free_rows, rows * sizeof(*free_rows));
	if (!free_rows)
		return -ENOMEM;
	l->free_rows = free_rows;
	chunks = realloc(l->chunks, (l->n_chunks + 1) * sizeof(*chunks));
	if (!chunks)
		return -ENOMEM;
	l->chunks = chunks;
	r = map_at(l->fd, (off_t)(HEADER_BYTES + l->n_chunks * CHUNK_BYTES), CHUNK_BYTES, &chunk);
	if (r < 0)
		return r;

	l->chunks[l->n_chunks++] = chunk;
	for (size_t i = LEDGER_CHUNK_ROWS; i > 0; i--)
		l->free_rows[l->n_free++] = (struct ledger_row *)chunk + (i - 1);
	return 0;
}

int ledger_take(struct ledger *l, struct ledger_row **ret)
{
	if (l->n_free == 0) {
		int r = grow(l);

		if (r < 0)
			return r;
	}
	*ret = l->free_rows[--l->n_free];
	l->used++;
	return 0;
}

struct ledger_row *ledger_free(struct ledger *l, struct ledger_row *row)
{
	if (!row)
		return NULL;
	*ledger_edit(row) = (struct ledger_copy){.state = LEDGER_FREE};
	ledger_flip(row);
	l->free_rows[l->n_free++] = row;
	l->used--;
	return NULL;
}

uint64_t ledger_used(const struct ledger *l)
{
	return l->used;
}

uint64_t ledger_number(const struct ledger *l, const struct ledger_row *row)
{
	size_t chunk = 0;

	while (row < l->chunks[chunk] || row >= l->chunks[chunk] + LEDGER_CHUNK_ROWS)
		chunk++;
	return chunk * LEDGER_CHUNK_ROWS + (uint64_t)(row - l->chunks[chunk]) + 1;
}
