// SPDX-License-Identifier: MIT
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <unistd.h>
#include "log.h"

static void partial_name(char *name, const char *path)
{
	snprintf(name, PATH_MAX, "%s.partial", path);
}

FILE *log_open(const char *path)
{
	char name[PATH_MAX];

	partial_name(name, path);
	return fopen(name, "we");
}

void log_drop(FILE *file, const char *path)
{
	char name[PATH_MAX];

	partial_name(name, path);
	fclose(file);
	unlink(name);
}

bool log_close(FILE *file, const char *path)
{
	char name[PATH_MAX];
	int error;

	partial_name(name, path);
	if (!fflush(file) && !ferror(file) && !rename(name, path))
		return !fclose(file);
	error = errno;
	log_drop(file, path);
	errno = error;
	return false;
}

static void write_string(FILE *file, const char *text)
{
	fputc('"', file);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			fprintf(file, "\\%c", c);
		else if (c < 0x20 || c > 0x7e)
			fprintf(file, "\\u%04x", c);
		else
			fputc(c, file);
	}
	fputc('"', file);
}

static void write_window(FILE *file, const struct log *log, const struct plan_window *window,
			 const struct outcome *outcome)
{
	uint64_t asked_ns = log->has_t0 ? log->t0_ns + window->start_ns : outcome->began_ns;

	fprintf(file, "{\"asked_ns\":%" PRIu64 ",\"began_ns\":%" PRIu64 ",\"done_ns\":%" PRIu64, asked_ns,
		outcome->began_ns, outcome->done_ns);
	fprintf(file, ",\"errors\":%u,\"unlike\":%u,\"error\":", outcome->errors, outcome->unlike);
	write_string(file, outcome->error);
	fputc('}', file);
}

void log_write(FILE *file, const struct log *log, const struct switches *switches,
	       const struct sampler *sampler)
{
	fprintf(file, "{\"version\":%d,\"t0_ns\":", LOG_VERSION);
	if (log->has_t0)
		fprintf(file, "%" PRIu64, log->t0_ns);
	else
		fprintf(file, "null");
	fprintf(file,
		",\"tasks\":%u,\"scheduler\":\"%s\",\"ended\":\"%s\",\"ticks_per_s\":%ld,\n\"windows\":[",
		switches->n_tasks, log->fifo ? "fifo" : "other", log->by_signal ? "signal" : "plan",
		sysconf(_SC_CLK_TCK));
	for (size_t i = 0; i < log->n_windows; i++) {
		fputs(i ? ",\n" : "\n", file);
		write_window(file, log, &switches->plan->windows[i], &log->windows[i]);
	}
	fputs("],\n\"samples\":", file);
	samples_write(file, sampler->samples, sampler->n);
	fputs("}\n", file);
}
