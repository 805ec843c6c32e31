/* SPDX-License-Identifier: MIT */

/*
 * How long a read of a pool's figures takes where there are very many readers: the trial by which the
 * kernel's flushing of subtrees was judged (2023): 250,000 readers in 50,000 groups on 384 CPUs, each
 * reading every 100 ms, with work in the background.
 *
 * Readers are so many on a thread, the threads one a CPU. First they read at the trial's rate for each
 * CPU, each read after a sleep, so that caches are as cold as they are for a reader that comes now and
 * then; then one behind the other, as fast as it goes. Their order jumps over the tree. Latency is
 * measured around the call.
 *
 * The kernel's own memory.stat has groups where nothing happens, and fewer of them: its better case.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statfs.h>

#include "bench.h"
#include "core/util.h"
#include "readload.h"
#include "rig.h"
#include "table.h"

#define TMPFS_MAGIC 0x01021994
#define TMPFS "/dev/shm"
#define EXPORTED_BYTES 16384 /* of a pool whose memory.stat is written, with its directory */
#define EXPORT_POLL_NSEC 500000000
#define EXPORT_POLLS 12 /* in which nothing comes until there is no more to come */
#define FILE_BYTES 160

/* ------------------------------------------------------------------ the table */

enum column {
	RATE,
	P50,
	P99,
	P999,
	LONG,
	LONGEST,
};

static const struct table_column columns[] = {
	[RATE] = {"rate", "reads", "1/s"},
	[P50] = {"p50", "p50", "us"},
	[P99] = {"p99", "p99", "us"},
	[P999] = {"p99.9", "p99.9", "us"},
	[LONG] = {"over_1ms", "over 1 ms", "%"},
	[LONGEST] = {"max", "longest", "us"},
};

static double microseconds(const struct latency *l, double part)
{
	return bench_ticks_to_nsec(latency_quantile(l, part)) / 1000;
}

static void take_sample(
	struct readload *l, enum readload_pace pace, enum readload_way way, struct table_row *row)
{
	struct readload_result *result = bench_allocate(1, sizeof(*result));
	const struct latency *all = &result->latency;
	double over;

	readload_run(l, way, pace, result);
	over = (double)latency_over(all, (uint64_t)(1e6 / bench_ticks_to_nsec(1)));
	table_add(row, RATE, result->rate);
	table_add(row, P50, microseconds(all, 0.5));
	table_add(row, P99, microseconds(all, 0.99));
	table_add(row, P999, microseconds(all, 0.999));
	table_add(row, LONG, over * 100 / (double)all->n);
	table_add(row, LONGEST, microseconds(all, 1));
	free(result);
}

static void label(
	const struct readload *l, enum readload_way way, struct table *t, struct table_row **ret)
{
	static const struct {
		const char *figure, *label;
	} names[READLOAD_WAYS] = {
		[READLOAD_EMBEDDED_TEXT] = {"embedded.text", "embedded, memory.stat"},
		[READLOAD_EMBEDDED_USAGE] = {"embedded.usage", "embedded, tally_usage"},
		[READLOAD_DAEMON_TEXT] = {"daemon.text", "daemon, memory.stat"},
		[READLOAD_DAEMON_USAGE] = {"daemon.usage", "daemon, tally_usage"},
		[READLOAD_EXPORTED] = {"exported", "exported files, opened and read"},
		[READLOAD_KERNEL] = {"kernel", "the kernel's memory.stat, read"},
		[READLOAD_KERNEL_OPEN] = {"kernel_open",
			"the kernel's memory.stat, opened and read"},
	};
	unsigned n = l->grove.n;

	if (way == READLOAD_EXPORTED)
		n = l->n_files;
	if (way == READLOAD_KERNEL || way == READLOAD_KERNEL_OPEN)
		n = l->kernel.n;
	*ret = table_add_row(t, names[way].figure, "%s (%u)", names[way].label, n);
	if ((way == READLOAD_EMBEDDED_TEXT || way == READLOAD_EMBEDDED_USAGE) &&
		!l->tally[RIG_EMBEDDED])
		table_skip(*ret, "there is no embedded engine");
	if (way == READLOAD_EXPORTED && l->n_files == 0)
		table_skip(*ret, "no file was exported");
	if ((way == READLOAD_KERNEL || way == READLOAD_KERNEL_OPEN) && l->kernel.reason)
		table_skip(*ret, l->kernel.reason);
}

