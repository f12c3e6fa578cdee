/* SPDX-License-Identifier: MIT */
/* The counters of the BPF programs, and the kernel's counters of these programs. */
#ifndef SIPSCHED_COUNTERS_H
#define SIPSCHED_COUNTERS_H
#include <stdint.h>
#include "attach.h"
#include "probe.h"

/* Return the counters over all CPUs since the programs were loaded. */
struct probe_counters sum_counters(const struct sipprobe *object);
struct probe_counters counters_between(const struct probe_counters *before,
				       const struct probe_counters *after);

/*
 * Return the number of times that the kernel skipped a program, because the program was already running on that CPU. The kernel
 * counts such skips since 5.12.
 */
uint64_t recursion_misses(const struct sipprobe *object);
#endif
