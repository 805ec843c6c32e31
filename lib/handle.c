/* SPDX-License-Identifier: MIT */

/*
 * The public functions. The hit of a charge or uncharge is here, inlined from stock.h: it touches
 * the handle, the page of struct live and this CPU's stock, and nothing else. All the rest is one
 * call away.
 */

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "client.h"
#include "core/path.h"
#include "core/util.h"
#include "key.h"
#include "tally.h"

/* No public function is a cancellation point, whatever it calls. */
static inline int disable_cancel(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

static inline void restore_cancel(int *state)
{
	pthread_setcancelstate(*state, NULL);
}

#define NO_CANCELLATION                                                                            \
	_unused_ _cleanup_(restore_cancel)                                                         \
	int cancel_state = disable_cancel()

/*
 * Takes a structure that may have grown: bytes that this library does not know must be 0, missing
 * ones are.
 */
static int copy_struct(void *dst, size_t known, const void *src, size_t size)
{
	for (size_t i = known; i < size; i++)
		if (((const char *)src)[i])
			return -E2BIG;
	memset(dst, 0, known);
	memcpy(dst, src, size < known ? size : known);
	return 0;
}

/* ------------------------------------------------------------------ opening */

_public_ int tally_open_with(const struct tally_options *o, size_t size, struct tally **ret)
{
	struct tally_options known;
	int r;

	if (!o || !ret)
		return -EINVAL;
	NO_CANCELLATION;
	r = copy_struct(&known, sizeof(known), o, size);
	return r < 0 ? r : client_open(&known, ret);
}

_public_ int tally_open(const char *address, uint64_t flags, struct tally **ret)
{
	struct tally_options o = {.address = address, .flags = flags};

	return tally_open_with(&o, sizeof(o), ret);
}

_public_ struct tally *tally_close(struct tally *t)
{
	NO_CANCELLATION;

	if (t)
		client_close(t);
	return NULL;
}

_public_ int tally_fd(struct tally *t)
{
	return t->event_fd;
}

/* ------------------------------------------------------------------ attaching */

_public_ int tally_attach(
	struct tally *t, const char *path, uint64_t flags, struct tally_pool **ret)
{
	NO_CANCELLATION;
	int r;

	if (flags & ~(TALLY_CREATE | TALLY_EPHEMERAL | TALLY_PERSIST))
		return -EINVAL;
	if (flags & (TALLY_EPHEMERAL | TALLY_PERSIST))
		return -EOPNOTSUPP;
	if (!ret)
		return -EINVAL;
	if (!path)
		return -ENOENT;
	r = path_check(path);
	return r < 0 ? r : client_attach(t, path, flags, ret);
}

_public_ struct tally_pool *tally_pool_ref(struct tally_pool *p)
{
	atomic_fetch_add(&p->refs, 1);
	return p;
}

_public_ struct tally_pool *tally_pool_unref(struct tally_pool *p)
{
	NO_CANCELLATION;

	if (!p || atomic_fetch_sub(&p->refs, 1) > 1)
		return NULL;
	if (atomic_load(&p->detached))
		client_forget(p);
	else
		client_detach(p, true);
	client_free_pool(p);
	return NULL;
}

_public_ struct tally_pool *tally_detach(struct tally_pool *p)
{
	NO_CANCELLATION;

	/* The last reference detaches by itself, with one message less. */
	if (p && atomic_load(&p->refs) > 1 && !atomic_load(&p->detached))
		client_detach(p, false);
	return tally_pool_unref(p);
}

_public_ const char *tally_pool_path(const struct tally_pool *p)
{
	return p->path;
}

/* ------------------------------------------------------------------ charging */

static inline uint32_t key_word(const struct tally_pool *p, tally_item item)
{
	return atomic_load_explicit(&p->key[item], memory_order_relaxed);
}

static int check_charge(struct tally_pool *p, uint64_t bytes)
{
	int r = client_check(p->tally);

	if (r < 0)
		return r;
	if (atomic_load(&p->detached))
		return -ENODEV;
	return bytes > TALLY_BYTES_MAX ? -EINVAL : 0;
}

static __attribute__((noinline)) int charge_slow(
	struct tally_pool *p, tally_item item, uint64_t bytes, uint64_t deadline_usec)
{
	if (stock_consume(&p->live->stocks, key_word(p, item), bytes))
		return 0;
	NO_CANCELLATION;
	bool queue = deadline_usec != 0;
	struct client_key *k;
	int r = check_charge(p, bytes);

	if (r < 0)
		return r;
	r = client_key_of(p, item, &k);
	if (r < 0 || bytes == 0)
		return r;
	if (!queue)
		deadline_usec = link_now() + CLIENT_WAIT_USEC;
	do {
		if (key_take(k, bytes))
			return 0;
		r = key_ask(k, p->attachment, bytes, queue, deadline_usec);
	} while (r == -EBUSY);
	if (r == 0)
		key_take(k, 0);
	else if (r == -ENOTCONN && atomic_load(&p->tally->closed))
		r = -ENODEV;
	return r;
}

static __attribute__((noinline)) int try_charge_slow(
	struct tally_pool *p, tally_item item, uint64_t bytes)
{
	if (stock_consume(&p->live->stocks, key_word(p, item), bytes))
		return 0;
	NO_CANCELLATION;
	struct client_key *k;
	int r = check_charge(p, bytes);

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
	struct tally_pool *p, tally_item item, uint64_t bytes)
{
	uint64_t high = atomic_load_explicit(&p->live->high, memory_order_relaxed);

	if (stock_add(&p->live->stocks, key_word(p, item), bytes, high))
		return;
	NO_CANCELLATION;

	if (bytes == 0 || bytes > TALLY_BYTES_MAX || client_check(p->tally) < 0)
		return;
	key_put(p->tally, &p->key[item], bytes);
}

static inline bool charge_hits(const struct tally_pool *p, tally_item item, uint64_t bytes)
{
	return likely(stock_try_consume(&p->live->stocks, key_word(p, item), bytes));
}

static inline void uncharge(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	const struct live *l = p->live;
	uint64_t high = atomic_load_explicit(&l->high, memory_order_relaxed);

	if (unlikely(!stock_try_add(&l->stocks, key_word(p, item), bytes, high)))
		uncharge_slow(p, item, bytes);
}

_public_ int tally_charge(struct tally_pool *p, uint64_t bytes)
{
	return charge_hits(p, 0, bytes) ? 0 : charge_slow(p, 0, bytes, 0);
}

_public_ int tally_try_charge(struct tally_pool *p, uint64_t bytes)
{
	return charge_hits(p, 0, bytes) ? 0 : try_charge_slow(p, 0, bytes);
}

_public_ void tally_uncharge(struct tally_pool *p, uint64_t bytes)
{
	uncharge(p, 0, bytes);
}

_public_ int tally_charge_item(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	if (unlikely(item > ITEM_MAX))
		return -EINVAL;
	return charge_hits(p, item, bytes) ? 0 : charge_slow(p, item, bytes, 0);
}

_public_ int tally_try_charge_item(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	if (unlikely(item > ITEM_MAX))
		return -EINVAL;
	return charge_hits(p, item, bytes) ? 0 : try_charge_slow(p, item, bytes);
}

_public_ void tally_uncharge_item(struct tally_pool *p, tally_item item, uint64_t bytes)
{
	if (likely(item <= ITEM_MAX))
		uncharge(p, item, bytes);
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
	if (known.flags & TALLY_FORCE)
		return -EOPNOTSUPP;
	if ((known.flags & ~TALLY_NOWAIT) || known.item > ITEM_MAX ||
		((known.flags & TALLY_NOWAIT) && known.deadline_usec))
		return -EINVAL;
	if (charge_hits(p, known.item, known.bytes))
		return 0;
	if (known.flags & TALLY_NOWAIT)
		return try_charge_slow(p, known.item, known.bytes);
	return charge_slow(p, known.item, known.bytes, known.deadline_usec);
}

/* ------------------------------------------------------------------ items, files, pools */

_public_ int tally_item_lookup(struct tally *t, const char *name, tally_item *ret)
{
	NO_CANCELLATION;
	const char *strings[WIRE_STRINGS_MAX] = {name};
	struct wire_item m = {0};
	struct wire_item_is answer;
	int r;

	if (!name || !ret)
		return -EINVAL;
	r = client_call(t, WIRE_ITEM, &m, sizeof(m), strings, &answer, sizeof(answer));
	if (r == 0)
		r = answer.status;
	if (r == 0)
		*ret = answer.item;
	return r;
}

_public_ int tally_get(
	struct tally *t, const char *path, const char *file, uint64_t flags, char **ret_text)
{
	NO_CANCELLATION;
	int r = path_check(path);

	if (r < 0)
		return r;
	if (!file || !ret_text || (flags & ~(TALLY_EXACT | TALLY_RATELIMITED | TALLY_CACHED)) ||
		(flags & (flags - 1)))
		return -EINVAL;
	return client_get(t, path, file, flags, ret_text);
}

/* A request with strings that is answered by DONE. */
static int ask_done(struct tally *t, uint32_t type, void *fixed, size_t n_fixed,
	const char *const strings[static WIRE_STRINGS_MAX])
{
	struct wire_done answer;
	int r = client_call(t, type, fixed, n_fixed, strings, &answer, sizeof(answer));

	return r < 0 ? r : answer.status;
}

_public_ int tally_set(struct tally *t, const char *path, const char *file, const char *value)
{
	NO_CANCELLATION;
	const char *strings[WIRE_STRINGS_MAX] = {path, file, value};
	struct wire_set m = {0};
	int r = path_check(path);

	if (r < 0)
		return r;
	if (!file || !value)
		return -EINVAL;
	return ask_done(t, WIRE_SET, &m, sizeof(m), strings);
}

_public_ int tally_create(struct tally *t, const char *path)
{
	NO_CANCELLATION;
	const char *strings[WIRE_STRINGS_MAX] = {path};
	struct wire_create m = {0};
	int r = path_check(path);

	if (r < 0)
		return r;
	return ask_done(t, WIRE_CREATE, &m, sizeof(m), strings);
}

_public_ int tally_remove(struct tally *t, const char *path, uint64_t flags)
{
	NO_CANCELLATION;
	const char *strings[WIRE_STRINGS_MAX] = {path};
	struct wire_remove m = {0};
	int r = path_check(path);

	if (flags & TALLY_FORCE)
		return -EOPNOTSUPP;
	if (r < 0 || flags)
		return r < 0 ? r : -EINVAL;
	return ask_done(t, WIRE_REMOVE, &m, sizeof(m), strings);
}
