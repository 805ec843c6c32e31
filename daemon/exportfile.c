/* SPDX-License-Identifier: MIT */

#include "exportfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>

#include "core/util.h"

#define TEMPORARY_PREFIX "."
#define TEMPORARY_SUFFIX ".new"

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

bool exportfile_uses_name(const char *file, const char *name)
{
	size_t n = strlen(file), prefix = strlen(TEMPORARY_PREFIX);

	if (strcmp(file, name) == 0)
		return true;
	return strncmp(name, TEMPORARY_PREFIX, prefix) == 0 &&
		strncmp(name + prefix, file, n) == 0 &&
		strcmp(name + prefix + n, TEMPORARY_SUFFIX) == 0;
}

static char *dir_of(const char *dir, const char *path)
{
	char *ret;

	return asprintf(&ret, "%s%s", dir, strcmp(path, "/") == 0 ? "" : path) < 0 ? NULL : ret;
}

static int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}

/* ------------------------------------------------------------------ writing */

static int make_dirs(char *path)
{
	for (char *p = strchr(path + 1, '/');; p = strchr(p + 1, '/')) {
		int r;

		if (p)
			*p = '\0';
		r = mkdir(path, 0711) < 0 && errno != EEXIST ? -errno : 0;
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

/* The bits of who may read, above `always`. What the owner itself may do is left as it is. */
static int set_access(int fd, const struct exportfile_access *a, mode_t always)
{
	bool group = a->group, others = a->others;
	struct stat st;

	if (group != others && fchown(fd, (uid_t)-1, a->gid) < 0)
		group = others = false;
	always |= (group ? 0040U : 0) | (others ? 0004U : 0);
	if (fstat(fd, &st) == 0 && ((st.st_mode ^ always) & 0077) == 0)
		return 0;
	return fchmod(fd, always) < 0 ? -errno : 0;
}

/* From the root's directory to that of the path, which is `full` below `dir`. */
static int set_dir_access(const char *dir, const char *full, const struct exportfile_access *access)
{
	_cleanup_(freep) char *path = strdup(full);
	size_t n = strlen(dir);

	if (!path)
		return -ENOMEM;
	for (;; access++) {
		char rest = path[n];
		int fd, r;

		path[n] = '\0';
		fd = open_dir(path);
		r = fd < 0 ? fd : set_access(fd, access, 0711);
		close_fd(fd);
		if (r < 0 || rest == '\0')
			return r;
		path[n] = rest;
		n += 1 + strcspn(path + n + 1, "/");
	}
}

static int write_file(
	int dir_fd, const struct exportfile_access *access, const struct exportfile *f)
{
	_cleanup_(freep) char *temporary = NULL;
	_cleanup_(close_fdp) int fd = -1;
	int r;

	if (asprintf(&temporary, TEMPORARY_PREFIX "%s" TEMPORARY_SUFFIX, f->name) < 0)
		return -ENOMEM;
	fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	r = set_access(fd, access, 0600);
	if (r == 0)
		r = write_all(fd, f->text);
	if (r == 0 && renameat(dir_fd, temporary, dir_fd, f->name) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dir_fd, temporary, 0);
	return r;
}

static bool is_one_of(const char *name, const struct exportfile *files, size_t n_files)
{
	for (size_t i = 0; i < n_files; i++)
		if (strcmp(files[i].name, name) == 0)
			return true;
	return false;
}

/* All but these. Directories of pools that are named like files stay. */
static int remove_files(int dir_fd, const struct exportfile *but, size_t n_but)
{
	int copy = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0), r = 0;
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	if (!d) {
		r = -errno;
		close_fd(copy);
		return r;
	}
	while (errno = 0, (e = readdir(d))) {
		if ((e->d_type != DT_REG && e->d_type != DT_UNKNOWN) ||
			!is_exported_name(e->d_name) || is_one_of(e->d_name, but, n_but))
			continue;
		if (unlinkat(dir_fd, e->d_name, 0) < 0 && errno != ENOENT && errno != EISDIR)
			r = -errno;
	}
	if (errno != 0)
		r = -errno;
	closedir(d);
	return r;
}

static int write_there(const char *dir, char *path, const struct exportfile_access *access,
	const struct exportfile *files, size_t n_files, bool known, struct exportfile_result *ret)
{
	_cleanup_(close_fdp) int fd = open_dir(path);
	const struct exportfile_access *own = access;
	bool made = fd == -ENOENT;
	int r;

	if (made) {
		ret->vanished |= known;
		r = make_dirs(path);
		if (r < 0)
			return r;
		fd = open_dir(path);
	}
	if (fd < 0)
		return fd;
	r = known && !made ? 0 : set_dir_access(dir, path, access);
	if (r < 0)
		return r;
	for (const char *c = path + strlen(dir); *c; c++)
		own += *c == '/';
	for (size_t i = 0; i < n_files; i++) {
		r = write_file(fd, own, &files[i]);
		if (r < 0)
			return r;
		ret->files++;
		ret->bytes += strlen(files[i].text);
	}
	return known || made ? 0 : remove_files(fd, files, n_files);
}

int exportfile_write(const char *dir, const char *path, const struct exportfile_access *access,
	const struct exportfile *files, size_t n_files, bool known, struct exportfile_result *ret)
{
	_cleanup_(freep) char *full = dir_of(dir, path);
	int r;

	if (!full)
		return -ENOMEM;
	r = write_there(dir, full, access, files, n_files, known, ret);
	/* Taken away just now: it is made again. */
	return r == -ENOENT ? write_there(dir, full, access, files, n_files, known, ret) : r;
}

/* ------------------------------------------------------------------ removing */

static bool is_in_use(int error)
{
	return error == ENOTEMPTY || error == EEXIST || error == EBUSY;
}

int exportfile_remove(const char *dir, const char *path)
{
	_cleanup_(freep) char *full = dir_of(dir, path);
	_cleanup_(close_fdp) int fd = -1;
	int r;

	if (!full)
		return -ENOMEM;
	fd = open_dir(full);
	if (fd < 0)
		return fd == -ENOENT || fd == -ENOTDIR ? 0 : fd;
	r = remove_files(fd, NULL, 0);
	if (r < 0)
		return r;
	if (rmdir(full) < 0 && errno != ENOENT)
		return is_in_use(errno) ? 0 : -errno;
	while (strlen(full) > strlen(dir)) {
		*strrchr(full, '/') = '\0';
		if (rmdir(full) < 0)
			break;
	}
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	if (type == FTW_DP)
		return rmdir(path) < 0 && errno != ENOENT && !is_in_use(errno) ? errno : 0;
	if (type != FTW_F || !is_exported_name(path + ftw->base))
		return 0;
	return unlink(path) < 0 && errno != ENOENT ? errno : 0;
}

int exportfile_remove_all(const char *dir)
{
	int r = nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);

	if (r < 0)
		return errno == ENOENT ? 0 : -errno;
	return -r;
}
