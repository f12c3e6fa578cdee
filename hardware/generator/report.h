/* SPDX-License-Identifier: MIT */
/*
 * The report of an agent: one JSON object, written when it ends, also by SIGINT and SIGTERM.
 *
 * Instants are CLOCK_MONOTONIC in ns. Buffers are what the kernel granted, in its count (twice what was asked).
 * messages.<kind> has sent, sent_again, not_sent, received, received_again, unexpected; a kind without any is
 * left out. Everything received is in exactly one of received, received_again, unexpected, unparsable; overtaken
 * counts those of received that are a 180 after the final answer of its call.
 * connections.again counts those opened in the place of one that was lost, connections.cut those that ended within a
 * message, connections.blocked how often a full send buffer made messages wait, and blocked_ns for how long in all.
 * calls.late are completed calls of which INVITE was answered with 2xx later than --late-ms after it was sent.
 * peers are the calls that each address began, and calls.split those of which ACK or BYE came from another address than INVITE.
 * send_errors and receive_errors count refusals by errno; a refused datagram is tried once more, and only then
 * is it not_sent.
 */
#ifndef SIPSCHED_REPORT_H
#define SIPSCHED_REPORT_H
#include <stdio.h>
#include "agent.h"

#define REPORT_VERSION 1

struct usage {
	uint64_t wall_ns;
	uint64_t cpu_user_ns;
	uint64_t cpu_system_ns;
};

/* Of the sockets of all threads. */
struct sockets {
	int receive_buffer_bytes;
	int send_buffer_bytes;
	uint64_t drops; /* datagrams that found the receive buffer full (SK_MEMINFO_DROPS) */
};

/* A file that appears whole or not at all. NULL: see errno. */
FILE *report_open(const char *path);
/* False: it could not be written; see errno. */
bool report_close(FILE *file, const char *path);

/* NoPorts of /proc/net/snmp: datagrams to this host that met no open port, ever; -1 if it is not shown. */
int64_t udp_no_ports(void);

void sockets_add(struct sockets *sum, int fd);
/* Wall clock and CPU time of the process. */
struct usage usage_now(void);
void report_usage(FILE *file, const struct usage *start);
/* The policy that the process runs under: "fifo" or "other". */
void report_scheduler(FILE *file);
void report_sockets(FILE *file, const struct sockets *sockets);
void report_counts(FILE *file, const struct counts *counts);
#endif
