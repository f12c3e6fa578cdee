/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_CLIENT_H
#define SIPSCHED_CLIENT_H
#include "options.h"

/* Make the calls of the schedule and write the reports. Return the exit code. */
int run_client(const struct options *options);
#endif
