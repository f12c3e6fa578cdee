/* SPDX-License-Identifier: MIT */
/*
 * What sipprobe.bpf.c and user space share: the records in the ring and the state in .bss.
 *
 * Instants are CLOCK_MONOTONIC in ns.
 */
#ifndef SIPSCHED_PROBE_H
#define SIPSCHED_PROBE_H
#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define PROBE_FINGERPRINT_BYTES 256 /* of the payload, to join queue and worker; a multiple of 32 */
#define PROBE_SNIPPET_MAX       1024
#define PROBE_SNIPPET_DEFAULT   768
#define PROBE_HEAD_BYTES        16 /* of a sent datagram: "SIP/2.0 100 Tryi", "INVITE sip:servi" */
#define PROBE_SENDS             4
#define PROBE_WORKERS           256
#define PROBE_TID_SLOTS         65536
#define PROBE_CPUS              256
#define PROBE_PIECE             4096 /* bytes of a stream in one record of the ring */
#define PROBE_PIECES            16   /* of a system call: 64 KiB, the longest message there is */

/* The values of enum trace_event and enum trace_flag (trace.h); records.c asserts that they agree. */
enum probe_event {
	PROBE_EVENT_MESSAGE = 0,
	PROBE_EVENT_DROP = 1,
	/* of streams: no records of the trace, streams.c makes them of these */
	PROBE_EVENT_ARRIVED = 2,  /* a segment: the driver hands it up */
	PROBE_EVENT_QUEUED = 3,   /* its connection takes it */
	PROBE_EVENT_DEPARTED = 4, /* it is handed to the driver */
	PROBE_EVENT_READ = 5,     /* a piece of what a worker has read */
	PROBE_EVENT_WRITTEN = 6,  /* or written */
	PROBE_EVENT_OPENED = 7,   /* a connection is established */
	PROBE_EVENT_CLOSED = 8,
};

enum probe_flag {
	PROBE_FLAG_SOCKQ_BOUND = 1 << 0,
	PROBE_FLAG_DUPLICATE = 1 << 1,
	PROBE_FLAG_NO_STACK = 1 << 2,
	PROBE_FLAG_MORE_SENDS = 1 << 5,
	PROBE_FLAG_UNMATCHED = 1 << 6,
};

/* A datagram sent while a message was in service. */
struct probe_send {
	__u64 t_sip_out;
	__u64 t_dep;
	__u64 off_cpu_ns; /* since t_sip_in */
	__u32 switches;   /* since t_sip_in */
	__u32 out_cost_ns;
	char head[PROBE_HEAD_BYTES];
};

/* A message in service; in the ring, payload is cut to snippet bytes. */
struct probe_message {
	__u32 event;
	__u32 tid;
	__u64 t_arr;
	__u64 t_stack;
	__u64 t_sockq;
	__u64 t_sip_in;
	__u32 rmem;
	__u32 flags;
	__u32 length; /* of the datagram */
	__u32 snippet;
	__u32 in_cost_ns;
	__u32 cpu;
	__u32 n_send;
	__u32 slot; /* in worker[] */
	struct probe_send send[PROBE_SENDS];
	char payload[PROBE_SNIPPET_MAX];
};

/* A datagram that the socket refused. */
struct probe_drop {
	__u32 event;
	__u32 reason; /* errno value */
	__u64 t_arr;
	__u64 t_refused;
	__u32 rmem;
	__u32 cpu;
	__u32 length;
	__u32 snippet;
	char payload[PROBE_SNIPPET_MAX];
};

/* A TCP connection from our side; addresses in network order, ports in the host's. */
struct probe_connection {
	__u32 local;
	__u32 remote;
	__u16 local_port;
	__u16 remote_port;
};

/* What happened to bytes of a stream on their way; to none of them where a connection is opened or closed. */
struct probe_segment {
	__u32 event;
	__u32 seq; /* of the first */
	__u64 t;
	__u32 length;
	__u32 rmem; /* sk_rmem_alloc when queued */
	struct probe_connection connection;
	__u32 padding;
};

