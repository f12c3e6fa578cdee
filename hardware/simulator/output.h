/* SPDX-License-Identifier: MIT */
/* What a run leaves beside its trace. */
#ifndef SIPSIM_OUTPUT_H
#define SIPSIM_OUTPUT_H
#include <stdio.h>
#include "sim.h"

#define SIPSIM_VERSION 1

/* What became of each call, as `sipload uac` writes it: hardware/generator/calls.h. */
bool output_calls(struct sim *sim, FILE *file);
/* The report of the UAC, as `sipload uac` writes it: hardware/generator/report.h. */
void output_uac(const struct sim *sim, FILE *file);
/* What the model counted: messages, the time of each CPU, what each worker did. */
void output_report(const struct sim *sim, FILE *file);
#endif
