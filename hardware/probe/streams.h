/* SPDX-License-Identifier: MIT */
/*
 * Functions that find SIP messages in TCP streams. The input is the segments, reads and writes from stream.bpf.c. The
 * output is records of messages.
 *
 * The functions cut the bytes that workers read and write into messages by Content-Length (frame.h). The position of a
 * message's last byte in the stream determines three events: the segment in which the message arrived, the read by
 * which a worker received it, and the segment in which it departed. A written message with the same kind, Call-ID and
 * CSeq is the forwarded message.
 */
#ifndef SIPSCHED_STREAMS_H
#define SIPSCHED_STREAMS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "probe.h"
#include "records.h"

#define STREAM_BUCKETS 4096

/* The counters since the start of the run. */
struct stream_counts {
	uint64_t received;      /* messages that a worker read completely */
	uint64_t sent;          /* messages that a worker wrote completely */
	uint64_t unmatched;     /* messages that a worker read, but that have no known arrival */
	uint64_t broken;        /* how often the probe could not find the next message in a stream */
	uint64_t skipped_bytes; /* bytes that belong to no message */
	uint64_t cut;           /* connections that ended in the middle of a message */
};

/* The state of a worker between two reads. */
struct service {
	uint64_t t;      /* end of the worker's last read */
	uint64_t number; /* serial number of this last read */
	/* Position of the first message that the last read completed, in the ring of waiting messages. */
	uint64_t first;
	uint64_t last; /* position after the last message that the last read completed */
};

struct waiting;
struct stream;

struct streams {
	struct records *records; /* the destination of finished records */
	uint64_t since_ns;       /* the probe does not know arrivals before this time */
	uint64_t until_ns;       /* the probe does not know arrivals after this time; 0: recording is on */
	uint64_t now_ns;         /* time of the last event */
	uint64_t t_sweep_ns;
	struct stream_counts counts;
	struct service services[PROBE_WORKERS];
	struct stream *streams[STREAM_BUCKETS];
	/* A ring of messages that a worker may still forward or that may still depart, in the order of their reads. */
	struct waiting *waiting;
	size_t room; /* size of the ring, a power of two */
	uint64_t head;
	uint64_t tail;
	/* Per hash of kind, Call-ID and CSeq: 1 + position of the newest message, or 0. The array has `room` entries. */
	uint64_t *newest;
};

/* Process one event of stream.bpf.c. libbpf calls this function with `struct streams` as context. */
int on_stream_event(void *context, void *data, size_t size);
/* Reset the counters. */
void streams_afresh(struct streams *streams);
/*
 * Write the records of the oldest messages, up to the first unfinished message. A message is finished when it has
 * departed and its worker has read again, or when HOLD_NS (streams.c) have passed since it was read. Also free the
 * state of closed connections.
 */
void settle_streams(struct streams *streams);
/* Return the number of waiting messages that have not departed. */
uint64_t count_waiting(const struct streams *streams);
/* Return the number of connections with bytes that have arrived, but that no worker has read. */
uint64_t count_unread(const struct streams *streams);
/* Write the records of departed messages. Forget all other messages and all unread bytes. */
void forget_streams(struct streams *streams);
/* Write the records of all messages that a worker has not read or not answered yet. Call this after the last event. */
void end_streams(struct streams *streams);
#endif
