/* SPDX-License-Identifier: MIT */

#include "machine.h"

#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "core/util.h"

#ifndef BENCH_CFLAGS
#define BENCH_CFLAGS "flags unknown"
#endif

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* The first line of a file, or what stands behind the colon in the line that begins with `key`. */
static const char *read_line(const char *path, const char *key, char *line, int size)
{
	_cleanup_(fclosep) FILE *f = fopen(path, "re");

	while (f && fgets(line, size, f)) {
		line[strcspn(line, "\n")] = '\0';
		if (!key)
			return line;
		if (strncmp(line, key, strlen(key)) == 0 && strchr(line, ':'))
			return strchr(line, ':') + 2;
	}
	return NULL;
}

static bool has_hypervisor(void)
{
	_cleanup_(freep) char *line = malloc(65536);
	const char *flags = line ? read_line("/proc/cpuinfo", "flags", line, 65536) : NULL;

	return flags && strstr(flags, " hypervisor");
}

static const char *or_else(const char *text, const char *otherwise)
{
	return text ? text : otherwise;
}

void machine_print(const struct bench *b)
{
	const char *revision = getenv("TALLY_REVISION");
	char line[512];
	struct utsname u;

	uname(&u);
	printf("# bench:    %s, %u rounds%s\n", b->name, b->rounds,
		b->quick ? ", QUICK: the figures mean nothing" : "");
	printf("# version:  %s %s\n", PACKAGE_VERSION, or_else(revision, ""));
	printf("# cpu:      %s%s\n",
		or_else(read_line("/proc/cpuinfo", "model name", line, sizeof(line)), u.machine),
		has_hypervisor() ? ", in a virtual machine" : "");
	printf("# cpus:     %u possible, %u for this process\n", b->n_possible_cpus, b->n_cpus);
	printf("# governor: %s\n",
		or_else(read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", NULL,
				line, sizeof(line)),
			"none"));
	printf("# kernel:   %s %s %s\n", u.sysname, u.release, u.machine);
	printf("# libc:     glibc %s\n", gnu_get_libc_version());
	printf("# compiler: %s, %s\n", COMPILER, BENCH_CFLAGS);
	printf("# load:     %s\n",
		or_else(read_line("/proc/loadavg", NULL, line, sizeof(line)), "?"));
}
