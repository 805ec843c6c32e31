/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Bytes that go from one attachment to another of the same session, whatever their pools: what is
 * above both never has them twice, nor not at all. Over a limit idle credit is drained once; a
 * transfer that waits for that is nobody's when its session ends, and has done nothing.
 */

#include "core/wire.h"
#include "session.h"

/* A TRANSFER of a live session, which gets its answer now or later. False: it breaks the protocol. */
bool transfer_handle(struct session *s, const struct wire_transfer *m);
