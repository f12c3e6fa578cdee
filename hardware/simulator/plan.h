/* SPDX-License-Identifier: MIT */
/*
 * The windows of a run that compares modes: a text of lines, as src/sipsched/measure/simulation.py writes it.
 *   mode NUMBER NAME = VALUE    what the model has under a mode; NAME is one of those in plan.c, the rest stays
 *   window START_NS NUMBER      from START_NS on; the first is 0, starts rise
 *   end NS                      of the last window
 *   sample NS                   between looks at the counters
 *   setattr NS                  what it takes of a worker's CPU to set its attributes
 * Instants count from the schedule's beginning as it reaches the SPS.
 */
#ifndef SIPSIM_PLAN_H
#define SIPSIM_PLAN_H
#include "model.h"

#define MODES_MAX 32

struct plan_window {
	uint64_t start_ns;
	uint32_t mode;
};

struct plan {
	struct model modes[MODES_MAX];
	uint32_t n_modes;
	struct plan_window *windows;
	uint32_t n_windows, room;
	uint64_t end_ns, sample_ns, setattr_ns;
	const char *blocks; /* the windows as the generator plays them: ../generator/schedule.h */
};

/* NULL, or what is wrong, in `error`; `model` is what the modes differ from. */
const char *plan_read(struct plan *plan, const char *path, const struct model *model, char *error,
		      size_t size);
void plan_free(struct plan *plan);
#endif
