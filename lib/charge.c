/* SPDX-License-Identifier: MIT */

/*
 * Charging. The hit of a charge or uncharge is inlined here from stock.h: it touches the handle, the
 * page of struct live and this CPU's stock, and nothing else; no frame is set up for it, because all
 * the rest is in functions that are called last.
 */

#include <errno.h>

#include "charge.h"
#include "client.h"
#include "core/util.h"
#include "delay.h"
#include "force.h"
#include "key.h"
#include "tally.h"

static inline uint32_t key_word(const struct tally_pool *p, tally_item item)
{
	const _Atomic uint32_t *keys = p->key;
	size_t place = item;

	/* As a sum of its own: gcc then adds the array's offset in the load. */
	return atomic_load_explicit(keys + place, memory_order_relaxed);
}

static int check_charge(struct tally_pool *p, uint64_t bytes)
{
	int r = client_check(p->tally);

	if (r < 0)
		return r;
	if (atomic_load(&p->detached) || client_is_lost(p))
		return -ENODEV;
	return bytes > TALLY_BYTES_MAX ? -EINVAL : 0;
}

/* The first attempt, inline: 0, or why it failed. */
static inline int charge_at_once(const struct tally_pool *p, tally_item item, uint64_t bytes)
{
	return stock_try_consume(&p->live->stocks, key_word(p, item), bytes);
}

/* What the first attempt could not, the rest of the hit may: atomics, or one more attempt. */
static bool charge_hits(
	const struct tally_pool *p, tally_item item, uint64_t bytes, int first_attempt)
{
	return first_attempt != -ENOENT &&
		stock_consume(&p->live->stocks, key_word(p, item), bytes);
}

/* Neither forked nor closed: the same that a hit reads tells. */
static bool is_open(const struct tally_pool *p)
{
	return atomic_load_explicit(&p->live->stocks.n_cpus, memory_order_relaxed) > 0;
}

/* From the reserve of a key that is known; as little as possible is looked at on the way. */
static bool charge_reserve(const struct tally_pool *p, tally_item item, uint64_t bytes)
{
	struct client_key *k = atomic_load_explicit(&p->items[item].known, memory_order_acquire);

	return k && is_open(p) && !key_is_lost(k) && bytes > 0 && bytes <= TALLY_BYTES_MAX &&
		key_take(k, bytes);
}

bool charge_at_hand(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	int r = charge_at_once(p, item, bytes);

	return r == 0 || charge_hits(p, item, bytes, r) || charge_reserve(p, item, bytes);
}

static __attribute__((noinline)) int charge_by_daemon(
	struct tally_pool *p, tally_item item, uint64_t bytes, uint64_t deadline_usec)
{
	bool queue = deadline_usec != 0;
	struct client_key *k;
	uint32_t delay_usec;
	int r = client_key_of(p, item, &k);

	if (r < 0 || bytes == 0)
		return r;
	if (p->tally->embedded && embedded_is_recalling(p->tally->embedded))
		return -EDEADLK;
	if (!queue)
		deadline_usec = link_now() + CLIENT_WAIT_USEC;
	do {
		if (key_take(k, bytes))
			return 0;
		r = key_ask(k, p->attachment, bytes, queue, deadline_usec, &delay_usec);
	} while (r == -EBUSY);
	if (r == 0) {
		key_take(k, 0);
		if (delay_usec > 0)
			delay_sleep(p, delay_usec, deadline_usec);
	} else if (r == -ENOTCONN && atomic_load(&p->tally->closed))
		r = -ENODEV;
	return r;
}

static __attribute__((noinline)) int charge_slow(struct tally_pool *p, tally_item item,
	uint64_t bytes, uint64_t deadline_usec, int first_attempt)
{
	int r;

	if (charge_hits(p, item, bytes, first_attempt) || charge_reserve(p, item, bytes))
		return 0;
	r = check_charge(p, bytes);
	if (r < 0)
		return r;
	return charge_by_daemon(p, item, bytes, deadline_usec);
}

static __attribute__((noinline)) int try_charge_slow(
	struct tally_pool *p, tally_item item, uint64_t bytes, int first_attempt)
{
	struct client_key *k;
	int r;

