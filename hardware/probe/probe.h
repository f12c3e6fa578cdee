/* SPDX-License-Identifier: MIT */
/*
 * The data that sipprobe.bpf.c and user space share: records in the ring buffer, and state in .bss.
 *
 * Times are CLOCK_MONOTONIC in ns.
 */
#ifndef SIPSCHED_PROBE_H
#define SIPSCHED_PROBE_H
#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

/*
 * The probe recognises a datagram by a fingerprint: a hash of this number of bytes at the start of the payload. The
 * number must be a multiple of 32, because fingerprint_of() reads 32 bytes per step.
 */
#define PROBE_FINGERPRINT_BYTES 256
#define PROBE_SNIPPET_MAX       1024
#define PROBE_SNIPPET_DEFAULT   768
#define PROBE_HEAD_BYTES        16 /* number of stored bytes of a sent datagram, as in "SIP/2.0 100 Tryi" */
#define PROBE_SENDS             4
#define PROBE_WORKERS           256
#define PROBE_TID_SLOTS         65536
#define PROBE_CPUS              256
#define PROBE_PIECE             4096 /* largest number of bytes of a stream in one record of the ring */
#define PROBE_PIECES            16 /* largest number of records per system call; together they hold 64 KiB */

/*
 * The values must equal the values of enum trace_event and enum trace_flag (trace.h). records.c checks this at build
 * time.
 */
enum probe_event {
	PROBE_EVENT_MESSAGE = 0,
	PROBE_EVENT_DROP = 1,
	/* The following events are for TCP. streams.c combines them into trace records. */
	PROBE_EVENT_ARRIVED = 2,  /* the driver passes a segment to the kernel */
	PROBE_EVENT_QUEUED = 3,   /* the connection accepts the segment */
	PROBE_EVENT_DEPARTED = 4, /* the kernel passes a segment to the driver */
	PROBE_EVENT_READ = 5,     /* a worker has read bytes from a connection */
	PROBE_EVENT_WRITTEN = 6,  /* a worker has written bytes to a connection */
	PROBE_EVENT_OPENED = 7,   /* a connection was established */
	PROBE_EVENT_CLOSED = 8,
};

enum probe_flag {
	PROBE_FLAG_SOCKQ_BOUND = 1 << 0,
	PROBE_FLAG_DUPLICATE = 1 << 1,
	PROBE_FLAG_NO_STACK = 1 << 2,
	PROBE_FLAG_MORE_SENDS = 1 << 5,
	PROBE_FLAG_UNMATCHED = 1 << 6,
};

/* A datagram that a worker sent while it served a message. */
struct probe_send {
	__u64 t_sip_out;
	__u64 t_dep;
	__u64 off_cpu_ns; /* time that the worker was off the CPU since t_sip_in */
	__u32 switches;   /* context switches of the worker since t_sip_in */
	__u32 out_cost_ns;
	char head[PROBE_HEAD_BYTES];
};

/* A message that a worker is serving. Its record in the ring ends after the first `snippet` bytes of the payload. */
struct probe_message {
	__u32 event;
	__u32 tid;
	__u64 t_arr;
	__u64 t_stack;
	__u64 t_sockq;
	__u64 t_sip_in;
	__u32 rmem;
	__u32 flags;
	__u32 length; /* length of the datagram in bytes */
	__u32 snippet;
	__u32 in_cost_ns;
	__u32 cpu;
	__u32 n_send;
	__u32 slot; /* index of the worker in workers[] */
	struct probe_send send[PROBE_SENDS];
	char payload[PROBE_SNIPPET_MAX];
};

/* A datagram that the socket refused. */
struct probe_drop {
	__u32 event;
	__u32 reason; /* errno value of the refusal */
	__u64 t_arr;
	__u64 t_refused;
	__u32 rmem;
	__u32 cpu;
	__u32 length;
	__u32 snippet;
	char payload[PROBE_SNIPPET_MAX];
};

/* A TCP connection from the view of this host. Addresses are in network byte order, ports in host byte order. */
struct probe_connection {
	__u32 local;
	__u32 remote;
	__u16 local_port;
	__u16 remote_port;
};

/* A TCP segment that passed a hook, or the opening or closing of a connection. An opening or closing has `length` 0. */
struct probe_segment {
	__u32 event;
	__u32 seq; /* sequence number of the first byte */
	__u64 t;
	__u32 length;
	__u32 rmem; /* bytes charged to the socket's receive buffer (sk_rmem_alloc) after queueing */
	struct probe_connection connection;
	__u32 padding;
};

