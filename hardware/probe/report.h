/* SPDX-License-Identifier: MIT */
/* The report of a run: one JSON object, whose counters are listed in probe.h. */
#ifndef SIPSCHED_REPORT_H
#define SIPSCHED_REPORT_H
#include <stdbool.h>
#include <stdint.h>
#include "attach.h"
#include "recording.h"
#include "records.h"
#include "streams.h"
#include "workers.h"

/* From the fresh start to the end. */
struct report {
	const struct probe *probe;
	const struct records *records;
	const struct workers *workers;
	const struct recording *recording;
	const struct streams *streams;
	struct probe_counters counted;
	uint64_t recursion_misses;
	uint64_t cpu_at_fresh_ns; /* CLOCK_PROCESS_CPUTIME_ID */
};

/* The file appears whole or not at all; if not, a line on stderr says why. */
bool write_report(const char *path, const struct report *report);
#endif
