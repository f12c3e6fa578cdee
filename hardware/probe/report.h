/* SPDX-License-Identifier: MIT */
/* A function that writes the report of a run, which is one JSON object. probe.h describes the report's counters. */
#ifndef SIPSCHED_REPORT_H
#define SIPSCHED_REPORT_H
#include <stdbool.h>
#include <stdint.h>
#include "attach.h"
#include "recording.h"
#include "records.h"
#include "streams.h"
#include "workers.h"

#define REPORT_VERSION 2 /* the version of the format of reports and of the output of `check` */

/* The results of a run, from the run's start or from the last SIGUSR1 to the run's end. */
struct report {
	const struct probe *probe;
	const struct records *records;
	const struct workers *workers;
	const struct recording *recording;
	const struct streams *streams;
	struct probe_counters counted;
	uint64_t recursion_misses;
	/* CPU time of this process when the counters were reset (CLOCK_PROCESS_CPUTIME_ID), in ns. */
	uint64_t cpu_at_fresh_ns;
};

/* Write the report atomically. On failure, print one line and return false. */
bool write_report(const char *path, const struct report *report);
#endif
