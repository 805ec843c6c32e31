/* SPDX-License-Identifier: MIT */

/*
 * The kernel says it as ranges ("0-3,8-11"); the last number is the one that counts.
 */

#include "cpus.h"

#include <string.h>

#include "core/util.h"

uint32_t cpus_possible(void)
{
	_cleanup_(fclosep) FILE *f = fopen("/sys/devices/system/cpu/possible", "re");
	long conf = sysconf(_SC_NPROCESSORS_CONF);
	unsigned n = conf > 0 ? (unsigned)conf : 1, last;
	char line[4096], *p;

	if (!f || !fgets(line, sizeof(line), f))
		return n;
	p = strpbrk(line, "\n");
	if (p)
		*p = '\0';
	p = line + strlen(line);
	while (p > line && p[-1] >= '0' && p[-1] <= '9')
		p--;
	return sscanf(p, "%u", &last) == 1 && last < UINT16_MAX ? last + 1 : n;
}
