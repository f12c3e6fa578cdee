/* SPDX-License-Identifier: MIT */
/* What the command line says, checked; sipprobe.c has the meaning of each option. */
#ifndef SIPSCHED_OPTIONS_H
#define SIPSCHED_OPTIONS_H
#include <stdbool.h>
#include "trace.h"

#define EXIT_USAGE 2 /* wrong usage */

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
	const char *control; /* NULL: none */
	enum mode_choice mode;
	unsigned long port;
	unsigned long peer_port; /* of what the proxy connects to; over TCP */
	unsigned long ring_bytes;
	unsigned long snippet_bytes;
	bool verbose;
};

const char *mode_name(enum mode_choice mode);

/* Says on stderr how it is used; gives EXIT_USAGE. */
int usage(void);
/* The arguments start with the command. False: a line on stderr says what is wrong. */
bool parse_options(int argc, char **argv, struct options *options);
#endif
