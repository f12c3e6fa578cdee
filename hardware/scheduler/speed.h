/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_SPEED_H
#define SIPSCHED_SPEED_H
#include "../common/program.h"

/*
 * Measure the speed index, which is the number of fixed work steps per microsecond of CPU time (speed.c). Measure for
 * `seconds` seconds of CPU time, and print the index as JSON. Return the exit code.
 */
enum exit_code speed(double seconds);
#endif
