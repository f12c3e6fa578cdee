/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_JSON_H
#define SIPSCHED_JSON_H
#include <stdio.h>

/* Write a JSON string with its quotes. Escape every character that is not printable ASCII. */
void write_json_string(FILE *file, const char *text);
#endif
