// SPDX-License-Identifier: MIT
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <bpf/libbpf.h>
#include "../common/json.h"
#include "../common/partial.h"
#include "report.h"
#include "system.h"

static void print_count(FILE *file, const char *name, uint64_t value)
{
	fprintf(file, "  \"%s\": %" PRIu64 ",\n", name, value);
}

static void print_threads(FILE *file, const struct report *report)
{
	const char *separator = "";

	fputs("  \"threads\": [", file);
	for (size_t slot = 0; slot < report->workers->n_threads; slot++) {
		const struct thread *thread = &report->workers->threads[slot];

		fprintf(file, "%s\n    {\"tid\": %u, \"comm\": ", separator, thread->tid);
		write_json_string(file, thread->comm);
		fprintf(file, ", \"messages\": %" PRIu64 "}", report->records->messages[slot]);
		separator = ",";
	}
	fputs("\n  ],\n", file);
}

static void print_recording(FILE *file, const struct recording *recording)
{
	print_count(file, "switches_off", recording->switches_off);
	print_count(file, "off_ns", recording->off_ns);
	print_count(file, "cut_arrivals", recording->cut_arrivals);
	print_count(file, "cut_services", recording->cut_services);
	print_count(file, "slowest_off_ns", recording->slowest_off_ns);
	print_count(file, "slowest_on_ns", recording->slowest_on_ns);
}

static void print_attached(FILE *file, const struct sipprobe *object)
{
	const char *separator = "";
	struct bpf_program *program;

	fputs("  \"hooks\": [", file);
	bpf_object__for_each_program(program, object->obj)
	{
		if (!bpf_program__autoload(program))
			continue;
		fputs(separator, file);
		write_json_string(file, bpf_program__section_name(program));
		separator = ", ";
	}
	fputs("]\n", file);
}

/*
 * Write the counters for datagrams, from the BPF programs and from user space.
 *
 * refused_unseen counts refused datagrams for which the kernel skipped the BPF program (sipprobe.bpf.c, on_driver). The
 * number is correct only if the socket's queue is empty, as at the end of a run.
 */
static void print_counters(FILE *file, const struct probe_counters *counted, uint64_t cut_arrivals,
			   uint64_t lost_write)
{
	uint64_t unaccounted = count_unaccounted(counted);
	uint64_t refused_unseen = unaccounted > cut_arrivals ? unaccounted - cut_arrivals : 0;

#define PRINT_BPF(name)  print_count(file, #name, counted->name);
#define PRINT_USER(name) print_count(file, #name, name);
	PROBE_COUNTERS(PRINT_BPF, PRINT_USER)
#undef PRINT_BPF
#undef PRINT_USER
}

/* Write the counters for SIP messages over TCP. */
static void print_stream_counters(FILE *file, const struct probe_counters *counted,
				  const struct stream_counts *streams)
{
	print_count(file, "received", streams->received);
	print_count(file, "sent", streams->sent);
	print_count(file, "lost_ring", counted->lost_ring);
	print_count(file, "unmatched", streams->unmatched);
	print_count(file, "broken", streams->broken);
	print_count(file, "skipped_bytes", streams->skipped_bytes);
	print_count(file, "cut", streams->cut);
	print_count(file, "descriptors_sent", counted->descriptors_sent);
	print_count(file, "descriptors_received", counted->descriptors_received);
	print_count(file, "descriptor_send_ns", counted->descriptor_send_ns);
	print_count(file, "descriptor_receive_ns", counted->descriptor_receive_ns);
}

static void print_report(FILE *file, const struct report *report)
{
	const struct probe_counters *counted = &report->counted;
	const struct records *records = report->records;
	const struct trace_file *trace = &records->trace;

	fprintf(file, "{\n  \"version\": %d,\n  \"mode\": \"%s\",\n  \"mode_reason\": ", REPORT_VERSION,
		mode_name(report->probe->mode));
	write_json_string(file, report->probe->mode_reason);
	fputs(",\n", file);
	print_count(file, "records", trace->messages);
	print_count(file, "drops", trace->drops);
	if (report->probe->mode == MODE_STREAM) {
		print_stream_counters(file, counted, &report->streams->counts);
		print_count(file, "lost_write", trace->lost);
	} else {
		print_counters(file, counted, report->recording->cut_arrivals, trace->lost);
	}
	print_count(file, "unclassified", records->unclassified);
	print_count(file, "recursion_misses", report->recursion_misses);
	/* streams->counts.broken is always 0 for UDP */
	print_count(file, "lost", counted->lost_ring + trace->lost + report->streams->counts.broken);
	print_threads(file, report);
	print_recording(file, report->recording);
	print_count(file, "threads_untraced", report->workers->untraced);
	print_count(file, "writer_cpu_ns", read_clock(CLOCK_PROCESS_CPUTIME_ID) - report->cpu_at_fresh_ns);
	print_count(file, "t_fresh_ns", records->t_fresh_ns);
	print_count(file, "t_end_ns", records->t_end_ns);
	print_attached(file, report->probe->object);
	fputs("}\n", file);
}

bool write_report(const char *path, const struct report *report)
{
	FILE *file = partial_open(path);

	if (file) {
		print_report(file, report);
		if (partial_close(file, path))
			return true;
	}
	complain("cannot write the report %s: %s", path, strerror(errno));
	return false;
}
