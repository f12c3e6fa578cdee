/* SPDX-License-Identifier: MIT */
/*
 * What one look at the proxy and its CPUs gives, and how a log writes many of them; C11, as the simulator takes it too.
 */
#ifndef SIPSCHED_SAMPLE_H
#define SIPSCHED_SAMPLE_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Of a log with samples: log.h. */
#define LOG_VERSION 1
/* How long before a switch its sample is begun: several times what a sample takes (benchmarks/switching.py). */
#define SAMPLE_LEAD_NS 1000000

/* Counters that only grow. */
struct sample {
	uint64_t t_ns; /* the CPU clocks are read first, right after this instant */
	uint64_t cpu_ns;
	uint64_t datagrams; /* InDatagrams of UDP in the SPS's network namespace, or TCPOrigDataSent */
	uint64_t refused;   /* RcvbufErrors, of UDP */
	uint64_t steal_ticks, idle_ticks, softirq_ticks; /* of the CPUs; idle with iowait */
	uint64_t time_squeeze;                           /* of the CPUs */
};

/* The object of columns. */
void samples_write(FILE *file, const struct sample *samples, size_t n);
#endif
