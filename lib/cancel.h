/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * No public function is a cancellation point, whatever it calls: a thread that is cancelled in the
 * middle of one would leave others waiting for ever.
 */

#include <pthread.h>

#include "core/util.h"

static inline int cancel_disable(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

static inline void cancel_restore(int *state)
{
	pthread_setcancelstate(*state, NULL);
}

/* From here to the end of the scope. */
#define NO_CANCELLATION                                                                            \
	_unused_ _cleanup_(cancel_restore)                                                         \
	int cancel_state = cancel_disable()
