/* SPDX-License-Identifier: MIT */
/*
 * The trace of a run, as the probe writes it and sipsched.records.trace reads it.
 *
 * One header, then fixed-size records in the order the probe emitted them, all little-endian and without
 * padding. Instants are CLOCK_MONOTONIC in ns; 0 means that the instant was not seen.
 * A trace of mode PRELOAD may end in zeros: cut it at the first record with t_sip_in = 0.
 * Raise TRACE_VERSION when a field changes, here and in src/sipsched/records/trace.py.
 */
#ifndef SIPSCHED_TRACE_H
#define SIPSCHED_TRACE_H
#include <stdint.h>

#define TRACE_MAGIC   "SIPTRACE"
#define TRACE_VERSION 1

enum trace_mode {
	TRACE_MODE_EXACT = 1,      /* fentry/fexit: all six stamps measured */
	TRACE_MODE_TRACEPOINT = 2, /* tracepoints only: t_sockq is a lower bound */
	TRACE_MODE_PRELOAD = 3,    /* no BPF: t_arr, t_sip_in, t_sip_out and the drop counter */
	TRACE_MODE_STREAM = 4,     /* over TCP: tracepoints; all six stamps measured */
};

enum trace_event {
	TRACE_EVENT_MESSAGE = 0, /* a datagram that a worker received */
	TRACE_EVENT_DROP = 1,    /* a datagram that the full socket queue refused (RcvbufErrors) */
};

/* What the datagram was; by method, or by status code and the method in CSeq (RFC 3261). */
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
	TRACE_FLAG_DUPLICATE = 1 << 1,   /* an identical datagram was queued too: matched oldest first */
	TRACE_FLAG_NO_STACK = 1 << 2,    /* the enqueue was not seen: t_stack = t_arr */
	TRACE_FLAG_NO_SEND = 1 << 3,     /* nothing of this kind was sent on: t_sip_out = t_dep = 0 */
	TRACE_FLAG_NO_DEP = 1 << 4,      /* the hand-over to the driver was not seen: t_dep = 0 */
	TRACE_FLAG_MORE_SENDS = 1 << 5,  /* more datagrams were sent than the probe keeps for a message */
	TRACE_FLAG_UNMATCHED = 1 << 6,   /* no arrival found: t_arr, t_stack, t_sockq = 0 */
	/* 7 and 8 are those of sipsched.records.messages */
	TRACE_FLAG_SHARED_READ = 1 << 9, /* over TCP: its read completed other messages, too */
	TRACE_FLAG_SPLIT = 1 << 10,      /* over TCP: it took more than one read */
	TRACE_FLAG_LEFT = 1 << 11,       /* over TCP: another process sent it on; off_cpu_ns = 0 */
};

struct trace_header {
	char magic[8];        /* TRACE_MAGIC */
	uint32_t version;     /* TRACE_VERSION */
	uint32_t record_size; /* sizeof(struct trace_record) */
	uint32_t mode;        /* enum trace_mode */
	uint32_t reserved;    /* PRELOAD: drops the kernel counted for the socket (SO_RXQ_OVFL); else 0 */
} __attribute__((packed));

struct trace_record {
	uint64_t t_arr;        /* the driver hands the packet up */
	uint64_t t_stack;      /* queued at the socket; of a drop: refused by it */
	uint64_t t_sockq;      /* taken from the queue by the worker */
	uint64_t t_sip_in;     /* recv returns; 0 in a drop */
	uint64_t t_sip_out;    /* send is called, for the datagram of the received kind */
	uint64_t t_dep;        /* that datagram is handed to the driver */
	uint64_t call_id_hash; /* FNV-1a, 64 bits, of the Call-ID header's value; 0 if there is none */
	uint32_t cseq;         /* number in CSeq */
	uint32_t tid;          /* the worker's thread id; 0 in a drop */
	uint32_t off_cpu_ns;   /* time off CPU between t_sip_in and t_sip_out; UINT32_MAX: at least that */
	uint32_t rmem;         /* sk_rmem_alloc in bytes when queued or refused */
	uint16_t in_cost_ns;   /* the probe's own work right after t_sip_in: not part of T_sip */
	uint16_t out_cost_ns;  /* the probe's own work right after t_sip_out: not part of K_snd */
	uint16_t cpu;          /* CPU at t_sip_in, or of the drop */
	uint16_t length;       /* payload bytes */
	uint16_t flags;        /* enum trace_flag */
	uint16_t switches;     /* times switched out between t_sip_in and t_sip_out */
	uint8_t event;         /* enum trace_event */
	uint8_t kind;          /* enum trace_kind */
	uint8_t n_send;        /* datagrams sent while the message was in service */
	uint8_t drop_reason;   /* in a drop: errno value the kernel gave (12: RcvbufErrors, 105: MemErrors) */
} __attribute__((packed));
#endif
