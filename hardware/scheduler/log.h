/* SPDX-License-Identifier: MIT */
/*
 * The log of `switcher run` is one JSON object. Times are CLOCK_MONOTONIC in ns.
 *
 *   version        LOG_VERSION
 *   t0_ns          start of the schedule; null if no INVITE arrived
 *   tasks          number of the proxy's tasks
 *   scheduler      policy of switcher: "fifo", or "other" if fifo was not requested or the kernel refused it
 *   ended          what ended the run: "plan" or "signal"
 *   ticks_per_s    unit of the ticks in samples
 *   windows        one entry per switch, in the order of the plan
 *     asked_ns       planned time of the switch: t0 plus the window's start. switcher sets the first mode twice: before the
 *                    load, and again when t0 is known. The log has only the second switch. If t0 stays unknown, the log has
 *                    the first switch, and asked_ns equals began_ns.
 *     began_ns       time before the first system call of the switch
 *     done_ns        time after all settings were made and the probe has answered (if the mode switches the probe), and
 *                    before the settings are read back
 *     errors         number of failed system calls; a missing answer `ok` of the probe counts as a failed call
 *     unlike         number of tasks and files that, read back, differ from the mode's settings
 *     error          text of the first failure or difference, or ""
 *   samples        columns of equal length (sample.h)
 *   cpu_ns_of_instances   one list per instance of the proxy, with its CPU time at each sample. The sum of the lists is
 *                  `cpu_ns` in samples. Empty if the proxy has one instance.
 */
#ifndef SIPSCHED_LOG_H
#define SIPSCHED_LOG_H
#include <stdbool.h>
#include <stdio.h>
#include "samples.h"
#include "switches.h"

struct log {
	bool has_t0;
	uint64_t t0_ns;
	bool fifo;
	bool by_signal;
	size_t n_windows;
	struct outcome *windows;
};

void log_write(FILE *file, const struct log *log, const struct switches *switches,
	       const struct sampler *sampler);
#endif
