/* SPDX-License-Identifier: MIT */
/* Functions that read numbers and addresses from a command line. */
#ifndef SIPSCHED_ARGUMENTS_H
#define SIPSCHED_ARGUMENTS_H
#include <netinet/in.h>
#include <stdbool.h>

/* Parse a text as a decimal integer from `least` to `most`. Return false if the text is anything else. */
bool parse_whole(const char *text, long long least, long long most, long long *value);
/*
 * Parse the first range of a list of CPUs such as 0,2-3, and move `text` to the next range. Return false if the list is
 * malformed or if a CPU number is `most` or larger. The list has ended when `**text` is 0.
 */
bool parse_cpu_range(const char **text, unsigned long most, unsigned long *first, unsigned long *last);
/* Parse an IPv4 address with a port, such as 10.0.0.1:5060. Return false for any other text. */
bool parse_address(const char *text, struct sockaddr_in *address);
#endif
