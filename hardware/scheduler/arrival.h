/* SPDX-License-Identifier: MIT */
/*
 * Functions that detect the first INVITE to a UDP or TCP port of this host. A packet socket receives a copy of the INVITE,
 * so the proxy receives the INVITE as usual.
 *
 * ASSUME IPv4 without VLAN tags, because the generator sends such packets.
 */
#ifndef SIPSCHED_ARRIVAL_H
#define SIPSCHED_ARRIVAL_H
#include <stdbool.h>
#include <stdint.h>

/*
 * Open a socket that becomes readable when the first INVITE arrives on any link of this network namespace. Over TCP,
 * the INVITE must be at the start of a segment. Return -1 and set errno on failure.
 */
int arrival_open(uint16_t port, uint16_t last_port, bool tcp);
/*
 * Return the time in ns (CLOCK_MONOTONIC) at which the kernel received the first INVITE on the socket of
 * arrival_open(). If the kernel's timestamp is missing or wrong, return the current time.
 */
uint64_t arrival_read(int socket);
#endif
