/* SPDX-License-Identifier: MIT */

#include "files.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "access.h"
#include "attachment.h"
#include "core/place.h"
#include "core/statfmt.h"
#include "core/value.h"
#include "drain.h"
#include "evict.h"
#include "export.h"
#include "flush.h"
#include "giveback.h"
#include "owed.h"
#include "owner.h"
#include "packet.h"
#include "queue.h"
#include "reload.h"
#include "request.h"
#include "throttle.h"

/* ------------------------------------------------------------------ clients */

/* Blanks, '%' and what is no printable character as %XX: a line is blank-separated words. */
static void print_name(FILE *f, const char *name)
{
	for (const char *p = name; *p; p++) {
		unsigned char c = (unsigned char)*p;

		if (c <= 0x20 || c == 0x7f || c == '%')
			fprintf(f, "%%%02X", c);
		else
			fputc(c, f);
	}
}

static void print_client(FILE *f, struct attachment *a)
{
	const struct session *s = a->session;
	uint64_t held, idle;

	flush_attachment(a, &held, &idle);
	fprintf(f, "session=%" PRIu64 " name=", s->number);
	print_name(f, s->name);
	fprintf(f,
		" pid=%d uid=%u held=%" PRIu64 " idle=%" PRIu64 " refused=%" PRIu64
		" waiting=%u overdraft=%" PRIu64 " age_usec=%" PRIu64 "\n",
		(int)s->pid, (unsigned)s->uid, held, idle, a->refused, request_count(a),
		a->overdraft, manager_now() - s->since_usec);
}

static int print_clients(struct manager *m, FILE *f, struct pool *p)
{
	struct pool_member *member;

	(void)m;
	TAILQ_FOREACH (member, &p->members, entry)
		print_client(f, attachment_of(member));
	return 0;
}

static int by_pid(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return x < y ? -1 : x > y;
}

/* A process with several attachments is named once. */
static int print_procs(struct manager *m, FILE *f, struct pool *p)
{
	_cleanup_(freep) pid_t *pids = calloc(p->n_members + 1, sizeof(*pids));
	struct pool_member *member;
	size_t n = 0;

	(void)m;
	if (!pids)
		return -ENOMEM;
	TAILQ_FOREACH (member, &p->members, entry)
		pids[n++] = attachment_of(member)->session->pid;
	qsort(pids, n, sizeof(*pids), by_pid);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || pids[i] != pids[i - 1])
			fprintf(f, "%d\n", (int)pids[i]);
	return 0;
}

static int print_owner(struct manager *m, FILE *f, struct pool *p)
{
	(void)m;
	owner_print(f, p);
	return 0;
}

static int print_mode(struct manager *m, FILE *f, struct pool *p)
{
	(void)m;
	owner_print_mode(f, p);
	return 0;
}

/* ------------------------------------------------------------------ the daemon itself */

