/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The head of every run: figures without the machine, the kernel and the compiler that they come
 * from cannot be compared with anything.
 */

#include "bench.h"

void machine_print(const struct bench *b);
