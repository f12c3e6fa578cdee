/* SPDX-License-Identifier: MIT */
/*
 * The first INVITE to a UDP or TCP port of this host, seen by a packet socket: the proxy's own socket is left alone.
 *
 * ASSUME IPv4 and no VLAN tag inside: so does the generator.
 */
#ifndef SIPSCHED_ARRIVAL_H
#define SIPSCHED_ARRIVAL_H
#include <stdbool.h>
#include <stdint.h>

/*
 * A socket that becomes readable with the first INVITE, of whatever link of this network namespace; over TCP the first
 * that a segment begins with. -1 and errno.
 */
int arrival_open(uint16_t port, bool tcp);
/* When it arrived: the kernel's own time of receipt, on CLOCK_MONOTONIC, ns. */
uint64_t arrival_read(int socket);
#endif
