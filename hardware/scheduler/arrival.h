/* SPDX-License-Identifier: MIT */
/*
 * The first INVITE to a UDP or TCP port of this host. A packet socket sees it, so the proxy's own socket is not touched.
 *
 * ASSUME IPv4 without VLAN tags, as the generator sends it.
 */
#ifndef SIPSCHED_ARRIVAL_H
#define SIPSCHED_ARRIVAL_H
#include <stdbool.h>
#include <stdint.h>

/*
 * Open a socket that becomes readable with the first INVITE on any link of this network namespace. Over TCP, this is
 * the first INVITE at the start of a segment. Return -1 and set errno if that fails.
 */
int arrival_open(uint16_t port, bool tcp);
/* Return the kernel's time of receipt on CLOCK_MONOTONIC, in ns. */
uint64_t arrival_read(int socket);
#endif
