/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What is left of a refusal: a record of it, and now and then a line in the log. How a request is
 * refused is request.c's business.
 */

#include "core/itemlimit.h"

struct request;

/* Keeps a record of what `at` refuses to the request, and logs it unless it did so a moment ago.
 * Returns the record's number; 0: there is none. */
uint64_t refuse_record(const struct request *r, struct itemlimit_place at);
