/* SPDX-License-Identifier: MIT */
/* The command line, checked. The usage is in sipprobe.c. */
#ifndef SIPSCHED_OPTIONS_H
#define SIPSCHED_OPTIONS_H
#include <stdbool.h>
#include "../common/program.h"
#include "../common/trace.h"

enum mode_choice {
	MODE_AUTO = 0,
	MODE_EXACT = TRACE_MODE_EXACT,
	MODE_TRACEPOINT = TRACE_MODE_TRACEPOINT,
	MODE_STREAM = TRACE_MODE_STREAM
};

struct options {
	const char *comm;
	const char *output;
	const char *report;
	const char *ready;
	const char *control; /* NULL: no socket for commands */
	enum mode_choice mode;
	unsigned long port;
	unsigned long peer_port; /* TCP: the port to which the proxy connects */
	unsigned long ring_bytes;
	unsigned long snippet_bytes;
	bool verbose;
};

const char *mode_name(enum mode_choice mode);

/* Print the usage on stderr and return EXIT_USAGE. */
int usage(void);
/* Parse the arguments. The first argument is the command. If an argument is wrong, print a line and return false. */
bool parse_options(int argc, char **argv, struct options *options);
#endif
