/* SPDX-License-Identifier: MIT */
/*
 * The report of an agent: one JSON object, which is written at the end, even after SIGINT or SIGTERM.
 *
 * Times are CLOCK_MONOTONIC in ns. Buffer sizes are the sizes that the kernel grants: twice the requested sizes.
 * messages.<kind> has sent, sent_again, not_sent, received, received_again and unexpected. A kind without messages is absent.
 *   Each received message is in exactly one of received, received_again, unexpected and unparsable.
 * overtaken          received 180 answers that came after the final answer of their call
 * connections        again: opened to replace a lost connection; cut: ended within a message;
 *                    blocked, blocked_ns: number and total duration of the waits for a full send buffer
 * calls.late         completed calls whose 2xx came later than --late-ms after INVITE
 * calls.split        calls whose ACK or BYE came from another address than INVITE
 * lateness_ns        UAC: lateness of the starts of calls; UAS: lateness of the threads' wake-ups at fixed times (server.c)
 * peers              number of calls from each address
 * send_errors, receive_errors    number of refusals by errno. A refused datagram is tried once more, and is then not_sent.
 */
#ifndef SIPSCHED_REPORT_H
#define SIPSCHED_REPORT_H
#include <stdio.h>
#include "../common/partial.h"
#include "agent.h"

#define REPORT_VERSION 1

struct usage {
	uint64_t wall_ns;
	uint64_t cpu_user_ns;
	uint64_t cpu_system_ns;
};

/* Buffers and drops of the sockets of all threads. */
struct sockets {
	int receive_buffer_bytes;
	int send_buffer_bytes;
	uint64_t drops; /* datagrams refused because the receive buffer was full (SK_MEMINFO_DROPS) */
};

/*
 * Return NoPorts of /proc/net/snmp, the number of datagrams to closed ports of this host. Return -1 if it cannot be read.
 */
int64_t udp_no_ports(void);

void sockets_add(struct sockets *sum, int fd);
/* Return the wall-clock time and the CPU time of the process. */
struct usage usage_now(void);
void report_usage(FILE *file, const struct usage *start);
/* Write the policy of the process: "fifo" or "other". */
void report_scheduler(FILE *file);
void report_sockets(FILE *file, const struct sockets *sockets);
void report_counts(FILE *file, const struct counts *counts);
#endif
