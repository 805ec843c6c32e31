/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Credit that nobody has touched for some seconds goes back: a thousand programs that have come to
 * rest would otherwise keep what each of them needed when it was busy. Whoever is busy again begins
 * with one miss.
 */

#include "manager.h"

struct decay;

int decay_new(struct manager *m, struct decay **ret);
/* Returns NULL. */
struct decay *decay_free(struct decay *d);
