/* SPDX-License-Identifier: MIT */
/*
 * The interface of sipprobe.bpf.c and user space: records in the ring, and state in .bss.
 *
 * Times are CLOCK_MONOTONIC in ns.
 */
#ifndef SIPSCHED_PROBE_H
#define SIPSCHED_PROBE_H
#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

#define PROBE_FINGERPRINT_BYTES \
	256 /* bytes of the payload by which a datagram is recognised at the worker; a multiple of 32 */
#define PROBE_SNIPPET_MAX     1024
#define PROBE_SNIPPET_DEFAULT 768
#define PROBE_HEAD_BYTES      16 /* bytes of a sent datagram: "SIP/2.0 100 Tryi", "INVITE sip:servi" */
#define PROBE_SENDS           4
#define PROBE_WORKERS         256
#define PROBE_TID_SLOTS       65536
#define PROBE_CPUS            256
#define PROBE_PIECE           4096 /* bytes of a stream per record of the ring */
#define PROBE_PIECES          16   /* records per system call: 64 KiB, the longest message */

/* The values of enum trace_event and enum trace_flag (trace.h); records.c asserts that they are equal. */
enum probe_event {
	PROBE_EVENT_MESSAGE = 0,
	PROBE_EVENT_DROP = 1,
	/* events of streams, from which streams.c makes records of the trace */
	PROBE_EVENT_ARRIVED = 2,  /* the driver passes a segment to the kernel */
	PROBE_EVENT_QUEUED = 3,   /* the connection takes the segment */
	PROBE_EVENT_DEPARTED = 4, /* the segment is passed to the driver */
	PROBE_EVENT_READ = 5,     /* a piece of the bytes that a worker has read */
	PROBE_EVENT_WRITTEN = 6,  /* a piece of the bytes that a worker has written */
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

/* A datagram that was sent while a message was in service. */
struct probe_send {
	__u64 t_sip_out;
	__u64 t_dep;
	__u64 off_cpu_ns; /* time off CPU since t_sip_in */
	__u32 switches;   /* context switches since t_sip_in */
	__u32 out_cost_ns;
	char head[PROBE_HEAD_BYTES];
};

/* A message in service. In the ring, the payload is cut to the length of a snippet. */
struct probe_message {
	__u32 event;
	__u32 tid;
	__u64 t_arr;
	__u64 t_stack;
	__u64 t_sockq;
	__u64 t_sip_in;
	__u32 rmem;
	__u32 flags;
	__u32 length; /* length of the datagram */
	__u32 snippet;
	__u32 in_cost_ns;
	__u32 cpu;
	__u32 n_send;
	__u32 slot; /* index in workers[] */
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

/* A TCP connection from this host's side. Addresses are in network order, ports in host order. */
struct probe_connection {
	__u32 local;
	__u32 remote;
	__u16 local_port;
	__u16 remote_port;
};

/* The passage of bytes of a stream at one hook. The events for opening and closing a connection have no bytes. */
struct probe_segment {
	__u32 event;
	__u32 seq; /* sequence number of the first byte */
	__u64 t;
	__u32 length;
	__u32 rmem; /* sk_rmem_alloc when the segment is queued */
	struct probe_connection connection;
	__u32 padding;
};

/* A piece of the bytes of one system call of a worker. */
struct probe_call {
	__u32 event;
	__u32 tid;
	__u64 t;          /* the end of a read, or the beginning of a write */
	__u64 t_taken;    /* for a read: the time when the last bytes were taken from the socket's queue */
	__u64 cost_ns;    /* the probe's work in this worker between its last read and t */
	__u64 off_cpu_ns; /* for a write: time off CPU since the worker's last read */
	__u32 switches;
	__u32 slot;
	__u32 cpu;
	__u32 seq; /* sequence number of the first byte */
	__u32 length;
	struct probe_connection connection;
};

/* In the ring, the data ends after `length` bytes. */
struct probe_transfer {
	struct probe_call call;
	char data[PROBE_PIECE];
};

/*
 * The counters of a run, in the order of the report.
 * BPF(name): counted by the BPF programs. USER(name): computed by user space for the report.
 */
#define PROBE_COUNTERS(BPF, USER)                                                                  \
	BPF(arrived)         /* datagrams to the port, at the earliest hook */                     \
	BPF(queued)          /* datagrams put into the socket's queue */                           \
	BPF(received)        /* datagrams that a worker received */                                \
	BPF(sent)            /* datagrams that a worker sent while a message was in service */     \
	BPF(refused)         /* datagrams that the socket refused */                               \
	USER(refused_unseen) /* datagrams that arrived, but are in neither received nor refused */ \
	BPF(lost_ring)       /* records that were lost because the ring was full */                \
	USER(lost_write)     /* records that could not be written to the trace */                  \
	BPF(unmatched)       /* received datagrams without a known arrival */                      \
	BPF(evicted)         /* arrivals that were overwritten before a worker received them */    \
	BPF(duplicates)      /* arrivals while an identical datagram was waiting */

/* TCP: descriptors of connections that one process passes to another through a unix socket (SCM_RIGHTS). */
#define PROBE_DESCRIPTOR_COUNTERS(BPF)                                              \
	BPF(descriptors_sent)     /* number of sent descriptors */                  \
	BPF(descriptors_received) /* number of received descriptors */              \
	BPF(descriptor_send_ns)   /* duration of the system calls that sent them */ \
	BPF(descriptor_receive_ns) /* duration of the system calls that received them, including the wait for the other process */

#define PROBE_NO_COUNTER(name)
#define PROBE_COUNTER_ONE(name)   +1
#define PROBE_COUNTER_FIELD(name) __u64 name;

enum {
	PROBE_N_COUNTERS = 0 PROBE_COUNTERS(PROBE_COUNTER_ONE, PROBE_NO_COUNTER)
		PROBE_DESCRIPTOR_COUNTERS(PROBE_COUNTER_ONE)
};

/* Counters of one CPU. User space adds them up. */
struct probe_counters {
	PROBE_COUNTERS(PROBE_COUNTER_FIELD, PROBE_NO_COUNTER)
	PROBE_DESCRIPTOR_COUNTERS(PROBE_COUNTER_FIELD)
	__u64 padding[16 - PROBE_N_COUNTERS]; /* two cache lines, so that CPUs share none */
};

#define PROBE_SEGMENTS 4 /* number of kept times on a CPU; a power of two */

struct probe_worker {
	__u32 tid;
	__u32 in_service;
	__u32 service; /* number of the message, so that a late departure is assigned to the correct message */
	__u32 sending; /* 1 + index of the send whose packet has not departed; 0: none */
	__s32 fd;      /* the socket of the last message; -1 before the first message */
	__u32 taken;   /* exact mode: this receive call took a datagram from the queue */
	__u64 t_recv_enter;
	__u64 t_taken;
	__u64 t_switched_out;
	__u64 off_cpu_ns;
	__u32 switches;
	__u32 segment;
	__u64 on[PROBE_SEGMENTS];
	__u64 off[PROBE_SEGMENTS]; /* 0: still on the CPU */
	/* exact mode: the arrival of the datagram that was taken */
	__u64 taken_t_arr;
	__u64 taken_t_stack;
	__u32 taken_rmem;
	/*
	 * for streams: the position after the last read, and its connection. `taken` is set after a read of a stream.
	 */
	__u32 position;
	struct probe_connection connection;
	__u64 cost_ns; /* the probe's work since t_sip_in */
	__u32 behind; /* the worker may still receive datagrams that arrived before recording, because the queue is in order */
	struct probe_message message;
};
#endif
