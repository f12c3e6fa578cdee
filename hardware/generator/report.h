/* SPDX-License-Identifier: MIT */
/*
 * The report of an agent. The agent writes one JSON object when it ends, also after SIGINT or SIGTERM.
 *
 * Times are CLOCK_MONOTONIC in ns. Buffer sizes are the sizes that the kernel grants: twice the requested sizes.
 * messages.<kind> has sent, sent_again, not_sent, received, received_again and unexpected. A kind without messages is
 * absent.
 *   Each received message is in exactly one of received, received_again, unexpected and unparsable.
 * overtaken          number of 180 answers that came after the final answer of their call
 * connections        again: connections that replaced a lost connection; cut: connections that ended within a message;
 *                    blocked, blocked_ns: number and total duration of the waits for a full send buffer
 * calls.late         completed calls whose 2xx came later than --late-ms after INVITE
 * calls.split        calls whose ACK or BYE came from another address than INVITE
 * lateness_ns        UAC: lateness of the starts of calls; UAS: lateness of the threads' wake-ups at fixed times (server.c)
 * peers              number of calls from each address
 * send_errors, receive_errors
 *                    number of errors per errno. The agent sends a refused datagram once more, and then counts it as
 *                    not_sent.
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

/* The sizes of the sockets' buffers, and the sum of the drops at the sockets of all threads. */
struct sockets {
	int receive_buffer_bytes;
	int send_buffer_bytes;
	uint64_t drops; /* datagrams that a full receive buffer refused (SK_MEMINFO_DROPS) */
};

/*
 * Return the counter NoPorts of /proc/net/snmp: the number of datagrams to closed ports of this host. Return -1 on failure.
 */
int64_t udp_no_ports(void);

void sockets_add(struct sockets *sum, int fd);
/* Return the wall-clock time and the CPU time of the process. */
struct usage usage_now(void);
void report_usage(FILE *file, const struct usage *start);
/* Write the scheduling policy of the process: "fifo" or "other". */
void report_scheduler(FILE *file);
void report_sockets(FILE *file, const struct sockets *sockets);
void report_counts(FILE *file, const struct counts *counts);
#endif
