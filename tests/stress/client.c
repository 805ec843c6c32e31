/* SPDX-License-Identifier: MIT */

/*
 * A client of the stress: a session, its attachments, its threads; and after the threads have ended
 * what their books say is given back.
 */

#include <errno.h>
#include <stdlib.h>

#include "worker.h"

struct client {
	struct stress *stress;
	struct stress_client *shared;
	struct tally *tally;
	struct tally_pool *handles[STRESS_HANDLES];
	tally_item items[STRESS_ITEMS];
	struct guests guests;
	struct worker workers[STRESS_THREADS];
};

static void *run_guests(void *arg)
{
	struct worker *w = arg;

	worker_begin(w);
	guests_run(w->guests, w);
	worker_end(w);
	return NULL;
}

static void open_all(struct client *c)
{
	assert_int_equal(tally_open(c->stress->address, 0, &c->tally), 0);
	for (unsigned i = 1; i < STRESS_ITEMS; i++)
		assert_int_equal(tally_item_lookup(c->tally, stress_items[i], &c->items[i]), 0);
	for (unsigned h = 0; h < STRESS_HANDLES; h++)
		c->handles[h] = harness_attach(c->tally, stress_pools[h % STRESS_POOLS]);
	pthread_mutex_init(&c->guests.lock, NULL);
	c->guests.tally = c->tally;
	c->guests.shared = c->shared;
}

static void start(struct client *c, unsigned number)
{
	worker_handle_signals();
	for (unsigned i = 0; i < c->stress->n_threads; i++) {
		struct worker *w = &c->workers[i];
		uint64_t n = number * STRESS_THREADS + i + 1;

		*w = (struct worker){.shared = &c->shared->threads[i],
			.stop = &c->stress->stop,
			.handles = c->handles,
			.items = c->items,
			.guests = &c->guests,
			.number = i,
			.seed = UINT64_C(0x9e3779b97f4a7c15) * n,
			.seed_in_handler = UINT64_C(0xd1b54a32d192ed03) * n};
		assert_int_equal(
			pthread_create(&w->thread, NULL, i == 0 ? run_guests : worker_run, w), 0);
	}
}

/* What was charged by force in a handler is owed until the key is there. */
static void fetch_keys(struct client *c, struct tally_pool *p)
{
	for (unsigned i = 0; i < STRESS_ITEMS; i++)
		assert_int_equal(tally_charge_item(p, c->items[i], 0), 0);
}

static void stand(struct client *c)
{
	for (unsigned i = 0; i < c->stress->n_threads; i++)
		assert_int_equal(pthread_join(c->workers[i].thread, NULL), 0);
	for (unsigned h = 0; h < STRESS_HANDLES; h++)
		fetch_keys(c, c->handles[h]);
	fetch_keys(c, c->guests.present->pool);
	for (unsigned i = 0; i < STRESS_ITEMS; i++)
		c->shared->guest_held[i] = c->guests.present->held[i];
}

static void give_back_book(struct client *c, const struct stress_book *b)
{
	for (unsigned h = 0; h < STRESS_HANDLES; h++)
		for (unsigned i = 0; i < STRESS_ITEMS; i++)
			tally_uncharge_item(c->handles[h], c->items[i], b->held[h][i]);
}

static void give_back(struct client *c)
{
	for (unsigned i = 0; i < c->stress->n_threads; i++) {
		give_back_book(c, &c->shared->threads[i].own);
		give_back_book(c, &c->shared->threads[i].in_handler);
	}
	for (unsigned i = 0; i < STRESS_ITEMS; i++)
		tally_uncharge_item(c->guests.present->pool, c->items[i], c->shared->guest_held[i]);
}

static void detach(struct client *c)
{
	for (unsigned h = 0; h < STRESS_HANDLES; h++)
		c->handles[h] = tally_detach(c->handles[h]);
	guests_end(&c->guests);
}

int client_main(struct stress *s, unsigned number, int fd)
{
	static struct client client;
	struct client *c = &client;
	enum stress_order order;

	c->stress = s;
	c->shared = &s->clients[number];
	open_all(c);
	stress_answer(fd);
	while (stress_next_order(fd, &order)) {
		switch (order) {
		case STRESS_RUN:
			start(c, number);
			continue;
		case STRESS_STAND:
			stand(c);
			break;
		case STRESS_GIVE_BACK:
			give_back(c);
			break;
		case STRESS_DETACH:
			detach(c);
			break;
		case STRESS_END:
			tally_close(c->tally);
			return 0;
		}
		stress_answer(fd);
	}
	return 1;
}
