/* SPDX-License-Identifier: MIT */

/*
 * The kernel has a directory for each node, and in it a list of CPUs ("0-3,8"). What it says is
 * believed as far as it can be read: a machine without such directories has one node. What a person
 * wrote for a test is checked.
 */

#include "nodes.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "core/util.h"
#include "cpus.h"
#include "measure.h"

#define WANTS "a line is a node and its CPUs, each once, such as 0: 0-3,8"

struct topology {
	uint32_t n_nodes, n_cpus;
	uint16_t *node_of_cpu;
	bool *known;            /* by CPU: it has a node */
	bool listed[NODES_MAX]; /* by node: it has had its line */
};

static bool take_number(const char **text, unsigned bound, unsigned *ret)
{
	const char *at = *text;
	unsigned n = 0;

	for (; *at >= '0' && *at <= '9' && n < bound; at++)
		n = n * 10 + (unsigned)(*at - '0');
	if (at == *text || n >= bound)
		return false;
	*text = at;
	*ret = n;
	return true;
}

static bool take_range(const char **list, unsigned *ret_first, unsigned *ret_last)
{
	if (!take_number(list, UINT16_MAX, ret_first))
		return false;
	*ret_last = *ret_first;
	if (**list != '-')
		return true;
	++*list;
	return take_number(list, UINT16_MAX, ret_last) && *ret_last >= *ret_first;
}

/* False: it is no list, or has a CPU that another node has. */
static bool add_cpus(struct topology *t, unsigned node, const char *list)
{
	unsigned first, last;

	while (*list) {
		if (!take_range(&list, &first, &last))
			return false;
		for (unsigned cpu = first; cpu <= last && cpu < t->n_cpus; cpu++) {
			if (t->known[cpu])
				return false;
			t->known[cpu] = true;
			t->node_of_cpu[cpu] = (uint16_t)node;
		}
		if (*list == ',' && list[1])
			list++;
		else if (*list)
			return false;
	}
	return true;
}

static void add_node(struct topology *t, unsigned node)
{
	if (node >= t->n_nodes)
		t->n_nodes = node + 1;
}

/* ------------------------------------------------------------------ from the kernel */

static void read_node(struct topology *t, const char *dir, unsigned node)
{
	_cleanup_(freep) char *path = NULL, *line = NULL;
	_cleanup_(fclosep) FILE *f = NULL;
	size_t size = 0;

	add_node(t, node);
	if (asprintf(&path, "%s/node%u/cpulist", dir, node) < 0) {
		path = NULL;
		return;
	}
	f = fopen(path, "re");
	if (!f || getline(&line, &size, f) < 0)
		return;
	line[strcspn(line, "\n")] = '\0';
	add_cpus(t, node, line);
}

static int read_kernel(struct topology *t, const char *root)
{
	_cleanup_(freep) char *dir = NULL;
	struct dirent *entry;
	DIR *d;

	if (asprintf(&dir, "%s/sys/devices/system/node", root) < 0) {
		dir = NULL;
		return -ENOMEM;
	}
	d = opendir(dir);
	while (d && (entry = readdir(d))) {
		const char *number = entry->d_name + strlen("node");
		unsigned node;

		if (strncmp(entry->d_name, "node", strlen("node")) == 0 &&
			take_number(&number, NODES_MAX, &node) && *number == '\0')
			read_node(t, dir, node);
	}
	if (d)
		closedir(d);
	return 0;
}

/* ------------------------------------------------------------------ from a file */

static bool add_line(struct topology *t, const char *line)
{
	unsigned node;

	if (!take_number(&line, NODES_MAX, &node) || *line++ != ':' || t->listed[node])
		return false;
	t->listed[node] = true;
	add_node(t, node);
	return add_cpus(t, node, line + strspn(line, " \t"));
}

static int read_lines(
	struct topology *t, FILE *f, struct measure_place *at, char **line, char **ret_error)
{
	size_t size = 0;
	ssize_t n;

	while ((n = getline(line, &size, f)) >= 0) {
		at->line++;
		while (n > 0 && strchr(" \t\n", (*line)[n - 1]))
			n--;
		(*line)[n] = '\0';
		if (strlen(*line) != (size_t)n || !add_line(t, *line))
			return measure_fail(at, ret_error, "\"%s\" is not accepted; " WANTS, *line);
	}
	if (!feof(f))
		return -errno;
	if (at->line == 0)
		return measure_fail(at, ret_error, "it names no node; " WANTS);
	return 0;
}

static int read_file(struct topology *t, const char *file, char **ret_error)
{
	_cleanup_(fclosep) FILE *f = fopen(file, "re");
	_cleanup_(freep) char *line = NULL;
	struct measure_place at = {.file = file};
	int r = f ? read_lines(t, f, &at, &line, ret_error) : -errno;

	if (r < 0 && r != -ENOMEM && !*ret_error)
		measure_fail(&at, ret_error,
			"it cannot be read: %s; TALLY_TOPOLOGY names a file, or is not set",
			strerror(-r));
	return r;
}

int nodes_load(
	const char *root, uint32_t *ret_n_nodes, uint16_t **ret_node_of_cpu, char **ret_error)
{
	const char *file = secure_getenv("TALLY_TOPOLOGY");
	struct topology t = {.n_nodes = 1, .n_cpus = cpus_possible()};
	_cleanup_(freep) uint16_t *node_of_cpu = calloc(t.n_cpus + 1, sizeof(*node_of_cpu));
	_cleanup_(freep) bool *known = calloc(t.n_cpus, sizeof(*known));
	int r;

	*ret_error = NULL;
	if (!node_of_cpu || !known)
		return -ENOMEM;
	t.node_of_cpu = node_of_cpu;
	t.known = known;
	r = file && *file ? read_file(&t, file, ret_error) : read_kernel(&t, root);
	if (r < 0)
		return r;
	*ret_n_nodes = t.n_nodes;
	*ret_node_of_cpu = take_ptr(node_of_cpu);
	return 0;
}
