/* SPDX-License-Identifier: MIT */
/* The checked values of sipload's command line. sipload.c describes the options. */
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
	unsigned tcp_connections; /* number of shared connections; 0: each call has its own connection */
	unsigned threads;
	unsigned n_cpus;
	int cpus[CPUS_MAX];
	uint64_t hold_ns;
	bool hold_exponential;
	uint64_t ring_ns;
	uint64_t drain_ns;
	uint64_t late_ns; /* longest time from INVITE to 2xx; a slower call counts as late */
	/* How long `uac` polls before each deadline, and `uas` after each received message. UINT64_MAX: always poll. */
	uint64_t spin_ns;
	int buffer_bytes;
	int fifo; /* priority for SCHED_FIFO; 0: do not change the policy */
};

/*
 * The options of `sipload schedule`. The start times follow the law `law` with the rate `rate_cps`. Either `calls` or
 * the file `blocks` determines how many calls the schedule has.
 */
struct schedule_options {
	const char *output;
	/* Path of a file with a block and a length per window (schedule.h). NULL: the schedule has `calls` calls. */
	const char *blocks;
	double rate_cps;
	uint64_t calls;
	enum schedule_law law;
	uint64_t seed;
};

/* Parse the options of a command, argv[0]. On wrong usage, print one line on stderr and exit with EXIT_USAGE. */
void parse_client_options(struct options *o, int argc, char **argv);
void parse_server_options(struct options *o, int argc, char **argv);
void parse_schedule_options(struct schedule_options *o, int argc, char **argv);
/*
 * Print the value that an option expects, and exit. If `option` is NULL, `expected` describes the whole command line.
 */
_Noreturn void usage(const char *option, const char *expected);

static inline struct span host_of(const struct endpoint *endpoint)
{
	return (struct span){ endpoint->host, endpoint->host + strlen(endpoint->host) };
}
#endif
