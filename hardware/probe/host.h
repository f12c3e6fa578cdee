/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_HOST_H
#define SIPSCHED_HOST_H

/*
 * Print the kernel's counters of a proxy and of its host for each line from stdin, until the input ends. The function only
 * reads files of /proc and /sys/fs/cgroup, so it needs no BPF.
 * `arguments` are the name of the proxy's processes, the inode number of their network namespace, and optionally the TCP
 * port of the proxy. Return the exit code.
 */
int print_counters(int count, char **arguments);
#endif