	if (charge_hits(p, item, bytes, first_attempt))
		return 0;
	r = check_charge(p, bytes);
	if (r < 0)
		return r;
	r = client_key_of_nowait(p, item, &k);
	if (r < 0 || bytes == 0)
		return r;
	if (key_take(k, bytes))
		return 0;
	link_read_nowait(&p->tally->link);
	if (key_take(k, bytes))
		return 0;
	return key_ask_nowait(k, p->attachment, bytes);
}

static __attribute__((noinline)) void uncharge_slow(
	struct tally_pool *p, tally_item item, uint64_t bytes, int first_attempt)
{
	uint64_t high = atomic_load_explicit(&p->live->high, memory_order_relaxed);

	if (first_attempt != -ENOENT && stock_add(&p->live->stocks, key_word(p, item), bytes, high))
		return;
	if (bytes == 0 || bytes > TALLY_BYTES_MAX || !is_open(p))
		return;
	force_uncharge(p, item, bytes);
	client_is_lost(p);
}

/* It cannot say that nothing was charged, so it does not ask whether the handle is detached or the
 * session closed: uncharges do not either, see force_charge(). */
static __attribute__((noinline)) void force_slow(
	struct tally_pool *p, tally_item item, uint64_t bytes, int first_attempt)
{
	if (!charge_hits(p, item, bytes, first_attempt) && p->live->is_parent && bytes > 0 &&
		bytes <= TALLY_BYTES_MAX && !charge_reserve(p, item, bytes))
		force_charge(p, item, bytes);
}

static inline int charge(
	struct tally_pool *p, tally_item item, uint64_t bytes, uint64_t deadline_usec)
{
	int r = charge_at_once(p, item, bytes);

	return likely(r == 0) ? 0 : charge_slow(p, item, bytes, deadline_usec, r);
}

static inline int try_charge(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	int r = charge_at_once(p, item, bytes);

	return likely(r == 0) ? 0 : try_charge_slow(p, item, bytes, r);
}

static inline void uncharge(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	const struct live *l = p->live;
	uint64_t high = atomic_load_explicit(&l->high, memory_order_relaxed);
	int r = stock_try_add(&l->stocks, key_word(p, item), bytes, high);

	if (unlikely(r < 0))
		uncharge_slow(p, item, bytes, r);
}

_public_ int tally_charge(struct tally_pool *p, uint64_t bytes)
{
	return charge(p, 0, bytes, 0);
}

_public_ int tally_try_charge(struct tally_pool *p, uint64_t bytes)
{
	return try_charge(p, 0, bytes);
}

_public_ void tally_uncharge(struct tally_pool *p, uint64_t bytes)
{
	uncharge(p, 0, bytes);
}

_public_ int tally_charge_item(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	if (unlikely(item > ITEM_MAX))
		return -EINVAL;
	return charge(p, item, bytes, 0);
}

_public_ int tally_try_charge_item(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	if (unlikely(item > ITEM_MAX))
		return -EINVAL;
	return try_charge(p, item, bytes);
}

_public_ void tally_uncharge_item(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	if (likely(item <= ITEM_MAX))
		uncharge(p, item, bytes);
}

_public_ void tally_charge_force(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	int r;

	if (unlikely(item > ITEM_MAX))
		return;
	r = charge_at_once(p, item, bytes);
	if (unlikely(r < 0))
		force_slow(p, item, bytes, r);
}

_public_ int tally_charge_with(struct tally_pool *p, const struct tally_charge_args *a, size_t size)
{
	struct tally_charge_args known;
	int r;

	if (!a)
		return -EINVAL;
	r = copy_struct(&known, sizeof(known), a, size);
	if (r < 0)
		return r;
	if ((known.flags & ~(TALLY_NOWAIT | TALLY_FORCE)) || known.item > ITEM_MAX ||
		(known.flags && known.deadline_usec))
		return -EINVAL;
	if (known.flags & TALLY_FORCE) {
		r = check_charge(p, known.bytes);
		if (r == 0)
			tally_charge_force(p, known.item, known.bytes);
		return r;
	}
	return known.flags & TALLY_NOWAIT ? try_charge(p, known.item, known.bytes)
					  : charge(p, known.item, known.bytes, known.deadline_usec);
}
