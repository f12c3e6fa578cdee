/* SPDX-License-Identifier: MIT */
/* What a SIP datagram is, from the start of its text (RFC 3261). */
#ifndef SIPSCHED_CLASSIFY_H
#define SIPSCHED_CLASSIFY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sip_class {
	uint64_t call_id_hash; /* FNV-1a, 64 bits, of the Call-ID's value; 0 if none was found */
	uint32_t cseq;         /* number in CSeq; 0 if none was found */
	uint8_t kind;          /* enum trace_kind */
	bool complete;         /* both Call-ID and CSeq were found */
};

/*
 * Classify the first `size` bytes of a datagram; reads nothing past them.
 * A header whose line does not end inside them counts as not found: half a Call-ID would hash to another
 * call.
 */
struct sip_class sip_classify(const char *text, size_t size);

/*
 * Whether two datagrams start alike: requests of the same method, or responses with the same status code.
 * Of a message in service, the first datagram sent that starts like the received one is the forwarded one.
 */
bool sip_same_start(const char *a, size_t a_size, const char *b, size_t b_size);
#endif
