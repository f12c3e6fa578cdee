/* SPDX-License-Identifier: MIT */
/* The role `sipload uac`. */
#ifndef SIPSCHED_CLIENT_H
#define SIPSCHED_CLIENT_H
#include "options.h"

/* Make the calls of the schedule and report on them; gives the exit code. */
int run_client(const struct options *options);
#endif
