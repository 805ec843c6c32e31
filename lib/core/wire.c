/* SPDX-License-Identifier: MIT */

/*
 * Checking and packing of messages, by one table, so that no handler of a message sees one whose
 * shape is wrong.
 */

#include "wire.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct shape {
	size_t fixed;
	unsigned strings;
	unsigned fds; /* at most */
	bool tail;    /* bytes that are no strings may follow */
};

static const struct shape requests[WIRE_REQUESTS_END] = {
	[WIRE_HELLO] = {.fixed = sizeof(struct wire_hello), .strings = 1},
	[WIRE_ATTACH] = {.fixed = sizeof(struct wire_attach), .strings = 1},
	[WIRE_DETACH] = {.fixed = sizeof(struct wire_detach)},
	[WIRE_FORGET] = {.fixed = sizeof(struct wire_forget)},
	[WIRE_KEY] = {.fixed = sizeof(struct wire_key)},
	[WIRE_EXTENT] = {.fixed = sizeof(struct wire_extent)},
	[WIRE_CHARGE] = {.fixed = sizeof(struct wire_charge)},
	[WIRE_RING] = {.fixed = sizeof(struct wire_ring)},
	[WIRE_AHEAD] = {.fixed = sizeof(struct wire_ahead)},
	[WIRE_ITEM] = {.fixed = sizeof(struct wire_item), .strings = 1},
	[WIRE_DEFINE] = {.fixed = sizeof(struct wire_define), .strings = 3},
	[WIRE_GET] = {.fixed = sizeof(struct wire_get), .strings = 2},
	[WIRE_SET] = {.fixed = sizeof(struct wire_set), .strings = 3},
	[WIRE_CREATE] = {.fixed = sizeof(struct wire_create), .strings = 1},
	[WIRE_REMOVE] = {.fixed = sizeof(struct wire_remove), .strings = 1},
	[WIRE_BYE] = {.fixed = sizeof(struct wire_bye)},
	[WIRE_TRANSFER] = {.fixed = sizeof(struct wire_transfer)},
	[WIRE_WATCH] = {.fixed = sizeof(struct wire_watch), .strings = 1},
	[WIRE_UNWATCH] = {.fixed = sizeof(struct wire_unwatch)},
	[WIRE_ON_RECLAIM] = {.fixed = sizeof(struct wire_on_reclaim)},
	[WIRE_REFUSAL] = {.fixed = sizeof(struct wire_refusal)},
	[WIRE_QUEUE] = {.fixed = sizeof(struct wire_queue)},
	[WIRE_REQUEST] = {.fixed = sizeof(struct wire_request)},
	[WIRE_CANCEL] = {.fixed = sizeof(struct wire_cancel)},
	[WIRE_FETCH] = {.fixed = sizeof(struct wire_fetch)},
};

static const struct shape answers[WIRE_ANSWERS_END - WIRE_WELCOME] = {
	[WIRE_WELCOME - WIRE_WELCOME] = {.fixed = sizeof(struct wire_welcome), .fds = 3},
	[WIRE_ATTACHED - WIRE_WELCOME] = {.fixed = sizeof(struct wire_key_is), .fds = 2},
	[WIRE_KEYED - WIRE_WELCOME] = {.fixed = sizeof(struct wire_key_is), .fds = 2},
	[WIRE_EXTENT_IS - WIRE_WELCOME] = {.fixed = sizeof(struct wire_extent_is), .fds = 2},
	[WIRE_GRANT - WIRE_WELCOME] = {.fixed = sizeof(struct wire_grant)},
	[WIRE_ITEM_IS - WIRE_WELCOME] = {.fixed = sizeof(struct wire_item_is)},
	[WIRE_TEXT - WIRE_WELCOME] = {.fixed = sizeof(struct wire_text), .fds = 1, .tail = true},
	[WIRE_DONE - WIRE_WELCOME] = {.fixed = sizeof(struct wire_done)},
	[WIRE_QUEUE_IS - WIRE_WELCOME] = {.fixed = sizeof(struct wire_queue_is), .fds = 1},
	[WIRE_FETCHED - WIRE_WELCOME] = {.fixed = sizeof(struct wire_fetched)},
};

