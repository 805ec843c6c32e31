/* SPDX-License-Identifier: MIT */

#include "answer.h"

#include <errno.h>
#include <string.h>

#include "core/memfd.h"
#include "core/util.h"
#include "core/wire.h"

/* Descriptors that are not taken stay in fds. */
static void give(struct embedded *e, const void *message, size_t n, int fds[static WIRE_FDS_MAX])
{
	e->owner.on_message(e->owner.userdata, message, n, fds);
}

void answer_send_fds(struct embedded *e, const void *message, size_t n, int *fds)
{
	give(e, message, n, fds);
	for (unsigned i = 0; i < WIRE_FDS_MAX; i++)
		fds[i] = close_fd(fds[i]);
}

void answer_send(struct embedded *e, const void *message, size_t n)
{
	int fds[WIRE_FDS_MAX] = {-1, -1, -1};

	answer_send_fds(e, message, n, fds);
}

void answer_send_extent(struct embedded *e, const void *message, size_t n, uint32_t extent)
{
	int fds[WIRE_FDS_MAX] = {e->extent_fds[extent][0], e->extent_fds[extent][1], -1};

	give(e, message, n, fds);
	e->extent_fds[extent][0] = fds[0];
	e->extent_fds[extent][1] = fds[1];
}

/* The words of a key are written by who has mapped them. */
static bool has_arrived(const struct engine_key *k)
{
	return word_key(atomic_load(&engine_words(k)->reserve)) == k->number;
}

void answer_settle_extent(const struct engine_key *k)
{
	struct embedded *e = k->attachment->engine;
	uint32_t index, extent = segment_extent_of(k->number, &index);

	if (!has_arrived(k))
		return;
	for (unsigned i = 0; i < 2; i++)
		e->extent_fds[extent][i] = close_fd(e->extent_fds[extent][i]);
}

void answer_refused(struct embedded *e, uint64_t cookie, int status, uint64_t refusal)
{
	struct wire_done done = {.h = WIRE_HEADER(WIRE_DONE, struct wire_done, cookie),
		.status = status,
		.refusal = refusal};

	answer_send(e, &done, sizeof(done));
}

void answer_done(struct embedded *e, uint64_t cookie, int status)
{
	answer_refused(e, cookie, status, 0);
}

/* Not on the stack: it may be the small one of a thread. */
int answer_text(struct embedded *e, uint64_t cookie, int status, const char *text)
{
	struct wire_text answer = {.h.type = WIRE_TEXT, .h.cookie = cookie, .status = status};
	size_t n = status == 0 ? strlen(text) : 0, tail = n <= WIRE_TEXT_MAX ? n : 0;
	_cleanup_(freep) char *message = malloc(sizeof(answer) + tail);
	int fds[WIRE_FDS_MAX] = {-1, -1, -1};

	if (!message)
		return -ENOMEM;
	answer.h.size = (uint32_t)(sizeof(answer) + tail);
	answer.length = n;
	if (n > tail) {
		int fd = memfd_of_text("tally-text", text, n);

		answer.in_memfd = fd >= 0;
		answer.length = fd >= 0 ? n : 0;
		answer.status = fd >= 0 ? 0 : fd;
		fds[0] = fd >= 0 ? fd : -1;
	}
	memcpy(message, &answer, sizeof(answer));
	if (tail > 0)
		memcpy(message + sizeof(answer), text, tail);
	answer_send_fds(e, message, answer.h.size, fds);
	return 0;
}