static void print_ratios(const char *pace, struct table_row *const rows[static READLOAD_WAYS])
{
	static const struct {
		const char *figure;
		enum readload_way a, b;
		const char *asked;
	} ratios[] = {
		{"embedded.text", READLOAD_EMBEDDED_TEXT, READLOAD_KERNEL, "at most 0.1"},
		{"daemon.text", READLOAD_DAEMON_TEXT, READLOAD_KERNEL, "at most 3"},
		{"exported", READLOAD_EXPORTED, READLOAD_KERNEL_OPEN, NULL},
		{"embedded.text.kernel_open", READLOAD_EMBEDDED_TEXT, READLOAD_KERNEL_OPEN,
			"at most 0.1"},
		{"daemon.text.kernel_open", READLOAD_DAEMON_TEXT, READLOAD_KERNEL_OPEN,
			"at most 3"},
	};

	for (unsigned i = 0; i < ELEMENTS(ratios); i++) {
		char figure[96];

		snprintf(figure, sizeof(figure), "readers.ratio.%s.%s.p50", pace, ratios[i].figure);
		table_print_ratio(
			figure, ratios[i].asked, rows[ratios[i].a], rows[ratios[i].b], P50);
	}
}

static void run_pace(struct readload *l, enum readload_pace pace)
{
	const char *name = pace == READLOAD_PACED ? "paced" : "fast";
	struct table_row *rows[READLOAD_WAYS];
	char figure[32], title[128];
	struct table t;

	snprintf(figure, sizeof(figure), "readers.%s", name);
	if (pace == READLOAD_PACED)
		snprintf(title, sizeof(title), "%u readers in turn, %llu reads a second",
			l->n_readers, (unsigned long long)l->rate * l->bench->n_cpus);
	else
		snprintf(title, sizeof(title), "%u readers in turn, as fast as it goes",
			l->n_readers);
	table_init(&t, figure, title, columns, ELEMENTS(columns));
	for (int way = 0; way < READLOAD_WAYS; way++)
		label(l, (enum readload_way)way, &t, &rows[way]);
	for (unsigned round = 0; round < l->bench->rounds; round++)
		for (int way = 0; way < READLOAD_WAYS; way++)
			if (!rows[way]->skipped)
				take_sample(l, pace, (enum readload_way)way, rows[way]);
	table_print(&t);
	print_ratios(name, rows);
	table_free(&t);
}

/* ------------------------------------------------------------------ setting up */

/* Files are exported to a tmpfs, as in /run, if there is one with room; so many pools' files. */
static uint64_t choose_tmpdir(uint64_t n)
{
	struct statfs s;

	if (statfs(TMPFS, &s) < 0 || s.f_type != TMPFS_MAGIC || access(TMPFS, W_OK) < 0) {
		printf("# exported: %s is no tmpfs: to $TMPDIR\n", TMPFS);
		return n;
	}
	setenv("TMPDIR", TMPFS, 1);
	if (s.f_bavail * (uint64_t)s.f_bsize / EXPORTED_BYTES < n)
		n = s.f_bavail * (uint64_t)s.f_bsize / EXPORTED_BYTES;
	printf("# exported: to %s, at most %llu pools\n", TMPFS, (unsigned long long)n);
	return n;
}

static unsigned find_files(struct readload *l)
{
	char path[FILE_BYTES];

	l->n_files = 0;
	for (unsigned i = 0; i < l->grove.n; i++) {
		snprintf(path, sizeof(path), "%s/pools%s/memory.stat", rig_runtime(),
			l->grove.paths[i]);
		if (access(path, R_OK) < 0)
			continue;
		free(l->files[l->n_files]);
		l->files[l->n_files] = strdup(path);
		if (!l->files[l->n_files++])
			bench_die("out of memory");
	}
	return l->n_files;
}

