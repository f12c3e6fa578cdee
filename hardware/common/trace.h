/* SPDX-License-Identifier: MIT */
/*
 * The trace of a run. The probe writes the trace, and src/sipsched/records/trace.py reads it.
 *
 * The file has one header and then records of equal size, in the order in which the probe wrote them. Numbers are
 * little-endian without padding. Times are CLOCK_MONOTONIC in ns, and 0 means that the time is unknown.
 * A trace of mode PRELOAD may end in zeros. The valid records of such a trace end before the first record with t_sip_in
 * = 0. Raise TRACE_VERSION here and in src/sipsched/records/trace.py when a field changes.
 */
#ifndef SIPSCHED_TRACE_H
#define SIPSCHED_TRACE_H
#include <stdint.h>

#define TRACE_MAGIC   "SIPTRACE"
#define TRACE_VERSION 1

enum trace_mode {
	TRACE_MODE_EXACT = 1,      /* BPF with fentry/fexit: the probe measures all six timestamps */
	TRACE_MODE_TRACEPOINT = 2, /* BPF with tracepoints only: t_sockq is a lower bound */
	TRACE_MODE_PRELOAD = 3,    /* no BPF: only t_arr, t_sip_in, t_sip_out and a counter of drops */
	TRACE_MODE_STREAM = 4,     /* TCP with BPF tracepoints: the probe measures all six timestamps */
};

enum trace_event {
	TRACE_EVENT_MESSAGE = 0, /* a worker received this datagram */
	TRACE_EVENT_DROP = 1,    /* the kernel dropped this datagram at the socket's queue (drop_reason) */
};

/* The kind of the SIP message: its method, or its status code and the method in CSeq (RFC 3261). */
enum trace_kind {
	TRACE_KIND_OTHER = 0,
	TRACE_KIND_INVITE = 1,
	TRACE_KIND_180 = 2,
	TRACE_KIND_200_INVITE = 3,
	TRACE_KIND_ACK = 4,
	TRACE_KIND_BYE = 5,
	TRACE_KIND_200_BYE = 6,
};

/*
 * The methods and status codes that `sipprobe watch` writes to bits 3 to 7 of `kind`, for messages of kind OTHER. The value
 * is 1 + the position in these two lists, or 0 if the probe did not determine the method or status.
 * src/sipsched/records/watch.py has the same lists.
 */
#define TRACE_METHODS                                                                                \
	"CANCEL", "OPTIONS", "REGISTER", "PRACK", "SUBSCRIBE", "NOTIFY", "PUBLISH", "INFO", "REFER", \
		"MESSAGE", "UPDATE", "other request"
#define TRACE_STATUSES                                                                                    \
	"100", "183", "1xx", "2xx", "3xx", "401", "403", "404", "407", "408", "486", "487", "4xx", "500", \
		"503", "5xx", "6xx"
#define TRACE_NOT_SIP   30 /* the datagram is no SIP message */
#define TRACE_KIND_BITS 3

enum trace_flag {
	TRACE_FLAG_SOCKQ_BOUND = 1 << 0, /* t_sockq is a lower bound */
	/* Identical datagrams were in the queue. The probe assumes that the worker received the oldest datagram. */
	TRACE_FLAG_DUPLICATE = 1 << 1,
	TRACE_FLAG_NO_STACK = 1 << 2, /* the probe missed the queueing and set t_stack to t_arr */
	TRACE_FLAG_NO_SEND = 1 << 3,  /* the worker sent no message of the same kind: t_sip_out = t_dep = 0 */
	TRACE_FLAG_NO_DEP = 1 << 4,   /* the probe missed the transfer to the driver: t_dep = 0 */
	/* The worker sent more datagrams for this message than the probe can store (PROBE_SENDS). */
	TRACE_FLAG_MORE_SENDS = 1 << 5,
	/* The probe found no arrival of this message: t_arr = t_stack = t_sockq = 0. */
	TRACE_FLAG_UNMATCHED = 1 << 6,
	/* src/sipsched/records/messages.py uses the bits 7 and 8 for flags of its own. */
	/* TCP: the read that completed this message also completed other messages. */
	TRACE_FLAG_SHARED_READ = 1 << 9,
	TRACE_FLAG_SPLIT = 1 << 10, /* TCP: the worker needed several reads for this message */
	/*
	 * TCP: another process forwarded the message, or the worker forwarded it after another read. off_cpu_ns is 0.
	 */
	TRACE_FLAG_LEFT = 1 << 11,
	/*
	 * Only `sipprobe watch`: the worker sent no message of the same kind, so t_sip_out is the time of another send.
	 */
	TRACE_FLAG_ANSWERED = 1 << 12,
	/* src/sipsched/records/watch.py uses bit 13 to mark messages over TCP. */
};

struct trace_header {
	char magic[8];        /* always TRACE_MAGIC */
	uint32_t version;     /* always TRACE_VERSION */
	uint32_t record_size; /* always sizeof(struct trace_record) */
	uint32_t mode;        /* one of enum trace_mode */
	/* In mode PRELOAD, the kernel's number of drops at the socket (SO_RXQ_OVFL). 0 in other modes. */
	uint32_t reserved;
} __attribute__((packed));

struct trace_record {
	uint64_t t_arr;     /* the network driver passes the packet to the kernel */
	uint64_t t_stack;   /* the kernel puts the message into the socket's queue, or drops the message */
	uint64_t t_sockq;   /* the kernel takes the message from the socket's queue */
	uint64_t t_sip_in;  /* the worker's recv returns; 0 for a drop */
	uint64_t t_sip_out; /* the worker calls send for a message of the same kind */
	uint64_t t_dep;     /* the kernel passes the sent message to the network driver */
	/* 64-bit FNV-1a hash of the Call-ID, or 0 without a Call-ID. `sipprobe watch` writes a keyed SipHash. */
	uint64_t call_id_hash;
	uint32_t
		cseq; /* sequence number in the CSeq header; `sipprobe watch` writes a keyed hash of the number */
	uint32_t tid; /* thread id of the worker; 0 for a drop */
	/*
	 * Time that the worker was off the CPU between t_sip_in and t_sip_out. A time above UINT32_MAX is stored as
	 * UINT32_MAX.
	 */
	uint32_t off_cpu_ns;
	uint32_t rmem; /* sk_rmem_alloc at t_stack: bytes charged to the socket's receive buffer */
	/* Duration of the probe's own work right after t_sip_in. T_sip excludes this duration. */
	uint16_t in_cost_ns;
	/* Duration of the probe's own work right after t_sip_out. K_snd excludes this duration. */
	uint16_t out_cost_ns;
	uint16_t cpu;      /* the CPU at t_sip_in, or at the drop */
	uint16_t length;   /* number of payload bytes */
	uint16_t flags;    /* bits of enum trace_flag */
	uint16_t switches; /* number of context switches of the worker between t_sip_in and t_sip_out */
	uint8_t event;     /* one of enum trace_event */
	/* One of enum trace_kind. `sipprobe watch` also stores the method or status in bits 3 to 7 (TRACE_METHODS). */
	uint8_t kind;
	/* Number of datagrams that the worker sent between t_sip_in and its next read from the socket, at most 255. */
	uint8_t n_send;
	/* The kernel's errno for a drop: ENOMEM (12, counter RcvbufErrors) or ENOBUFS (105, counter MemErrors). */
	uint8_t drop_reason;
} __attribute__((packed));
#endif
