/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_COUNT_H
#define SIPSCHED_COUNT_H
#include "options.h"

/*
 * Count the times of messages in histograms in the kernel, without a record per message. On stdin, `0` detaches the hooks,
 * and `1` attaches them. At a line end, print one line of JSON with the counts since the last line end. At the end of the
 * input, return the exit code.
 */
int run_histograms(const struct options *options);
#endif
