/* SPDX-License-Identifier: MIT */
/* Functions that read the counters of the BPF programs, and the kernel's own counters about these programs. */
#ifndef SIPSCHED_COUNTERS_H
#define SIPSCHED_COUNTERS_H
#include <stdint.h>
#include "attach.h"
#include "probe.h"

/* Return each counter as the sum over all CPUs since the programs were loaded. */
struct probe_counters sum_counters(const struct sipprobe *object);
struct probe_counters counters_between(const struct probe_counters *before,
				       const struct probe_counters *after);

/*
 * Return how often the kernel skipped a BPF program because it was already running on the same CPU. The kernel counts
 * these skips since Linux 5.12.
 */
uint64_t recursion_misses(const struct sipprobe *object);
#endif