/* A piece of what one system call of a worker moved. */
struct probe_call {
	__u32 event;
	__u32 tid;
	__u64 t;          /* the call: of a read its end, of a write its beginning */
	__u64 t_taken;    /* of a read: the last bytes were out of the socket's queue */
	__u64 cost_ns;    /* the probe's own work in this worker since its last read, before t */
	__u64 off_cpu_ns; /* of a write, since the worker's last read; switches likewise */
	__u32 switches;
	__u32 slot;
	__u32 cpu;
	__u32 seq; /* of the first byte */
	__u32 length;
	struct probe_connection connection;
};

/* In the ring, data is cut to length bytes. */
struct probe_transfer {
	struct probe_call call;
	char data[PROBE_PIECE];
};

/*
 * What is counted in a run, in the order of the report.
 * BPF(name): by the programs. USER(name): by user space, when it writes the report.
 */
#define PROBE_COUNTERS(BPF, USER)                                                 \
	BPF(arrived)         /* datagrams to the port, at the earliest hook */    \
	BPF(queued)          /* at the socket */                                  \
	BPF(received)        /* by a worker */                                    \
	BPF(sent)            /* by a worker, while a message was in service */    \
	BPF(refused)         /* by the socket */                                  \
	USER(refused_unseen) /* arrived, neither received nor in refused */       \
	BPF(lost_ring)       /* records that found the ring full */               \
	USER(lost_write)     /* records that could not be written to the trace */ \
	BPF(unmatched)       /* received, but no arrival was found */             \
	BPF(evicted)         /* arrivals overwritten before a worker had them */  \
	BPF(duplicates)      /* arrivals while an identical datagram was waiting */

/* Over TCP: descriptors of connections that one process hands to another through a unix socket (SCM_RIGHTS). */
#define PROBE_DESCRIPTOR_COUNTERS(BPF)                              \
	BPF(descriptors_sent)      /* handed over */                \
	BPF(descriptors_received)  /* and taken */                  \
	BPF(descriptor_send_ns)    /* time in the calls that did */ \
	BPF(descriptor_receive_ns) /* likewise, waiting for the other process included */

#define PROBE_NO_COUNTER(name)
#define PROBE_COUNTER_ONE(name)   +1
#define PROBE_COUNTER_FIELD(name) __u64 name;

enum {
	PROBE_N_COUNTERS = 0 PROBE_COUNTERS(PROBE_COUNTER_ONE, PROBE_NO_COUNTER)
		PROBE_DESCRIPTOR_COUNTERS(PROBE_COUNTER_ONE)
};

/* One per CPU; user space sums them. */
struct probe_counters {
	PROBE_COUNTERS(PROBE_COUNTER_FIELD, PROBE_NO_COUNTER)
	PROBE_DESCRIPTOR_COUNTERS(PROBE_COUNTER_FIELD)
	__u64 padding[16 - PROBE_N_COUNTERS]; /* two cache lines, no sharing between CPUs */
};

#define PROBE_SEGMENTS 4 /* spells on a CPU that are remembered; a power of two */

struct probe_worker {
	__u32 tid;
	__u32 in_service;
	__u32 service; /* counts messages, so that a late departure is not written to the next one */
	__u32 sending; /* 1 + index of the send whose packet is awaited; 0: none */
	__s32 fd;      /* the socket of the last message, -1: none yet */
	__u32 taken;   /* exact mode: a datagram was taken from the queue in this recv */
	__u64 t_recv_enter;
	__u64 t_taken;
	__u64 t_switched_out;
	__u64 off_cpu_ns;
	__u32 switches;
	__u32 segment;
	__u64 on[PROBE_SEGMENTS];
	__u64 off[PROBE_SEGMENTS]; /* 0: still running */
	/* the arrival of the datagram just taken (exact mode) */
	__u64 taken_t_arr;
	__u64 taken_t_stack;
	__u32 taken_rmem;
	/* of streams: where its last read ended, on which connection; `taken` is set if it was a read of one */
	__u32 position;
	struct probe_connection connection;
	__u64 cost_ns; /* since t_sip_in */
	__u32 behind;  /* may yet receive what arrived before recording: the queue is in order */
	struct probe_message message;
};
#endif
