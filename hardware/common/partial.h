/* SPDX-License-Identifier: MIT */
/*
 * Files that appear whole or not at all: a file is called PATH.partial until all of it is written.
 * PATH must be a regular file or not exist: a rename would replace a device such as /dev/null.
 */
#ifndef SIPSCHED_PARTIAL_H
#define SIPSCHED_PARTIAL_H
#include <stdbool.h>
#include <stdio.h>

/* Open PATH.partial for writing. Return NULL and set errno if that fails. */
FILE *partial_open(const char *path);
/* Close the file and rename it to PATH. If that fails, remove the file, return false and set errno. */
bool partial_close(FILE *file, const char *path);
/* Close the file and remove it. */
void partial_drop(FILE *file, const char *path);
#endif
