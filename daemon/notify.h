/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the service manager is told, and what it hands over.
 */

#include "manager.h"

/* The listening socket that was handed over, in *ret_fd (-1: none was). -EINVAL: what was handed
 * over is no such socket; has been logged. */
int notify_listen_fd(int *ret_fd);

void notify_ready(const struct manager *m);
void notify_reloading(void);
void notify_stopping(void);
