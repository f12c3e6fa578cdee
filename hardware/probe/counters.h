/* SPDX-License-Identifier: MIT */
/* What the BPF programs counted, and what the kernel counted of them. */
#ifndef SIPSCHED_COUNTERS_H
#define SIPSCHED_COUNTERS_H
#include <stdint.h>
#include "attach.h"
#include "probe.h"

/* Over all CPUs, since the programs were loaded. */
struct probe_counters sum_counters(const struct sipprobe *object);
struct probe_counters counters_between(const struct probe_counters *before,
				       const struct probe_counters *after);

/* Times a program was not run because it ran already on that CPU; the kernel tells since 5.12. */
uint64_t recursion_misses(const struct sipprobe *object);
#endif
