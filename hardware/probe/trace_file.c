// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "system.h"
#include "trace_file.h"

static bool write_all(int fd, const void *data, size_t size)
{
	const char *at = data;

	while (size) {
		ssize_t written = write(fd, at, size);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0) {
			errno = written ? errno : ENOSPC;
			return false;
		}
		at += written;
		size -= (size_t)written;
	}
	return true;
}

/* Report only the first error. The run continues, because its counters are useful even without the trace. */
static void trace_failed(struct trace_file *trace, const char *what)
{
	if (!trace->failed)
		complain("cannot %s the trace %s: %s", what, trace->path, strerror(errno));
	trace->failed = true;
}

bool open_trace(struct trace_file *trace, const char *path)
{
	if (!path) {
		trace->path = "on stdout";
		trace->fd = STDOUT_FILENO;
		trace->is_pipe = true;
		return true;
	}
	trace->path = path;
	trace->fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
	if (trace->fd < 0)
		trace_failed(trace, "open");
	return trace->fd >= 0;
}

static void count_batch(struct trace_file *trace)
{
	for (size_t i = 0; i < trace->waiting; i++) {
		if (trace->batch[i].event == TRACE_EVENT_DROP)
			trace->drops++;
		else
			trace->messages++;
	}
}

void flush_trace(struct trace_file *trace)
{
	off_t end = trace->is_pipe ? 0 : lseek(trace->fd, 0, SEEK_CUR);

	if (write_all(trace->fd, trace->batch, trace->waiting * sizeof(trace->batch[0]))) {
		count_batch(trace);
	} else {
		trace_failed(trace, "write");
		trace->lost += trace->waiting;
		/* Remove a partly written record, so that the next record begins at a multiple of the record size. */
		if (!trace->is_pipe && (ftruncate(trace->fd, end) || lseek(trace->fd, end, SEEK_SET) < 0))
			trace_failed(trace, "truncate");
	}
	trace->waiting = 0;
}

void append_record(struct trace_file *trace, const struct trace_record *record)
{
	trace->batch[trace->waiting] = *record;
	trace->waiting++;
	if (trace->waiting == WRITE_BATCH)
		flush_trace(trace);
}

bool start_trace(struct trace_file *trace, enum trace_mode mode)
{
	struct trace_header header = {
		.version = TRACE_VERSION,
		.record_size = sizeof(struct trace_record),
		.mode = mode,
	};

	memcpy(header.magic, TRACE_MAGIC, sizeof(header.magic));
	trace->waiting = 0;
	trace->messages = 0;
	trace->drops = 0;
	trace->lost = 0;
	trace->failed = false;
	if ((!trace->is_pipe && (ftruncate(trace->fd, 0) || lseek(trace->fd, 0, SEEK_SET) < 0)) ||
	    !write_all(trace->fd, &header, sizeof(header))) {
		trace_failed(trace, "start");
		return false;
	}
	return true;
}

bool close_trace(struct trace_file *trace)
{
	if (!close(trace->fd))
		return true;
	trace_failed(trace, "close");
	return false;
}
