/* SPDX-License-Identifier: MIT */
/* Functions that find kind, Call-ID and CSeq of a SIP message at the start of its text (RFC 3261). */
#ifndef SIPSCHED_CLASSIFY_H
#define SIPSCHED_CLASSIFY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A secret key. A hash of the Call-ID with this key reveals nothing about the Call-ID. */
struct sip_key {
	uint64_t half[2];
};

struct sip_class {
	uint64_t
		call_id_hash; /* 64-bit FNV-1a of the Call-ID's value, or SipHash if a key is used; 0 without a Call-ID */
	uint32_t cseq; /* number in CSeq, or its hash with a key; 0 without CSeq */
	uint8_t kind;  /* enum trace_kind; with a key, its upper bits have the method or status (trace.h) */
	bool complete; /* true: the message has both Call-ID and CSeq */
};

/* Return SipHash-2-4 (Aumasson and Bernstein, 2012) of some bytes. */
uint64_t sip_keyed_hash(const struct sip_key *key, const void *bytes, size_t size);

/*
 * Classify a message by its first `size` bytes. A header counts only if its whole line is among these bytes, because an
 * incomplete Call-ID would have another hash. Without a key (NULL), hashes are FNV-1a.
 */
struct sip_class sip_classify(const char *text, size_t size, const struct sip_key *key);

/*
 * Return whether two messages have the same method or the same status code. The probe regards the first such message
 * that a worker sends after a receive as the forwarded message.
 */
bool sip_same_start(const char *a, size_t a_size, const char *b, size_t b_size);
#endif
