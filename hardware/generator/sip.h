/* SPDX-License-Identifier: MIT */
/*
 * A parser of SIP messages (RFC 3261). Every span points into the text of the message.
 *
 * The text is untrusted, so the parser reads no byte outside of it. An incomplete message is refused, and so is a message without
 * a required header (8.1.1: Via, From, To, Call-ID, CSeq). The parser accepts compact header names, folded lines, bare LF, blanks
 * before the colon, and lists with commas.
 */
#ifndef SIPSCHED_SIP_H
#define SIPSCHED_SIP_H
#include "../common/span.h"

#define SIP_LINES_MAX   32    /* largest number of Via lines, and of Record-Route lines, per message */
#define SIP_MESSAGE_MAX 65535 /* bytes, for datagrams and for messages in streams */

enum sip_method {
	SIP_METHOD_OTHER,
	SIP_METHOD_INVITE,
	SIP_METHOD_ACK,
	SIP_METHOD_BYE,
};

/* The kinds of messages that are counted. The first seven have the numbers of enum trace_kind (../common/trace.h). */
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
	enum sip_method method; /* of the request, or of the request that a response answers (CSeq) */
	enum sip_kind kind;
	unsigned status; /* 100 to 699; 0 for a request */
	struct span call_id;
	struct span from;
	struct span from_tag; /* empty if absent */
	struct span to;
	struct span to_tag; /* empty if absent */
	struct span cseq;
	struct span contact; /* URI of the first Contact; empty if absent */
	struct span branch;  /* of the topmost Via; empty if absent */
	struct span body;
	struct span via[SIP_LINES_MAX];          /* values of the Via lines, in their order */
	struct span record_route[SIP_LINES_MAX]; /* values of the Record-Route lines, in their order */
	unsigned n_via;
	unsigned n_record_route;
	uint32_t cseq_number;
	uint64_t call_id_hash; /* span_hash() of the Call-ID */
};

/* Parse a whole message. Return false if the text is not a valid message. */
bool sip_parse(const char *text, size_t size, struct sip_message *message);

/*
 * Cut the next element off a list with commas. Commas in quotes and in <> do not separate. Return false at the end
 * of the list.
 */
bool sip_next_element(struct span *list, struct span *element);
#endif
