/* SPDX-License-Identifier: MIT */
/*
 * SIP messages in TCP streams: from the segments, reads and writes that stream.bpf.c emits to records of messages.
 *
 * A message is cut from what workers read and write by its Content-Length (frame.h). Where its last byte lies in the
 * stream says which segment it came with, which read gave it to a worker, and which segment took it away; the message
 * written that has its kind, Call-ID and CSeq is the one sent on.
 */
#ifndef SIPSCHED_STREAMS_H
#define SIPSCHED_STREAMS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "probe.h"
#include "records.h"

#define STREAM_BUCKETS 4096

/* Counted since the run began. */
struct stream_counts {
	uint64_t received;      /* messages read whole by a worker */
	uint64_t sent;          /* and written */
	uint64_t unmatched;     /* messages read whose arrival was not found */
	uint64_t broken;        /* times that a stream could not be followed any more */
	uint64_t skipped_bytes; /* that belong to no message */
	uint64_t cut;           /* connections that ended within a message */
};

/* A worker between two reads. */
struct service {
	uint64_t t;      /* end of the read */
	uint64_t number; /* of the read */
	uint64_t first;  /* messages that it completed: their places among those that wait */
	uint64_t last;   /* one past them */
};

struct waiting;
struct stream;

struct streams {
	struct records *records; /* gets what is whole */
	uint64_t since_ns;       /* of arrivals before it nothing is known */
	uint64_t until_ns;       /* nor of those since; 0: recording is on */
	uint64_t now_ns;         /* of the last event */
	uint64_t t_sweep_ns;
	struct stream_counts counts;
	struct service services[PROBE_WORKERS];
	struct stream *streams[STREAM_BUCKETS];
	/* messages that may yet be sent on or depart, in the order in which they were read; a ring */
	struct waiting *waiting;
	size_t room; /* a power of two */
	uint64_t head;
	uint64_t tail;
	uint64_t *newest; /* by their keys: 1 + place of the newest one, 0: none; as many as there is room */
};

/* One event of stream.bpf.c: a callback of libbpf whose context is `struct streams`. */
int on_stream_event(void *context, void *data, size_t size);
/* Count from here on. */
void streams_afresh(struct streams *streams);
/* Record what is done, and what has waited in vain. */
void settle_streams(struct streams *streams);
/* Messages that have not left yet, and connections with bytes that no worker has read. */
uint64_t count_waiting(const struct streams *streams);
uint64_t count_unread(const struct streams *streams);
/* Record what has left, forget the others and all that is underway. */
void forget_streams(struct streams *streams);
/* Record all that waits; nothing comes any more. */
void end_streams(struct streams *streams);
#endif
