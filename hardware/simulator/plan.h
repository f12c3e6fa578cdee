/* SPDX-License-Identifier: MIT */
/*
 * The windows of a run that compares modes. src/sipsched/measure/simulated_point.py writes them as lines of text.
 *   mode NUMBER NAME = VALUE    the value of a model's parameter in a mode; plan.c lists the possible names
 *   window START_NS NUMBER      the mode is in force from START_NS on; the first window starts at 0, and starts ascend
 *   end NS                      end of the last window
 *   sample NS                   period of the samples
 *   setattr NS                  CPU time that a worker loses when its attributes are set
 * Times count from the time when the first call of the schedule could reach the SPS.
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
	const char *blocks; /* path of the windows in the generator's format (../common/schedule.h) */
};

/*
 * Read a plan. Return NULL on success, or `error` with a text that describes the problem. Each mode has the parameters
 * of `model`, except for the values that the plan sets.
 */
const char *plan_read(struct plan *plan, const char *path, const struct model *model, char *error,
		      size_t size);
void plan_free(struct plan *plan);
#endif
