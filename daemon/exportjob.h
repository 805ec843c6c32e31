/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What is to be written of a pool: the texts of its files, as far as they differ from what was written
 * last. That is known by a hash of each, of 8 bytes, where the text of a memory.stat has hundreds.
 */

#include "exporter.h"
#include "manager.h"

/* *ret_job NULL: nothing. On failure the pool is to be written anew. */
int exportjob_make(struct manager *m, struct pool *p, struct exporter_job **ret_job);

/* The pool's files are to be written anew, or are gone. */
void exportjob_forget(struct pool *p);
