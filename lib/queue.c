/* SPDX-License-Identifier: MIT */

#include "queue.h"

#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "cancel.h"
#include "charge.h"
#include "core/util.h"
#include "key.h"
#include "tally.h"

/* Ids are a place in the queue's table, and above it a number that makes them differ. */
#define SLOT_BITS 20
#define SLOTS_MAX (UINT32_C(1) << SLOT_BITS)

/* Without a daemon nobody tells: the head of a line looks so often. */
#define TICK_NSEC 10000000
/* What one dispatch reads of its socket, before its callbacks have their turn. */
#define NOTICES_MAX 256

/* A request is in the queue's list of its state. */
enum state {
	KEYLESS, /* its key has been asked for */
	UNSENT,  /* REQUEST is to be sent */
	WAITS,
	READY,     /* its turn has come: FETCH is to be sent, when the key's other fetch is over */
	FETCHING,  /* until FETCHED comes */
	CANCELLED, /* nobody knows it any more; CANCEL is to be sent */
	DONE,      /* its callback is to run */
	RUNNING,
	STATES,
};

struct tally_request {
	TAILQ_ENTRY(tally_request) entry;
	struct tally_queue *queue;
	struct tally_pool *pool; /* a reference */
	struct client_key *key;  /* from UNSENT on */
	enum state state;
	uint64_t id, bytes, deadline_usec;
	tally_item item;
	int result;             /* FETCHING: why it is over, if that was told meanwhile */
	struct key_asker asker; /* of the fetch */
	tally_done_fn fn;
	void *userdata;
};

TAILQ_HEAD(requests, tally_request);

struct tally_queue {
	struct tally *tally; /* a reference */
	TAILQ_ENTRY(tally_queue) entry;
	uint64_t number;
	int epoll_fd; /* of the others, and of the session's socket while `watched` is not 0 */
	int wake_fd;
	int channel_fd; /* embedded: a timer */
	uint32_t watched;
	bool ticking, gone;
	struct requests lists[STATES];
	struct tally_request **slots;
	uint32_t *free_slots;
	uint32_t n_slots, n_free;
	uint64_t last;
	bool dispatching;
	pthread_t dispatcher;
	const struct tally_request *running; /* only compared */
	pthread_cond_t ran;
};

/* ------------------------------------------------------------------ lists */

static void enter(struct tally_request *r, enum state state)
{
	TAILQ_REMOVE(&r->queue->lists[r->state], r, entry);
	r->state = state;
	TAILQ_INSERT_TAIL(&r->queue->lists[state], r, entry);
}

/* Back to where it was the first. */
static void enter_first(struct tally_request *r, enum state state)
{
	TAILQ_REMOVE(&r->queue->lists[r->state], r, entry);
	r->state = state;
	TAILQ_INSERT_HEAD(&r->queue->lists[state], r, entry);
}

static bool has(const struct tally_queue *q, enum state state)
{
	return !TAILQ_EMPTY(&q->lists[state]);
}

static void wake(const struct tally_queue *q)
{
	const uint64_t one = 1;
	ssize_t n = write(q->wake_fd, &one, sizeof(one));

	(void)n; /* full: it is awake */
}

static void finish(struct tally_request *r, int result)
{
	r->result = result;
	enter(r, DONE);
	if (!r->queue->dispatching)
		wake(r->queue);
}

