/* SPDX-License-Identifier: MIT */
/* The role `sipload uas`. */
#ifndef SIPSCHED_SERVER_H
#define SIPSCHED_SERVER_H
#include "options.h"

/* Answer calls until a signal comes, and report on them; gives the exit code. */
int run_server(const struct options *options);
#endif
