/* SPDX-License-Identifier: MIT */
/* The report of a run: one JSON object. probe.h lists its counters. */
#ifndef SIPSCHED_REPORT_H
#define SIPSCHED_REPORT_H
#include <stdbool.h>
#include <stdint.h>
#include "attach.h"
#include "recording.h"
#include "records.h"
#include "streams.h"
#include "workers.h"

#define REPORT_VERSION 2 /* also for the output of `check` */

/* The results between the start, or the last SIGUSR1, and the end. */
struct report {
	const struct probe *probe;
	const struct records *records;
	const struct workers *workers;
	const struct recording *recording;
	const struct streams *streams;
	struct probe_counters counted;
	uint64_t recursion_misses;
	uint64_t
		cpu_at_fresh_ns; /* CPU time of the process when the counters began (CLOCK_PROCESS_CPUTIME_ID) */
};

/* Write the report atomically. On failure, print a line and return false. */
bool write_report(const char *path, const struct report *report);
#endif
