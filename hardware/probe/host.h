/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_HOST_H
#define SIPSCHED_HOST_H

/*
 * Print the kernel's counters of a proxy and of its host each time a line comes from stdin, until the input ends. The
 * function reads only files of /proc.
 * `arguments` are the name of the proxy's processes, the inode number of their network namespace, and optionally the TCP
 * port of the proxy. Return the exit code.
 */
int print_counters(int count, char **arguments);
#endif
