/* SPDX-License-Identifier: MIT */

#include "notify.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

#include "log.h"

int notify_listen_fd(int *ret_fd)
{
	int n = sd_listen_fds(1);

	if (n < 0)
		return n;
	if (n == 0) {
		*ret_fd = -1;
		return 0;
	}
	if (n > 1 || sd_is_socket_unix(SD_LISTEN_FDS_START, SOCK_SEQPACKET, 1, NULL, 0) <= 0) {
		log_error("socket activation handed over %d descriptors; wanted is one listening "
			  "SOCK_SEQPACKET Unix socket (ListenSequentialPacket= in the socket unit)",
			n);
		return -EINVAL;
	}
	*ret_fd = SD_LISTEN_FDS_START;
	return 0;
}

void notify_ready(const struct manager *m)
{
	sd_notifyf(0, "READY=1\nSTATUS=%" PRIu64 " sessions, %" PRIu64 " pools", m->n_sessions,
		m->tree->n_pools);
}

void notify_reloading(void)
{
	sd_notify(0, "RELOADING=1");
}

void notify_stopping(void)
{
	sd_notify(0, "STOPPING=1");
}
