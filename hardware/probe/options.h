/* SPDX-License-Identifier: MIT */
/* The checked values of sipprobe's command line. The comment at the start of sipprobe.c describes the options. */
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
	const char *control; /* path of the socket for commands; NULL: no socket */
	enum mode_choice mode;
	unsigned long port;
	unsigned long ports;     /* UDP: number of consecutive ports to trace, from `port` on */
	unsigned long peer_port; /* TCP: the remote port to which the proxy connects */
	unsigned long ring_bytes;
	unsigned long snippet_bytes;
	const char *netns;    /* file of the proxy's network namespace; NULL: use this process's namespace */
	unsigned long one_in; /* `watch`: the trace contains 1 of `one_in` calls */
	bool watch;           /* the command is `watch` */
	bool verbose;
};

const char *mode_name(enum mode_choice mode);

/* Return the inode number of the proxy's network namespace, or 0 if its file cannot be read. */
uint32_t proxy_namespace(const struct options *options);
/* Print the usage on stderr and return EXIT_USAGE. */
int usage(void);
/* Parse the command and its arguments. If an argument is wrong, print one line and return false. */
bool parse_options(int argc, char **argv, struct options *options);
#endif
