/* SPDX-License-Identifier: MIT */
/* What the command line says, checked; sipload.c has the text of the usage. */
#ifndef SIPSCHED_OPTIONS_H
#define SIPSCHED_OPTIONS_H
#include <string.h>
#include "agent.h"
#include "schedule.h"

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
	uint64_t drain_ns;
	uint64_t linger_ns;
	uint64_t late_ns; /* from INVITE to its 2xx: a longer one is late */
	uint64_t spin_ns; /* UINT64_MAX: always */
	int buffer_bytes;
	int fifo; /* priority of SCHED_FIFO; 0: the policy it was started with */
};

/* Of `sipload schedule`: drawn by law, rate, and number or blocks, or read from a text. */
struct schedule_options {
	const char *output;
	const char *text;   /* NULL: drawn */
	const char *blocks; /* NULL: a number of calls */
	double rate_cps;
	uint64_t calls;
	enum schedule_law law;
	uint64_t seed;
};

/* Wrong usage ends the process: one line on stderr, EXIT_USAGE. `argv` starts with the command. */
void parse_client_options(struct options *o, int argc, char **argv);
void parse_server_options(struct options *o, int argc, char **argv);
void parse_schedule_options(struct schedule_options *o, int argc, char **argv);
/* What was expected of an option; of the command line as a whole, if `option` is NULL. */
_Noreturn void usage(const char *option, const char *expected);

static inline struct span host_of(const struct endpoint *endpoint)
{
	return (struct span){ endpoint->host, endpoint->host + strlen(endpoint->host) };
}
#endif
