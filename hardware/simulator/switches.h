/* SPDX-License-Identifier: MIT */
/*
 * A run that compares modes. At the times of a plan, the simulator switches workers and samples counters, as
 * ../scheduler/run.c does on an SPS. No switch fails, and no switch is late.
 */
#ifndef SIPSIM_SWITCHES_H
#define SIPSIM_SWITCHES_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "../common/sample.h"
#include "plan.h"

struct sim;

struct switches {
	const struct plan *plan; /* the plan of the run; NULL: the run has only one mode */
	uint32_t window;         /* index of the next window; after the last window, the number of windows */
	bool looked;             /* true: the sample right before this window has been taken */
	uint64_t next_look;
	struct sample *samples;
	uint32_t n_samples, room;
};

void switches_begin(struct sim *sim);
void switches_event(struct sim *sim);
bool switches_over(const struct sim *sim);
/* Write the log, in the format of ../scheduler/log.h. */
bool switches_write(struct sim *sim, FILE *file);
void switches_free(struct switches *switches);
#endif