static int print_status(struct manager *m, FILE *f, struct pool *p)
{
	const struct manager_stats *s = &m->stats;

	(void)p;
	fprintf(f, "version %s\n", PACKAGE_VERSION);
	fprintf(f, "uptime_usec %" PRIu64 "\n", manager_now() - m->started_usec);
	fprintf(f, "percpu %s\n", m->kind == PERCPU_RSEQ ? "rseq" : "atomic");
	fprintf(f, "sessions %" PRIu64 "\n", m->n_sessions);
	fprintf(f, "sessions_total %" PRIu64 "\n", s->sessions_total);
	fprintf(f, "pools %" PRIu64 "\n", m->tree->n_pools);
	fprintf(f, "rows %" PRIu64 "\n", ledger_used(m->ledger));
	fprintf(f, "grants %" PRIu64 "\n", s->grants);
	fprintf(f, "refusals %" PRIu64 "\n", s->refusals);
	fprintf(f, "drains %" PRIu64 "\n", s->drains);
	fprintf(f, "drained_bytes %" PRIu64 "\n", s->drained_bytes);
	fprintf(f, "reclaims %" PRIu64 "\n", s->reclaims);
	fprintf(f, "reclaimed_bytes %" PRIu64 "\n", s->reclaimed_bytes);
	fprintf(f, "steals_missed %" PRIu64 "\n", s->steals_missed);
	fprintf(f, "rings %" PRIu64 "\n", s->rings);
	fprintf(f, "flushes %" PRIu64 "\n", s->flushes);
	fprintf(f, "reads_without_flush %" PRIu64 "\n", s->unflushed_reads);
	fprintf(f, "flushed_pools %" PRIu64 "\n", m->rstats.pools);
	fprintf(f, "flushed_keys %" PRIu64 "\n", m->rstats.keys);
	fprintf(f, "flush_usec %" PRIu64 "\n", s->flush_usec);
	fprintf(f, "flush_threshold %" PRIu64 "\n", m->tree->root->threshold);
	fprintf(f, "flush_age_usec %" PRIu64 "\n", flush_age(m->flush));
	fprintf(f, "exports %" PRIu64 "\n", s->exports);
	fprintf(f, "export_bytes %" PRIu64 "\n", s->export_bytes);
	fprintf(f, "export_errors %" PRIu64 "\n", s->export_errors);
	fprintf(f, "exported_pools %" PRIu64 "\n", s->exported_pools);
	return 0;
}

static int print_reload(struct manager *m, FILE *f, struct pool *p)
{
	(void)p;
	if (m->reload_text)
		fputs(m->reload_text, f);
	return 0;
}

/* ------------------------------------------------------------------ writing */

static int write_flush(struct session *s, uint64_t cookie, struct pool *p, const char *value)
{
	int r = flush_pool(s->manager->flush, p, true);

	(void)value;
	packet_send_done(s, cookie, r);
	return 0;
}

static int change_access(struct session *s, uint64_t cookie, struct pool *p, int r)
{
	if (r < 0)
		return r;
	export_change_access(s->manager->export, p);
	packet_send_done(s, cookie, 0);
	return 0;
}

static int write_owner(struct session *s, uint64_t cookie, struct pool *p, const char *value)
{
	return change_access(s, cookie, p, owner_set(p, value));
}

static int write_mode(struct session *s, uint64_t cookie, struct pool *p, const char *value)
{
	return change_access(s, cookie, p, owner_set_mode(p, value));
}

static void on_drained(void *userdata, uint64_t bytes)
{
	struct owed *o = userdata;

	(void)bytes;
	queue_kick(o->manager);
	owed_done(o, 0);
}

static void on_given_back(void *userdata, bool reached)
{
	struct owed *o = userdata;

	queue_kick(o->manager);
	owed_done(o, reached ? 0 : -EAGAIN);
}

static int write_reclaim(struct session *s, uint64_t cookie, struct pool *p, const char *value)
{
	struct owed *o;
	uint64_t bytes;
	int r = value_parse_bytes(value, &bytes);

	if (r >= 0)
		r = owed_new(s, cookie, &o);
	if (r < 0)
		return r;
	r = giveback_start(s->manager, p, bytes, on_given_back, o);
	if (r < 0)
		owed_free(o);
	return r;
}

static int write_drain(struct session *s, uint64_t cookie, struct pool *p, const char *value)
{
	struct itemlimit_place at = {p, 0};
	struct drain_wait *wait;
	struct owed *o;
	int r = owed_new(s, cookie, &o);

	(void)value;
	if (r < 0)
		return r;
	r = drain_start_scope(s->manager->drain, at, DRAIN_ALL, on_drained, o, &wait);
	if (r < 0)
		owed_free(o);
	return r;
}

