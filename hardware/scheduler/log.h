/* SPDX-License-Identifier: MIT */
/*
 * The log of `switcher run`: one JSON object. Instants are CLOCK_MONOTONIC, in ns.
 *
 *   version        LOG_VERSION
 *   t0_ns          of the schedule; null: no INVITE came
 *   tasks          number of tasks
 *   scheduler      of switcher itself: fifo, or other (not asked for, or refused)
 *   ended          plan or signal
 *   ticks_per_s    of the ticks in samples
 *   windows        one for each switch made, in the order of the plan
 *     asked_ns       t0 + start. The first is set before the load, and logged as set once more when t0 is known;
 *                    without t0 it is the first setting, asked when it began.
 *     began_ns       the first system call of the switch
 *     done_ns        all is set, and the probe, if it is switched, has answered; then it is read back
 *     errors         system calls that failed, a probe that did not answer ok
 *     unlike         tasks and files that read back otherwise
 *     error          the first of these, or ""
 *   samples        columns of equal length; see sample.h
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

/* The file appears whole or not at all: it is PATH.partial until it is closed. NULL or false, and errno. */
FILE *log_open(const char *path);
bool log_close(FILE *file, const char *path);
void log_drop(FILE *file, const char *path);
void log_write(FILE *file, const struct log *log, const struct switches *switches,
	       const struct sampler *sampler);
#endif
