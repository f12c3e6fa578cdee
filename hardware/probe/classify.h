/* SPDX-License-Identifier: MIT */
/* Functions that find kind, Call-ID and CSeq of a SIP message at the start of its text (RFC 3261). */
#ifndef SIPSCHED_CLASSIFY_H
#define SIPSCHED_CLASSIFY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sip_class {
	uint64_t call_id_hash; /* 64-bit FNV-1a hash of the Call-ID's value; 0 without a Call-ID */
	uint32_t cseq;         /* number in CSeq; 0 without CSeq */
	uint8_t kind;          /* one of enum trace_kind */
	bool complete;         /* whether the message has both Call-ID and CSeq */
};

/*
 * Classify a message by its first `size` bytes. A header counts only if its whole line is among these bytes, because an
 * incomplete Call-ID would have another hash.
 */
struct sip_class sip_classify(const char *text, size_t size);

/*
 * Return whether two messages have the same method or the same status code. The probe regards the first such message that a
 * worker sends after a receive as the forwarded message.
 */
bool sip_same_start(const char *a, size_t a_size, const char *b, size_t b_size);
#endif