static int write_reload(struct session *s, uint64_t cookie, struct pool *p, const char *value)
{
	static const char reset[] = "reset";
	int r;

	(void)p;
	value += strspn(value, " \t\n");
	if (strncmp(value, reset, strlen(reset)) == 0 &&
		(!value[strlen(reset)] || strchr(" \t\n", value[strlen(reset)])))
		r = reload_reset(s->manager, value + strlen(reset));
	else
		r = reload_run(s->manager);
	if (r == 0)
		packet_send_done(s, cookie, 0);
	return r;
}

/* ------------------------------------------------------------------ the table */

struct file {
	const char *name;
	bool root_only;
	bool named; /* everybody reads it: whose the pool is is told to who is refused */
	enum access_action write_needs;
	int (*print)(struct manager *m, FILE *f, struct pool *p);
	/* Answers the session itself, unless it returns an error. */
	int (*write)(struct session *s, uint64_t cookie, struct pool *p, const char *value);
};

static const struct file files[] = {
	{.name = "cgroup.procs", .print = print_procs},
	{.name = "memory.reclaim", .write = write_reclaim, .write_needs = ACCESS_OPERATE},
	{.name = "pool.clients", .print = print_clients},
	{.name = "pool.drain", .write = write_drain, .write_needs = ACCESS_OPERATE},
	/* Whom it may evict is asked of each client's pools. */
	{.name = "pool.evict", .write = evict, .write_needs = ACCESS_NAMES},
	{.name = "pool.flush", .write = write_flush, .write_needs = ACCESS_READ},
	{.name = "pool.mode",
		.named = true,
		.print = print_mode,
		.write = write_mode,
		.write_needs = ACCESS_SET_MODE},
	{.name = "pool.owner",
		.named = true,
		.print = print_owner,
		.write = write_owner,
		.write_needs = ACCESS_ADMIN},
	{.name = "tallyd.reload", .root_only = true, .print = print_reload, .write = write_reload},
	{.name = "tallyd.status", .root_only = true, .print = print_status},
};

static const struct file *find(const struct pool *p, const char *name)
{
	for (size_t i = 0; i < ELEMENTS(files); i++)
		if (strcmp(files[i].name, name) == 0 && (!files[i].root_only || !p->parent))
			return &files[i];
	return NULL;
}

int files_check_read(const struct session *s, struct pool *p, const char *name)
{
	const struct file *file = find(p, name);

	return access_check(s, p, file && file->named ? ACCESS_NAMES : ACCESS_READ);
}

int files_check_write(const struct session *s, struct pool *p, const char *name)
{
	const struct file *file = find(p, name);
	unsigned access = file ? 0 : statfmt_access(p, name);

	if (!file && access == 0)
		return -ENOENT;
	if (file ? !file->write : !(access & STATFMT_WRITE))
		return -EACCES;
	return access_check(s, p, file ? file->write_needs : ACCESS_SET);
}

int files_read(struct manager *m, struct pool *p, const char *name, char **ret_text)
{
	const struct file *file = find(p, name);
	_cleanup_(freep) char *text = NULL;
	size_t n;
	FILE *f;
	int r;

	if (!file)
		return statfmt_read(p, name, ret_text);
	if (!file->print)
		return -EACCES;
	f = open_memstream(&text, &n);
	if (!f)
		return -ENOMEM;
	r = file->print(m, f, p);
	if (ferror(f))
		r = -ENOMEM;
	if (fclose(f) != 0 || r < 0)
		return r < 0 ? r : -ENOMEM;
	*ret_text = take_ptr(text);
	return 0;
}

void files_write(
	struct session *s, uint64_t cookie, struct pool *p, const char *name, const char *value)
{
	const struct file *file = find(p, name);
	int r;

	if (file) {
		r = file->write ? file->write(s, cookie, p, value) : -EACCES;
		if (r < 0)
			packet_send_done(s, cookie, r);
		return;
	}
	r = statfmt_write(p, name, value);
	if (r == 0) {
		place_publish_pool(p, 0);
		drain_above_limits(s->manager->drain, p);
		throttle_check(s->manager, p);
		queue_kick(s->manager);
	}
	packet_send_done(s, cookie, r);
}