static void await_files(struct readload *l, uint64_t n_exported)
{
	unsigned n = 0, polls = n_exported > 0 ? 0 : EXPORT_POLLS;

	l->files = bench_allocate(l->grove.n, sizeof(*l->files));
	for (; n < l->grove.n && polls < EXPORT_POLLS; polls++) {
		bench_sleep(EXPORT_POLL_NSEC);
		if (find_files(l) > n)
			polls = 0;
		n = l->n_files;
	}
}

static void set_up(struct readload *l, uint64_t n_exported)
{
	const char *reason;
	char config[512];

	snprintf(config, sizeof(config),
		"[daemon]\nexport_files = memory.stat\nexport_max = %llu\n" RIG_NO_LIMITS,
		(unsigned long long)n_exported);
	rig_start(config);
	for (int mode = 0; mode < RIG_MODES; mode++) {
		uint64_t start = bench_now();

		l->tally[mode] = rig_open(mode, &reason);
		if (!l->tally[mode])
			continue;
		grove_create(&l->grove, l->tally[mode]);
		l->pools[mode] = grove_attach(&l->grove, l->tally[mode]);
		l->charged = rig_item(l->tally[mode], "anon");
		l->moved = rig_item(l->tally[mode], "file");
		printf("# pools:    %u made and attached to, %s: %.1f s\n", l->grove.n,
			rig_mode_names[mode], (double)(bench_now() - start) / 1e9);
	}
	for (unsigned i = 0; i < l->bench->n_cpus; i++) {
		l->readers[i].tally = rig_open(RIG_DAEMON, &reason);
		l->readers[i].next = i;
	}
	await_files(l, n_exported);
}

static void tear_down(struct readload *l)
{
	for (unsigned i = 0; i < l->bench->n_cpus; i++)
		tally_close(l->readers[i].tally);
	for (int mode = 0; mode < RIG_MODES; mode++) {
		grove_detach(&l->grove, l->pools[mode]);
		tally_close(l->tally[mode]);
	}
	for (unsigned i = 0; i < l->grove.n; i++)
		free(l->files[i]);
	free(l->files);
	kernstat_remove(&l->kernel);
	grove_free(&l->grove);
}

/* A descriptor a group of the kernel's. */
static void raise_limit(void)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

enum option {
	POOLS,
	READERS,
	PER_CPU,
	MSEC,
	FAST_MSEC,
	WRITES,
	WRITTEN,
	FILES,
	GROUPS,
};

static struct bench_option options[] = {
	[POOLS] = {"pools", "50000", "2000", "pools, in two levels"},
	[READERS] = {"readers", "250000", "10000", "readers, in turn"},
	[PER_CPU] = {"rate", "6510", NULL, "reads a second on each CPU; the trial's: 2.5 M on 384"},
	[MSEC] = {"msec", "4000", "200", "milliseconds of a sample at that rate"},
	[FAST_MSEC] = {"fast-msec", "1000", "100", "milliseconds of a sample as fast as it goes"},
	[WRITES] = {"writes", "50000", NULL, "writes a second in the background, on each CPU"},
	[WRITTEN] = {"written", "1000", NULL, "pools that are written to"},
	[FILES] = {"exported", "60000", NULL, "pools whose memory.stat is exported, at most"},
	[GROUPS] = {"groups", "500", "50", "cgroups of the kernel's to compare with"},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	static struct readload load;
	struct bench b;

	bench_begin(&b, "readers", options, argc, argv);
	raise_limit();
	load.bench = &b;
	load.n_readers = (unsigned)bench_number(&options[READERS]);
	load.rate = bench_number(&options[PER_CPU]);
	load.writes = bench_number(&options[WRITES]);
	load.n_written = (unsigned)bench_number(&options[WRITTEN]);
	if (load.rate == 0 || load.n_readers == 0 || load.n_written == 0)
		bench_die("these options cannot be; see --help");
	kernstat_make(&load.kernel, (unsigned)bench_number(&options[GROUPS]));
	grove_init(&load.grove, "", (unsigned)bench_number(&options[POOLS]));
	set_up(&load, choose_tmpdir(bench_number(&options[FILES])));
	load.nsec = bench_number(&options[MSEC]) * 1000000;
	run_pace(&load, READLOAD_PACED);
	load.nsec = bench_number(&options[FAST_MSEC]) * 1000000;
	run_pace(&load, READLOAD_FAST);
	tear_down(&load);
	return 0;
}
