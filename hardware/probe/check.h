/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_CHECK_H
#define SIPSCHED_CHECK_H
#include "options.h"

/* Load and attach each hook for a moment, and print which hooks this kernel supports. Return the exit code. */
int check(const struct options *options);
#endif
