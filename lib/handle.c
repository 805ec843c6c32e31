/* SPDX-License-Identifier: MIT */

/*
 * The public functions but for charging, which is in charge.c: what they take is checked here.
 */

#include <errno.h>
#include <string.h>

#include "cancel.h"
#include "client.h"
#include "core/path.h"
#include "core/util.h"
#include "tally.h"

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
	if (!ret ||
		(flags & (TALLY_EPHEMERAL | TALLY_PERSIST)) == (TALLY_EPHEMERAL | TALLY_PERSIST))
		return -EINVAL;
	if (flags & TALLY_PERSIST)
		return -EOPNOTSUPP;
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

_public_ int tally_item_define(
	struct tally *t, const struct tally_item_def *d, size_t size, tally_item *ret)
{
	NO_CANCELLATION;
	const char *strings[WIRE_STRINGS_MAX];
	struct tally_item_def known;
	struct wire_item_is answer;
	struct wire_define m = {0};
	int r;

	if (!d || !ret)
		return -EINVAL;
	r = copy_struct(&known, sizeof(known), d, size);
	if (r < 0)
		return r;
	if (!known.name || known.type > TALLY_EVENT)
		return -EINVAL;
	m.type = (uint32_t)known.type;
	strings[0] = known.name;
	strings[1] = known.unit ? known.unit : "";
	strings[2] = known.help ? known.help : "";
	r = client_call(t, WIRE_DEFINE, &m, sizeof(m), strings, &answer, sizeof(answer));
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
	struct wire_remove m = {.flags = flags & TALLY_FORCE ? WIRE_REMOVE_FORCE : 0};
	int r = path_check(path);

	if (r < 0 || (flags & ~(uint64_t)TALLY_FORCE))
		return r < 0 ? r : -EINVAL;
	return ask_done(t, WIRE_REMOVE, &m, sizeof(m), strings);
}
