/* SPDX-License-Identifier: MIT */

/*
 * What is owed must be in the key's word before any of it can be uncharged into the key's stock:
 * idle credit that nobody was seen to have charged would be dropped by the daemon, and the charge
 * stay for ever. So the handle's account of it is closed first, and then the key is used. Who finds
 * it closed finds the key.
 */

#include "force.h"

#include <errno.h>

#include "key.h"

void force_settle(struct tally_pool *p, tally_item item, struct client_key *k)
{
	uint64_t owed = atomic_load(&p->items[item].owed), told = 0;

	/* Others charge and uncharge meanwhile. */
	do {
		if (owed > told) {
			key_force(k, owed - told);
			told = owed;
		}
	} while (!atomic_compare_exchange_weak(&p->items[item].owed, &owed, FORCE_SETTLED));
	if (told > owed)
		key_put(k, told - owed);
}

/* Adds to what is owed; false: the account is closed. */
static bool owe(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	uint64_t owed = atomic_load(&p->items[item].owed), sum;

	do {
		if (owed == FORCE_SETTLED)
			return false;
		sum = bytes < FORCE_SETTLED - 1 - owed ? owed + bytes : FORCE_SETTLED - 1;
	} while (!atomic_compare_exchange_weak(&p->items[item].owed, &owed, sum));
	atomic_store(&p->owes, true);
	return true;
}

/*
 * Not charged is only what no uncharge can find a key for, or it would lie there idle without having
 * been granted. Whether the handle is being detached, or the session closed, says nothing of that:
 * both are known some time before the keys are gone.
 */
void force_charge(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	struct client_key *k;

	if (key_force_known(p->tally, &p->items[item].known, bytes))
		return;
	if (!owe(p, item, bytes)) {
		/* The key has come meanwhile; or it was here, and is gone for good. */
		key_force_known(p->tally, &p->items[item].known, bytes);
		return;
	}
	if (client_check(p->tally) < 0 || atomic_load(&p->detached))
		return;
	if (client_key_of_nowait(p, item, &k) == -EINVAL)
		atomic_store(&p->items[item].owed, 0);
}

void force_uncharge(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	uint64_t owed = atomic_load(&p->items[item].owed);
	struct client_key *k;

	while (owed != FORCE_SETTLED && owed >= bytes)
		if (atomic_compare_exchange_weak(&p->items[item].owed, &owed, owed - bytes))
			return;
	k = atomic_load_explicit(&p->items[item].known, memory_order_acquire);
	if (k)
		key_put(k, bytes);
}
