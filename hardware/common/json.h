/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_JSON_H
#define SIPSCHED_JSON_H
#include <stdio.h>

/* Write a JSON string with its quotes. Every character except printable ASCII is escaped. */
void write_json_string(FILE *file, const char *text);
#endif
