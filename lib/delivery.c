/* SPDX-License-Identifier: MIT */

/*
 * How a client reaches the engine in its own process: messages are delivered instead of sent. The
 * engine answers while it holds its mutex, so the client's lock is taken after that; only where
 * nothing may be waited for it is the other way round, and both are only tried.
 */

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>

#include "client.h"

static int membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0) < 0 ? -errno : 0;
}

bool delivery_has_barrier(void)
{
	return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ) == 0;
}

/*
 * Closed, every sequence that begins finds no CPU; those that have begun are aborted by the barrier,
 * and begin again. Hits then miss, and what misses finds no stock either.
 */
static void gate(void *userdata, bool open)
{
	struct tally *t = userdata;
	struct percpu_area *a = &t->live->stocks;
	int saved = errno;

	if (!open) {
		atomic_store(&a->n_open, 0);
		membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ);
	} else {
		atomic_store(&a->n_open, atomic_load(&a->n_cpus));
		/* The session may have been closed in between. */
		if (atomic_load(&a->n_cpus) == 0)
			atomic_store(&a->n_open, 0);
	}
	errno = saved;
}

static bool needs_lock(const void *message)
{
	return ((const struct wire_header *)message)->type != WIRE_GRANT;
}

static void on_answer(void *userdata, const void *message, size_t n, int *fds)
{
	struct tally *t = userdata;
	const struct link_owner *o = &t->link.owner;
	bool lock = needs_lock(message) &&
		!(atomic_load(&t->delivers) &&
			pthread_equal(atomic_load(&t->deliverer), pthread_self()));

	if (lock)
		o->lock(o->userdata, true);
	o->on_message(o->userdata, message, n, fds);
	if (lock)
		o->unlock(o->userdata);
}

static int64_t on_reclaim(
	void *userdata, uint64_t attachment, uint64_t token, uint64_t want, uint64_t deadline_usec)
{
	const struct wire_reclaim m = {.h = WIRE_HEADER(WIRE_RECLAIM, struct wire_reclaim, 0),
		.attachment = attachment,
		.token = token,
		.want = want,
		.deadline_usec = deadline_usec};
	int64_t freed = 0;

	dispatch_reclaim(userdata, &m, &freed);
	return freed;
}

/* The answer of such a message concerns more than one word. */
static bool is_answered_under_lock(const void *message)
{
	return ((const struct wire_header *)message)->type == WIRE_KEY;
}

static int deliver(void *userdata, const void *message, size_t n, bool wait)
{
	struct tally *t = userdata;
	const struct link_owner *o = &t->link.owner;
	int r;

	if (wait || !is_answered_under_lock(message))
		return embedded_handle(t->embedded, message, n, wait);
	if (!o->lock(o->userdata, false))
		return -EAGAIN;
	atomic_store(&t->deliverer, pthread_self());
	atomic_store(&t->delivers, true);
	r = embedded_handle(t->embedded, message, n, false);
	atomic_store(&t->delivers, false);
	o->unlock(o->userdata);
	return r;
}

int delivery_send_locked(struct tally *t, const void *message, size_t n)
{
	int r;

	if (!t->embedded)
		return link_send_nowait(&t->link, message, n);
	if (atomic_load(&t->link.lost))
		return -ENOTCONN;
	atomic_store(&t->deliverer, pthread_self());
	atomic_store(&t->delivers, true);
	r = embedded_handle(t->embedded, message, n, false);
	atomic_store(&t->delivers, false);
	return r;
}

int delivery_open(struct tally *t, const char *config, enum percpu_kind kind)
{
	const struct embedded_owner owner = {
		.on_message = on_answer, .gate = gate, .on_reclaim = on_reclaim, .userdata = t};
	int r = embedded_new(config, kind, &owner, &t->embedded);

	if (r == 0)
		t->link.owner.deliver = deliver;
	return r;
}
