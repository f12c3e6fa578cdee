/* SPDX-License-Identifier: MIT */
/* Functions that convert the events of the BPF programs to records of the trace file. */
#ifndef SIPSCHED_RECORDS_H
#define SIPSCHED_RECORDS_H
#include <stddef.h>
#include <stdint.h>
#include "classify.h"
#include "probe.h"
#include "trace_file.h"

struct records {
	struct trace_file trace;
	uint64_t t_fresh_ns; /* the trace excludes datagrams that were received or refused before this time */
	uint64_t t_end_ns;   /* the trace excludes datagrams after this time; UINT64_MAX during the run */
	uint64_t unclassified; /* number of messages whose stored first bytes lack the Call-ID or CSeq */
	uint64_t messages[PROBE_WORKERS]; /* messages per worker, by the worker's index */
	const struct sip_key *key;        /* `watch`: secret key to hash Call-ID and CSeq; NULL for `run` */
	uint64_t one_in;                  /* `watch`: the trace contains 1 of `one_in` calls */
	uint64_t left_out;                /* number of messages that the trace omits because of `one_in` */
};

/* Return whether an event at t_ns belongs to the run. */
bool is_in_run(const struct records *records, uint64_t t_ns);
/* Write a record, unless the trace omits the record's call because of `one_in`. Always write a record of a drop. */
void keep_record(struct records *records, const struct trace_record *record);
void record_message(struct records *records, const struct probe_message *message);
/* Process one record of the ring. libbpf calls this function with `struct records` as context. */
int on_ring_record(void *context, void *data, size_t size);
#endif
