/* SPDX-License-Identifier: MIT */

#include "rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "core/util.h"
#include "log.h"

#define LOCK "state/lock"

static int fail(const struct rundir *r, int error, const char *what)
{
	log_error("%s: %s%s%s; name another with --runtime-dir", r->path, what, error ? ": " : "",
		error ? strerror(error) : "");
	return error ? -error : -EPERM;
}

static int open_dir(struct rundir *r)
{
	struct stat st;

	if (mkdir(r->path, 0755) < 0 && errno != EEXIST)
		return fail(r, errno,
			errno == ENOENT ? "cannot be made, its parent is missing"
					: "cannot be made");
	r->fd = open(r->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r->fd < 0 || fstat(r->fd, &st) < 0)
		return fail(r, errno, "cannot be opened");
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return fail(r, 0, "it belongs to another user");
	if (st.st_mode & 022)
		return fail(r, 0, "others than its owner may write to it");
	return 0;
}

static bool is_empty_dir(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	bool empty = true;
	struct dirent *e;

	if (!dir) {
		close_fd(fd);
		return false;
	}
	while ((e = readdir(dir)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			empty = false;
	closedir(dir);
	return empty;
}

/* What may be there before the first start: a socket of the service manager's, or an empty `state`. */
static bool may_be_there(int at, const char *name)
{
	struct stat st;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return true;
	if (strcmp(name, "tallyd.sock") == 0)
		return fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode);
	return strcmp(name, "state") == 0 && is_empty_dir(at, name);
}

/* A directory without our lock must hold nothing that is not ours to replace. */
static int check_mark(struct rundir *r)
{
	_cleanup_(freep) char *what = NULL;
	struct dirent *e;
	struct stat st;
	DIR *dir;
	int fd;

	if (fstatat(r->fd, LOCK, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	fd = openat(r->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		close_fd(fd);
		return fail(r, errno, "cannot be read");
	}
	while (!what && (e = readdir(dir)))
		if (!may_be_there(r->fd, e->d_name))
			what = strdup(e->d_name);
	closedir(dir);
	if (!what)
		return 0;
	log_error(
		"%s: holds '%s', and is not a directory of tallyd's; nothing was touched: name an "
		"empty one with --runtime-dir",
		r->path, what);
	return -EEXIST;
}

static int open_state(struct rundir *r)
{
	struct stat st;

	if (mkdirat(r->fd, "state", 0700) < 0 && errno != EEXIST)
		return fail(r, errno, "state/ cannot be made");
	r->state_fd = openat(r->fd, "state", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (r->state_fd < 0 || fstat(r->state_fd, &st) < 0)
		return fail(r, errno, "state/ cannot be opened");
	if (st.st_uid != geteuid())
		return fail(r, 0, "state/ belongs to another user");
	if (fchmod(r->state_fd, 0700) < 0)
		return fail(r, errno, "state/ cannot be made private");
	return 0;
}

static int lock(struct rundir *r)
{
	r->lock_fd = openat(r->state_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (r->lock_fd < 0)
		return fail(r, errno, LOCK " cannot be opened");
	if (flock(r->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno != EWOULDBLOCK)
		return fail(r, errno, LOCK " cannot be locked");
	log_error("%s: another tallyd owns this directory; stop it, or name another with "
		  "--runtime-dir",
		r->path);
	return -EALREADY;
}

int rundir_open(const char *path, struct rundir **ret)
{
	struct rundir *r = calloc(1, sizeof(*r));
	int e;

	if (!r)
		return -ENOMEM;
	r->fd = r->state_fd = r->lock_fd = -1;
	r->path = strdup(path);
	e = r->path ? open_dir(r) : -ENOMEM;
	if (e == 0)
		e = check_mark(r);
	if (e == 0)
		e = open_state(r);
	if (e == 0)
		e = lock(r);
	if (e < 0) {
		rundir_close(r);
		return e;
	}
	*ret = r;
	return 0;
}

struct rundir *rundir_close(struct rundir *r)
{
	if (!r)
		return NULL;
	close_fd(r->lock_fd);
	close_fd(r->state_fd);
	close_fd(r->fd);
	free(r->path);
	free(r);
	return NULL;
}

bool rundir_is_ours(const struct rundir *r)
{
	_cleanup_(close_fdp) int fd = open(r->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat ours, there;

	return fd >= 0 && fstat(r->lock_fd, &ours) == 0 &&
		fstatat(fd, LOCK, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
		ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}
