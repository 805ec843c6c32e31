/* SPDX-License-Identifier: MIT */

/*
 * Giving what one handle holds to another. The bytes that are charged stand in no word, so nothing
 * changes in this process: whoever keeps the rows moves them from one to the other.
 */

#include <errno.h>

#include "cancel.h"
#include "client.h"
#include "key.h"
#include "refused.h"
#include "tally.h"

static int check(struct tally_pool *p)
{
	int r = client_check(p->tally);

	if (r < 0)
		return r;
	return atomic_load(&p->detached) || client_is_lost(p) ? -ENODEV : 0;
}

static int send(struct tally_pool *from, struct tally_pool *to, uint64_t bytes,
	const struct client_key *from_key, const struct client_key *to_key)
{
	static const char *const none[WIRE_STRINGS_MAX];
	struct wire_transfer m = {.from = from->attachment,
		.to = to->attachment,
		.from_key = from_key->number,
		.to_key = to_key->number,
		.bytes = bytes};
	struct wire_done done;
	int r = client_call(from->tally, WIRE_TRANSFER, &m, sizeof(m), none, &done, sizeof(done));

	if (r < 0)
		return r;
	refused_note(from->tally, done.refusal);
	return done.status;
}

_public_ int tally_transfer(
	struct tally_pool *from, struct tally_pool *to, tally_item item, uint64_t bytes)
{
	NO_CANCELLATION;
	struct client_key *from_key = NULL, *to_key = NULL;
	int r;

	if (from->tally != to->tally || item > ITEM_MAX || bytes > TALLY_BYTES_MAX)
		return -EINVAL;
	r = check(from);
	if (r == 0)
		r = check(to);
	if (r == 0)
		r = client_key_of(from, item, &from_key);
	if (r == 0)
		r = client_key_of(to, item, &to_key);
	if (r < 0 || bytes == 0 || from == to)
		return r;
	return send(from, to, bytes, from_key, to_key);
}
