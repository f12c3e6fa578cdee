/* SPDX-License-Identifier: MIT */
/*
 * Samples: what the proxy and its CPUs have come to.
 *
 * CPU time is that of the processes to which the tasks belong, from their CPU clocks, running time included. A single
 * thread's clock is not readable from another process (kernel/time/posix-cpu-timers.c: pid_for_clock()); whoever
 * names all threads of a process gets their sum. A process that has ended keeps its last value.
 *
 * Over TCP no kernel counts messages. Counted in the place of datagrams is TCPOrigDataSent, segments with data, or the
 * end of a stream, that are sent for the first time: one a message sent, unless two wait to be sent at once.
 */
#ifndef SIPSCHED_SAMPLES_H
#define SIPSCHED_SAMPLES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include "sample.h"

#define CPUS_MAX 1024

struct cpu_set {
	unsigned n; /* 0: all */
	bool held[CPUS_MAX];
};

struct process_clock {
	clockid_t clock;
	uint64_t last_ns;
};

struct sampler {
	struct cpu_set cpus;
	size_t n_processes;
	struct process_clock *processes;
	const char *protocol; /* the counters' line */
	int counters, stat, softnet;
	unsigned datagrams_column, refused_column;
	char *buffer;
	size_t n, room;
	struct sample *samples;
};

/* NULL, or which file of /proc cannot be read. */
const char *sampler_open(struct sampler *sampler, const pid_t *tasks, unsigned n_tasks,
			 const struct cpu_set *cpus, bool tcp, size_t room);
void sampler_take(struct sampler *sampler);
void sampler_close(struct sampler *sampler);
#endif
