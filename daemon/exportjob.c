/* SPDX-License-Identifier: MIT */

#include "exportjob.h"

#include <errno.h>

#include "files.h"

/* FNV-1a; every daemon begins elsewhere. */
static uint64_t hash_of(const struct manager *m, const char *text)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ m->generation;

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return hash;
}

static int add_text(struct manager *m, struct pool *p, struct exporter_job *j, size_t i)
{
	const char *name = m->conf->export_files[i];
	uint64_t hash;
	char *text;
	int r = files_read(m, p, name, &text);

	if (r < 0)
		return r;
	hash = hash_of(m, text);
	if (j->known && hash == p->export.hashes[i]) {
		free(text);
		return 0;
	}
	p->export.hashes[i] = hash;
	return exporter_job_add(j, name, text);
}

static int add_texts(struct manager *m, struct pool *p, struct exporter_job *j)
{
	size_t n = m->conf->n_export_files;
	int r = 0;

	j->known = p->export.hashes;
	if (!j->known)
		p->export.hashes = calloc(n, sizeof(*p->export.hashes));
	if (!p->export.hashes)
		return -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++)
		r = add_text(m, p, j, i);
	return r;
}

static size_t count_levels(const struct pool *p)
{
	size_t n = 0;

	for (; p; p = p->parent)
		n++;
	return n;
}

static void add_access(struct exporter_job *j, const struct pool *p, size_t n)
{
	for (; p; p = p->parent)
		j->access[--n] = (struct exportfile_access){
			.gid = p->gid, .group = p->mode & 0040, .others = p->mode & 0004};
}

int exportjob_make(struct manager *m, struct pool *p, struct exporter_job **ret_job)
{
	char path[PATH_MAX_BYTES + 1];
	size_t n = count_levels(p);
	struct exporter_job *j =
		exporter_job_new(pool_path_into(p, path, sizeof(path)), m->conf->n_export_files, n);
	int r = j ? add_texts(m, p, j) : -ENOMEM;

	if (r < 0) {
		exporter_job_free(j);
		return r;
	}
	if (j->n_files > 0)
		add_access(j, p, n);
	*ret_job = j->n_files > 0 ? j : exporter_job_free(j);
	return 0;
}

void exportjob_forget(struct pool *p)
{
	free(take_ptr(p->export.hashes));
}