static const struct shape notices[WIRE_NOTICES_END - WIRE_EVENT] = {
	[WIRE_EVENT - WIRE_EVENT] = {.fixed = sizeof(struct wire_event)},
	[WIRE_RECLAIM - WIRE_EVENT] = {.fixed = sizeof(struct wire_reclaim)},
	[WIRE_TURN - WIRE_EVENT] = {.fixed = sizeof(struct wire_turn)},
};

static const struct shape reports[WIRE_REPORTS_END - WIRE_RECLAIMED] = {
	[WIRE_RECLAIMED - WIRE_RECLAIMED] = {.fixed = sizeof(struct wire_reclaimed)},
};

static int check_shape(const struct shape *s, size_t size, size_t n, unsigned n_fds)
{
	if (s->fixed == 0 || n_fds > s->fds || size != n || n < s->fixed)
		return -EPROTO;
	if (n > s->fixed && s->strings == 0 && !s->tail)
		return -EPROTO;
	return 0;
}

static int split(const char *p, size_t n, unsigned strings, const char **ret)
{
	const char *found[WIRE_STRINGS_MAX] = {0};

	for (unsigned i = 0; i < strings; i++) {
		const char *end = memchr(p, '\0', n);

		if (!end)
			return -EPROTO;
		found[i] = p;
		n -= (size_t)(end - p) + 1;
		p = end + 1;
	}
	if (n != 0)
		return -EPROTO;
	memcpy(ret, found, sizeof(found));
	return 0;
}

/* The header is copied out: the buffer of a socket need not be aligned to anything. */
static int read_header(const void *message, size_t n, struct wire_header *ret)
{
	if (n < sizeof(*ret) || n > WIRE_MAX)
		return -EPROTO;
	memcpy(ret, message, sizeof(*ret));
	return 0;
}

int wire_check_request(const void *message, size_t n, unsigned n_fds,
	const char *ret_strings[static WIRE_STRINGS_MAX])
{
	struct wire_header h;
	const struct shape *s;
	int r = read_header(message, n, &h);

	if (r < 0)
		return r;
	if (h.type >= WIRE_REQUESTS_END)
		return -EPROTO;
	s = &requests[h.type];
	r = check_shape(s, h.size, n, n_fds);
	if (r < 0)
		return r;
	return split((const char *)message + s->fixed, n - s->fixed, s->strings, ret_strings);
}

/* A message without strings, of a type from `first` up to `end`. */
static int check_fixed(const void *message, size_t n, unsigned n_fds, const struct shape *shapes,
	uint32_t first, uint32_t end)
{
	struct wire_header h;
	int r = read_header(message, n, &h);

	if (r < 0)
		return r;
	if (h.type < first || h.type >= end)
		return -EPROTO;
	return check_shape(&shapes[h.type - first], h.size, n, n_fds);
}

int wire_check_answer(const void *message, size_t n, unsigned n_fds)
{
	return check_fixed(message, n, n_fds, answers, WIRE_WELCOME, WIRE_ANSWERS_END);
}

int wire_check_notice(const void *message, size_t n)
{
	return check_fixed(message, n, 0, notices, WIRE_EVENT, WIRE_NOTICES_END);
}

int wire_check_report(const void *message, size_t n)
{
	return check_fixed(message, n, 0, reports, WIRE_RECLAIMED, WIRE_REPORTS_END);
}

int wire_pack(void *buf, const void *fixed, size_t n_fixed, uint32_t type, uint64_t cookie,
	const char *const strings[static WIRE_STRINGS_MAX])
{
	struct wire_header h = {.type = type, .cookie = cookie};
	size_t size = n_fixed;

	for (unsigned i = 0; i < WIRE_STRINGS_MAX && strings[i]; i++) {
		size_t n = strlen(strings[i]) + 1;

		if (n > WIRE_MAX - size)
			return -E2BIG;
		memcpy((char *)buf + size, strings[i], n);
		size += n;
	}
	h.size = (uint32_t)size;
	memcpy(buf, fixed, n_fixed);
	memcpy(buf, &h, sizeof(h));
	return (int)size;
}
