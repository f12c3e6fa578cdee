/* SPDX-License-Identifier: MIT */
/*
 * A sample of the counters of a proxy and its CPUs at one time, and the format of samples in logs. The file is plain
 * C11, because the simulator also includes it.
 */
#ifndef SIPSCHED_SAMPLE_H
#define SIPSCHED_SAMPLE_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The version of the format of logs with samples (../scheduler/log.h). */
#define LOG_VERSION 1
/*
 * The time from the last sample of a window to the next mode switch. Reading the counters takes only a fraction of this
 * time (benchmarks/switching.py), so the sample does not delay the switch.
 */
#define SAMPLE_LEAD_NS 1000000

/* One reading of counters. The counters never decrease. */
struct sample {
	uint64_t t_ns; /* time just before the program reads the CPU clocks */
	uint64_t cpu_ns;
	/* UDP: datagrams that the proxy received (InDatagrams in its network namespace). TCP: segments with data that
	   the namespace sent (TCPOrigDataSent), because the kernel counts received segments only together with ACKs. */
	uint64_t datagrams;
	uint64_t refused; /* datagrams that the full socket refused: RcvbufErrors of UDP */
	uint64_t steal_ticks, idle_ticks, softirq_ticks; /* sums over the CPUs; idle includes iowait */
	uint64_t time_squeeze; /* sum over the CPUs of the column time_squeeze of /proc/net/softnet_stat */
};

/* Write samples as a JSON object with one array per counter. */
void samples_write(FILE *file, const struct sample *samples, size_t n);
#endif
