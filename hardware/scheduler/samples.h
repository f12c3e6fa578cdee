/* SPDX-License-Identifier: MIT */
/*
 * Functions that sample the counters of the proxy and its CPUs.
 *
 * The CPU time is the sum over the proxy's processes. The time of tasks that run at the time of the sample is included,
 * because the sum comes from the processes' CPU clocks. A process cannot read the clock of a single thread of another
 * process (kernel/time/posix-cpu-timers.c: pid_for_clock()). For an ended process, the sum includes the last value of
 * the process's clock. If the proxy has several instances, the sampler also stores the sum of each instance.
 *
 * Over TCP, the kernel does not count messages. The samples then contain TCPOrigDataSent instead of datagrams: the
 * number of segments with data, or with the end of a stream, that are sent for the first time. This number grows by one
 * per sent message, unless two messages are sent together.
 */
#ifndef SIPSCHED_SAMPLES_H
#define SIPSCHED_SAMPLES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include "../common/sample.h"

#define CPUS_MAX 1024

struct cpu_set {
	unsigned n; /* number of CPUs; 0: all CPUs */
	bool held[CPUS_MAX];
};

struct process_clock {
	clockid_t clock;
	unsigned instance;
	uint64_t last_ns;
};

/* The tasks of a proxy, and the index of the instance of each task. */
struct proxy_tasks {
	unsigned n, n_instances;
	pid_t *pids;
	unsigned *instances;
};

struct sampler {
	struct cpu_set cpus;
	size_t n_processes;
	struct process_clock *processes;
	const char *protocol; /* the first word of the protocol's lines in /proc/net/snmp or netstat */
	int counters, stat, softnet;
	unsigned datagrams_column, refused_column;
	char *buffer;
	size_t n, room;
	struct sample *samples;
	unsigned n_instances;
	uint64_t *instances_ns; /* CPU time per instance, for one sample after the other */
};

/* Open the files and clocks for at most `room` samples. Return NULL, or the file of /proc that could not be read. */
const char *sampler_open(struct sampler *sampler, const struct proxy_tasks *tasks, const struct cpu_set *cpus,
			 bool tcp, size_t room);
void sampler_take(struct sampler *sampler);
void sampler_close(struct sampler *sampler);
#endif
