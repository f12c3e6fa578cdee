/* SPDX-License-Identifier: MIT */
/* `sipprobe check`. */
#ifndef SIPSCHED_CHECK_H
#define SIPSCHED_CHECK_H
#include "options.h"

/* Print what this kernel offers, by loading and attaching each hook for a moment; gives the exit code. */
int check(const struct options *options);
#endif
