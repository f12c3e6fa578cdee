/* SPDX-License-Identifier: MIT */
/* What the output of `check` and the report of `run`, both JSON, have in common. */
#ifndef SIPSCHED_JSON_H
#define SIPSCHED_JSON_H
#include <stdio.h>

#define REPORT_VERSION 2 /* of both */

/* With quotes; all but printable ASCII is escaped. */
void print_json_string(FILE *file, const char *text);
#endif
