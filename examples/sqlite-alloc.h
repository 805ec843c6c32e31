/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * An allocator for SQLite that charges every block to a pool. This is the part to copy into a
 * program of one's own: what it knows of its tenants is struct owner alone.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "tally.h"

/* Bytes in front of every block; they are charged with it. */
#define ALLOC_HEADER 16

/* Who pays. It must outlive all of its blocks. */
struct owner {
	struct tally_pool *pool;
	_Atomic uint64_t bytes, blocks; /* live, headers included */
	_Atomic uint64_t peak;          /* highest value of bytes */
	_Atomic uint64_t refused;       /* charges that met a limit */
	_Atomic int error; /* first other failure of a charge, as negative errno; 0: none */
};

/*
 * Makes SQLite use this allocator; `shared` pays for what no owner asks for. To be called after
 * libtally was opened and the pool of `shared` attached, and before anything else is called of
 * SQLite, which allocates as soon as it is initialised. Returns a result code of SQLite.
 */
int alloc_install(struct owner *shared);

/* From now on the calling thread allocates for `o`; NULL: for `shared` again. */
void alloc_set_owner(struct owner *o);
