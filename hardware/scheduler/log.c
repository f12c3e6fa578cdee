// SPDX-License-Identifier: MIT
#include <inttypes.h>
#include <unistd.h>
#include "../common/json.h"
#include "log.h"

static void write_window(FILE *file, const struct log *log, const struct plan_window *window,
			 const struct outcome *outcome)
{
	uint64_t asked_ns = log->has_t0 ? log->t0_ns + window->start_ns : outcome->began_ns;

	fprintf(file, "{\"asked_ns\":%" PRIu64 ",\"began_ns\":%" PRIu64 ",\"done_ns\":%" PRIu64, asked_ns,
		outcome->began_ns, outcome->done_ns);
	fprintf(file, ",\"errors\":%u,\"unlike\":%u,\"error\":", outcome->errors, outcome->unlike);
	write_json_string(file, outcome->error);
	fputc('}', file);
}

static void write_instances(FILE *file, const struct sampler *sampler)
{
	unsigned n = sampler->n_instances > 1 ? sampler->n_instances : 0;

	fputs(",\n\"cpu_ns_of_instances\":[", file);
	for (unsigned instance = 0; instance < n; instance++) {
		fputs(instance ? ",\n[" : "\n[", file);
		for (size_t i = 0; i < sampler->n; i++)
			fprintf(file, "%s%" PRIu64, i ? "," : "", sampler->instances_ns[i * n + instance]);
		fputc(']', file);
	}
	fputc(']', file);
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
	write_instances(file, sampler);
	fputs("}\n", file);
}
