/* SPDX-License-Identifier: MIT */
/*
 * The format of the file in which `sipload uac` records its calls.
 *
 * The file has one header and then one record per call of the schedule, including calls that were not started. Numbers are
 * little-endian without padding. Times are CLOCK_MONOTONIC in ns, and 0 means that the event did not happen.
 * Raise CALLS_VERSION here and in src/sipsched/measure/generator.py when a field changes.
 */
#ifndef SIPSCHED_CALLS_H
#define SIPSCHED_CALLS_H
#include <stdint.h>

#define CALLS_MAGIC   "SIPCALLS"
#define CALLS_VERSION 1

enum call_outcome {
	CALL_NOT_STARTED = 0,     /* the run ended before the start of this call */
	CALL_COMPLETED = 1,       /* the callee answered BYE with 2xx */
	CALL_TIMEOUT_INVITE = 2,  /* timer B expired: INVITE had no answer for 64 T1 */
	CALL_TIMEOUT_BYE = 3,     /* timer F expired: BYE had no final answer for 64 T1 */
	CALL_REJECTED_INVITE = 4, /* the callee rejected INVITE with a code from 300 to 699 */
	CALL_REJECTED_BYE = 5,    /* the callee rejected BYE with a code from 300 to 699 */
	CALL_UNFINISHED = 6,      /* the call was still open when the run ended */
	CALL_NO_CONNECTION = 7,   /* TCP: the connection failed to open or was lost */
	CALL_OUTCOMES = 8,
};

struct calls_header {
	char magic[8];        /* always CALLS_MAGIC */
	uint32_t version;     /* always CALLS_VERSION */
	uint32_t record_size; /* always sizeof(struct call_record) */
	uint64_t count;       /* number of records after this header */
	uint64_t t0;          /* start of the schedule; a call starts at t0 plus the call's offset */
} __attribute__((packed));

struct call_record {
	uint64_t t_intended; /* planned start: t0 + the call's offset in the schedule */
	/* Time of the first send of INVITE. If each call has its own TCP connection, the time of connect(). */
	uint64_t t_invite;
	uint64_t t_first_response; /* first answer to INVITE, often with code 100 */
	uint64_t t_ringing;        /* first answer with code 180 */
	uint64_t t_ok_invite;      /* first 2xx answer to INVITE */
	uint64_t t_ack;            /* first send of ACK */
	uint64_t t_bye;            /* first send of BYE */
	uint64_t t_ok_bye;         /* first final answer to BYE */
	uint64_t call_id_hash;     /* 64-bit FNV-1a of the Call-ID, as in the probe's trace */
	/* Status code of the final answer that decided the outcome; 0 if no final answer arrived. */
	uint16_t status;
	uint16_t invite_again; /* number of retransmissions of INVITE */
	uint16_t bye_again;    /* number of retransmissions of BYE */
	uint16_t ok_again;     /* number of repeated 2xx answers to INVITE, each of which got an ACK */
	uint8_t outcome;       /* one of enum call_outcome */
	uint8_t thread;        /* number of the generator's thread that made the call, from 0 */
	uint16_t reserved[3];  /* always 0 */
};

_Static_assert(sizeof(struct call_record) == 88, "a record has no padding");
#endif
