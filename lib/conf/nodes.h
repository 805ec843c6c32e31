/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Which memory node each CPU belongs to: memory.numa_stat shows by node what was counted by CPU.
 * Nodes have the kernel's numbers; where it leaves some out there are nodes without CPUs.
 */

#include <stdint.h>

#define NODES_MAX 1024 /* the kernel has no more */

/*
 * How many nodes there are, at least 1; and by CPU, cpus_possible() entries and one more, the number
 * of its node, to be freed. A CPU of which nothing is known is on node 0, as is the entry behind the
 * last one. `root` is put before the directories of the kernel (tests), normally "".
 *
 * The file that TALLY_TOPOLOGY names in the environment stands in for what the kernel says: a node
 * and its CPUs a line, such as `0: 0-3,8`. CPUs that this machine cannot have are left out.
 *
 * 0, -ENOMEM, or what is wrong with that file, with one line in *ret_error (to be freed) that says
 * file and line.
 */
int nodes_load(
	const char *root, uint32_t *ret_n_nodes, uint16_t **ret_node_of_cpu, char **ret_error);
