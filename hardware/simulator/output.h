/* SPDX-License-Identifier: MIT */
/* Functions that write the files of a run, except for its trace. */
#ifndef SIPSIM_OUTPUT_H
#define SIPSIM_OUTPUT_H
#include <stdio.h>
#include "sim.h"

#define SIPSIM_VERSION 1

/* Write the file of calls, in the format of ../common/calls.h. */
bool output_calls(struct sim *sim, FILE *file);
/* Write the report of the UAC, in the format of ../generator/report.h. */
void output_uac(const struct sim *sim, FILE *file);
/* Write the model's counters: messages, the time of each CPU, and the work of each worker. */
void output_report(const struct sim *sim, FILE *file);
#endif
