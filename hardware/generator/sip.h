/* SPDX-License-Identifier: MIT */
/*
 * A parser of SIP messages (RFC 3261). Every span points into the text of the message.
 *
 * The parser does not trust the text, and reads no byte outside of the text. The parser refuses an incomplete message,
 * and a message without one of the required headers Via, From, To, Call-ID and CSeq (8.1.1). The parser accepts compact
 * header names, folded lines, bare LF, blanks before the colon, and lists with commas.
 */
#ifndef SIPSCHED_SIP_H
#define SIPSCHED_SIP_H
#include "../common/span.h"

#define SIP_LINES_MAX   32    /* largest number of Via lines, and of Record-Route lines, in one message */
#define SIP_MESSAGE_MAX 65535 /* largest datagram or message in a stream, in bytes */

enum sip_method {
	SIP_METHOD_OTHER,
	SIP_METHOD_INVITE,
	SIP_METHOD_ACK,
	SIP_METHOD_BYE,
};

/* The kinds of messages that agents count. The first seven are as in enum trace_kind (../common/trace.h). */
enum sip_kind {
	SIP_KIND_OTHER = 0,
	SIP_KIND_INVITE = 1,
	SIP_KIND_180 = 2,
	SIP_KIND_200_INVITE = 3, /* any 2xx answer to INVITE */
	SIP_KIND_ACK = 4,
	SIP_KIND_BYE = 5,
	SIP_KIND_200_BYE = 6, /* any 2xx answer to BYE */
	SIP_KIND_100 = 7,
	SIP_KIND_FAILURE = 8, /* a status code from 300 to 699 */
	SIP_KINDS = 9,
};

struct sip_message {
	bool is_request;
	enum sip_method method; /* the request's method; for a response, the method in its CSeq */
	enum sip_kind kind;
	unsigned status; /* status code from 100 to 699; 0 for a request */
	struct span call_id;
	struct span from;
	struct span from_tag; /* empty if the From header has no tag */
	struct span to;
	struct span to_tag; /* empty if the To header has no tag */
	struct span cseq;
	struct span contact; /* URI of the first Contact; empty without a Contact */
	struct span branch;  /* branch of the topmost Via; empty if this Via has no branch */
	struct span body;
	struct span via[SIP_LINES_MAX];          /* values of the Via lines, from top to bottom */
	struct span record_route[SIP_LINES_MAX]; /* values of the Record-Route lines, from top to bottom */
	unsigned n_via;
	unsigned n_record_route;
	uint32_t cseq_number;
	uint64_t call_id_hash; /* span_hash() of the Call-ID */
};

/* Parse a whole message. Return false if the text is no valid SIP message. */
bool sip_parse(const char *text, size_t size, struct sip_message *message);

/*
 * Remove the first element from a list with commas. Commas in quotes and in <> do not separate elements. Return false at
 * the end of the list.
 */
bool sip_next_element(struct span *list, struct span *element);
#endif
