/* SPDX-License-Identifier: MIT */

#include "manager.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "access.h"
#include "attachment.h"
#include "conf/cpus.h"
#include "conf/nodes.h"
#include "core/refusal.h"
#include "core/watch.h"
#include "decay.h"
#include "drain.h"
#include "export.h"
#include "flush.h"
#include "giveback.h"
#include "kernel.h"
#include "log.h"
#include "loglimit.h"
#include "owner.h"
#include "queue.h"
#include "reclaim.h"
#include "reload.h"
#include "row.h"
#include "rundir.h"
#include "server.h"
#include "session.h"
#include "throttle.h"
#include "turn.h"
#include "user.h"
#include "watch.h"

uint64_t manager_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Before anything is made in it. */
static int check_socket_path(const struct manager *m)
{
	size_t longest = sizeof(((struct sockaddr_un *)0)->sun_path) - sizeof("/" SERVER_SOCKET);

	if (strlen(m->runtime_dir) <= longest)
		return 0;
	log_error("%s: too long for the path of a socket; name one of at most %zu bytes with "
		  "--runtime-dir",
		m->runtime_dir, longest);
	return -ENAMETOOLONG;
}

static int load_conf(struct manager *m)
{
	_cleanup_(freep) char *error = NULL;
	int r = conf_load(m->config, "", &m->conf, &error);

	if (r < 0)
		log_error("%s", error ? error : strerror(-r));
	return r < 0 ? -EINVAL : 0;
}

static int open_ledger(struct manager *m)
{
	uint64_t cleared = 0;
	int r = ledger_open(m->rundir->state_fd, "ledger", m->generation, &m->ledger, &cleared);

	if (r < 0) {
		log_error("%s/state/ledger: %s", m->runtime_dir, strerror(-r));
		return r;
	}
	if (cleared > 0)
		log_warning("%s/state/ledger: cleared; %" PRIu64
			    " rows of clients of an earlier tallyd "
			    "are dropped, and those clients get ENOTCONN at their next miss",
			m->runtime_dir, cleared);
	return 0;
}

/*
 * Sequences, where this process has them and this kernel aborts them whenever it should; else
 * atomics. Before there is a second thread.
 */
static int choose_kind(struct manager *m)
{
	const char *text = getenv("TALLY_PERCPU");
	uint32_t wanted;
	int r;

	if (percpu_parse_kind(text, &wanted) < 0) {
		log_error("TALLY_PERCPU is \"%s\"; it may be \"atomic\" or \"rseq\"", text);
		return -EINVAL;
	}
	m->kind = PERCPU_ATOMIC;
	if (wanted == PERCPU_ATOMIC)
		return 0;
	r = percpu_has_rseq() ? kernel_aborts_sequences() : -EOPNOTSUPP;
	if (r > 0)
		m->kind = PERCPU_RSEQ;
	else if (wanted == PERCPU_RSEQ) {
		log_error("TALLY_PERCPU is \"rseq\", and restartable sequences cannot be used: %s",
			r == 0 ? "this kernel does not abort them on every preemption"
			       : strerror(-r));
		return -EINVAL;
	} else if (r != -EOPNOTSUPP)
		log_warning("charges use atomics, which is slower: %s",
			r == 0 ? "this kernel does not abort restartable sequences on every "
				 "preemption"
			       : "whether this kernel aborts restartable sequences could not be "
				 "tried");
	return 0;
}

static int fail(struct manager *m, const char *what, int r)
{
	log_error("%s: %s: %s", m->runtime_dir, what, strerror(-r));
	return r;
}

static int load_nodes(struct manager *m)
{
	_cleanup_(freep) char *error = NULL;
	int r = nodes_load("", &m->n_nodes, &m->node_of_cpu, &error);

	if (r < 0)
		log_error("%s", error ? error : strerror(-r));
	return r;
}

static void init_rstats(struct manager *m)
{
	rstat_host_init(&m->rstats, m->tree);
	m->rstats.node_of_cpu = m->node_of_cpu;
	m->rstats.read = row_read;
	m->rstats.find = session_find_stat;
	m->rstats.taken = session_read_taken;
	m->rstats.each = attachment_each_stat;
}

static void on_event(struct pool *p, enum pool_event e)
{
	struct manager *m = p->tree->userdata;

	watch_event(p, e);
	export_hurry(m->export, p);
}

static void on_drop(struct pool *p)
{
	owner_forget(p);
	watch_removed(p);
}

