/* SPDX-License-Identifier: MIT */
/* The counters that the BPF programs keep, and the counters that the kernel keeps about these programs. */
#ifndef SIPSCHED_COUNTERS_H
#define SIPSCHED_COUNTERS_H
#include <stdint.h>
#include "attach.h"
#include "probe.h"

/* Return the sums over all CPUs of the counters since the programs were loaded. */
struct probe_counters sum_counters(const struct sipprobe *object);
struct probe_counters counters_between(const struct probe_counters *before,
				       const struct probe_counters *after);

/*
 * Return how often the kernel skipped a program because a program was already running on the CPU. The kernel counts such
 * skips since Linux 5.12.
 */
uint64_t recursion_misses(const struct sipprobe *object);
#endif
