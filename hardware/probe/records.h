/* SPDX-License-Identifier: MIT */
/* Turns the events of the BPF programs into records of the trace. */
#ifndef SIPSCHED_RECORDS_H
#define SIPSCHED_RECORDS_H
#include <stddef.h>
#include <stdint.h>
#include "probe.h"
#include "trace_file.h"

struct records {
	struct trace_file trace;
	uint64_t t_fresh_ns;   /* datagrams that were received or refused before this time are excluded */
	uint64_t t_end_ns;     /* datagrams after this time are excluded, too; UINT64_MAX during the run */
	uint64_t unclassified; /* messages whose Call-ID or CSeq is beyond the snippet */
	uint64_t messages[PROBE_WORKERS]; /* by the index of the worker */
};

/* Return whether an event at this time belongs to the run. */
bool is_in_run(const struct records *records, uint64_t t_ns);
void record_message(struct records *records, const struct probe_message *message);
/* Handle one record of the ring. This is a callback of libbpf whose context is `struct records`. */
int on_ring_record(void *context, void *data, size_t size);
#endif
