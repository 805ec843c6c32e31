/* SPDX-License-Identifier: MIT */

#include "force.h"

#include <errno.h>

#include "key.h"

void force_settle(struct tally_pool *p, tally_item item)
{
	uint64_t bytes;

	if (atomic_load_explicit(&p->owed[item], memory_order_relaxed) == 0)
		return;
	bytes = atomic_exchange(&p->owed[item], 0);
	if (!key_force(p->tally, &p->key[item], bytes) && !atomic_load(&p->detached))
		atomic_fetch_add(&p->owed[item], bytes);
}

void force_charge(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	struct client_key *k;
	int r;

	if (key_force(p->tally, &p->key[item], bytes))
		return;
	if (atomic_load(&p->detached))
		return;
	atomic_fetch_add(&p->owed[item], bytes);
	r = client_key_of_nowait(p, item, &k);
	/* The key may have come since the first look: who brought it did not see what is owed. */
	if (r == 0)
		force_settle(p, item);
	else if (r == -EINVAL)
		atomic_store(&p->owed[item], 0);
}

void force_uncharge(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	uint64_t owed = atomic_load(&p->owed[item]);

	while (owed >= bytes && !atomic_compare_exchange_weak(&p->owed[item], &owed, owed - bytes))
		;
}
