/* SPDX-License-Identifier: MIT */
/* From what the BPF programs emit to the records of the trace. */
#ifndef SIPSCHED_RECORDS_H
#define SIPSCHED_RECORDS_H
#include <stddef.h>
#include <stdint.h>
#include "probe.h"
#include "trace_file.h"

struct records {
	struct trace_file trace;
	uint64_t t_fresh_ns;              /* what was received or refused before it is left out */
	uint64_t t_end_ns;                /* and after it; UINT64_MAX while the run goes on */
	uint64_t unclassified;            /* Call-ID or CSeq lay past the snippet */
	uint64_t messages[PROBE_WORKERS]; /* by the place of the worker */
};

/* Whether what happened then belongs to the run. */
bool is_in_run(const struct records *records, uint64_t t_ns);
void record_message(struct records *records, const struct probe_message *message);
/* One record of the ring, of any event: a callback of libbpf whose context is `struct records`. */
int on_ring_record(void *context, void *data, size_t size);
#endif
