/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_COUNT_H
#define SIPSCHED_COUNT_H
#include "options.h"

/*
 * Count times per message in histograms in the kernel, without a record per message. On stdin, `0` detaches the hooks, `1`
 * attaches them, and a line end asks for the counts since the last line end, which are one line of JSON on stdout. The end
 * of the input ends the program. Return the exit code.
 */
int run_histograms(const struct options *options);
#endif
