/* SPDX-License-Identifier: MIT */
/* A sample of the counters of a proxy and its CPUs, and its form in logs. The simulator uses it too, so it is C11. */
#ifndef SIPSCHED_SAMPLE_H
#define SIPSCHED_SAMPLE_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* of a log with samples (../scheduler/log.h) */
#define LOG_VERSION 1
/* time between a sample and the switch after it: several times the duration of a sample (benchmarks/switching.py) */
#define SAMPLE_LEAD_NS 1000000

/* Counters that never decrease. */
struct sample {
	uint64_t t_ns; /* time right before the CPU clocks are read */
	uint64_t cpu_ns;
	uint64_t datagrams; /* InDatagrams of UDP in the SPS's network namespace; over TCP TCPOrigDataSent */
	uint64_t refused;   /* RcvbufErrors of UDP */
	uint64_t steal_ticks, idle_ticks, softirq_ticks; /* summed over the CPUs; idle includes iowait */
	uint64_t time_squeeze;                           /* summed over the CPUs */
};

/* Write samples as a JSON object with one array per column. */
void samples_write(FILE *file, const struct sample *samples, size_t n);
#endif
