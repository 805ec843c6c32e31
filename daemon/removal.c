/* SPDX-License-Identifier: MIT */

#include "removal.h"

#include "export.h"

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
