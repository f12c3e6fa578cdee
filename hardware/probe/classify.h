/* SPDX-License-Identifier: MIT */
/* Functions that read the kind, Call-ID and CSeq of a SIP message from the start of its text (RFC 3261). */
#ifndef SIPSCHED_CLASSIFY_H
#define SIPSCHED_CLASSIFY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A secret key for hashes. Without the key, nobody can learn anything about a Call-ID from its hash. */
struct sip_key {
	uint64_t half[2];
};

struct sip_class {
	uint64_t
		call_id_hash; /* 64-bit FNV-1a of the Call-ID's value, or SipHash with a key; 0 without a Call-ID */
	uint32_t cseq;        /* number in the CSeq header, or its hash if a key is used; 0 without CSeq */
	uint8_t kind; /* enum trace_kind; if a key is used, the upper bits hold the method or status (trace.h) */
	bool complete; /* true: the message has both Call-ID and CSeq */
};

/* Return the SipHash-2-4 (Aumasson and Bernstein, 2012) of `size` bytes. */
uint64_t sip_keyed_hash(const struct sip_key *key, const void *bytes, size_t size);

/*
 * Return the class of a message, given its first `size` bytes. Use a header only if its whole line is among these bytes,
 * because an incomplete Call-ID would have another hash. If the key is NULL, the hash is FNV-1a.
 */
struct sip_class sip_classify(const char *text, size_t size, const struct sip_key *key);

/*
 * Return whether two messages have the same method or the same status code. After a worker receives a message, the probe
 * regards the first sent message with the same method or status code as the forwarded message.
 */
bool sip_same_start(const char *a, size_t a_size, const char *b, size_t b_size);
#endif
