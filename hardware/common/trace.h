/* SPDX-License-Identifier: MIT */
/*
 * The trace of a run. The probe writes it, and src/sipsched/records/trace.py reads it.
 *
 * One header, then records of equal size in the order in which the probe wrote them. Numbers are little-endian without padding.
 * Times are CLOCK_MONOTONIC in ns, and 0 means that the time is unknown.
 * A trace of mode PRELOAD may end in zeros. It ends at the first record with t_sip_in = 0.
 * Raise TRACE_VERSION when a field changes, here and in src/sipsched/records/trace.py.
 */
#ifndef SIPSCHED_TRACE_H
#define SIPSCHED_TRACE_H
#include <stdint.h>

#define TRACE_MAGIC   "SIPTRACE"
#define TRACE_VERSION 1

enum trace_mode {
	TRACE_MODE_EXACT = 1,      /* fentry/fexit: all six timestamps are measured */
	TRACE_MODE_TRACEPOINT = 2, /* tracepoints only: t_sockq is a lower bound */
	TRACE_MODE_PRELOAD = 3,    /* no BPF: t_arr, t_sip_in, t_sip_out and a counter of drops */
	TRACE_MODE_STREAM = 4,     /* TCP, tracepoints: all six timestamps are measured */
};

enum trace_event {
	TRACE_EVENT_MESSAGE = 0, /* a datagram that a worker received */
	TRACE_EVENT_DROP = 1,    /* a datagram that the full socket queue refused (RcvbufErrors) */
};

/* The message of the datagram, by method, or by status code and the method in CSeq (RFC 3261). */
enum trace_kind {
	TRACE_KIND_OTHER = 0,
	TRACE_KIND_INVITE = 1,
	TRACE_KIND_180 = 2,
	TRACE_KIND_200_INVITE = 3,
	TRACE_KIND_ACK = 4,
	TRACE_KIND_BYE = 5,
	TRACE_KIND_200_BYE = 6,
};

enum trace_flag {
	TRACE_FLAG_SOCKQ_BOUND = 1 << 0, /* t_sockq is a lower bound */
	TRACE_FLAG_DUPLICATE =
		1 << 1,               /* an identical datagram was queued too, and the older one is assumed */
	TRACE_FLAG_NO_STACK = 1 << 2, /* the enqueueing was not seen: t_stack = t_arr */
	TRACE_FLAG_NO_SEND = 1 << 3,  /* no message of the same kind was sent: t_sip_out = t_dep = 0 */
	TRACE_FLAG_NO_DEP = 1 << 4,   /* the transfer to the driver was not seen: t_dep = 0 */
	TRACE_FLAG_MORE_SENDS = 1 << 5, /* more datagrams were sent than the probe keeps per message */
	TRACE_FLAG_UNMATCHED = 1 << 6,  /* no arrival was found: t_arr, t_stack, t_sockq = 0 */
	/* bits 7 and 8 belong to src/sipsched/records/messages.py */
	TRACE_FLAG_SHARED_READ = 1 << 9, /* TCP: the last read of this message completed other messages too */
	TRACE_FLAG_SPLIT = 1 << 10,      /* TCP: the message took more than one read */
	TRACE_FLAG_LEFT = 1 << 11,       /* TCP: another process sent the message on; off_cpu_ns = 0 */
};

struct trace_header {
	char magic[8];        /* TRACE_MAGIC */
	uint32_t version;     /* TRACE_VERSION */
	uint32_t record_size; /* sizeof(struct trace_record) */
	uint32_t mode;        /* enum trace_mode */
	uint32_t reserved; /* PRELOAD: the kernel's count of drops at the socket (SO_RXQ_OVFL); otherwise 0 */
} __attribute__((packed));

struct trace_record {
	uint64_t t_arr;        /* the driver passes the packet to the kernel */
	uint64_t t_stack;      /* queued at the socket; for a drop: refused by the socket */
	uint64_t t_sockq;      /* the worker takes it from the queue */
	uint64_t t_sip_in;     /* recv returns; 0 for a drop */
	uint64_t t_sip_out;    /* send is called for a message of the same kind */
	uint64_t t_dep;        /* this message is passed to the driver */
	uint64_t call_id_hash; /* 64-bit FNV-1a of the Call-ID; 0 without a Call-ID */
	uint32_t cseq;         /* number in CSeq */
	uint32_t tid;          /* the worker's thread id; 0 for a drop */
	uint32_t off_cpu_ns;   /* time off CPU between t_sip_in and t_sip_out; UINT32_MAX: this or longer */
	uint32_t rmem;         /* sk_rmem_alloc in bytes when queued or refused */
	uint16_t in_cost_ns;   /* the probe's work right after t_sip_in, which T_sip excludes */
	uint16_t out_cost_ns;  /* the probe's work right after t_sip_out, which K_snd excludes */
	uint16_t cpu;          /* CPU at t_sip_in, or at the drop */
	uint16_t length;       /* payload bytes */
	uint16_t flags;        /* enum trace_flag */
	uint16_t switches;     /* context switches of the worker between t_sip_in and t_sip_out */
	uint8_t event;         /* enum trace_event */
	uint8_t kind;          /* enum trace_kind */
	uint8_t n_send;        /* datagrams sent while the message was in service */
	uint8_t drop_reason;   /* for a drop: the kernel's errno value (12: RcvbufErrors, 105: MemErrors) */
} __attribute__((packed));
#endif
