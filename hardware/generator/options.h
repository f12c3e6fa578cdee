/* SPDX-License-Identifier: MIT */
/* The command line, checked. The usage is in sipload.c. */
#ifndef SIPSCHED_OPTIONS_H
#define SIPSCHED_OPTIONS_H
#include <string.h>
#include "agent.h"
#include "../common/schedule.h"

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
	unsigned tcp_connections; /* 0: one connection per call */
	unsigned threads;
	unsigned n_cpus;
	int cpus[CPUS_MAX];
	uint64_t hold_ns;
	bool hold_exponential;
	uint64_t ring_ns;
	uint64_t drain_ns;
	uint64_t linger_ns;
	uint64_t late_ns; /* longest time from INVITE to 2xx; a slower call is late */
	uint64_t spin_ns; /* UINT64_MAX: poll all the time */
	int buffer_bytes;
	int fifo; /* priority of SCHED_FIFO; 0: keep the policy */
};

/* The options of `sipload schedule`: a law with a rate and a number of calls or blocks, or a text of start times. */
struct schedule_options {
	const char *output;
	const char *text;   /* NULL: the schedule is sampled from the law */
	const char *blocks; /* NULL: `calls` gives the number of calls */
	double rate_cps;
	uint64_t calls;
	enum schedule_law law;
	uint64_t seed;
};

/* Wrong usage ends the process with one line on stderr and EXIT_USAGE. `argv` starts with the command. */
void parse_client_options(struct options *o, int argc, char **argv);
void parse_server_options(struct options *o, int argc, char **argv);
void parse_schedule_options(struct schedule_options *o, int argc, char **argv);
/* Print what an option expects. If `option` is NULL, the text describes the whole command line. */
_Noreturn void usage(const char *option, const char *expected);

static inline struct span host_of(const struct endpoint *endpoint)
{
	return (struct span){ endpoint->host, endpoint->host + strlen(endpoint->host) };
}
#endif
