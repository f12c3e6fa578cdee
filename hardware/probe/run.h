/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_RUN_H
#define SIPSCHED_RUN_H
#include "options.h"

/* Attach the probe, trace messages until a signal arrives, and write the report. Return the exit code. */
int run_probe(const struct options *options);
#endif
