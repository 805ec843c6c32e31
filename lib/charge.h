/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Charging for those who do not only charge: the public functions are in tally.h.
 */

#include "client.h"

/* Charges what lies in the stock or in the reserve, and asks nobody: false, that was not enough. The
 * bytes are not 0. */
bool charge_at_hand(struct tally_pool *p, tally_item item, uint64_t bytes);
