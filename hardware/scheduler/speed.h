/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_SPEED_H
#define SIPSCHED_SPEED_H
#include "../common/program.h"

/* Measure the speed index for this many seconds of CPU time, and print the index. */
enum exit_code speed(double seconds);
#endif
