/* SPDX-License-Identifier: MIT */

/*
 * Several charges that must not fail half-way: they are charged as one, which may wait or be refused,
 * and then taken from that without asking anybody.
 */

#include <errno.h>

#include "cancel.h"
#include "client.h"
#include "core/util.h"
#include "tally.h"

struct tally_reservation {
	struct tally_pool *pool; /* a reference */
	tally_item item;
	_Atomic uint64_t left;
};

_public_ int tally_reserve(struct tally_pool *p, const struct tally_charge_args *a, size_t size,
	struct tally_reservation **ret)
{
	NO_CANCELLATION;
	struct tally_charge_args known;
	struct tally_reservation *reservation;
	int r;

	if (!p || !a || !ret)
		return -EINVAL;
	r = copy_struct(&known, sizeof(known), a, size);
	if (r < 0)
		return r;
	if (known.flags & TALLY_FORCE)
		return -EINVAL;
	reservation = malloc(sizeof(*reservation));
	if (!reservation)
		return -ENOMEM;
	r = tally_charge_with(p, &known, sizeof(known));
	if (r < 0) {
		free(reservation);
		return r;
	}
	*reservation = (struct tally_reservation){
		.pool = tally_pool_ref(p), .item = known.item, .left = known.bytes};
	*ret = reservation;
	return 0;
}

_public_ int tally_reservation_charge(struct tally_reservation *r, uint64_t bytes)
{
	const struct tally_pool *p = r->pool;
	uint64_t left = atomic_load(&r->left);
	int e = client_check(p->tally);

	if (e < 0)
		return e;
	if (atomic_load(&p->detached))
		return -ENODEV;
	do {
		if (bytes > left)
			return -ENOMEM;
	} while (!atomic_compare_exchange_weak(&r->left, &left, left - bytes));
	return 0;
}

_public_ struct tally_reservation *tally_reservation_free(struct tally_reservation *r)
{
	NO_CANCELLATION;

	if (!r)
		return NULL;
	tally_uncharge_item(r->pool, r->item, atomic_load(&r->left));
	tally_pool_unref(r->pool);
	free(r);
	return NULL;
}
