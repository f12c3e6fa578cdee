/* SPDX-License-Identifier: MIT */
/* Checks of unit tests. A failed check is printed and counted, and the test goes on. */
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
