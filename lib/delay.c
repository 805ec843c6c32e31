/* SPDX-License-Identifier: MIT */

#include "delay.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cancel.h"
#include "client.h"
#include "embedded.h"

/* A signal handler that runs meanwhile makes it no shorter. */
static void sleep_until(uint64_t usec)
{
	struct timespec t = {
		.tv_sec = (time_t)(usec / 1000000), .tv_nsec = (long)(usec % 1000000) * 1000};

	while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) < 0 &&
		errno == EINTR)
		;
}

void delay_sleep(struct tally_pool *p, uint32_t usec, uint64_t deadline_usec)
{
	uint64_t until = link_now() + usec;
	struct embedded *e = p->tally->embedded;
	int saved = errno;
	bool counts;
	NO_CANCELLATION;

	counts = e && embedded_begin_delay(e, p->attachment);
	sleep_until(until < deadline_usec ? until : deadline_usec);
	if (counts)
		embedded_end_delay(e, p->attachment);
	errno = saved;
}
