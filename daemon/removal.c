/* SPDX-License-Identifier: MIT */

#include "removal.h"

#include <errno.h>

#include "attachment.h"
#include "callback.h"
#include "drain.h"
#include "export.h"
#include "owed.h"
#include "queue.h"
#include "request.h"

/* It is out of the tree, and nobody attaches to it any more. */
static void let_go(struct pool *p, void *userdata)
{
	struct manager *m = userdata;

	if (m->export)
		export_forget(m->export, p);
}

int removal_run(struct manager *m, struct pool *p)
{
	struct pool *held = pool_ref(p);
	int r = pool_remove(p);

	if (r == 0) {
		let_go(held, m);
		removal_sweep(m, held->parent);
	}
	pool_unref(held);
	return r;
}

void removal_sweep(struct manager *m, struct pool *p)
{
	pool_sweep(p, let_go, m);
}

static void on_drained(void *userdata, uint64_t bytes)
{
	(void)bytes;
	owed_done(userdata, 0);
}

int removal_by_force(struct session *s, uint64_t cookie, struct pool *p)
{
	struct manager *m = s->manager;
	struct itemlimit_place parent = {p->parent, 0};
	struct pool_member *member;
	struct drain_wait *wait;
	struct owed *o;
	int r = pool_check_force(p);

	if (r < 0)
		return r;
	r = owed_new(s, cookie, &o);
	if (r < 0)
		return r;
	/* It begins later: by then they are the parent's. */
	r = drain_start_scope(m->drain, parent, DRAIN_REMOVED, on_drained, o, &wait);
	if (r < 0) {
		owed_free(o);
		return r;
	}
	pool_ref(p);
	TAILQ_FOREACH (member, &p->members, entry)
		request_end(attachment_of(member), -ENODEV);
	TAILQ_FOREACH (member, &p->members, entry)
		callback_end(attachment_of(member));
	pool_remove_by_force(p, attachment_move, NULL);
	let_go(p, m);
	removal_sweep(m, parent.pool);
	queue_kick(m);
	pool_unref(p);
	return 0;
}
