/* SPDX-License-Identifier: MIT */

/*
 * Every CPU on which a thread can find itself has a place in an array of that length.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "conf/cpus.h"
#include "core/util.h"

/* Directories "cpuN" are those of the CPUs that are present. */
static void test_present_cpus_are_possible(void **state _unused_)
{
	char path[64];
	unsigned beyond = cpus_possible(), found = 0;

	for (unsigned cpu = 0; cpu < beyond + 64; cpu++) {
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u", cpu);
		if (access(path, F_OK) < 0)
			continue;
		found++;
		assert_true(cpu < beyond);
	}
	assert_true(beyond >= 1 && beyond >= found);
}

static void test_affinity_does_not_matter(void **state _unused_)
{
	uint32_t before = cpus_possible();
	cpu_set_t allowed, one;
	int cpu = sched_getcpu();

	assert_true(cpu >= 0);
	assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	assert_int_equal(cpus_possible(), before);
	assert_int_equal(sched_setaffinity(0, sizeof(allowed), &allowed), 0);
	for (unsigned i = 0; i < CPU_SETSIZE; i++)
		assert_true(!CPU_ISSET(i, &allowed) || i < before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_present_cpus_are_possible),
		cmocka_unit_test(test_affinity_does_not_matter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
