/* SPDX-License-Identifier: MIT */
/*
 * The file of calls that `sipload uac` writes.
 *
 * One header, then one record per call of the schedule, including calls that were not started. Numbers are little-endian without
 * padding. Times are CLOCK_MONOTONIC in ns, and 0 means that the event did not happen.
 * Raise CALLS_VERSION when a field changes, here and in src/sipsched/measure/generator.py.
 */
#ifndef SIPSCHED_CALLS_H
#define SIPSCHED_CALLS_H
#include <stdint.h>

#define CALLS_MAGIC   "SIPCALLS"
#define CALLS_VERSION 1

enum call_outcome {
	CALL_NOT_STARTED = 0,     /* the run ended before the start of the call */
	CALL_COMPLETED = 1,       /* BYE was answered with 2xx */
	CALL_TIMEOUT_INVITE = 2,  /* timer B: no answer to INVITE for 64 T1 */
	CALL_TIMEOUT_BYE = 3,     /* timer F: no final answer to BYE for 64 T1 */
	CALL_REJECTED_INVITE = 4, /* `status` is 300 to 699 */
	CALL_REJECTED_BYE = 5,    /* `status` is 300 to 699 */
	CALL_UNFINISHED = 6,      /* still open when the run ended */
	CALL_NO_CONNECTION = 7,   /* TCP: the connection could not be opened or was lost */
	CALL_OUTCOMES = 8,
};

struct calls_header {
	char magic[8];        /* CALLS_MAGIC */
	uint32_t version;     /* CALLS_VERSION */
	uint32_t record_size; /* sizeof(struct call_record) */
	uint64_t count;       /* number of records that follow */
	uint64_t t0;          /* the schedule's offsets count from this time */
} __attribute__((packed));

struct call_record {
	uint64_t t_intended; /* t0 + the schedule's offset */
	uint64_t t_invite;   /* INVITE is passed to the socket; with one connection per call: connect() */
	uint64_t t_first_response; /* the first answer to INVITE, often 100 */
	uint64_t t_ringing;        /* the first 180 */
	uint64_t t_ok_invite;      /* the first 2xx */
	uint64_t t_ack;            /* the first ACK is sent */
	uint64_t t_bye;            /* the first BYE is sent */
	uint64_t t_ok_bye;         /* the first final answer to BYE */
	uint64_t call_id_hash;     /* 64-bit FNV-1a of the Call-ID, as in the probe's trace */
	uint16_t status;       /* status code of the final answer that decided the outcome; 0 without one */
	uint16_t invite_again; /* retransmissions of INVITE */
	uint16_t bye_again;    /* retransmissions of BYE */
	uint16_t ok_again;     /* repeated 2xx to INVITE, each of which was acknowledged */
	uint8_t outcome;       /* enum call_outcome */
	uint8_t thread;        /* number of the thread that made the call, from 0 */
	uint16_t reserved[3];  /* 0 */
};

_Static_assert(sizeof(struct call_record) == 88, "a record has no padding");
#endif
