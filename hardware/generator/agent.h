/* SPDX-License-Identifier: MIT */
/* What the client and the server have in common: how they are timed, what they count, where they write. */
#ifndef SIPSCHED_AGENT_H
#define SIPSCHED_AGENT_H
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sip.h"

#define NS_PER_US       1000ULL
#define NS_PER_MS       1000000ULL
#define NS_PER_S        1000000000ULL
#define OUTBOX_MESSAGES 64
#define OUTBOX_BYTES    8192 /* the longest message that is written */
#define ERRNO_MAX       134
#define NO_CONNECTION   UINT32_MAX

/* RFC 3261, table 4. */
struct timing {
	uint64_t t1_ns;
	uint64_t t2_ns;
	uint64_t t4_ns;
	bool retransmissions; /* timers A, E and the 2xx of 13.3.1.4 */
	bool reliable;        /* TCP: no timers A and E; D, K are zero */
};

/* Where a message came from or goes to. */
struct peer {
	struct sockaddr_in address; /* UDP, and of a TCP server's clients */
	uint32_t connection;        /* TCP; else NO_CONNECTION */
	uint32_t generation;        /* of the connection: a number is used again */
};

/* Of one thread; summed at the end. */
struct counts {
	uint64_t sent[SIP_KINDS];           /* for the first time, and taken whole by the kernel */
	uint64_t sent_again[SIP_KINDS];     /* retransmissions */
	uint64_t not_sent[SIP_KINDS];       /* refused by the kernel, or its connection is gone */
	uint64_t received[SIP_KINDS];       /* for the first time */
	uint64_t received_again[SIP_KINDS]; /* retransmissions */
	uint64_t unexpected[SIP_KINDS];     /* fits no call, or not its state */
	uint64_t unparsable;                /* no whole SIP message */
	uint64_t overtaken;                 /* client: of those received, 180 after the final answer */
	uint64_t too_long;                  /* an answer longer than OUTBOX_BYTES was not sent */
	uint64_t calls_refused;             /* server: more calls than it keeps */
	uint64_t calls_begun;               /* server */
	uint64_t calls_ended;               /* server: BYE was answered */
	uint64_t calls_no_ack;              /* server: no ACK for 64 T1 */
	uint64_t calls_split;               /* server: ACK or BYE came from another address than INVITE */
	uint64_t connections;               /* TCP: opened or accepted */
	uint64_t connections_again;      /* TCP, client: of them, those in the place of one that was lost */
	uint64_t connections_lost;       /* TCP: could not be opened, broke, or the server closed it */
	uint64_t connections_cut;        /* TCP: ended within a message */
	uint64_t blocked;                /* TCP: times that a send buffer was full */
	uint64_t blocked_ns;             /* and how long messages waited for it in all */
	uint64_t send_errors[ERRNO_MAX]; /* by errno */
	uint64_t receive_errors[ERRNO_MAX]; /* by errno: ICMP errors show here */
};

struct outgoing {
	struct peer to;
	size_t size;
	enum sip_kind kind;
	bool again;
	char text[OUTBOX_BYTES];
};

/* Messages that wait to be sent together. */
struct outbox {
	/* send the first `count` that wait, and count them; with none left, first = used = 0 */
	void (*flush)(struct outbox *outbox, unsigned count);
	void *owner; /* whose flush it is */
	struct counts *counts;
	unsigned first; /* that waits */
	unsigned used;
	struct outgoing messages[OUTBOX_MESSAGES];
};

/* Writes a message at the end of an outbox. */
struct writer {
	struct outgoing *message;
	char *at;
	char *end;
	bool full;
};

static inline unsigned outbox_waiting(const struct outbox *outbox)
{
	return outbox->used - outbox->first;
}

struct writer writer_open(struct outbox *outbox);
void write_bytes(struct writer *w, const char *bytes, size_t size);
void write_hex(struct writer *w, uint64_t value, int digits);
void write_number(struct writer *w, uint64_t value);
/* Put the message into the outbox; a too long one is counted and forgotten. */
void writer_close(struct outbox *outbox, struct writer *w, const struct peer *to, enum sip_kind kind,
		  bool again);

/* A text that is known when compiling. */
#define write_literal(w, literal) write_bytes(w, literal, sizeof(literal) - 1)

static inline void write_span(struct writer *w, struct span s)
{
	write_bytes(w, s.at, span_size(s));
}

/* The end of the headers and a session description (RFC 4566) of the size that SIPp sends. */
void write_session(struct writer *w, const char *user, struct span host);

void counts_add(struct counts *sum, const struct counts *one);
#endif
