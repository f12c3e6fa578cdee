/* SPDX-License-Identifier: MIT */
/*
 * Functions that write a file PATH, which appears only when its content is complete. The file is called PATH.partial
 * until the program has written everything. PATH must be a regular file or a missing file, because the rename would
 * replace a device such as /dev/null.
 */
#ifndef SIPSCHED_PARTIAL_H
#define SIPSCHED_PARTIAL_H
#include <stdbool.h>
#include <stdio.h>

/* Open PATH.partial for writing. Return NULL and set errno on failure. */
FILE *partial_open(const char *path);
/* Close the file and rename it to PATH. On failure, remove the file, set errno and return false. */
bool partial_close(FILE *file, const char *path);
/* Close PATH.partial and remove it. */
void partial_drop(FILE *file, const char *path);
#endif
