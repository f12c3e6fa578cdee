/* SPDX-License-Identifier: MIT */
/* What the command line says, checked; and the two roles that run on it. */
#ifndef SIPSCHED_OPTIONS_H
#define SIPSCHED_OPTIONS_H
#include <signal.h>
#include "agent.h"

#define CPUS_MAX    256
#define THREADS_MAX 64
#define INSTANCE()  ((uint32_t)(clock_ns() ^ (uint64_t)getpid() << 16))

enum {
	EXIT_GOOD = 0,
	EXIT_BAD = 1,   /* a line on stderr says why */
	EXIT_USAGE = 2, /* wrong usage */
};

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

extern volatile sig_atomic_t stop_asked; /* SIGINT or SIGTERM came */

int run_client(const struct options *options);
int run_server(const struct options *options);

/* One line on stderr; gives EXIT_BAD. */
int fail(const char *what, const char *why);
/* Pin the calling thread to the CPU that the options give it, and let its sleeps end on time. */
void settle_thread(const struct options *options, unsigned thread);
struct span host_of(const struct endpoint *endpoint);
#endif
