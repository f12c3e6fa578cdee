/* SPDX-License-Identifier: MIT */
/* A macro for unit tests: CHECK prints and counts a false condition, and lets the test continue. */
#ifndef SIPSCHED_CHECK_H
#define SIPSCHED_CHECK_H
#include <stdio.h>

static int failures;

#define CHECK(condition)                                                                          \
	do {                                                                                      \
		if (!(condition)) {                                                               \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
			failures++;                                                               \
		}                                                                                 \
	} while (0)
#endif
