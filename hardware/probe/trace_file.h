/* SPDX-License-Identifier: MIT */
/* The trace as it is written: in batches, and complaining once if the disk refuses. */
#ifndef SIPSCHED_TRACE_FILE_H
#define SIPSCHED_TRACE_FILE_H
#include <stdbool.h>
#include <stddef.h>
#include "trace.h"

#define WRITE_BATCH 2048

struct trace_file {
	const char *path;
	int fd;
	uint64_t messages; /* written, as are drops */
	uint64_t drops;
	uint64_t lost;  /* could not be written */
	bool failed;    /* complained already */
	size_t waiting; /* records in batch */
	struct trace_record batch[WRITE_BATCH];
};

/* False, here and below: it failed, and a line on stderr says why. */
bool open_trace(struct trace_file *trace, const char *path);
/* Empty the trace to its header and the counts to zero. */
bool start_trace(struct trace_file *trace, enum trace_mode mode);
void append_record(struct trace_file *trace, const struct trace_record *record);
void flush_trace(struct trace_file *trace);
bool close_trace(struct trace_file *trace);
#endif
