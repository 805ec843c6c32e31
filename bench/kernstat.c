/* SPDX-License-Identifier: MIT */

#include "kernstat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench.h"
#include "core/util.h"
#include "guard.h"

#define TEXT_MAX 16384
#define PATH_BYTES (KERNSTAT_DIR + 32)

/* ------------------------------------------------------------------ where */

static const char *const roots[] = {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"};

/* The second hierarchy has memory for a group's children only where it was asked to. */
static bool enable_memory(const char *dir)
{
	_cleanup_(close_fdp) int fd = -1;
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", dir);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT;
	return write(fd, "+memory", strlen("+memory")) > 0;
}

static bool has_stat(const char *dir)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/memory.stat", dir);
	return access(path, R_OK) == 0;
}

static bool make_dir(struct kernstat *k)
{
	for (unsigned i = 0; i < ELEMENTS(roots); i++) {
		snprintf(k->dir, sizeof(k->dir), "%s/tally-bench-%d", roots[i], (int)getpid());
		if (mkdir(k->dir, 0700) < 0)
			continue;
		if (has_stat(k->dir) && enable_memory(k->dir))
			return true;
		rmdir(k->dir);
	}
	return false;
}

/* ------------------------------------------------------------------ making and removing */

static int open_stat(const struct kernstat *k, unsigned i)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/%u/memory.stat", k->dir, i);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static bool make_group(const struct kernstat *k, unsigned i)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/%u", k->dir, i);
	return mkdir(path, 0700) == 0;
}

/* Whatever is there by now: the process may have ended while it made them. */
static void remove_groups(void *arg)
{
	const struct kernstat *k = arg;
	DIR *dir = opendir(k->dir);
	const struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
	if (dir)
		closedir(dir);
	rmdir(k->dir);
}

static void give_up(struct kernstat *k, const char *what, int error)
{
	if (asprintf(&k->reason, "%s: %s", what, strerror(error)) < 0)
		bench_die("out of memory");
}

void kernstat_make(struct kernstat *k, unsigned n)
{
	*k = (struct kernstat){.n = 0};
	if (n == 0 || !make_dir(k)) {
		give_up(k, "no memory cgroups were made", n == 0 ? EINVAL : errno);
		return;
	}
	guard_run_at_end(remove_groups, k);
	k->fds = bench_allocate(n, sizeof(*k->fds));
	for (; k->n < n && !k->reason; k->n++) {
		k->fds[k->n] = make_group(k, k->n) ? open_stat(k, k->n) : -1;
		if (k->fds[k->n] < 0)
			give_up(k, "a cgroup", errno);
	}
}

void kernstat_remove(struct kernstat *k)
{
	for (unsigned i = 0; i < k->n; i++)
		close_fd(k->fds[i]);
	if (k->fds)
		remove_groups(k);
	free(k->fds);
	free(k->reason);
}

/* ------------------------------------------------------------------ reading */

void kernstat_read(const struct kernstat *k, unsigned i)
{
	char text[TEXT_MAX];

	if (pread(k->fds[i], text, sizeof(text), 0) <= 0)
		bench_die("cannot read memory.stat of a cgroup: %s", strerror(errno));
}

void kernstat_open_and_read(const struct kernstat *k, unsigned i)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/%u/memory.stat", k->dir, i);
	kernstat_read_file(path);
}

void kernstat_read_file(const char *path)
{
	char text[TEXT_MAX];
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, text, sizeof(text)) <= 0)
		bench_die("cannot read %s: %s", path, strerror(errno));
	close(fd);
}
