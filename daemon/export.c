/* SPDX-License-Identifier: MIT */

#include "export.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "files.h"
#include "log.h"
#include "rundir.h"

#define EXPORT_DIR "pools"
#define TEMPORARY ".%s.new"

/* A file to write, or (text NULL) a directory to remove with all that is in it. */
struct job {
	STAILQ_ENTRY(job) entry;
	char *dir; /* of the pool, below the runtime directory */
	char *file, *text;
	bool again; /* the pool has files already */
};

STAILQ_HEAD(job_list, job);

struct export
{
	struct manager *manager;
	uv_work_t work;
	struct job_list next;    /* to be handed over */
	struct job_list running; /* in the thread */
	bool busy, freeing;
	bool failing, too_many_logged, unfit_logged, lost;
	bool vanished; /* in the thread's last run */
	int error;     /* of that */
	char *error_path;
	uint64_t written;
};

static void free_job(struct job *j)
{
	free(j->dir);
	free(j->file);
	free(j->text);
	free(j);
}

static void free_jobs(struct job_list *list)
{
	struct job *j;

	while ((j = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, entry);
		free_job(j);
	}
}

/* ------------------------------------------------------------------ in the thread */

static int make_dirs(char *path)
{
	for (char *p = strchr(path + 1, '/');; p = strchr(p + 1, '/')) {
		int r;

		if (p)
			*p = '\0';
		r = mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0;
		if (p)
			*p = '/';
		if (r < 0 || !p)
			return r;
	}
}

static int write_all(int fd, const char *text)
{
	size_t n = strlen(text);

	while (n > 0) {
		ssize_t w = write(fd, text, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return -errno;
		text += w;
		n -= (size_t)w;
	}
	return 0;
}

/* *ret_vanished: the directory was there, and has been taken away. */
static int write_file(const struct job *j, bool *ret_vanished)
{
	_cleanup_(freep) char *path = NULL, *temporary = NULL;
	_cleanup_(close_fdp) int fd = -1;
	int r;

	if (asprintf(&path, "%s/%s", j->dir, j->file) < 0 ||
		asprintf(&temporary, "%s/" TEMPORARY, j->dir, j->file) < 0)
		return -ENOMEM;
	fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0 && errno == ENOENT) {
		*ret_vanished = *ret_vanished || j->again;
		r = make_dirs(j->dir);
		if (r < 0)
			return r;
		fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	}
	if (fd < 0)
		return -errno;
	r = write_all(fd, j->text);
	if (r == 0 && rename(temporary, path) < 0)
		r = -errno;
	if (r < 0)
		unlink(temporary);
	return r;
}

/* "memory.stat" and the like, or the temporary name of one. */
static bool is_exported_name(const char *name)
{
	static const char *const families[] = {"memory.", "cgroup.", "pool.", "stat."};

	if (name[0] == '.')
		name++;
	for (size_t i = 0; i < ELEMENTS(families); i++)
		if (strncmp(name, families[i], strlen(families[i])) == 0)
			return true;
	return false;
}

/* Only what an exporter can have put there: nobody else's files, and no directory that holds any. */
static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	const char *name = path + ftw->base;

	(void)st;
	if (type == FTW_DP)
		return rmdir(path) < 0 && errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST
			? errno
			: 0;
	if (type != FTW_F || !is_exported_name(name))
		return 0;
	return unlink(path) < 0 && errno != ENOENT ? errno : 0;
}

static int remove_tree(const char *dir)
{
	int r = nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);

	if (r < 0)
		return errno == ENOENT ? 0 : -errno;
	return -r;
}

static void in_thread(uv_work_t *work)
{
	struct export *e = work->data;
	struct job *j;

	STAILQ_FOREACH(j, &e->running, entry)
	{
		int r = j->text ? write_file(j, &e->vanished) : remove_tree(j->dir);

		if (r == 0) {
			e->written += j->text != NULL;
		} else if (e->error == 0) {
			e->error = r;
			e->error_path = strdup(j->dir);
		}
	}
}

/* ------------------------------------------------------------------ in the loop */

static void hand_over(struct export *e);

static void on_done(uv_work_t *work, int status)
{
	struct export *e = work->data;

	(void)status;
	e->busy = false;
	e->manager->stats.exports += e->written;
	e->written = 0;
	free_jobs(&e->running);
	if (e->error != 0 && !e->failing)
		log_error(
			"cannot export to %s: %s; serving goes on, and it is tried again at every "
			"flush",
			e->error_path ? e->error_path : EXPORT_DIR, strerror(-e->error));
	if (e->error == 0 && e->failing && !e->freeing)
		log_info("exporting works again");
	e->failing = e->error != 0;
	if (e->failing || e->vanished)
		/* Nothing is known about what is there: at the next run everything is written. */
		for (struct pool *p = e->manager->tree->root; p;
			p = pool_next_preorder(p, e->manager->tree->root))
			p->exported_version = p->exported_version ? UINT64_MAX : 0;
	e->vanished = false;
	e->error = 0;
	free(take_ptr(e->error_path));
	if (!e->failing || e->freeing)
		hand_over(e);
	if (e->freeing && !e->busy)
		free(e);
}

static void hand_over(struct export *e)
{
	if (e->busy || STAILQ_EMPTY(&e->next))
		return;
	STAILQ_CONCAT(&e->running, &e->next);
	e->busy = uv_queue_work(e->manager->loop, &e->work, in_thread, on_done) == 0;
}