static int build(struct manager *m, int *listen_fd)
{
	int r = load_conf(m);

	if (r < 0)
		return r;
	r = choose_kind(m);
	if (r < 0)
		return r;
	r = load_nodes(m);
	if (r < 0)
		return r;
	r = check_socket_path(m);
	if (r < 0)
		return r;
	r = rundir_open(m->runtime_dir, &m->rundir);
	if (r < 0)
		return r;
	if (getrandom(&m->generation, sizeof(m->generation), 0) != sizeof(m->generation))
		return fail(m, "no random numbers", -errno);
	r = refusals_new(REFUSALS_BYTES, &m->refusals);
	if (r < 0)
		return fail(m, "the records of refusals", r);
	r = pool_tree_new(&m->items, &m->tree);
	if (r < 0)
		return fail(m, "the tree of pools", r);
	m->tree->refusals = m->refusals;
	m->tree->sum_granted = attachment_sum_granted;
	m->tree->now = manager_now;
	m->tree->on_drop = on_drop;
	m->tree->n_nodes = m->n_nodes;
	m->tree->on_event = on_event;
	m->tree->userdata = m;
	init_rstats(m);
	loglimit_open(m->loop);
	r = users_new(&m->users);
	if (r < 0)
		return fail(m, "the accounts of users", r);
	users_configure(m->users, m->conf);
	access_configure(m, m->conf);
	r = reload_apply_first(m);
	if (r < 0)
		return r;
	r = open_ledger(m);
	if (r < 0)
		return r;
	r = drain_new(m, &m->drain);
	if (r < 0)
		return fail(m, "the drainer", r);
	r = reclaims_new(m, &m->reclaims);
	if (r < 0)
		return fail(m, "reclaim", r);
	r = givebacks_new(m, &m->givebacks);
	if (r < 0)
		return fail(m, "reclaim", r);
	r = decay_new(m, &m->decay);
	if (r < 0)
		return fail(m, "decay", r);
	r = queues_new(m, &m->queues);
	if (r < 0)
		return fail(m, "the queues", r);
	r = watches_new(m, &m->watches);
	if (r < 0)
		return fail(m, "watches", r);
	r = throttle_new(m, &m->throttle);
	if (r < 0)
		return fail(m, "delays", r);
	r = turns_new(m, &m->turns);
	if (r < 0)
		return fail(m, "the places in line", r);
	r = export_new(m, &m->export);
	if (r < 0)
		return fail(m, "exported files of an earlier tallyd cannot be removed", r);
	r = flush_new(m, &m->flush);
	if (r < 0)
		return fail(m, "the periodic flush", r);
	r = server_new(m, take_fd(listen_fd), &m->server);
	if (r < 0)
		return fail(m, SERVER_SOCKET " cannot be made", r);
	export_run(m->export);
	return 0;
}

int manager_new(uv_loop_t *loop, const struct manager_options *o, struct manager **ret)
{
	_cleanup_(close_fdp) int listen_fd = o->listen_fd;
	struct manager *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	m->loop = loop;
	m->started_usec = manager_now();
	m->n_cpus = cpus_possible();
	TAILQ_INIT(&m->sessions);
	m->config = o->config ? strdup(o->config) : NULL;
	m->runtime_dir = strdup(o->runtime_dir);
	r = m->runtime_dir && (m->config || !o->config) ? build(m, &listen_fd) : -ENOMEM;
	if (r < 0) {
		manager_stop(m);
		uv_run(loop, UV_RUN_DEFAULT);
		manager_free(m);
		return r;
	}
	*ret = m;
	return 0;
}

void manager_stop(struct manager *m)
{
	struct session *s;

	if (m->stopping)
		return;
	m->stopping = true;
	m->server = server_free(m->server);
	while ((s = TAILQ_FIRST(&m->sessions)))
		session_end(s, "tallyd stops");
	loglimit_close();
	m->decay = decay_free(m->decay);
	m->givebacks = givebacks_free(m->givebacks);
	m->reclaims = reclaims_free(m->reclaims);
	m->drain = drain_free(m->drain);
	m->queues = queues_free(m->queues);
	m->throttle = throttle_free(m->throttle);
	m->turns = turns_free(m->turns);
	m->flush = flush_free(m->flush);
	m->watches = watches_free(m->watches);
	m->export = export_free(m->export);
}

struct manager *manager_free(struct manager *m)
{
	if (!m)
		return NULL;
	m->ledger = ledger_close(m->ledger);
	m->tree = pool_tree_free(m->tree);
	m->users = users_free(m->users);
	m->refusals = refusals_free(m->refusals);
	item_table_clear(&m->items);
	m->conf = conf_free(m->conf);
	m->rundir = rundir_close(m->rundir);
	free(m->node_of_cpu);
	free(m->reload_text);
	free(m->config);
	free(m->runtime_dir);
	free(m);
	return NULL;
}
