/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_SPEED_H
#define SIPSCHED_SPEED_H
#include "../common/program.h"

/* Measure the speed index (speed.c) for this many seconds of CPU time, and print it as JSON. Return the exit code. */
enum exit_code speed(double seconds);
#endif
