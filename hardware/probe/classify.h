/* SPDX-License-Identifier: MIT */
/* Recognises a SIP message by the start of its text (RFC 3261). */
#ifndef SIPSCHED_CLASSIFY_H
#define SIPSCHED_CLASSIFY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sip_class {
	uint64_t call_id_hash; /* 64-bit FNV-1a of the Call-ID's value; 0 if it is missing */
	uint32_t cseq;         /* number in CSeq; 0 if it is missing */
	uint8_t kind;          /* enum trace_kind */
	bool complete;         /* the message has both Call-ID and CSeq */
};

/*
 * Classify a message by its first `size` bytes. A header counts only if its whole line is among these bytes, because an
 * incomplete Call-ID would have another hash.
 */
struct sip_class sip_classify(const char *text, size_t size);

/*
 * Return whether two messages have the same method, or the same status code. After a worker received a message, the first sent
 * message for which this function returns true is the forwarded message.
 */
bool sip_same_start(const char *a, size_t a_size, const char *b, size_t b_size);
#endif
