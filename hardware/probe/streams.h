/* SPDX-License-Identifier: MIT */
/*
 * SIP messages in TCP streams. The input is the segments, reads and writes from stream.bpf.c. The output is records of messages.
 *
 * Content-Length (frame.h) cuts messages from the bytes that workers read and write. The position of a message's last byte
 * determines the segment in which the message arrived, the read by which a worker received it, and the segment in which it
 * departed. A written message with the same kind, Call-ID and CSeq is the forwarded message.
 */
#ifndef SIPSCHED_STREAMS_H
#define SIPSCHED_STREAMS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "probe.h"
#include "records.h"

#define STREAM_BUCKETS 4096

/* Counters since the start of the run. */
struct stream_counts {
	uint64_t received;      /* messages that a worker read whole */
	uint64_t sent;          /* messages that a worker wrote whole */
	uint64_t unmatched;     /* read messages without a known arrival */
	uint64_t broken;        /* number of times that the probe lost track of a stream */
	uint64_t skipped_bytes; /* bytes that belong to no message */
	uint64_t cut;           /* connections that ended within a message */
};

/* A worker between two reads. */
struct service {
	uint64_t t;      /* time of the end of the read */
	uint64_t number; /* number of the read */
	/* Position, among the waiting messages, of the first message that the read completed. */
	uint64_t first;
	uint64_t last; /* position after the last message that the read completed */
};

struct waiting;
struct stream;

struct streams {
	struct records *records; /* receives the finished records */
	uint64_t since_ns;       /* earlier arrivals are unknown */
	uint64_t until_ns;       /* later arrivals are unknown; 0: recording is on */
	uint64_t now_ns;         /* time of the last event */
	uint64_t t_sweep_ns;
	struct stream_counts counts;
	struct service services[PROBE_WORKERS];
	struct stream *streams[STREAM_BUCKETS];
	/* a ring of messages that may still be sent on or depart, in the order of their reads */
	struct waiting *waiting;
	size_t room; /* a power of two */
	uint64_t head;
	uint64_t tail;
	uint64_t *newest; /* newest message per key: 1 + position, 0: none; `room` entries */
};

/* Handle one event of stream.bpf.c. This is a callback of libbpf whose context is `struct streams`. */
int on_stream_event(void *context, void *data, size_t size);
/* Start counting again. */
void streams_afresh(struct streams *streams);
/* Record finished messages, and messages that waited too long. */
void settle_streams(struct streams *streams);
/* Return the messages that have not departed, and the connections with bytes that no worker has read. */
uint64_t count_waiting(const struct streams *streams);
uint64_t count_unread(const struct streams *streams);
/* Record departed messages, and forget all others. */
void forget_streams(struct streams *streams);
/* Record all waiting messages, when no more events will come. */
void end_streams(struct streams *streams);
#endif
