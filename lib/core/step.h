/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Where a client may die: before and after each store to shared memory, and each message. Nothing,
 * but in a test that is built with TALLY_STEPPING: that one has tally_step(), and dies at one place
 * after the other. The places are pointers in a section of their own, so that the test knows them
 * all.
 */

#if defined(TALLY_STEPPING)

#define STEP_TEXT_(x) #x
#define STEP_TEXT(x) STEP_TEXT_(x)

void tally_step(const char *const *place);

#define TALLY_STEP()                                                                               \
	do {                                                                                       \
		static const char *const place_ __attribute__((section("tally_steps"), used)) =    \
			__FILE__ ":" STEP_TEXT(__LINE__);                                          \
		tally_step(&place_);                                                               \
	} while (0)

#else

#define TALLY_STEP() ((void)0)

#endif
