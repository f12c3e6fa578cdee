/* SPDX-License-Identifier: MIT */
/* Functions that write the trace file of a run in batches of records. They report only the first failed write. */
#ifndef SIPSCHED_TRACE_FILE_H
#define SIPSCHED_TRACE_FILE_H
#include <stdbool.h>
#include <stddef.h>
#include "../common/trace.h"

#define WRITE_BATCH 2048

struct trace_file {
	const char *path;
	int fd;
	uint64_t messages; /* number of written records */
	uint64_t drops;
	uint64_t lost;  /* number of records that could not be written */
	bool is_pipe;   /* the trace goes to a pipe, so a partly written record cannot be removed */
	bool failed;    /* the program has reported a failed write */
	size_t waiting; /* number of records in `batch` */
	struct trace_record batch[WRITE_BATCH];
};

/*
 * Open a trace for writing. If the path is NULL, the trace goes to stdout, and start_trace() may be called only once. On
 * failure, open_trace() and start_trace() print one line and return false.
 */
bool open_trace(struct trace_file *trace, const char *path);
/* Empty the trace except for its header, and set the counters to 0. */
bool start_trace(struct trace_file *trace, enum trace_mode mode);
void append_record(struct trace_file *trace, const struct trace_record *record);
void flush_trace(struct trace_file *trace);
bool close_trace(struct trace_file *trace);
#endif