static char *dir_of(const struct export *e, const struct pool *p)
{
	_cleanup_(freep) char *path = pool_path(p);
	char *dir;

	if (!path ||
		asprintf(&dir, "%s/" EXPORT_DIR "%s", e->manager->runtime_dir,
			p->parent ? path : "") < 0)
		return NULL;
	return dir;
}

static int add_job(struct export *e, const struct pool *p, const char *file, char *text)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j) {
		free(text);
		return -ENOMEM;
	}
	j->text = text;
	j->again = p->exported_version != 0;
	j->dir = dir_of(e, p);
	j->file = file ? strdup(file) : NULL;
	if (!j->dir || (file && !j->file)) {
		free_job(j);
		return -ENOMEM;
	}
	STAILQ_INSERT_TAIL(&e->next, j, entry);
	return 0;
}

static bool is_wanted(const struct conf *c, const struct pool *p)
{
	char path[PATH_MAX_BYTES + 1];

	pool_path_into(p, path, sizeof(path));
	for (size_t i = 0; i < c->n_export; i++)
		if (fnmatch(c->export[i], path, 0) == 0)
			return true;
	return false;
}

/* A pool whose directory would have the name of its parent's file, or no name that the file system
 * takes, has none. */
static bool is_fit(struct export *e, const struct pool *p)
{
	const struct conf *c = e->manager->conf;
	_cleanup_(freep) char *dir = dir_of(e, p);
	bool fit = dir && strlen(dir) + ITEM_NAME_MAX + 64 < PATH_MAX;

	for (; fit && p->parent; p = p->parent)
		for (size_t i = 0; fit && i < c->n_export_files; i++) {
			char temporary[ITEM_NAME_MAX + 64];

			snprintf(temporary, sizeof(temporary), TEMPORARY, c->export_files[i]);
			fit = strcmp(p->name, c->export_files[i]) != 0 &&
				strcmp(p->name, temporary) != 0;
		}
	if (!fit && !e->unfit_logged) {
		log_warning("not exported: a pool whose name is that of an exported file, or whose "
			    "path "
			    "is too long for a file (%s)",
			dir ? dir : "no memory");
		e->unfit_logged = true;
	}
	return fit;
}

static int export_pool(struct export *e, struct pool *p)
{
	const struct conf *c = e->manager->conf;

	for (size_t i = 0; i < c->n_export_files; i++) {
		char *text;
		int r = files_read(e->manager, p, c->export_files[i], &text);

		if (r == 0)
			r = add_job(e, p, c->export_files[i], text);
		if (r < 0)
			return r;
	}
	p->exported_version = p->version;
	return 0;
}

/* Whose directory it is by now is not known: nothing is written there, and nothing removed. */
static bool is_lost(struct export *e)
{
	bool lost = !rundir_is_ours(e->manager->rundir);

	if (lost && !e->lost)
		log_error("%s: was removed or replaced while tallyd runs; nothing is exported any "
			  "more: restart tallyd",
			e->manager->runtime_dir);
	e->lost = lost;
	return lost;
}

void export_run(struct export *e)
{
	struct manager *m = e->manager;
	struct pool *root = m->tree->root;
	uint32_t room = m->conf->export_max;

	if (e->busy || m->conf->n_export == 0 || is_lost(e))
		return;
	for (struct pool *p = root; p; p = pool_next_preorder(p, root)) {
		if (!is_wanted(m->conf, p) || !is_fit(e, p))
			continue;
		if (room == 0) {
			if (!e->too_many_logged)
				log_warning("more than export_max = %" PRIu32
					    " pools match `export`; the others are not written",
					m->conf->export_max);
			e->too_many_logged = true;
			break;
		}
		room--;
		if (p->exported_version != p->version && export_pool(e, p) < 0)
			break;
	}
	hand_over(e);
}

void export_forget(struct export *e, struct pool *p)
{
	if (p->exported_version == 0)
		return;
	p->exported_version = 0;
	add_job(e, p, NULL, NULL);
	hand_over(e);
}

void export_reconfigure(struct export *e)
{
	struct pool *root = e->manager->tree->root;

	e->too_many_logged = false;
	add_job(e, root, NULL, NULL);
	for (struct pool *p = root; p; p = pool_next_preorder(p, root))
		p->exported_version = 0;
	export_run(e);
	hand_over(e);
}

int export_new(struct manager *m, struct export **ret)
{
	_cleanup_(freep) struct export *e = calloc(1, sizeof(*e));
	_cleanup_(freep) char *dir = NULL;
	int r;

	if (!e)
		return -ENOMEM;
	e->manager = m;
	e->work.data = e;
	STAILQ_INIT(&e->next);
	STAILQ_INIT(&e->running);
	dir = dir_of(e, m->tree->root);
	if (!dir)
		return -ENOMEM;
	r = remove_tree(dir);
	if (r < 0)
		return r;
	*ret = take_ptr(e);
	return 0;
}

struct export *export_free(struct export *e)
{
	if (!e)
		return NULL;
	free_jobs(&e->next);
	e->freeing = true;
	if (!is_lost(e))
		add_job(e, e->manager->tree->root, NULL, NULL);
	if (!e->busy)
		hand_over(e);
	if (!e->busy)
		free(e);
	return NULL;
}
