/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What a benchmark makes outside of its own directory has to go with it however it ends, by Ctrl-C and
 * SIGKILL too: another process waits for that, and cleans up.
 */

/*
 * fn(arg) will be called once this process has ended, in a copy of it as it is now, without its
 * threads. It may find that all is gone already.
 */
void guard_run_at_end(void (*fn)(void *arg), void *arg);

/* Removes a directory and all that is in it. */
void guard_remove_tree(const char *dir);
