/* SPDX-License-Identifier: MIT */
/*
 * A run that compares modes: the workers are switched at the instants of its plan, and the counters looked at,
 * as ../scheduler does it on an SPS, by the same clockwork (run.c there). No switch fails, and none comes late.
 */
#ifndef SIPSIM_SWITCHES_H
#define SIPSIM_SWITCHES_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "../scheduler/sample.h"
#include "plan.h"

struct sim;

struct switches {
	const struct plan *plan; /* NULL: one mode */
	uint32_t window;         /* the next, or their number: the end comes next */
	bool looked;             /* right before it */
	uint64_t next_look;
	struct sample *samples;
	uint32_t n_samples, room;
};

void switches_begin(struct sim *sim);
void switches_event(struct sim *sim);
bool switches_over(const struct sim *sim);
/* The log, as ../scheduler/log.c writes it. */
bool switches_write(struct sim *sim, FILE *file);
void switches_free(struct switches *switches);
#endif
