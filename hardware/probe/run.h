/* SPDX-License-Identifier: MIT */
/* `sipprobe run`. */
#ifndef SIPSCHED_RUN_H
#define SIPSCHED_RUN_H
#include "options.h"

/* Attach, trace until a signal ends it, report; gives the exit code. */
int run_probe(const struct options *options);
#endif