static int grow(struct tally_queue *q)
{
	uint32_t n = q->n_slots ? 2 * q->n_slots : 16;
	struct tally_request **slots;
	uint32_t *free_slots;

	if (n > SLOTS_MAX)
		return -EDQUOT;
	slots = realloc(q->slots, n * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	q->slots = slots;
	free_slots = realloc(q->free_slots, n * sizeof(*free_slots));
	if (!free_slots)
		return -ENOMEM;
	q->free_slots = free_slots;
	for (uint32_t i = n; i > q->n_slots; i--) {
		slots[i - 1] = NULL;
		free_slots[q->n_free++] = i - 1;
	}
	q->n_slots = n;
	return 0;
}

static int add(struct tally_queue *q, struct tally_request *r, enum state state)
{
	int e = q->n_free ? 0 : grow(q);
	uint32_t slot;

	if (e < 0)
		return e;
	slot = q->free_slots[--q->n_free];
	q->slots[slot] = r;
	r->id = ++q->last << SLOT_BITS | slot;
	r->queue = q;
	r->state = state;
	TAILQ_INSERT_TAIL(&q->lists[state], r, entry);
	return 0;
}

static struct tally_request *find(const struct tally_queue *q, uint64_t id)
{
	uint32_t slot = id & (SLOTS_MAX - 1);
	struct tally_request *r = slot < q->n_slots ? q->slots[slot] : NULL;

	return r && r->id == id ? r : NULL;
}

static void take_out(struct tally_request *r)
{
	struct tally_queue *q = r->queue;
	uint32_t slot = r->id & (SLOTS_MAX - 1);

	TAILQ_REMOVE(&q->lists[r->state], r, entry);
	q->slots[slot] = NULL;
	q->free_slots[q->n_free++] = slot;
}

/* The lock is not held: the last reference of a handle detaches. */
static void free_request(struct tally_request *r)
{
	tally_pool_unref(r->pool);
	free(r);
}

static struct tally_queue *find_queue(struct tally *t, uint64_t number)
{
	struct tally_queue *q;

	TAILQ_FOREACH (q, &t->queues, entry)
		if (q->number == number)
			return q;
	return NULL;
}

/* ------------------------------------------------------------------ messages */

/* 0: it went; -EAGAIN: later. A request whose daemon is gone is over. */
static int send_request(struct tally_request *r)
{
	struct wire_request m = {.h = WIRE_HEADER(WIRE_REQUEST, struct wire_request, 0),
		.queue = r->queue->number,
		.id = r->id,
		.attachment = r->pool->attachment,
		.need = r->bytes,
		.deadline_usec = r->deadline_usec,
		.key = r->key->number};
	int e;

	/* First: the engine of this process answers at once. */
	enter(r, WAITS);
	e = delivery_send_locked(r->queue->tally, &m, sizeof(m));
	if (e == -EAGAIN)
		enter_first(r, UNSENT);
	return e;
}

static int send_cancel(const struct tally_request *r)
{
	struct wire_cancel m = {.h = WIRE_HEADER(WIRE_CANCEL, struct wire_cancel, 0),
		.queue = r->queue->number,
		.id = r->id};

	return delivery_send_locked(r->queue->tally, &m, sizeof(m));
}

/* -EBUSY: the key has another fetch under way. */
static int send_fetch(struct tally_request *r)
{
	int e;

	if (key_is_fetching(r->key))
		return -EBUSY;
	r->asker = (struct key_asker){0};
	enter(r, FETCHING);
	e = key_fetch(r->key, r->pool->attachment, r->queue->number, r->id, r->bytes, &r->asker);
	if (e == -EAGAIN || e == -EBUSY)
		enter_first(r, READY);
	else if (e < 0)
		finish(r, e);
	return e;
}

/* Another request of any queue may have waited for this key's fetch to be over. */
static void fetch_next(struct tally *t, const struct client_key *k)
{
	struct tally_queue *q;
	struct tally_request *r;

	TAILQ_FOREACH (q, &t->queues, entry)
		TAILQ_FOREACH (r, &q->lists[READY], entry)
			if (r->key == k) {
				if (send_fetch(r) == -EAGAIN)
					wake(q);
				return;
			}
}

/* Its turn was over before it came, or the request has got no place. -ENOENT: it was over altogether, and
 * the queue's socket says why, or has said. */
static void take_refusal(struct tally_request *r, int status)
{
	if (status == -ENOENT)
		status = r->result < 0 ? r->result : -EAGAIN;
	if (status == -EAGAIN)
		enter(r, WAITS);
	else
		finish(r, status < 0 ? status : -EPROTO);
}

void queue_on_fetched(struct tally *t, const struct wire_fetched *m)
{
	struct client_key *k = m->seq ? client_key(t, m->key) : NULL;
	struct tally_queue *q = find_queue(t, m->queue);
	struct tally_request *r = q ? find(q, m->id) : NULL;

	if (k)
		key_accept_fetched(k, m);
	if (r && r->state == FETCHING && atomic_load(&r->asker.done)) {
		if (r->asker.status == 0)
			finish(r, 0);
		else
			take_refusal(r, r->asker.status);
	} else if (r && m->seq == 0 && m->status < 0 && r->state == WAITS)
		finish(r, m->status);
	if (k && !t->embedded)
		fetch_next(t, k);
}

void queue_on_key(struct tally *t)
{
	struct tally_queue *q;

	TAILQ_FOREACH (q, &t->queues, entry)
		if (has(q, KEYLESS))
			wake(q);
}

/* ------------------------------------------------------------------ what the descriptor tells */

static void watch_link(struct tally_queue *q)
{
	uint32_t wanted = (has(q, UNSENT) || has(q, CANCELLED) ? EPOLLOUT : 0) |
		(has(q, KEYLESS) || has(q, READY) || has(q, FETCHING) ? EPOLLIN : 0);
	struct epoll_event e = {.events = wanted};

	if (q->gone)
		wanted = 0;
	if (wanted == q->watched)
		return;
	epoll_ctl(q->epoll_fd,
		wanted == 0               ? EPOLL_CTL_DEL
			: q->watched == 0 ? EPOLL_CTL_ADD
					  : EPOLL_CTL_MOD,
		q->tally->link.fd, &e);
	q->watched = wanted;
}

static void tick(struct tally_queue *q)
{
	bool wanted = has(q, UNSENT) || has(q, WAITS) || has(q, READY) || has(q, CANCELLED);
	struct itimerspec t = {0};

	if (wanted == q->ticking)
		return;
	q->ticking = wanted;
	if (wanted)
		t.it_value.tv_nsec = t.it_interval.tv_nsec = TICK_NSEC;
	timerfd_settime(q->channel_fd, 0, &t, NULL);
}

static void watch(struct tally_queue *q)
{
	if (q->tally->embedded)
		tick(q);
	else
		watch_link(q);
}

static void on_turn(struct tally_queue *q, const struct wire_turn *m)
{
	struct tally_request *r = find(q, m->id);

	if (r && r->state == FETCHING && m->status < 0)
		r->result = m->status;
	if (!r || (r->state != WAITS && r->state != READY))
		return;
	if (m->status < 0)
		finish(r, m->status);
	else if (r->state == WAITS)
		enter(r, READY);
}

/* False: there is none; or nobody is there any more. */
static bool read_notice(struct tally_queue *q)
{
	union {
		struct wire_header h;
		struct wire_turn turn;
		char bytes[WIRE_NOTICE_MAX];
	} m;
	ssize_t n = recv(q->channel_fd, &m, sizeof(m), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0 || wire_check_notice(&m, (size_t)n) < 0) {
		q->gone = true;
		epoll_ctl(q->epoll_fd, EPOLL_CTL_DEL, q->channel_fd, NULL);
		return false;
	}
	if (m.h.type == WIRE_TURN)
		on_turn(q, &m.turn);
	return true;
}

/* It is readable no more, if it was. */
static void quench(int fd)
{
	uint64_t count;

	while (read(fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

/* What has come, and who woke it. The lock is held. */
static void read_all(struct tally_queue *q)
{
	quench(q->wake_fd);
	if (q->tally->embedded) {
		quench(q->channel_fd);
		return;
	}
	for (unsigned i = 0; i < NOTICES_MAX && !q->gone; i++)
		if (!read_notice(q))
			break;
}

/* ------------------------------------------------------------------ going on */

/* All that wait for anything but their callback end so. */
static void fail_all(struct tally_queue *q, int error)
{
	for (enum state s = 0; s < DONE; s++) {
		struct tally_request *r, *next;

		for (r = TAILQ_FIRST(&q->lists[s]); r && s != CANCELLED; r = next) {
			next = TAILQ_NEXT(r, entry);
			if (s == FETCHING)
				key_leave_fetch(r->key, &r->asker);
			finish(r, error);
		}
	}
}

/* Why nothing can come of any request any more; 0: it can. */
static int why_over(const struct tally_queue *q)
{
	if (atomic_load(&q->tally->closed))
		return -ENODEV;
	return q->gone || atomic_load(&q->tally->link.lost) ? -ENOTCONN : 0;
}

static void find_keys(struct tally_queue *q)
{
	struct tally_request *r, *next;

	for (r = TAILQ_FIRST(&q->lists[KEYLESS]); r; r = next) {
		int e = client_key_of_nowait(r->pool, r->item, &r->key);

		next = TAILQ_NEXT(r, entry);
		if (e == 0)
			enter(r, UNSENT);
		else if (e != -EAGAIN)
			finish(r, e);
	}
}

/* Whose turn it is the engine of this process is asked. */
static void ask_for_turns(struct tally_queue *q)
{
	struct tally_request *r;

	TAILQ_FOREACH (r, &q->lists[WAITS], entry)
		r->state = READY;
	TAILQ_CONCAT(&q->lists[READY], &q->lists[WAITS], entry);
}

/* Sends what is to be sent, as far as that is possible. Cancelled requests that are off come back in
 * `off`. The lock is held. */
static void pump(struct tally_queue *q, struct requests *off)
{
	struct tally_request *r, *next;
	int over = why_over(q), e = 0;

	if (over < 0)
		fail_all(q, over);
	while ((r = TAILQ_FIRST(&q->lists[CANCELLED])) && e != -EAGAIN) {
		e = over < 0 ? over : send_cancel(r);
		if (e != -EAGAIN) {
			take_out(r);
			TAILQ_INSERT_TAIL(off, r, entry);
		}
	}
	find_keys(q);
	while ((r = TAILQ_FIRST(&q->lists[UNSENT])) && e != -EAGAIN) {
		e = send_request(r);
		if (e < 0 && e != -EAGAIN)
			finish(r, e);
	}
	for (r = TAILQ_FIRST(&q->lists[READY]); r && e != -EAGAIN; r = next) {
		next = TAILQ_NEXT(r, entry);
		e = send_fetch(r);
	}
	/* Another thread is in the engine, for a moment. */
	if (q->tally->embedded && e == -EAGAIN)
		wake(q);
	watch(q);
}

static void free_all(struct requests *list)
{
	struct tally_request *r;

	while ((r = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, r, entry);
		free_request(r);
	}
}

/* Those that are done, but not those that are done by what they do. The lock is held, but not by a
 * callback. */
static int run_callbacks(struct tally_queue *q)
{
	struct tally *t = q->tally;
	struct tally_request *r;
	unsigned n = 0;
	int ran = 0;

	TAILQ_FOREACH (r, &q->lists[DONE], entry)
		n++;
	for (; n > 0 && (r = TAILQ_FIRST(&q->lists[DONE])); n--) {
		enter(r, RUNNING);
		q->running = r;
		pthread_mutex_unlock(&t->lock);
		r->fn(r, r->result, r->userdata);
		ran++;
		pthread_mutex_lock(&t->lock);
		q->running = NULL;
		take_out(r);
		pthread_cond_broadcast(&q->ran);
		pthread_mutex_unlock(&t->lock);
		free_request(r);
		pthread_mutex_lock(&t->lock);
	}
	return ran;
}

_public_ int tally_queue_dispatch(struct tally_queue *q)
{
	NO_CANCELLATION;
	struct requests off = TAILQ_HEAD_INITIALIZER(off);
	struct tally *t = q->tally;
	int n;

	if (client_check(t) == -ECHILD)
		return -ECHILD;
	pthread_mutex_lock(&t->lock);
	if (q->dispatching) {
		pthread_mutex_unlock(&t->lock);
		return 0;
	}
	q->dispatching = true;
	q->dispatcher = pthread_self();
	read_all(q);
	if (t->embedded)
		ask_for_turns(q);
	pump(q, &off);
	pthread_mutex_unlock(&t->lock);
	link_read(&t->link);
	pthread_mutex_lock(&t->lock);
	n = run_callbacks(q);
	pump(q, &off);
	q->dispatching = false;
	if (has(q, DONE))
		wake(q);
	pthread_mutex_unlock(&t->lock);
	free_all(&off);
	return n;
}

_public_ int tally_queue_fd(struct tally_queue *q)
{
	return q->epoll_fd;
}

/* ------------------------------------------------------------------ requests */

static int check_request(
	const struct tally_queue *q, struct tally_pool *p, const struct tally_charge_args *a)
{
	int r = client_check(q->tally);

	if (r < 0)
		return r;
	if (p->tally != q->tally || a->flags || a->item > ITEM_MAX || a->bytes > TALLY_BYTES_MAX)
		return -EINVAL;
	if (atomic_load(&p->detached))
		return -ENODEV;
	return q->gone || atomic_load(&q->tally->link.lost) ? -ENOTCONN : 0;
}

/* What lies at hand is taken where there is room besides. At a limit it is not: others may stand in
 * line there, and one that gives back and asks again all the time would never leave them any. */
static bool take_at_hand(struct tally_request *r)
{
	struct tally_usage u;

	if (tally_usage(r->pool, sizeof(u), &u) < 0 || u.headroom < r->bytes)
		return false;
	return charge_at_hand(r->pool, r->item, r->bytes);
}

/* Where it begins. */
static int start_of(struct tally_request *r, enum state *ret)
{
	int e;

	*ret = DONE;
	if (r->bytes == 0 || take_at_hand(r))
		return 0;
	/* The engine of this process answers at once. */
	if (r->queue->tally->embedded)
		e = client_key_of(r->pool, r->item, &r->key);
	else
		e = client_key_of_nowait(r->pool, r->item, &r->key);
	*ret = e == 0 ? UNSENT : KEYLESS;
	return e == -EAGAIN ? 0 : e;
}

_public_ int tally_request(struct tally_queue *q, struct tally_pool *p,
	const struct tally_charge_args *a, size_t size, tally_done_fn fn, void *userdata,
	struct tally_request **ret)
{
	NO_CANCELLATION;
	struct requests off = TAILQ_HEAD_INITIALIZER(off);
	struct tally_charge_args known;
	struct tally_request *r;
	enum state start;
	int e;

	if (!q || !p || !a || !fn)
		return -EINVAL;
	e = copy_struct(&known, sizeof(known), a, size);
	if (e == 0)
		e = check_request(q, p, &known);
	if (e < 0)
		return e;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	*r = (struct tally_request){.queue = q,
		.pool = tally_pool_ref(p),
		.bytes = known.bytes,
		.deadline_usec = known.deadline_usec ? known.deadline_usec : UINT64_MAX,
		.item = known.item,
		.fn = fn,
		.userdata = userdata};
	e = start_of(r, &start);
	if (e == 0) {
		pthread_mutex_lock(&q->tally->lock);
		e = add(q, r, start);
		if (e == 0) {
			/* Before anybody may run its callback. */
			if (ret)
				*ret = r;
			if (!q->dispatching)
				pump(q, &off);
			if ((has(q, DONE) || q->tally->embedded) && !q->dispatching)
				wake(q);
		}
		pthread_mutex_unlock(&q->tally->lock);
		if (e < 0 && start == DONE)
			tally_uncharge_item(p, r->item, r->bytes);
		free_all(&off);
	}
	if (e < 0)
		free_request(r);
	return e;
}

/* Out of its list, and without an answer: true, it is to be freed now. Nobody runs its callback. */
static bool drop(struct tally_request *r)
{
	switch (r->state) {
	case FETCHING:
		key_leave_fetch(r->key, &r->asker);
		break;
	case WAITS:
	case READY:
		break;
	default:
		take_out(r);
		return true;
	}
	enter(r, CANCELLED);
	return false;
}

_public_ struct tally_request *tally_request_cancel(struct tally_request *r)
{
	NO_CANCELLATION;
	struct requests off = TAILQ_HEAD_INITIALIZER(off);
	struct tally_queue *q;
	struct tally *t;
	bool charged, gone;

	if (!r)
		return NULL;
	q = r->queue;
	t = q->tally;
	if (client_check(t) == -ECHILD)
		return NULL;
	pthread_mutex_lock(&t->lock);
	if (q->running == r) {
		while (q->running == r && !pthread_equal(q->dispatcher, pthread_self()))
			pthread_cond_wait(&q->ran, &t->lock);
		pthread_mutex_unlock(&t->lock);
		return NULL;
	}
	charged = r->state == DONE && r->result == 0;
	gone = drop(r);
	pump(q, &off);
	pthread_mutex_unlock(&t->lock);
	free_all(&off);
	if (!gone)
		return NULL;
	if (charged)
		tally_uncharge_item(r->pool, r->item, r->bytes);
	free_request(r);
	return NULL;
}

/* ------------------------------------------------------------------ queues */

static int make_fds(struct tally_queue *q)
{
	struct epoll_event e = {.events = EPOLLIN};

	q->epoll_fd = link_raise_fd(epoll_create1(EPOLL_CLOEXEC));
	q->wake_fd = link_raise_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (q->tally->embedded)
		q->channel_fd =
			link_raise_fd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (q->epoll_fd < 0 || q->wake_fd < 0 || q->channel_fd < 0 ||
		epoll_ctl(q->epoll_fd, EPOLL_CTL_ADD, q->wake_fd, &e) < 0 ||
		epoll_ctl(q->epoll_fd, EPOLL_CTL_ADD, q->channel_fd, &e) < 0)
		return -errno;
	return 0;
}

static void free_queue(struct tally_queue *q)
{
	close_fd(q->epoll_fd);
	close_fd(q->wake_fd);
	close_fd(q->channel_fd);
	pthread_cond_destroy(&q->ran);
	free(q->slots);
	free(q->free_slots);
	client_unref(q->tally);
	free(q);
}

static int ask_queue(struct tally_queue *q)
{
	static const char *const none[WIRE_STRINGS_MAX];
	struct wire_queue m = {.queue = q->number};
	struct wire_queue_is answer;
	int r = client_call_fd(
		q->tally, WIRE_QUEUE, &m, sizeof(m), none, &answer, sizeof(answer), &q->channel_fd);

	if (r < 0 || q->tally->embedded)
		return r < 0 ? r : answer.status;
	q->channel_fd = link_raise_fd(q->channel_fd);
	return answer.status < 0 ? answer.status : q->channel_fd < 0 ? -EMFILE : 0;
}

_public_ int tally_queue_new(struct tally *t, struct tally_queue **ret)
{
	NO_CANCELLATION;
	struct tally_queue *q;
	int r;

	if (!t || !ret)
		return -EINVAL;
	r = client_check(t);
	if (r < 0)
		return r;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->tally = client_ref(t);
	q->epoll_fd = q->wake_fd = q->channel_fd = -1;
	pthread_cond_init(&q->ran, NULL);
	for (unsigned i = 0; i < STATES; i++)
		TAILQ_INIT(&q->lists[i]);
	pthread_mutex_lock(&t->lock);
	q->number = ++t->last_queue;
	pthread_mutex_unlock(&t->lock);
	r = ask_queue(q);
	if (r >= 0)
		r = make_fds(q);
	if (r < 0) {
		free_queue(q);
		return r;
	}
	pthread_mutex_lock(&t->lock);
	TAILQ_INSERT_TAIL(&t->queues, q, entry);
	pthread_mutex_unlock(&t->lock);
	*ret = q;
	return 0;
}

/* In a child nothing is told anybody, and the lock may be held for ever. */
static void free_in_child(struct tally_queue *q)
{
	for (uint32_t i = 0; i < q->n_slots; i++)
		if (q->slots[i])
			free_request(q->slots[i]);
	free_queue(q);
}

/* The daemon notices by the socket; the engine of this process is told of each. */
static void cancel_all(struct tally_queue *q, struct requests *off)
{
	struct tally *t = q->tally;

	for (enum state s = 0; s < DONE; s++)
		while (has(q, s) && s != CANCELLED) {
			struct tally_request *r = TAILQ_FIRST(&q->lists[s]);

			if (drop(r))
				TAILQ_INSERT_TAIL(off, r, entry);
		}
	while (t->embedded && has(q, CANCELLED)) {
		pump(q, off);
		pthread_mutex_unlock(&t->lock);
		sched_yield();
		pthread_mutex_lock(&t->lock);
	}
	while (has(q, CANCELLED)) {
		struct tally_request *r = TAILQ_FIRST(&q->lists[CANCELLED]);

		take_out(r);
		TAILQ_INSERT_TAIL(off, r, entry);
	}
}

_public_ struct tally_queue *tally_queue_free(struct tally_queue *q)
{
	NO_CANCELLATION;
	struct requests off = TAILQ_HEAD_INITIALIZER(off), done = TAILQ_HEAD_INITIALIZER(done);
	struct tally_request *r;
	struct tally *t;

	if (!q)
		return NULL;
	t = q->tally;
	if (client_check(t) == -ECHILD) {
		free_in_child(q);
		return NULL;
	}
	pthread_mutex_lock(&t->lock);
	cancel_all(q, &off);
	while ((r = TAILQ_FIRST(&q->lists[DONE]))) {
		take_out(r);
		TAILQ_INSERT_TAIL(&done, r, entry);
	}
	TAILQ_REMOVE(&t->queues, q, entry);
	pthread_mutex_unlock(&t->lock);
	free_all(&off);
	TAILQ_FOREACH (r, &done, entry)
		if (r->result == 0)
			tally_uncharge_item(r->pool, r->item, r->bytes);
	free_all(&done);
	free_queue(q);
	return NULL;
}
