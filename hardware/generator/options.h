/* SPDX-License-Identifier: MIT */
/* What the command line says, checked. */
#ifndef SIPSCHED_OPTIONS_H
#define SIPSCHED_OPTIONS_H
#include <string.h>
#include "agent.h"

#define CPUS_MAX    256
#define THREADS_MAX 64

struct endpoint {
	char host[INET_ADDRSTRLEN];
	struct sockaddr_in address;
};

struct options {
	struct endpoint local;
	struct endpoint remote;
	const char *schedule;
	const char *calls_file;
	const char *report;
	const char *ready;
	struct timing timing;
	unsigned tcp_connections; /* 0: one a call */
	unsigned threads;
	unsigned n_cpus;
	int cpus[CPUS_MAX];
	uint64_t hold_ns;
	bool hold_exponential;
	uint64_t ring_ns;
	uint64_t seed;
	uint64_t drain_ns;
	uint64_t linger_ns;
	uint64_t spin_ns; /* UINT64_MAX: always */
	int buffer_bytes;
	int fifo; /* priority of SCHED_FIFO; 0: the policy it was started with */
};

static inline struct span host_of(const struct endpoint *endpoint)
{
	return (struct span){ endpoint->host, endpoint->host + strlen(endpoint->host) };
}
#endif
