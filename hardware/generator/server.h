/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_SERVER_H
#define SIPSCHED_SERVER_H
#include "options.h"

/* Answer calls until a signal stops the program, and write the report. Return the exit code. */
int run_server(const struct options *options);
#endif
