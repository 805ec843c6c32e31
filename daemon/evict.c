/* SPDX-License-Identifier: MIT */

#include "evict.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "access.h"
#include "attachment.h"
#include "core/value.h"
#include "log.h"
#include "loglimit.h"
#include "packet.h"

struct wanted {
	bool by_pid, by_number; /* what `n` may be */
	uint64_t n;
	const struct pool *below;
};

static int parse(const char *text, struct wanted *ret)
{
	static const char pid[] = "pid=", session[] = "session=";

	text += strspn(text, " \t\n");
	ret->by_pid = ret->by_number = true;
	if (strncmp(text, pid, strlen(pid)) == 0) {
		ret->by_number = false;
		text += strlen(pid);
	} else if (strncmp(text, session, strlen(session)) == 0) {
		ret->by_pid = false;
		text += strlen(session);
	}
	return value_parse_number(text, &ret->n) < 0 ? -EINVAL : 0;
}

static bool has_pid(const struct wanted *w, const struct session *s)
{
	return w->by_pid && (uint64_t)s->pid == w->n;
}

static bool has_number(const struct wanted *w, const struct session *s)
{
	return w->by_number && s->number == w->n;
}

static bool is_attached(const struct session *s, const struct pool *below)
{
	const struct attachment *a;

	TAILQ_FOREACH (a, &s->attachments, entry)
		if (a->pool && pool_is_below(a->pool, below))
			return true;
	return !below->parent;
}

static bool is_wanted(const struct wanted *w, const struct session *s)
{
	return s->state != SESSION_NEW && (has_pid(w, s) || has_number(w, s)) &&
		is_attached(s, w->below);
}

static int check(const struct session *by, const struct session *s)
{
	const struct attachment *a;
	bool attached = false;

	TAILQ_FOREACH (a, &s->attachments, entry) {
		int r = a->pool ? access_check(by, a->pool, ACCESS_EVICT) : 0;

		if (r < 0)
			return r;
		attached = attached || a->pool;
	}
	return attached || s->uid == by->uid || access_is_admin(by) ? 0 : -EPERM;
}

/* 0: every session that is wanted may be ended, and there is one. */
static int check_all(const struct session *by, const struct wanted *w)
{
	bool pids = false, others = false;
	const struct session *s;

	TAILQ_FOREACH (s, &by->manager->sessions, entry) {
		int r;

		if (!is_wanted(w, s))
			continue;
		r = check(by, s);
		if (r < 0)
			return r;
		pids = pids || has_pid(w, s);
		others = others || !has_pid(w, s);
	}
	if (pids && others)
		return -ENOTUNIQ;
	return pids || others ? 0 : -ESRCH;
}

static void end(struct session *s, const struct session *by)
{
	if (loglimit_allows(by->uid))
		log_info("session %" PRIu64
			 " of pid %d (%s), uid %u, is evicted by pid %d (%s), uid %u",
			s->number, (int)s->pid, s->name, (unsigned)s->uid, (int)by->pid, by->name,
			(unsigned)by->uid);
	session_end(s, "it was evicted");
}

int evict(struct session *by, uint64_t cookie, struct pool *below, const char *value)
{
	struct wanted w = {.below = below};
	struct session *s, *next;
	int r = parse(value, &w);

	if (r == 0)
		r = check_all(by, &w);
	if (r < 0)
		return r;
	for (s = TAILQ_FIRST(&by->manager->sessions); s; s = next) {
		next = TAILQ_NEXT(s, entry);
		if (s != by && is_wanted(&w, s))
			end(s, by);
	}
	/* It hears of it, itself too. */
	packet_send_done(by, cookie, 0);
	if (is_wanted(&w, by))
		end(by, by);
	return 0;
}