/* A piece of the bytes that a worker read or wrote by one system call. Long reads and writes have several pieces. */
struct probe_call {
	__u32 event;
	__u32 tid;
	__u64 t;          /* end of a read, or beginning of a write */
	__u64 t_taken;    /* for a read, the time at which its last bytes left the socket's queue */
	__u64 cost_ns;    /* duration of the probe's own work between the worker's last read and t */
	__u64 off_cpu_ns; /* for a write, time off the CPU between the worker's last read and t */
	__u32 switches;
	__u32 slot;
	__u32 cpu;
	__u32 seq; /* sequence number of the first byte */
	__u32 length;
	struct probe_connection connection;
};

/* The description of a piece, and the piece's bytes. The record in the ring ends after `length` bytes of `data`. */
struct probe_transfer {
	struct probe_call call;
	char data[PROBE_PIECE];
};

/*
 * The counters of a run, in the order of the report. The BPF programs count each entry BPF(name). User space computes
 * each entry USER(name) when it writes the report.
 */
#define PROBE_COUNTERS(BPF, USER)                                                                    \
	BPF(arrived)         /* datagrams to the port, counted at the earliest hook */               \
	BPF(queued)          /* datagrams that the kernel put into the socket's queue */             \
	BPF(received)        /* datagrams that a worker received */                                  \
	BPF(sent)            /* datagrams that a worker sent while it served a message */            \
	BPF(refused)         /* datagrams that the socket refused */                                 \
	USER(refused_unseen) /* arrived datagrams that are neither in `received` nor in `refused` */ \
	BPF(lost_ring)       /* records that were lost because the ring was full */                  \
	USER(lost_write)     /* records that could not be written to the trace */                    \
	BPF(unmatched)       /* received datagrams whose arrival is unknown */                       \
	BPF(evicted)         /* arrival times overwritten before a worker got the datagram */        \
	BPF(duplicates)      /* datagrams that arrived while an identical datagram waited */

/* Counters for TCP connections that a process of the proxy passes to another process over a Unix socket (SCM_RIGHTS). */
#define PROBE_DESCRIPTOR_COUNTERS(BPF)                                                     \
	BPF(descriptors_sent)     /* number of descriptors that a process sent */          \
	BPF(descriptors_received) /* number of descriptors that a process received */      \
	BPF(descriptor_send_ns)   /* duration of the system calls that sent descriptors */ \
	BPF(descriptor_receive_ns) /* duration of the receiving system calls, including their wait for descriptors */

#define PROBE_NO_COUNTER(name)
#define PROBE_COUNTER_ONE(name)   +1
#define PROBE_COUNTER_FIELD(name) __u64 name;

enum {
	PROBE_N_COUNTERS = 0 PROBE_COUNTERS(PROBE_COUNTER_ONE, PROBE_NO_COUNTER)
		PROBE_DESCRIPTOR_COUNTERS(PROBE_COUNTER_ONE)
};

/* The counters of one CPU. User space adds up the counters of all CPUs. */
struct probe_counters {
	PROBE_COUNTERS(PROBE_COUNTER_FIELD, PROBE_NO_COUNTER)
	PROBE_DESCRIPTOR_COUNTERS(PROBE_COUNTER_FIELD)
	__u64 padding[16 - PROBE_N_COUNTERS]; /* to fill two cache lines, so that no two CPUs share a line */
};

#define PROBE_SEGMENTS 4 /* number of latest periods on a CPU that are stored per worker; a power of two */

struct probe_worker {
	__u32 tid;
	__u32 in_service;
	__u32 service; /* serial number of the message; departures with an older number are ignored */
	__u32 sending; /* 1 + index in `send` of the datagram that has not departed; 0: all have departed */
	__s32 fd;      /* socket of the last message; -1 before the first message */
	__u32 taken;   /* exact mode: the current receive call has taken a datagram from the queue */
	__u64 t_recv_enter;
	__u64 t_taken;
	__u64 t_switched_out;
	__u64 off_cpu_ns;
	__u32 switches;
	__u32 segment;
	__u64 on[PROBE_SEGMENTS];
	__u64 off[PROBE_SEGMENTS]; /* 0: the worker is still on the CPU */
	/* In exact mode, the next three members describe the datagram that the receive call took from the queue. */
	__u64 taken_t_arr;
	__u64 taken_t_stack;
	__u32 taken_rmem;
	/*
	 * For TCP, the TCP sequence number after the worker's last read, and the connection of this read. These two
	 * members are valid while `taken` is 1.
	 */
	__u32 position;
	struct probe_connection connection;
	__u64 cost_ns; /* duration of the probe's own work since t_sip_in */
	/*
	 * 1: the worker has not yet received a datagram that arrived after recording began. Until then, the worker
	 * may still receive datagrams that arrived while recording was off.
	 */
	__u32 behind;
	struct probe_message message;
};
#endif
