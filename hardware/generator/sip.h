/* SPDX-License-Identifier: MIT */
/*
 * A SIP message read in place (RFC 3261): every span points into the text it was read from.
 *
 * The text may come from anyone. Nothing outside it is read; a message that is not whole, or lacks one of the
 * headers each message must have (8.1.1: Via, From, To, Call-ID, CSeq), is refused as a whole.
 * Compact header names, folded lines, bare LF, blanks before the colon and comma lists are understood.
 */
#ifndef SIPSCHED_SIP_H
#define SIPSCHED_SIP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIP_LINES_MAX   32    /* Via lines, and Record-Route lines, of one message */
#define SIP_MESSAGE_MAX 65535 /* bytes; a datagram cannot be longer, a message in a stream may not be */

/* A piece of text: never zero-terminated, never read at or past end. */
struct span {
	const char *at;
	const char *end;
};

enum sip_method {
	SIP_METHOD_OTHER,
	SIP_METHOD_INVITE,
	SIP_METHOD_ACK,
	SIP_METHOD_BYE,
};

/* What a message counts as. The first seven have the numbers of enum trace_kind (hardware/probe/trace.h). */
enum sip_kind {
	SIP_KIND_OTHER = 0,
	SIP_KIND_INVITE = 1,
	SIP_KIND_180 = 2,
	SIP_KIND_200_INVITE = 3, /* any 2xx */
	SIP_KIND_ACK = 4,
	SIP_KIND_BYE = 5,
	SIP_KIND_200_BYE = 6, /* any 2xx */
	SIP_KIND_100 = 7,
	SIP_KIND_FAILURE = 8, /* 300 to 699 */
	SIP_KINDS = 9,
};

struct sip_message {
	bool is_request;
	enum sip_method method; /* of the request, or of the request that is answered (CSeq) */
	enum sip_kind kind;
	unsigned status; /* 100 to 699; 0 in a request */
	struct span call_id;
	struct span from;
	struct span from_tag; /* empty if there is none */
	struct span to;
	struct span to_tag; /* empty if there is none */
	struct span cseq;
	struct span contact; /* URI of the first Contact; empty if there is none */
	struct span branch;  /* of the topmost Via; empty if there is none */
	struct span body;
	struct span via[SIP_LINES_MAX];          /* values of the header lines, in their order */
	struct span record_route[SIP_LINES_MAX]; /* the same */
	unsigned n_via;
	unsigned n_record_route;
	uint32_t cseq_number;
	uint64_t call_id_hash; /* FNV-1a, 64 bits, as in hardware/probe/classify.c */
};

enum sip_frame {
	SIP_FRAME_PARTIAL, /* more of the stream is needed */
	SIP_FRAME_WHOLE,
	SIP_FRAME_BROKEN, /* no message can be cut from this stream any more */
};

/* Read a whole message. False: it is none. */
bool sip_parse(const char *text, size_t size, struct sip_message *message);

/*
 * Cut a message off the front of a stream, by its Content-Length (18.3), which none may lack.
 * `skip` gets the bytes of empty lines before it (7.5), `length` its own bytes.
 */
enum sip_frame sip_cut_frame(const char *text, size_t size, size_t *skip, size_t *length);

/* Cut the next element off a comma list; commas in quotes and in <> do not count. False: none is left. */
bool sip_next_element(struct span *list, struct span *element);

uint64_t sip_hash(struct span s);

static inline size_t span_size(struct span s)
{
	return (size_t)(s.end - s.at);
}
#endif
