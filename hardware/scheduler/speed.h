/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_SPEED_H
#define SIPSCHED_SPEED_H
#include "fail.h"

/* Prints the speed index, from so many seconds of CPU time. */
enum exit_code speed(double seconds);
#endif
