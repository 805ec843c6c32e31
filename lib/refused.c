/* SPDX-License-Identifier: MIT */

/*
 * Threads are named by their ids, which the kernel gives to one at a time and not again soon, and which
 * have 22 bits at most; the other 42 are the record's number. So a word is one thread's, and each change
 * of it is one store.
 */

#include "refused.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cancel.h"
#include "client.h"
#include "core/util.h"
#include "tally.h"

#define NUMBER_BITS 42
#define NUMBER_MASK ((UINT64_C(1) << NUMBER_BITS) - 1)
#define WAYS 8 /* places that a thread may have */

/* ------------------------------------------------------------------ the table */

static uint64_t this_thread(void)
{
	return (uint64_t)syscall(SYS_gettid);
}

/* The first of the thread's places. */
static _Atomic uint64_t *places(struct tally *t, uint64_t thread)
{
	return &t->refused.words[thread % (REFUSED_WORDS / WAYS) * WAYS];
}

/* Whoever was refused longest ago makes room: its number is the lowest. */
void refused_note(struct tally *t, uint64_t number)
{
	uint64_t thread, word;
	_Atomic uint64_t *place, *own;

	if (number == 0)
		return;
	thread = this_thread();
	word = thread << NUMBER_BITS | (number & NUMBER_MASK);
	place = places(t, thread);
	for (unsigned try = 0; try < WAYS; try++) {
		uint64_t seen, least = UINT64_MAX;

		own = place;
		for (unsigned i = 0; i < WAYS; i++) {
			uint64_t w = atomic_load(&place[i]);

			if (w >> NUMBER_BITS == thread) {
				atomic_store(&place[i], word);
				return;
			}
			if ((w & NUMBER_MASK) < least) {
				least = w & NUMBER_MASK;
				own = &place[i];
			}
		}
		seen = atomic_load(own);
		if (atomic_compare_exchange_strong(own, &seen, word))
			return;
	}
}

static uint64_t last_of_thread(struct tally *t)
{
	uint64_t thread = this_thread();
	_Atomic uint64_t *place = places(t, thread);

	for (unsigned i = 0; i < WAYS; i++) {
		uint64_t w = atomic_load(&place[i]);

		if (w >> NUMBER_BITS == thread)
			return w & NUMBER_MASK;
	}
	return 0;
}

/* ------------------------------------------------------------------ the record */

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The value of `key` in a line of `key=value`, n bytes of it; NULL: it is not there. */
static const char *find_value(const char *line, const char *key, size_t *ret_n)
{
	size_t n = strlen(key);

	for (; *line; line += strcspn(line, " \n"), line += *line != '\0')
		if (strncmp(line, key, n) == 0 && line[n] == '=') {
			*ret_n = strcspn(line + n + 1, " \n");
			return line + n + 1;
		}
	return NULL;
}

/* Decodes %XX; as many bytes as there is room for. Returns the number. */
static size_t decode(const char *value, size_t n, char *buf, size_t size)
{
	size_t done = 0;

	for (size_t i = 0; i < n && done + 1 < size; i++) {
		buf[done] = value[i];
		if (value[i] == '%' && i + 2 < n && hex(value[i + 1]) >= 0 &&
			hex(value[i + 2]) >= 0) {
			buf[done] = (char)(hex(value[i + 1]) * 16 + hex(value[i + 2]));
			i += 2;
		}
		done++;
	}
	buf[done] = '\0';
	return done;
}

static uint64_t read_number(const char *line, const char *key)
{
	size_t n;
	const char *value = find_value(line, key, &n);

	if (!value || strncmp(value, "max", 3) == 0)
		return value ? UINT64_MAX : 0;
	return strtoull(value, NULL, 10);
}

static void read_word(const char *line, const char *key, char *buf, size_t size)
{
	size_t n;
	const char *value = find_value(line, key, &n);

	if (value)
		decode(value, n, buf, size);
}

/* "BYTES:WHO,…" becomes lines "BYTES WHO"; one that does not fit whole is left out. */
static void read_holders(const char *line, char *buf, size_t size)
{
	size_t n, done = 0;
	const char *value = find_value(line, "holders", &n);

	while (value && n > 0) {
		size_t whole = strcspn(value, ", \n"), digits = strcspn(value, ":, \n");

		/* Decoded it is no longer. */
		if (digits < whole && whole + 2 <= size - done) {
			memcpy(buf + done, value, digits);
			done += digits;
			buf[done++] = ' ';
			done += decode(
				value + digits + 1, whole - digits - 1, buf + done, size - done);
			buf[done++] = '\n';
			buf[done] = '\0';
		}
		n -= whole < n ? whole + 1 : whole;
		value += whole + 1;
	}
}

static int read_record(struct tally *t, uint64_t number, char **ret_line)
{
	static const char *const none[WIRE_STRINGS_MAX];
	struct wire_refusal m = {.number = number};

	return client_ask_text(t, WIRE_REFUSAL, &m, sizeof(m), none, ret_line);
}

_public_ int tally_last_refusal(struct tally *t, size_t size, struct tally_refusal *ret)
{
	NO_CANCELLATION;
	_cleanup_(freep) struct tally_refusal *known = NULL;
	_cleanup_(freep) char *line = NULL;
	uint64_t number;
	int r = client_check(t);

	if (r < 0)
		return r;
	if (!ret)
		return -EINVAL;
	number = last_of_thread(t);
	if (number == 0)
		return -ENODATA;
	r = read_record(t, number, &line);
	if (r < 0)
		return r == -ENOENT ? -ENODATA : r;
	known = calloc(1, sizeof(*known));
	if (!known)
		return -ENOMEM;
	known->limit = read_number(line, "limit");
	known->held = read_number(line, "held");
	known->idle = read_number(line, "idle");
	known->wanted = read_number(line, "wanted");
	known->waited_usec = read_number(line, "waited_usec");
	read_word(line, "at", known->pool, sizeof(known->pool));
	read_word(line, "file", known->file, sizeof(known->file));
	read_holders(line, known->holders, sizeof(known->holders));
	give_struct(ret, size, known, sizeof(*known));
	return 0;
}
